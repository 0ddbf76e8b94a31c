from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.errors import IngestError
from mcpvectordb.ingest.formats.org import parse
from tests.support_formats import read, source

NOTES = """\
#+TITLE: My Notes
#+AUTHOR: Ann Author
#+FILETAGS: :fruit:garden:
# a comment

* TODO Apples                                                   :red:
:PROPERTIES:
:ID: 1234
:END:
Apples are =red= and
~round~; see [[https://a.example][the page]] or [[file:b.org]].

- crisp
  very much so
+ sweet

** Code
#+begin_src python :results output
  * not a heading
print(1)
#+end_src

#+BEGIN_QUOTE
An apple a day.
#+END_QUOTE

| Sort  | Price |
|-------+-------|
| Apple | 1.20  |

#+begin_comment
hidden
#+end_comment
"""


def test_an_org_file_becomes_markdown() -> None:
    assert (
        read(NOTES, "a.org").text
        == """\
# TODO Apples

Apples are `red` and `round`; see the page or b.org.

- crisp very much so
- sweet

## Code

```python
  * not a heading
print(1)
```

> An apple a day.

| Sort | Price |
| --- | --- |
| Apple | 1.20 |
"""
    )


def test_keywords_give_title_and_metadata() -> None:
    parsed = read(NOTES, "a.org")
    assert parsed.title == "My Notes"
    assert parsed.metadata == {"author": "Ann Author", "tags": ":fruit:garden:"}


def test_without_a_title_the_first_heading_is_the_title() -> None:
    assert read("* One\ntext\n", "a.org").title == "One"
    assert read("text\n", "a.org").title == "a.org"


def test_an_unclosed_block_keeps_its_text() -> None:
    assert read("#+begin_src sh\nls\n", "a.org").text == "```sh\nls\n```\n"


@given(st.text("*#+:|-[]=~ abBEGIN_src\n", max_size=80))
def test_arbitrary_text_gives_text_or_an_ingest_error(text: str) -> None:
    with suppress(IngestError):
        parse(source(text, "a.org"))
