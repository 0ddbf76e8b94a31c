from __future__ import annotations

import json
from typing import Any

import pytest

from mcpvectordb import InvalidInput
from mcpvectordb_server.replies import MAX_REFUSAL, Reply, to_json
from mcpvectordb_server.surface import call, expose, exposed_names
from tests.server.little_surface import FLAGGING, LITTLE, Shelf


def ask(name: str, *, db: Shelf | None = None, **raw: Any) -> Reply:
    return call(expose([LITTLE, FLAGGING])[name], db or Shelf(), raw)


def test_the_first_surface_keeps_its_names_and_a_later_clash_is_prefixed() -> None:
    for first, second, name in (
        (LITTLE, FLAGGING, "flagging_find"),
        (FLAGGING, LITTLE, "little_find"),
    ):
        assert [each for each in expose([first, second]) if "find" in each] == ["find", name]


def test_hiding_a_tool_never_renames_another() -> None:
    offered = expose([LITTLE, FLAGGING], disabled=["find"])
    assert "find" not in offered
    assert offered["flagging_find"].surface is FLAGGING


def test_an_unknown_tool_cannot_be_hidden() -> None:
    with pytest.raises(InvalidInput, match="no tool 'finds' to disable; did you mean find"):
        expose([LITTLE], disabled=["finds"])


def test_names_in_force_are_by_surface() -> None:
    offered = expose([LITTLE, FLAGGING])
    names = {"find": "flagging_find", "broken": "flagging_broken"}
    assert exposed_names(FLAGGING, offered) == names
    assert exposed_names(LITTLE, offered)["find"] == "find"


def test_a_reply_names_unknown_arguments() -> None:
    remark = '"tims" is an unknown argument and was ignored; did you mean times? It was not given, '
    added = ask("add", note="tea", tims=2)
    assert added.structured == {"status": "added", "count": 1, "note": f"{remark}so it is 1."}
    assert added.content[0].text == to_json(added.structured)
    read = ask("read", file="a", line=3)
    assert read.structured is None
    assert [each.text for each in read.content[:-1]] == ["first a notice", "1: body"]
    assert read.content[-1].text.startswith('"line" is an unknown argument and was ignored')


def test_an_error_about_a_missing_argument_names_the_unknown_one() -> None:
    assert ask("find", wrod="tea").structured == {
        "status": "error",
        "error": 'word is required; "wrod" is an unknown argument and was ignored; did you mean '
        "word?",
    }


def test_an_unexpected_exception_is_logged_in_full_and_answered_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reply = ask("broken")
    assert json.loads(reply.content[0].text) == {
        "status": "error",
        "error": "Internal error: something went wrong inside the server; its log has the details",
    }
    assert "private.db" in caplog.text
    assert "Traceback" in caplog.text
    assert ask("flagging_broken").failed


@pytest.mark.parametrize("tool", ["find", "flagging_find"])
def test_an_error_message_abridges_a_long_quotation(tool: str) -> None:
    reply = ask(tool, word="x" * 90_000)
    assert (
        "xxx [… 86," in reply.content[0].text and " more characters …] xxx" in reply.content[0].text
    )
    assert len(reply.content[0].text) < MAX_REFUSAL + 100


def test_an_argument_that_is_too_long_is_reported_without_its_text() -> None:
    assert ask("find", word="x" * 100_001).structured == {
        "status": "error",
        "error": "word is 100,001 characters long; 100,000 are allowed",
    }
