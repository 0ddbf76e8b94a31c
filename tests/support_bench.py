"""A small corpus in an invented language: every document has a section of its own, and one that all
of them have.
"""

from __future__ import annotations

from itertools import product
from random import Random

from mcpvectordb import Database

WORDS = [
    "".join(parts)
    for parts in product(
        ("ba", "do", "fi", "gu", "le", "mo", "ri", "su"),
        ("kan", "len", "mor", "tis"),
        ("a", "eth", "ion", "ow", "und"),
    )
]
BOILERPLATE = (
    "This text may be copied by everybody who leaves these words of the author standing below."
)


def documents(count: int) -> dict[str, str]:
    """Texts by their names; the last two have the same title."""
    random = Random(1)

    def sentence() -> str:
        return " ".join(["The", *random.sample(WORDS, 9), "is"]) + "."

    texts = {}
    for number in range(count):
        title = (
            "Bakana of old"
            if number >= count - 2
            else f"{WORDS[number].title()} and {WORDS[-number - 1]}"
        )
        own = " ".join([sentence() for _ in range(6)])
        texts[f"{number}.md"] = (
            f"# {title}\n\n{sentence()} {sentence()}\n\n## About {WORDS[number]} number "
            f"{number}\n\n"
            f"{own}\n\n## Summary\n\n{sentence()}\n\n{BOILERPLATE}\n"
        )
    return texts


def fill(db: Database, count: int = 40, *, library: str = "default") -> None:
    """Ingest the corpus."""
    for name, text in documents(count).items():
        db.documents.ingest_text(text, source=name, library=library, embed=False)
    db.embed_pending()
