"""Conversations are read in each of the published layouts, and in no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.conversations import UNANSWERED, load
from mcpvectordb import InvalidInput
from tests.benchmarks.layouts import beam, locomo, realtalk, written


def test_locomo_has_dated_turns_with_pictures_and_numbered_categories(tmp_path: Path) -> None:
    [found] = load(locomo(tmp_path))
    assert (found.data, found.name, len(found.turns)) == ("LoCoMo", "conv-1", 7)
    assert found.turns[0].text == (
        "1:56 pm on 8 May, 2023, Ann: I have adopted a dog from the shelter, her name is Luna. "
        "[picture: a brown dog]"
    )
    assert [each.category for each in found.questions] == [
        "one session",
        "one session",
        "time",
        "several sessions",
        UNANSWERED,
    ]
    assert found.questions[3].evidence == {"D1:3", "D3:2"}


def test_realtalk_has_a_date_in_every_turn_and_sessions_in_order(tmp_path: Path) -> None:
    [found] = load(realtalk(tmp_path))
    assert (found.data, found.name) == ("REALTALK", "Chat_1_Ann_Ben")
    assert [each.id for each in found.turns] == ["D2:1", "D2:2", "D10:1"]
    assert found.turns[1].text == "29.12.2023, 00:52:00, Ben: My flight to Oslo was cancelled."
    assert [each.category for each in found.questions] == ["several turns", "time", "common sense"]


@pytest.mark.parametrize("file", ["", "chat.json", "probing_questions/probing_questions.json"])
def test_beam_is_read_by_its_folder_or_either_file(tmp_path: Path, file: str) -> None:
    [found] = load(beam(tmp_path) / file)
    assert (found.data, found.name) == ("BEAM", "100K-1")
    assert found.turns[0].text == "March-15-2024, user: The first sprint ends on March 29."
    assert found.turns[2].text == "March-15-2024, user: I prefer few dependencies."
    assert [each.session for each in found.turns] == ["1", "1", "1", "2", "2", "3"]
    assert {each.category: set(each.evidence) for each in found.questions} == {
        UNANSWERED: set(),
        "information extraction": {"0"},
        "knowledge update": {"1", "3"},  # an id of two turns says nothing, and is left out
    }


def test_the_longest_of_beam_are_plans_of_batches(tmp_path: Path) -> None:
    chat = beam(tmp_path)
    batches = json.loads((chat / "chat.json").read_text())
    written(chat / "chat.json", [{"plan-1": batches[:1]}, {"plan-2": batches[1:]}])
    [found] = load(chat)
    assert [each.session for each in found.turns] == ["1", "1", "1", "2", "2", "3"]


@pytest.mark.parametrize(
    "content",
    ["[]", "{}", "3", '[{"messages": []}]', '{"qa": []}', '{"qa": [], "session_1": []}', "[{}]"],
)
def test_another_layout_is_refused_with_the_names_of_those_that_are_read(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(InvalidInput, match=r"LoCoMo, REALTALK or BEAM"):
        load(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("name", "why"), [("no.json", "JSON"), ("missing.json", "FileNotFound"), ("", "content")]
)
def test_what_is_not_json_or_lacks_a_field_is_refused_with_the_reason(
    tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "no.json").write_text("no")
    (tmp_path / "chat.json").write_text('[{"turns": [{"role": "user", "id": 1}]}]')
    with pytest.raises(InvalidInput, match=rf"REALTALK or BEAM .*: .*{why}"):
        load(tmp_path / name)
