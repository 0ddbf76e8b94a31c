"""Errors as the API answers them: a status, a stable code, and a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse
from typing_extensions import TypedDict

import mcpvectordb as library
from mcpvectordb import MCPVectorDBError


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


# The first that fits decides.
_STATUSES: dict[int, tuple[type[MCPVectorDBError], ...]] = {
    404: (library.NotFound,),
    403: (library.ReadOnly, library.Refused),
    409: (library.Exists,),
    413: (library.TooLarge,),
    400: (library.InvalidInput,),
    422: (library.IngestError,),
    503: (library.ReadTimeout, library.Busy, library.Closed, library.ModelError),
    507: (library.Unwritable,),
}


def error_reply(error: Exception) -> ErrorReply:
    """What the API says of an error; of one that is not ours only that there was one."""
    if isinstance(error, MCPVectorDBError):
        return ErrorReply(code=error.code, message=str(error))
    return ErrorReply(
        code="internal", message="internal error; the terminal of `mcpvectordb web` shows more"
    )


def refusal(error: Exception, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a request that failed."""
    status = next((each for each, kinds in _STATUSES.items() if isinstance(error, kinds)), 500)
    if isinstance(error, HttpError):
        status = error.status
    return JSONResponse(ErrorBody(error=error_reply(error)), status, headers=dict(headers or {}))
