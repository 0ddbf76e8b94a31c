"""Options of the server: a flag wins over its `MCPVECTORDB_*` variable, that over the default."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mcpvectordb import Config, InvalidInput, __version__, is_database_url
from mcpvectordb_server.surfaces import NAMES

if TYPE_CHECKING:
    from mcpvectordb import Database

# Nothing is lost after this time: every write was a committed transaction.
CLOSING = 3.0
"""Seconds to wait for the database to close."""

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
TRANSPORTS = ("stdio", "streamable-http", "sse")


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How to serve.

    db          the database file, or the URL of a published database
    surfaces    names of surfaces; the first keeps its tool names where two surfaces clash
    roots       folders that files may be ingested from; () means all over stdio, none over HTTP
    disabled    names of tools that are not offered
    hosts       Host names that HTTP requests may carry, in addition to this machine's own
    public_url  https://HOST at which OAuth clients reach the server; "" lets none in
    token       bearer token for HTTP; None takes the one in the data folder
    """

    db: Path | str
    surfaces: tuple[str, ...] = ("mcpvectordb",)
    transport: str = "stdio"
    host: str = "127.0.0.1"
    port: int = 8000
    roots: tuple[Path, ...] = ()
    disabled: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    public_url: str = ""
    token: str | None = None
    config: Config = field(default_factory=Config)
    list_tools: bool = False
    unattended: bool = False


def default_db() -> Path:
    """The database file that is used when none is named, the same as on the command line."""
    return Config.data_folder() / "notes.db"


def parse(
    arguments: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    prog: str = "mcpvectordb-server",
) -> Options:
    """The Options from flags and environment variables; a bad value raises InvalidInput.

    `--help` and `--version` print their text and end the program.
    """
    environ = os.environ if environ is None else environ
    flags = _parser(prog).parse_args(arguments)
    config = Config.from_env(environ)
    if flags.read_only:
        config = replace(config, read_only=True)
    if flags.project is not None:
        config = replace(config, project=_text("--project", flags.project))

    def chosen(name: str, read: Callable[[str, str], Any], default: Any) -> Any:
        given, flag = getattr(flags, name), f"--{name.replace('_', '-')}"
        variable = Config.ENV_PREFIX + name.upper()
        if isinstance(given, list):
            return tuple(each for one in given for each in read(flag, one))
        if given is not None:
            return read(flag, given)
        return read(variable, environ[variable]) if environ.get(variable) else default

    db = chosen("db", _database, default_db())
    if isinstance(db, str):  # what was published can only be read
        config = replace(config, read_only=True)
    transport, public_url = chosen("transport", _transport, "stdio"), chosen("public_url", _url, "")
    # A connection of the older SSE would still get replies after its client was revoked.
    if public_url and transport != "streamable-http":
        raise InvalidInput(f"{public_url} is reached over HTTP: add --transport http")
    return Options(
        db=db,
        surfaces=chosen("surface", _surfaces, (NAMES[0],)),
        transport=transport,
        public_url=public_url,
        host=chosen("host", _text, "127.0.0.1"),
        port=chosen("port", _port, 8000),
        roots=chosen("root", _roots, ()),
        disabled=chosen("disable_tool", _words, ()),
        hosts=chosen("allow_host", _words, ()),
        token=environ.get(Config.ENV_PREFIX + "TOKEN"),
        config=config,
        list_tools=flags.list_tools,
        unattended=chosen("unattended", _yes, False),
    )


class _OptionParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise InvalidInput, so that an error is one line and not a page of usage."""
        raise InvalidInput(f"{message}; see {self.prog} --help")


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = _OptionParser(
        prog=prog,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Offer a mcpvectordb database to MCP clients.",
        epilog=(
            "Each can be given by a variable too (MCPVECTORDB_DB, MCPVECTORDB_SURFACE, ...); flags "
            "win. Over HTTP clients\n"
            "need the bearer token in MCPVECTORDB_TOKEN, or the one that the first start makes, "
            "shows once and keeps in\n"
            "the data folder."
        ),
    )
    add = parser.add_argument
    add(
        "--db",
        metavar="FILE",
        help="the database, made when it is not there (default: notes.db in your data folder), or "
        "postgresql://… where files were published",
    )
    add(
        "--surface",
        metavar="NAME",
        action="append",
        help=f"tools to offer: {', '.join(NAMES)} or all; repeatable, the first keeps its names "
        f"(default: {NAMES[0]})",
    )
    add(
        "--transport",
        metavar="KIND",
        help=f"{', '.join(TRANSPORTS)} (default: stdio); http is streamable-http",
    )
    add("--host", help="address to listen on over HTTP (default: 127.0.0.1)")
    add("--port", help="port to listen on over HTTP; 0 takes a free one (default: 8000)")
    add(
        "--allow-host",
        metavar="NAME",
        action="append",
        help="a Host name that HTTP requests may carry; repeatable",
    )
    add(
        "--public-url",
        metavar="URL",
        help="https://HOST at which a proxy or tunnel offers this server: web and phone assistants "
        "come in by OAuth, with the passphrase of `mcpvectordb access`",
    )
    add(
        "--root",
        metavar="DIR",
        action="append",
        help="a folder that files may be ingested from; repeatable; needed for files over HTTP",
    )
    add(
        "--project",
        metavar="NAME",
        help="let desk search and store in this project; auto: that of the working folder "
        "(default: everything)",
    )
    add(
        "--read-only",
        action="store_true",
        help="change nothing, and offer only tools that change nothing",
    )
    add("--disable-tool", metavar="NAME", action="append", help="hide a tool; repeatable")
    add(
        "--unattended",
        action="store_const",
        const="true",
        help="nobody answers questions: delete and replace without asking the user first",
    )
    add(
        "--list-tools",
        action="store_true",
        help="print the names of the tools on offer and what each does, then stop",
    )
    add("--version", action="version", version=f"mcpvectordb {__version__}")
    return parser


def _database(_: str, text: str) -> Path | str:
    if is_database_url(text):
        return text
    return Path(text) if text == ":memory:" else Path(text).expanduser().absolute()


def _surfaces(origin: str, text: str) -> tuple[str, ...]:
    wanted = NAMES if text.strip() == "all" else _words(origin, text)
    for name in wanted:
        if name not in NAMES:
            raise InvalidInput(
                f"{origin}: there is no surface {name!r}; there are {', '.join(NAMES)} and all"
            )
    return wanted


def _transport(origin: str, text: str) -> str:
    text = "streamable-http" if text == "http" else text
    if text not in TRANSPORTS:
        raise InvalidInput(
            f"{origin} must be {', '.join(TRANSPORTS[:-1])} or {TRANSPORTS[-1]}, not {text!r}"
        )
    return text


def _port(origin: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise InvalidInput(f"{origin} must be a port, 0 to 65535, not {text!r}")
    return int(text)


def _url(origin: str, text: str) -> str:
    parts = re.fullmatch(r"(https?)://([a-z0-9.-]+|\[::1\])(:[0-9]{1,5})?/?", text.strip().lower())
    here = parts is not None and parts[2] in ("localhost", "127.0.0.1", "[::1]")
    if parts is None or (parts[1] == "http" and not here):
        raise InvalidInput(f"{origin} must be https://HOST or https://HOST:PORT, not {text!r}")
    return parts[0].removesuffix("/")


def _roots(origin: str, text: str) -> tuple[Path, ...]:
    parts = [text] if origin.startswith("--") else [part for part in text.split(os.pathsep) if part]
    folders = tuple(Path(part).expanduser().absolute() for part in parts)
    for folder in folders:
        if not folder.is_dir():
            raise InvalidInput(f"{origin}: {folder} is not a folder")
    return folders


def _yes(origin: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise InvalidInput(f"{origin} must be true or false, not {text!r}")
    return word in _TRUE


def _words(_: str, text: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[,\s]+", text) if word)


def _text(origin: str, text: str) -> str:
    if not text.strip():
        raise InvalidInput(f"{origin} must not be blank")
    return text.strip()


def report_error(error: Exception, prog: str) -> int:
    """Write the error as one line on stderr; returns the exit code for a failed start."""
    sys.stderr.write(f"{prog}: {printable(' '.join(str(error).split()))}\n")
    return 2


def printable(text: str) -> str:
    """A text for stderr: what a terminal would not print, control characters among it, is U+FFFD.

    Line ends and tabs stay.
    """
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)


def log_to_stderr() -> None:
    """Write warnings to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def close_in_time(db: Database) -> None:
    """Close the database in a thread, so that a call that hangs cannot keep the process alive."""
    closing = threading.Thread(target=db.close, daemon=True)
    closing.start()
    closing.join(CLOSING)


class PrintableFormatter(logging.Formatter):
    """Formats log records for stderr; their texts may come from clients and documents."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as it is written, without control characters."""
        return printable(super().format(record))
