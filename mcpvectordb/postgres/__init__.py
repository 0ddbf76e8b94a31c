"""What files have published to PostgreSQL; needs psycopg, and importing it without says so."""

from mcpvectordb.errors import InvalidInput

try:
    import psycopg as _psycopg  # noqa: F401  whether it is there
except ImportError:
    raise InvalidInput(
        "PostgreSQL needs psycopg, which is not installed: pip install 'mcpvectordb[postgres]'"
    ) from None
