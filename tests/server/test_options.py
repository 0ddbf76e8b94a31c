from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from mcpvectordb import Config, InvalidInput
from mcpvectordb_server.options import PrintableFormatter, parse


def test_the_defaults_are_one_surface_over_stdio_in_the_data_folder() -> None:
    options = parse([], {})
    assert options.db == Config.data_folder() / "notes.db"
    assert (options.surfaces, options.transport) == (("mcpvectordb",), "stdio")
    assert (options.host, options.port) == ("127.0.0.1", 8000)
    assert (options.roots, options.token) == ((), None)


def test_flags_win_over_variables_and_variables_over_defaults(tmp_path: Path) -> None:
    environ = {
        "MCPVECTORDB_DB": "/env.db",
        "MCPVECTORDB_PORT": "9001",
        "MCPVECTORDB_TRANSPORT": "sse",
        "MCPVECTORDB_ROOT": str(tmp_path),
        "MCPVECTORDB_DISABLE_TOOL": "search, get_document",
        "MCPVECTORDB_TOKEN": "secret",
        "MCPVECTORDB_SURFACE": "all",
        "MCPVECTORDB_HOST": "localhost",
    }
    options = parse([], environ)
    assert (options.db, options.port, options.transport) == (Path("/env.db"), 9001, "sse")
    assert (options.roots, options.disabled) == ((tmp_path,), ("search", "get_document"))
    assert (options.token, options.host) == ("secret", "localhost")
    flags = "--db /flag.db --port 9002 --disable-tool search --disable-tool get_document".split()
    options = parse(flags, environ)
    assert (options.db, options.port) == (Path("/flag.db"), 9002)
    assert options.disabled == ("search", "get_document")


def test_paths_are_made_absolute_and_the_tilde_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert parse(["--db", "~/a.db"], {}).db == tmp_path / "a.db"
    assert parse(["--db", "b.db", "--root", "."], {}).roots == (tmp_path,)
    assert str(parse(["--db", ":memory:"], {}).db) == ":memory:"


def test_read_only_can_be_asked_for_both_ways() -> None:
    assert parse(["--read-only"], {}).config.read_only
    assert parse([], {"MCPVECTORDB_READ_ONLY": "yes"}).config.read_only
    assert not parse([], {}).config.read_only


def test_a_server_without_a_person_can_be_asked_for_both_ways() -> None:
    assert parse(["--unattended"], {}).unattended
    assert parse([], {"MCPVECTORDB_UNATTENDED": "yes"}).unattended
    assert parse(["--unattended"], {"MCPVECTORDB_UNATTENDED": "no"}).unattended
    assert not parse([], {"MCPVECTORDB_UNATTENDED": "no"}).unattended
    assert not parse([], {}).unattended
    with pytest.raises(InvalidInput, match="MCPVECTORDB_UNATTENDED must be true or false"):
        parse([], {"MCPVECTORDB_UNATTENDED": "maybe"})


def test_variables_of_the_library_reach_its_configuration() -> None:
    assert parse([], {"MCPVECTORDB_BUSY_TIMEOUT": "5"}).config.busy_timeout == 5.0


def test_a_public_url_is_an_origin_with_tls_or_of_this_machine() -> None:
    for given, found in (
        ("https://Notes.example.org/", "https://notes.example.org"),
        ("https://notes.example.org:8443", "https://notes.example.org:8443"),
        ("http://localhost:8000", "http://localhost:8000"),
    ):
        options = parse(["--transport", "http", "--public-url", given], {})
        assert (options.public_url, options.transport) == (found, "streamable-http")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--public-url https://a.test", "https://a.test is reached over HTTP: add --transport"),
        ("--transport sse --public-url https://a.test", "https://a.test is reached over HTTP: add"),
        ("--transport http --public-url http://a.test", "--public-url must be https://HOST"),
        ("--transport http --public-url https://a.test/mcp", "--public-url must be https://HOST"),
        ("--transport http --public-url https://me@a.test", "--public-url must be https://HOST"),
        ("--transport http --public-url https://a.test?x", "--public-url must be https://HOST"),
        ("--transport pigeon", "--transport must be stdio, streamable-http or sse, not 'pigeon'"),
        ("--port many", "--port must be a port, 0 to 65535, not 'many'"),
        ("--port 65536", "--port must be a port, 0 to 65535, not '65536'"),
        ("--surface nope", "--surface: there is no surface 'nope'"),
        ("--root /no/such/folder", "--root: /no/such/folder is not a folder"),
        ("--unknown", "unrecognized arguments: --unknown; see mcpvectordb-server --help"),
        ("--db", "argument --db: expected one argument"),
        ("MCPVECTORDB_PORT=x", "MCPVECTORDB_PORT must be a port, 0 to 65535, not 'x'"),
        (
            "MCPVECTORDB_TRANSPROT=sse",
            "unknown environment variable MCPVECTORDB_TRANSPROT; did you",
        ),
        ("MCPVECTORDB_BUSY_TIMEOUT=long", "MCPVECTORDB_BUSY_TIMEOUT must be a number, not 'long'"),
    ],
)
def test_a_bad_value_is_named_with_where_it_came_from(given: str, message: str) -> None:
    name, _, value = given.partition("=")
    with pytest.raises(InvalidInput) as caught:
        parse(*([], {name: value}) if value else (given.split(), {}))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_log_records_are_written_without_control_characters() -> None:
    try:
        raise ValueError("\x1b]0;owned\x07 \x9b31m\r")
    except ValueError:
        record = logging.LogRecord(
            "server", logging.ERROR, "", 1, "%s failed", ("a\x1btool",), sys.exc_info()
        )
    written = PrintableFormatter("%(message)s").format(record)
    assert written.startswith("a\ufffdtool failed\nTraceback")
    assert written.endswith("ValueError: \ufffd]0;owned\ufffd \ufffd31m\ufffd")
    assert all(each.isprintable() or each == "\n" for each in written)
