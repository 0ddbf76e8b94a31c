from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.errors import IngestError
from mcpvectordb.ingest.formats.markup import parse
from tests.support_formats import read, source

PAPER = r"""
\documentclass[11pt]{article} % the class
\title{On \textbf{Apples}\thanks{Paid by pears}}
\author{Ann Author \and Bob M\"uller}
\date{May 2024}
\begin{document}
\maketitle
% \section{An old one}
\section{Introduction}\label{sec:intro}
Apples are \emph{red}~\cite{newton1687}: 50\% of them. % not this

They cost \$5 where $x^2 < 5$, caf\'e price in \AA rhus.
\begin{itemize}
  \item crisp
\end{itemize}
\subsection*{Sorts \& prices}
\begin{equation}
  E = mc^2
\end{equation}
\begin{lstlisting}[language=Python]
x = 1 % kept
\section{kept too}
\end{lstlisting}
Use \verb|a_b%c| here.
\end{document}
never read
"""
PAPER_TEXT = r"""# Introduction

Apples are red \cite{newton1687}: 50% of them.

They cost $5 where $x^2 < 5$, café price in Århus.

  - crisp

## Sorts \& prices

\begin{equation}
  E = mc^2
\end{equation}

```
x = 1 % kept
\section{kept too}
```

Use \verb|a_b%c| here.
"""

MANUAL = """\
=========
The Guide
=========

:Author: Ann Author

.. _first:

Getting started
===============

Install ``pip`` and read :ref:`the manual <manual>`::

    import fruit

    fruit.eat()

- an item ::

    its code

  and more of it

Usage
-----

.. code-block:: python
   :linenos:

   def f():
       return 1

.. note:: Mind the *gap*.

>>> for each in fruit:
...     each.eat()
...

=====  =====
Sort   Price
=====  =====
Pear   0.80
=====  =====
"""
MANUAL_TEXT = """\
# The Guide

:Author: Ann Author

## Getting started

Install ``pip`` and read :ref:`the manual <manual>`:

```
import fruit

fruit.eat()
```

- an item

```
its code
```

  and more of it

### Usage

```python
def f():
    return 1
```

.. note:: Mind the *gap*.

>>> for each in fruit:
...     each.eat()
...

=====  =====
Sort   Price
=====  =====
Pear   0.80
=====  =====
"""

NOTES = """\
#+TITLE: My Notes
#+AUTHOR: Ann Author
#+FILETAGS: :fruit:garden:
# a comment

* TODO Apples                                                   :red:
:PROPERTIES:
:ID: 1234
:END:
Apples are =red=; see [[https://a.example][the page]] or [[file:b.org]].

** Code
#+begin_src python :results output
* not a heading
print(1)
#+end_src

| Sort  | Price |
|-------+-------|
| Apple | 1.20  |
"""
NOTES_TEXT = """\
# TODO Apples

Apples are =red=; see [the page](https://a.example) or [[file:b.org]].

## Code

```python
* not a heading
print(1)
```

| Sort  | Price |
|-------|-------|
| Apple | 1.20  |
"""


@pytest.mark.parametrize(("name", "raw", "title", "metadata", "text"), [
    ("paper.tex", PAPER, "On Apples", {"author": "Ann Author , Bob Müller", "date": "May 2024"}, PAPER_TEXT),
    ("guide.rst", MANUAL, "The Guide", {"author": "Ann Author"}, MANUAL_TEXT),
    ("notes.org", NOTES, "My Notes", {"author": "Ann Author", "tags": ":fruit:garden:"}, NOTES_TEXT),
])  # fmt: skip
def test_text_stays_as_it_is_written_with_headings_and_code_as_markdown(
    name: str, raw: str, title: str, metadata: dict[str, str], text: str
) -> None:
    parsed = read(raw, name)
    assert (parsed.title, parsed.metadata) == (title, metadata)
    shown = [line for line in parsed.text.split("\n") if line]
    assert shown == [line for line in text.split("\n") if line]


@pytest.mark.parametrize(
    ("name", "raw", "headings"),
    [
        ("a.tex", "\\chapter{One}\n\\section*{Two}\n\\subsection[a]{Three $x$}", "1 One 2 Two"),
        ("a.tex", "\\subsection{Two}\n\\section{One}\ntext", "2 Two 1 One"),
        ("a.rst", "One\n~~~\n\nTwo\n^^^^^\n\nThree\n~~~~~\n\ntext\n", "1 One 2 Two 1 Three"),
        ("a.org", "* One\n** Two\n* Three\n", "1 One 2 Two 1 Three"),
    ],
)
def test_headings_have_the_levels_of_their_sections(name: str, raw: str, headings: str) -> None:
    lines = [line for line in read(raw, name).text.split("\n") if line.startswith("#")]
    found = " ".join(f"{len(marks)} {text}" for marks, _, text in (x.partition(" ") for x in lines))
    assert found.startswith(headings)


@pytest.mark.parametrize(
    ("name", "raw", "text"),
    [
        ("a.tex", "\\begin{document}\nApples are red. \\begin{verbatim}\nx", "Apples are red."),
        ("a.org", "#+begin_src sh\nls\n", "```sh\nls\n```"),
        ("a.rst", "It is::\n\n  x", "It is:\n```\nx\n```"),
    ],
)
def test_a_truncated_file_keeps_its_text(name: str, raw: str, text: str) -> None:
    assert text in read(raw, name).text


@pytest.mark.parametrize("name", ["a.tex", "a.rst", "a.org"])
def test_a_file_without_title_and_heading_is_named_after_itself(name: str) -> None:
    assert read("just words\n", name).title == name


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a.tex", ["{", "}", "\\section{", "\\section{{}", "\\begin{verbatim}", "%\n", "\\verb|"]),
        ("a.rst", ["=\n", "====\n", "::\n\n x\n", "x::\n", "::\n \n", ".. code::\n", " ", "a:: "]),
        ("a.org", ["*", "* \n", "#+begin_src\n", ":a:\n", "[[a][", "|-+", "#+a:\n"]),
    ],
)
def test_long_hostile_files_are_parsed_in_little_time(name: str, parts: list[str]) -> None:
    for part in parts:
        with suppress(IngestError):
            parse(source(part * 5_000, name))


_PARTS = {
    "a.tex": ["\\section{%s}", "\\paragraph{%s} more", "% no", "%s % no", "\\label{%s}", "",
              "\\begin{verbatim}\n%s\n\\end{verbatim}", "\\item %s", "a \\section{%s} b"],
    "a.rst": ["%s\n~~~~~~~~~~", "=======\n%s\n=======", ".. _there:", "%s::\n\n   code\n", "",
              ".. code-block:: py\n   :linenos:\n\n   %s\n", "%s", "%s::\n\n   code", "- %s ::\n\n    x"],
    "a.org": ["* %s", "# no", ":PROPERTIES:\n:ID: 1\n:END:", "#+begin_src sh\n%s\n#+end_src", "%s", ""],
}  # fmt: skip


@pytest.mark.parametrize("name", _PARTS)
@given(data=st.data())
def test_every_word_stays_on_its_line(name: str, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(_PARTS[name]), min_size=1, max_size=8))
    raw = "\n".join(part.replace("%s", f"word{at}x") for at, part in enumerate([*chosen, "", "%s"]))
    lines, text = raw.split("\n"), read(raw, name).text.split("\n")
    for at in range(len(chosen) + 1):
        here = [n for n, line in enumerate(text) if f"word{at}x" in line]
        there = [n for n, line in enumerate(lines) if f"word{at}x" in line]
        # A heading that shares its line with text may take the blank line above.
        assert all(n in there or (n + 1 in there and text[n].startswith("#")) for n in here)


def test_a_letter_of_latex_may_stand_before_an_accent_and_a_space_of_its_own() -> None:
    assert read("\\documentclass{a}\n\\L\\'od\\'z, \\aa\\ and \\ae\\ too", "a.tex").text.endswith(
        "Łódź, å and æ too\n"
    )


def test_letters_of_latex_in_braces_of_their_own_are_in_their_word() -> None:
    raw = r"\documentclass{a}" + "\n" + r"Stra{\ss}e, caf{\'e}, na{\"\i}ve, {\TH}\'orr {x}"
    assert read(raw, "a.tex").text.endswith("Straße, café, naïve, Þórr {x}\n")
