"""The records of remotes."""

from __future__ import annotations

from mcpvectordb.records import Record

NOT_WHOLE = "it is not (or not yet) the whole file that was written: it is tried again"
"""Why a bundle is refused that a program may still be bringing."""


class Remote(Record):
    """A place through which copies of a file on other machines exchange what changed.

    target           a folder, git+URL, or host:path
    passphrase_file  the file with the passphrase of one that is encrypted; "" if none was named
    bundles          how many lie there, as of the last exchange
    machines         the names of others that have left some
    exchanged_at     when the last exchange ended; "" if there was none
    problem          what was wrong with the last one; "" if nothing was
    """

    name: str
    target: str
    encrypted: bool
    passphrase_file: str
    bundles: int
    machines: tuple[str, ...]
    exchanged_at: str
    problem: str


class Exchanged(Record):
    """What an exchange with a remote did; names of items are as in `Merged`.

    received, sent  bundles that were merged, and bundles that were written
    items           versions of items that were sent
    bytes           size of the bundles that were written
    forgotten       items that were forgotten for good on another machine, and are now here
    refused         bundles that cannot be merged, each with the reason; they are tried again
    missing         bundles that other machines have written, and that are not there
    note            what is left to do, or may have been lost; "" if nothing is
    problem         why there was no exchange; "" if there was one
    """

    name: str
    received: int = 0
    sent: int = 0
    items: int = 0
    bytes: int = 0
    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    embedded: int = 0
    forgotten: int = 0
    refused: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    note: str = ""
    problem: str = ""
