"""What files have published to PostgreSQL; most of its modules need psycopg."""

from mcpvectordb.errors import InvalidInput


def require_driver() -> None:
    """Raise InvalidInput, which names the extra, if psycopg is not installed."""
    try:
        import psycopg  # noqa: F401  whether it is there
    except ImportError:
        raise InvalidInput(
            "PostgreSQL needs psycopg, which is not installed: pip install 'mcpvectordb[postgres]'"
        ) from None
