"""A little conversation of our own in the published layout of LoCoMo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import conversations

SESSIONS = [
    (
        "1:56 pm on 8 May, 2023",
        [
            ("Ann", "I have adopted a dog from the shelter, her name is Luna."),
            ("Ben", "How lovely! I started to learn the cello last week."),
            ("Ann", "My sister moved to Lisbon for her new job."),
        ],
    ),
    (
        "7:03 pm on 2 July, 2023",
        [
            ("Ben", "The cello is hard, I have changed my teacher."),
            ("Ann", "Luna ran away in the park, but we found her after an hour."),
        ],
    ),
    (
        "9:00 am on 9 October, 2023",
        [
            ("Ben", "I broke my arm while cycling, so there is no music this month."),
            ("Ann", "We visited my sister and ate far too many custard tarts."),
        ],
    ),
]
QUESTIONS = [
    ("What is the name of Ann's dog?", ["D1:1"], 4),
    ("Which instrument does Ben learn?", ["D1:2"], 4),
    ("When did Luna run away?", ["D2:2"], 2),
    ("Where does Ann's sister live, and what did they eat there?", ["D1:3; D3:2"], 1),
    ("Which dog does Ben have?", ["D1:1"], 5),
]


def locomo() -> list[dict[str, Any]]:
    talk: dict[str, Any] = {"speaker_a": "Ann", "speaker_b": "Ben"}
    for number, (date, turns) in enumerate(SESSIONS, 1):
        talk[f"session_{number}_date_time"] = date
        talk[f"session_{number}"] = [
            {"speaker": speaker, "dia_id": f"D{number}:{place}", "text": text}
            for place, (speaker, text) in enumerate(turns, 1)
        ]
    talk["session_1"][0] |= {"img_url": ["x"], "blip_caption": "a brown dog"}
    qa = [
        {"question": text, "answer": "", "evidence": evidence, "category": category}
        for text, evidence, category in QUESTIONS
    ]
    qa.append({"question": "no evidence", "answer": "", "evidence": [], "category": 3})
    return [{"sample_id": "conv-1", "conversation": talk, "qa": qa}]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps(locomo()))
    return path


def test_the_evidence_is_found_again(data: Path, tmp_path: Path) -> None:
    outcomes = {
        each.category: each
        for each in conversations.measure(conversations.load(data), tmp_path / "memory.db")
    }
    assert set(outcomes) == {
        "one session",
        "time",
        "several sessions",
        "without an answer",
        "all with an answer",
        "mean of the categories",
    }
    every = outcomes["all with an answer"]
    assert every.questions == 4
    assert every.recall[-1] == 1.0 and every.mrr > 0.6
    assert list(every.recall) == sorted(every.recall)
