"""What can go wrong, as a tree; each class carries a stable `code` and is also the builtin a caller
would catch.

MCPVectorDBError
├── InvalidInput (ValueError)            an argument cannot be used as it is
│   └── InvalidFilter                    a `where` condition cannot be understood
├── NotFound (LookupError)               no item has this id
├── DatabaseError                        the file
│   ├── NotOurFile                       another program's file, or no database at all
│   ├── NewerFile                        written by a newer mcpvectordb
│   ├── Damaged                          the file's content contradicts itself
│   ├── ReadOnly (PermissionError)       a change was asked of a file opened for reading
│   ├── Unwritable (OSError)             disk full, no permission, vanished folder
│   ├── Busy (TimeoutError)              other processes kept the file locked
│   └── Closed                           the Database was closed before
├── IngestError                          one source could not be brought in
│   ├── Unreadable (OSError)             missing, a folder, no permission, a device
│   ├── Refused (PermissionError)        a path or URL the safety rules do not allow
│   ├── TooLarge (ValueError)            above a size limit
│   ├── UnsupportedFormat (ValueError)   a type we cannot read
│   ├── ParseFailed (ValueError)         encrypted, damaged, or over the parser's limits
│   ├── NoText (ValueError)              nothing in it to search
│   └── FetchFailed (OSError)            the network or the other server failed
└── ModelError                           embedding
    ├── ModelMissing (LookupError)       no such model, or its files are not on this machine
    ├── ModelDamaged (ValueError)        a file's digest is not the expected one
    └── EmbeddingFailed (RuntimeError)   the embedder returned something that cannot be ranked
"""


class MCPVectorDBError(Exception):
    """Base of every error this library raises on purpose."""

    code = "error"


class InvalidInput(MCPVectorDBError, ValueError):
    """An argument cannot be used as it is; the message names it and what is allowed."""

    code = "invalid_input"


class InvalidFilter(InvalidInput):
    """A `where` condition names an unknown field or operator, or a value that does not fit it."""

    code = "invalid_filter"


class NotFound(MCPVectorDBError, LookupError):
    """No item has the given id."""

    code = "not_found"


class DatabaseError(MCPVectorDBError):
    """Something about the database file."""

    code = "database"


class NotOurFile(DatabaseError):
    """The file is not a mcpvectordb database; it was left as it is."""

    code = "not_our_file"


class NewerFile(DatabaseError):
    """The file was written by a newer version of mcpvectordb."""

    code = "newer_file"


class Damaged(DatabaseError):
    """The file contradicts itself: run `check`, then `rebuild`, or go back to a copy."""

    code = "damaged"


class ReadOnly(DatabaseError, PermissionError):
    """The file is open for reading only."""

    code = "read_only"


class Unwritable(DatabaseError, OSError):
    """The disk is full, or the file or its folder cannot be written."""

    code = "unwritable"


class Busy(DatabaseError, TimeoutError):
    """Other processes held the file's write lock for too long."""

    code = "busy"


class Closed(DatabaseError):
    """The Database was closed."""

    code = "closed"


class IngestError(MCPVectorDBError):
    """A source could not be brought in; nothing of it was stored."""

    code = "ingest"


class Unreadable(IngestError, OSError):
    """The path is missing, a folder, a device, or not readable."""

    code = "unreadable"


class Refused(IngestError, PermissionError):
    """The safety rules do not allow this path or URL."""

    code = "refused"


class TooLarge(IngestError, ValueError):
    """The source is above the size limit."""

    code = "too_large"


class UnsupportedFormat(IngestError, ValueError):
    """No reader for this type of content; the message lists what can be read."""

    code = "unsupported_format"


class ParseFailed(IngestError, ValueError):
    """The content is encrypted, damaged, or went over the parser's limits."""

    code = "parse_failed"


class NoText(IngestError, ValueError):
    """There is no text in it to search."""

    code = "no_text"


class FetchFailed(IngestError, OSError):
    """The network or the other server failed."""

    code = "fetch_failed"


class ModelError(MCPVectorDBError):
    """Something about an embedding model."""

    code = "model"


class ModelMissing(ModelError, LookupError):
    """The model is unknown or its files are not on this machine; the message says how to get
    them.
    """

    code = "model_missing"


class ModelDamaged(ModelError, ValueError):
    """A model file does not have the digest that the catalogue gives."""

    code = "model_damaged"


class EmbeddingFailed(ModelError, RuntimeError):
    """The embedder returned the wrong shape, or values that cannot be ranked."""

    code = "embedding_failed"
