"""Little conversations of our own in each of the published layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
    ("Is there evidence?", [], 3),
    ("Is there such a turn?", ["D9:9"], 3),
]


def qa(questions: list[tuple[str, list[str], int]]) -> list[dict[str, Any]]:
    return [
        {"question": text, "answer": "", "evidence": evidence, "category": category}
        for text, evidence, category in questions
    ]


def locomo(folder: Path) -> Path:
    """A file in LoCoMo's layout."""
    talk: dict[str, Any] = {"speaker_a": "Ann", "speaker_b": "Ben"}
    for number, (date, turns) in enumerate(SESSIONS, 1):
        talk[f"session_{number}_date_time"] = date
        talk[f"session_{number}"] = [
            {"speaker": speaker, "dia_id": f"D{number}:{place}", "text": text}
            for place, (speaker, text) in enumerate(turns, 1)
        ]
    talk["session_1"][0] |= {"img_url": ["x"], "blip_caption": "a brown dog"}
    given = [{"sample_id": "conv-1", "conversation": talk, "qa": qa(QUESTIONS)}]
    return written(folder / "locomo.json", given)


def realtalk(folder: Path) -> Path:
    """A file in REALTALK's layout."""
    given = {
        "name": {"speaker_1": "Ann", "speaker_2": "Ben"},
        "session_10": [turn("Ben", "D10:1", "30.12.2023, 08:00:01", "I burnt the rice again.")],
        "session_10_date_time": "30.12.2023, 08:00:01",
        "session_2": [
            turn("Ann", "D2:1", "29.12.2023, 00:51:12", "I ran along the lake this morning."),
            turn("Ben", "D2:2", "29.12.2023, 00:52:00", "My flight to Oslo was cancelled."),
        ],
        "session_2_date_time": "29.12.2023, 00:51:12",
        "events_session_2": {"agent_a": [], "agent_b": []},
        "qa": qa(
            [
                ("Where did Ann run?", ["D2:1"], 1),
                ("When was Ben's flight cancelled?", ["D2:2"], 2),
                ("Is Ben a good cook?", ["D10:1"], 3),
            ]
        ),
    }
    return written(folder / "Chat_1_Ann_Ben.json", given)


def turn(speaker: str, id: str, date: str, text: str) -> dict[str, str]:
    return {"speaker": speaker, "dia_id": id, "date_time": date, "clean_text": text}


def beam(folder: Path) -> Path:
    """A folder in BEAM's layout."""
    chat = folder / "100K" / "1"
    (chat / "probing_questions").mkdir(parents=True)
    first: dict[str, Any] = {
        **said("user", 0, "The first sprint ends on March 29. ->-> 1,1"),
        "time_anchor": "March-15-2024",
        "index": "1,1",
    }
    batches = [
        {
            "batch_number": 1,
            "turns": [
                [first, said("assistant", 1, "Then plan the login first.")],
                [said("user", 2, "I prefer few dependencies.")],
            ],
        },
        {
            "batch_number": 2,
            "turns": [
                [said("user", 3, "The dashboard answers in 250 ms."), said("user", 4, "Hm.")]
            ],
        },
        {"batch_number": 3, "turns": [[said("user", 4, "This id was there before.")]]},
    ]
    written(chat / "chat.json", batches)
    questions = {
        "abstention": [{"question": "What did my landlord say?", "rubric": []}],
        "information_extraction": [
            {"question": "When does my first sprint end?", "source_chat_ids": [0]}
        ],
        "knowledge_update": [
            {
                "question": "How fast is the dashboard?",
                "source_chat_ids": {"original_info": [1], "updated_info": [3, 3]},
            }
        ],
        "summarization": [{"question": "Which turn is meant?", "source_chat_ids": [4]}],
    }
    written(chat / "probing_questions" / "probing_questions.json", questions)
    return chat


def said(role: str, id: int, text: str) -> dict[str, Any]:
    return {"role": role, "id": id, "content": text}


def written(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path
