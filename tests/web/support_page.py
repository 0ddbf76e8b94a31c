"""A page in a browser, watched: it asks no other host, runs nothing stored, and has no error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mcpvectordb import Database
from tests.server.web.support_web_server import TOKEN, Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

TEA = """---
title: Tea
---
# Tea

Green tea is brewed at **eighty degrees** for two minutes; `sencha` wants *less*.

## Kinds

| kind | minutes |
|------|--------:|
| green | 2 |
| black | 4 |

1. warm the pot
2. pour
   - slowly
   - [x] with care

> A quotation about tea.

```python
def brew(minutes): ...
```

See [the society](https://example.org/tea) and ![a pot](https://example.org/pot.png).

## Storage

Leaves are kept dry, dark and far from coffee. The tin closes well.
"""
LONG = "\n\n".join(
    f"## Part {number}\n\nThe number {number} of the long report speaks about subject {number}."
    for number in range(1, 700)
)


def fill(db: Database) -> None:
    """Store a little of everything."""
    ingest = db.documents.ingest_text
    ingest(TEA, source="drinks/tea.md", library="notes", metadata={"year": 2025})
    ingest(TEA.replace("two minutes", "two minutes exactly"), source="copy.md", library="notes")
    ingest("Coffee is brewed at ninety degrees.", source="drinks/coffee.txt", library="notes")
    ingest("def brew(minutes):\n    return 'tea'\n", source="brew.py", library="code")
    ingest(LONG, source="long.md", library="reports")
    ingest("# 茶\n\n绿茶用八十度的水冲泡两分钟。", source="茶.md", library="notes")
    add = db.memories.add
    add(
        thread="kitchen",
        source="agent",
        text="The pot is broken; **buy** a new one.",
        tags=["todo", "pot"],
    )
    add(
        thread="kitchen",
        source="user",
        text="Tea is out.",
        tags=["todo"],
        metadata={"shop": "north"},
    )
    add(thread="garden", source="agent", text="Mint grows behind the shed.", tags=["plants"])
    db.embed_pending()


@contextmanager
def serving(db: Database) -> Iterator[Served]:
    """A server of a file, for a block."""
    served = Served(db)
    try:
        yield served
    finally:
        served.stop()


class Looker:
    """A page that was let in, and what happened in it."""

    def __init__(self, browser: Browser, served: Served, **options: Any) -> None:
        self.served = served
        self.memory = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self.memory.set_default_timeout(10_000)
        self.page = self.memory.new_page()
        self.problems: list[str] = []
        self.expected: tuple[str, ...] = ()
        self.page.on(
            "console", lambda each: each.type in ("error", "warning") and self._saw(each.text)
        )
        self.page.on("pageerror", lambda error: self._saw(f"{error} {error.stack}"))
        self.page.on(
            "dialog", lambda dialog: (self._saw(f"dialog {dialog.message}"), dialog.dismiss())
        )
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("popup", lambda popup: self._saw(f"popup {popup.url}"))

    def _saw(self, problem: str) -> None:
        self.problems.append(problem)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.served.url, "data:", "blob:")):
            self._saw(f"request to {url}")

    def __enter__(self) -> Self:
        self.page.goto(f"{self.served.url}#token={TOKEN}")
        self.page.wait_for_selector("main > *")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ran = self.page.evaluate("typeof window.__xss") if kind is None else "undefined"
        self.memory.close()
        if kind is None:
            left = [
                each for each in self.problems if not any(some in each for some in self.expected)
            ]
            assert not left, "\n".join(left)
            assert ran == "undefined"

    def go(self, hash: str) -> None:
        """Go to a place of the page."""
        self.page.evaluate("hash => { location.hash = hash }", hash)

    def find(self, selector: str, text: str | None = None) -> Locator:
        """The elements of a selector, with a text."""
        found = self.page.locator(selector)
        return found if text is None else found.filter(has_text=text)

    def button(self, name: str, exact: bool = True) -> Locator:
        """A button by the name that a screen reader says."""
        return self.page.get_by_role("button", name=name, exact=exact)

    def wait(self, selector: str, text: str | None = None) -> Locator:
        """The first element of a selector, when it is there to be seen."""
        found = self.find(selector, text).first
        found.wait_for()
        return found

    def search(self, query: str) -> None:
        """Type a query and wait for what is found."""
        self.page.fill("[data-search]", query)
        self.until(
            "decodeURIComponent(location.hash.replaceAll('+', ' ')).includes(it)"
            " && !document.querySelector('.results[aria-busy]')"
            " && document.querySelector('.hit, .brief, .results .state')",
            query,
        )

    def until(self, expression: str, argument: Any = None) -> None:
        """Wait until an expression of JavaScript is true; `it` is the argument."""
        self.page.wait_for_function(f"it => ({expression})", arg=argument)

    def focused(self) -> str:
        """The text or label of what has the focus."""
        return self.page.evaluate(
            "(document.activeElement.textContent || document.activeElement.ariaLabel || '').trim()"
        )
