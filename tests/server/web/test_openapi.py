from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from jsonschema import Draft202012Validator

from mcpvectordb_server.web import serve
from mcpvectordb_server.web.api import ROUTES
from mcpvectordb_server.web.openapi import describe
from tests.server.web.support_web_server import Served
from tests.support import ROOT

# The replies of all other tests are compared with the description as well: see check_reply.


def test_every_operation_is_named_once_and_explained() -> None:
    operations = [each for path in describe(ROUTES)["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(names) == len(set(names))
    assert all(each["summary"].endswith(".") or ";" in each["summary"] for each in operations)
    for each in operations:
        for parameter in each.get("parameters", ()):
            assert parameter["schema"].get("description"), (each["operationId"], parameter["name"])


def test_every_schema_is_valid_and_every_reference_has_its_target() -> None:
    document = describe(ROUTES)
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    named = set(re.findall(r"'\$ref': '#/components/schemas/(\w+)'", str(document)))
    assert named == schemas.keys() - (schemas.keys() - named) and named <= schemas.keys()
    assert not (schemas.keys() - named), "a schema that nothing refers to"
    assert "$defs" not in str(document)


PAGE = (ROOT / ".github" / "docs" / "web.md").read_text("utf-8")


def test_the_routes_that_the_page_on_it_names_exist_and_none_is_missing() -> None:
    table = PAGE.split("| routes |")[1].split("\n\n")[0]
    named = set(re.findall(r"/api/[\w/]+", table))
    templates = {"/api/session", "/api/events", *(each.path.partition("{")[0] for each in ROUTES)}
    assert named <= {each.rstrip("/") for each in templates}
    assert {each.split("/")[2] for each in templates} - {"session"} == {
        each.split("/")[2] for each in named
    }


def test_the_commands_that_the_page_on_it_shows_do_what_it_says(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "Documents" / "notes").mkdir(parents=True)
    (tmp_path / "keys.md").write_text("# Keys")
    commands = [shlex.split(line) for line in PAGE.splitlines() if line.startswith("curl ")]
    assert len(commands) >= 6
    for command in commands:
        url = urlsplit(command[-1])
        assert (url.hostname, url.port) == ("127.0.0.1", serve.PORT)
        path = f"{url.path}?{url.query}" if url.query else url.path
        assert "Authorization: Bearer $MCPVECTORDB_TOKEN" in command
        if "-d" in command:
            assert "Content-Type: application/json" in command
            status, _ = served.ask("POST", path, command[command.index("-d") + 1].encode())
        elif "-T" in command:
            status, _ = served.ask("PUT", path, (tmp_path / "keys.md").read_bytes())
        else:
            status, _ = served.ask("GET", path)
        assert status in (200, 202), command
