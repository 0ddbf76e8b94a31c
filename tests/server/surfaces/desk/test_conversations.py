"""Tasks of an agent, each with the calls that it would make and the facts that it must get.

All go on over the same file, as those of a user do.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from mcpvectordb import Database
from tests.server.surfaces.desk.agent import Agent
from tests.server.surfaces.desk.conftest import FILES


def test_1_a_question_is_answered_with_a_citation(agent: Agent) -> None:
    found = agent("search", query="How much is the daily allowance abroad?")
    assert found.places[0].startswith("firm/handbook/travel.md:")
    assert "Abroad it is 45 euros." in found.text
    assert re.match(r"\[1\] \S+ · strong match", found.text)


def test_2_what_nobody_wrote_is_said_to_be_missing(agent: Agent) -> None:
    question = "Who won the football world cup in 1974?"
    found = agent("search", query=question, kind="documents")
    assert "Nothing relevant was found" in found.text


def test_4_a_long_document_is_read_in_parts_by_its_outline(agent: Agent) -> None:
    first = agent("read", place="pump.md", budget=600)
    assert "Outline (line, heading):" in first.text and "## Chapter 20" in first.text
    assert "go on: read firm/manual/pump.md:" in first.text
    assert len(first.text) <= 2400
    line = next(
        int(each.split()[0]) for each in first.text.splitlines() if each.endswith("## Errors")
    )
    part = agent("read", place=f"pump.md:{line}:3")
    assert part.text.splitlines()[2:] == [*FILES["manual/pump.md"].splitlines()[line - 1 :]]
    part, parts = first, 0
    while go_on := re.search(r"go on: read (\S+)\]", part.text):
        part, parts = agent("read", place=go_on[1], budget=3000), parts + 1
    assert parts > 1 and "Error E17" in part.text


def test_5_a_page_of_a_pdf_is_found_read_and_proved(agent: Agent, folder: Path) -> None:
    found = agent("search", query="rent due on which working day", limit=1)
    assert "p. 2" in found.text
    page = agent("read", place="lease.pdf", page=2)
    assert "1,900 euros a month" in page.text and "six months" not in page.text
    proof = agent("verify", quotation="1,900 euros a month", place="lease.pdf", page=2)
    assert proof.status == "exact" and ", p. 2, lines of the extracted text (" in proof.text
    raw = (folder / "letters/lease.pdf").read_bytes()
    assert f", of its source {hashlib.sha256(raw).hexdigest()})" in proof.text


def test_6_a_decision_is_remembered_and_found_beside_documents(agent: Agent) -> None:
    kept = agent(
        "remember",
        text="Anna said that the move to Hamburg will cost 12,000 euros.",
        thread="hamburg",
        tags=["decision"],
    )
    assert kept.status == "remembered"
    found = agent("search", query="what does the move to Hamburg cost", limit=4)
    assert kept.place in found.places
    assert any(place.startswith("firm/minutes/") for place in found.places)
    only = agent("search", query="move to Hamburg", thread="hamburg")
    assert only.places == [kept.place]
    assert agent("search", query="move", tags=["decision"], kind="memories").places == only.places


def test_7_a_memory_is_corrected(agent: Agent) -> None:
    old = agent("remember", text="The offer must be sent by 12 June.", thread="offer")
    again = agent("remember", text="the offer must be sent by 12 June", thread="offer")
    assert (again.status, again.place) == ("known", old.place)
    near = agent("remember", text="The offer must be sent by 19 June.", thread="offer")
    assert (
        f"It contradicts {old.place} (The offer must be sent by 12 June.): 12 there, 19 here"
        in (near.text)
    )
    agent("forget", place=near.place)
    new = agent("remember", text="The offer must be sent by 19 June.", replace=old.place)
    assert new.place != old.place and f"It replaces {old.place}, which was: The offer" in new.text
    assert agent("search", query="when must the offer be sent", thread="offer").places == [
        new.place
    ]
    assert f"replaced by {new.place}" in agent("read", place=old.place).text
    both = agent("search", query="when must the offer be sent", thread="offer", as_of="any")
    assert {*both.places} == {old.place, new.place}
    assert f"replaced by {new.place}" in both.text


def test_8_a_text_that_the_agent_holds_is_stored_and_found(agent: Agent) -> None:
    done = agent(
        "ingest",
        source="answers/solar.md",
        text="# Solar panels\n\nThe roof carries 40 panels of 410 watts each.",
        library="answers",
        metadata={"asked_by": "Ben"},
    )
    assert done.status == "indexed"
    found = agent("search", query="how many panels on the roof", library="answers")
    assert "40 panels" in found.text
    by = agent("search", query="panels", where={"metadata.asked_by": "Ben"})
    assert by.places[0].startswith(done.place)
    read = agent("read", place=done.place)
    assert 'metadata {"asked_by": "Ben"}\n\n# Solar panels' in read.text
    assert "unchanged" not in agent("status").text


def test_9_a_folder_is_ingested_and_its_library_shown(
    agent: Agent, firm: Database, tmp_path: Path
) -> None:
    (tmp_path / "recipes").mkdir()
    for dish in ("soup", "bread", "cake"):
        (tmp_path / "recipes" / f"{dish}.md").write_text(f"# {dish.title()}\n\nHow to make {dish}.")
    (tmp_path / "recipes/key.pem").write_text("-----BEGIN PRIVATE KEY-----\nMIIE\n")
    done = agent("ingest", source=str(tmp_path / "recipes"), library="recipes")
    assert done.text.startswith("ingested into recipes: 3 indexed, ")
    assert "Skipped:" in done.text
    assert "Library recipes: 3 documents" in agent("status").text
    assert "cake.md" in agent("search", query="cake", library="recipes").places[0]
    again = agent("ingest", source=str(tmp_path / "recipes"), library="recipes")
    assert "3 unchanged" in again.text


def test_10_a_document_is_described_and_moved(agent: Agent) -> None:
    agent("ingest", source="memo.md", text="A memo about parking.", library="inbox")
    done = agent(
        "update",
        place="inbox/memo.md",
        metadata={"year": 2031},
        tags=["parking"],
        title="Parking",
        library="memos",
    )
    assert done.status == "updated" and done.place == "memos/memo.md"
    found = agent("search", query="memo", where={"metadata.year": 2031})
    assert found.places == ["memos/memo.md:1"]
    tagged = agent("search", query="memo", where={"metadata.tags": {"array_contains": "parking"}})
    assert tagged.places == found.places


def test_11_what_is_forgotten_is_gone_until_the_user_undoes_it(agent: Agent) -> None:
    agent("ingest", source="secret.md", text="The code of the door is 7781.", library="doors")
    assert "[lines that match: 1]" in agent("grep", pattern="7781").text
    gone = agent("forget", place="doors/secret.md")
    assert "was deleted" in gone.text
    assert "No line matches" in agent("grep", pattern="7781").text
    assert "there is no doors/secret.md" in agent.refused("read", place="doors/secret.md")
    memory = agent("remember", text="The alarm is turned off at seven.", thread="doors")
    agent("forget", place=memory.place)
    assert "search finds memories" in agent.refused("forget", place=memory.place)
