"""All errors of the library; each has a stable `code` and subclasses the matching builtin error.

The code is the name of the class in snake case: `InvalidFilter.code` is "invalid_filter".
"""

import re

LONGEST_QUOTE = 200
"""Most characters that an error message repeats of a value it was given."""


def quoted(value: object) -> str:
    """`value` as Python writes it, for an error message; of a long one the beginning."""
    try:
        text = repr(value[: LONGEST_QUOTE + 1] if isinstance(value, str) else value)
    except ValueError:  # Python writes no whole numbers of more than 4,300 digits
        return "a number of thousands of digits"
    if len(text) <= LONGEST_QUOTE:
        return text
    return f"{text[:LONGEST_QUOTE]}… (shortened)"


class MCPVectorDBError(Exception):
    """Base class of every error that this library raises on purpose."""

    code = "error"

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:  # a subclass elsewhere is the same error to a program
            words = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
            cls.code = words.removesuffix("_error")


class InvalidInput(MCPVectorDBError, ValueError):
    """An argument cannot be used as it is; the message names it and what is allowed."""


class InvalidFilter(InvalidInput):
    """A `where` condition has an unknown field or operator, or a value of the wrong type."""


class NotFound(MCPVectorDBError, LookupError):
    """No item has the given id."""


class ReadTimeout(MCPVectorDBError, TimeoutError):
    """A read took longer than `Config.read_timeout` and was stopped; nothing was changed."""


class DatabaseError(MCPVectorDBError):
    """The database file cannot be used as requested."""


class NotOurFile(DatabaseError):
    """The file is not an mcpvectordb database; it was not changed."""


class NewerFile(DatabaseError):
    """The file was written by a newer version of mcpvectordb."""


class Damaged(DatabaseError):
    """The file's content is inconsistent: run `check`, then `rebuild`, or restore a copy."""


class ReadOnly(DatabaseError, PermissionError):
    """The file is open for reading only."""


class Unwritable(DatabaseError, OSError):
    """The disk is full, or the file or its folder cannot be written."""


class Busy(DatabaseError, TimeoutError):
    """Other processes held the file's write lock for too long."""


class Unreachable(DatabaseError, ConnectionError):
    """The PostgreSQL server cannot be reached, refused the login, or cut the connection."""


class Closed(DatabaseError):
    """The Database is closed."""


class IngestError(MCPVectorDBError):
    """A source could not be ingested; nothing of it was stored."""


class Unreadable(IngestError, OSError):
    """The path is missing, a folder, a device, or not readable."""


class Refused(IngestError, PermissionError):
    """The safety rules do not allow this path or URL."""


class Exists(IngestError, FileExistsError):
    """A document of the library has this source with another text; it was not to be replaced."""


class TooLarge(IngestError, ValueError):
    """The source is above the size limit."""


class UnsupportedFormat(IngestError, ValueError):
    """There is no parser for this format; the message lists the supported ones."""


class ParseFailed(IngestError, ValueError):
    """The content is encrypted or damaged, or it exceeds a limit of the parser.

    `settled` says that reading it again would end alike; a time limit may be met another time.
    """

    settled: bool = True


class NoText(IngestError, ValueError):
    """The source has no text to search; `images` of its `pages` could be read by OCR."""

    pages: int = 0
    images: tuple[int, ...] = ()


class FetchFailed(IngestError, OSError):
    """The network or the server failed."""


class RetryLater(FetchFailed):
    """The host may be asked for its next page in so many `seconds`, and nobody waited."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class ModelError(MCPVectorDBError):
    """An embedding model cannot be used."""


class ModelMissing(ModelError, LookupError):
    """The model is unknown or its files are not installed; the message says how to get them."""


class EndpointFailed(ModelMissing):
    """A model's endpoint cannot be asked or gave no usable answer; what it should embed waits."""


class ModelDamaged(ModelError, ValueError):
    """A model file does not have the SHA-256 digest given in the catalogue."""


class EmbeddingFailed(ModelError, RuntimeError):
    """The embedder returned the wrong shape, or values that cannot be ranked."""
