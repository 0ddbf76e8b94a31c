"""Errors as the API answers them: a status, a stable code, and a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse
from typing_extensions import TypedDict

from mcpvectordb import (
    Busy,
    Closed,
    Damaged,
    Exists,
    IngestError,
    InvalidInput,
    MCPVectorDBError,
    ModelError,
    NotFound,
    ReadOnly,
    ReadTimeout,
    Refused,
    TooLarge,
    Unwritable,
)


class ErrorReply(TypedDict):
    """What went wrong: a code for programs, a sentence for people."""

    code: str
    message: str


class ErrorBody(TypedDict):
    """The body of every answer that is no success."""

    error: ErrorReply


class HttpError(MCPVectorDBError):
    """A request that is answered with this status before anything is asked of the library."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


# The first class that fits decides.
_STATUSES: tuple[tuple[type[MCPVectorDBError], int], ...] = (
    (NotFound, 404),
    (ReadOnly, 403),
    (Refused, 403),
    (Exists, 409),
    (TooLarge, 413),
    (InvalidInput, 400),
    (IngestError, 422),
    (ReadTimeout, 503),
    (Busy, 503),
    (Closed, 503),
    (ModelError, 503),
    (Damaged, 500),
    (Unwritable, 507),
)


def error_reply(error: Exception) -> ErrorReply:
    """What the API says of an error; of one that is not ours only that there was one."""
    if isinstance(error, MCPVectorDBError):
        return ErrorReply(code=error.code, message=str(error))
    return ErrorReply(
        code="internal", message="internal error; the terminal of `mcpvectordb web` shows more"
    )


def refusal(error: Exception, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a request that failed."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    if isinstance(error, HttpError):
        status = error.status
    return JSONResponse(ErrorBody(error=error_reply(error)), status, headers=dict(headers or {}))
