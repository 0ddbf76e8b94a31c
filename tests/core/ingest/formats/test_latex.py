from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.errors import IngestError
from mcpvectordb.ingest.formats.latex import parse
from tests.support_formats import read, source

PAPER = r"""
\documentclass[11pt]{article} % the class
\usepackage[utf8]{inputenc}
\newcommand{\fruit}[1]{\emph{#1}}
\title{On \textbf{Apples}\thanks{Paid by pears}}
\author{Ann Author \and Bob M\"uller}
\date{May 2024}
\begin{document}
\maketitle
\begin{abstract}
We look at apples~--- 50\% of them.
\end{abstract}
\section{Introduction}\label{sec:intro}
Apples are \emph{red}\footnote{Mostly.} and
``round''~\cite{newton1687,eve}. See Section~\ref{sec:sorts}. % not this

They cost \$5 where $x^2 < 5$, caf\'e price.
\begin{itemize}
  \item crisp
  \item[(b)] sweet
\end{itemize}
\subsection{Sorts}
\begin{enumerate}
\item one
\item two
\end{enumerate}
\begin{equation}
  E = mc^2
\end{equation}
\begin{table}[h]
\centering
\begin{tabular}{l|r}
\hline
Sort & Price \\ \hline
\textbf{Boskoop} & 1.20 \\
Pear \& co & 0.80 \\
\end{tabular}
\caption{Prices of 2024}
\end{table}
\begin{verbatim}
x = 1 % kept
\section{kept too}
\end{verbatim}
Use \verb|a_b%c| and \href{https://a.example}{the page}.
\begin{tikzpicture}\draw (0,0);\end{tikzpicture}
\bibliography{refs}
\end{document}
never read
"""


def test_a_paper_becomes_markdown() -> None:
    assert (
        read(PAPER, "paper.tex").text
        == r"""We look at apples — 50% of them.

# Introduction

Apples are red (Mostly.) and “round” [newton1687,eve]. See Section .

They cost $5 where $x^2 < 5$, café price.

- crisp
- (b) sweet

## Sorts

1. one
2. two

$$
\begin{equation}
  E = mc^2
\end{equation}
$$

| Sort | Price |
| --- | --- |
| Boskoop | 1.20 |
| Pear & co | 0.80 |

Prices of 2024

```
x = 1 % kept
\section{kept too}
```

Use `a_b%c` and the page.
"""
    )


def test_title_authors_and_date_are_taken() -> None:
    parsed = read(PAPER, "paper.tex")
    assert parsed.title == "On Apples"
    assert parsed.metadata == {"author": "Ann Author , Bob Müller", "date": "May 2024"}


def test_chapters_have_a_higher_level_than_sections() -> None:
    assert read(
        "\\chapter{One}\n\\section*{Two}\n\\subsection[short]{Three $x$}\ntext", "a.tex"
    ).text == ("# One\n\n## Two\n\n### Three $x$\n\ntext\n")


def test_unknown_commands_keep_their_text() -> None:
    assert (
        read(r"A \mycommand{word} \small here\\and \LaTeX{} there.", "a.tex").text
        == "A word here and LaTeX there.\n"
    )


def test_latex_is_recognised_by_its_first_command() -> None:
    assert read(PAPER, "paper.unknown").title == "On Apples"


def test_a_truncated_file_keeps_its_text() -> None:
    text = read(PAPER[: PAPER.index("Pear")], "paper.tex").text
    assert "Apples are red" in text


@given(st.text("\\{}[]$%&~_ abegindtmsc\n", max_size=80))
def test_arbitrary_text_gives_text_or_an_ingest_error(text: str) -> None:
    with suppress(IngestError):
        parse(source(text, "a.tex"))


def test_long_hostile_files_are_parsed_in_little_time() -> None:
    for part in (
        "{",
        "}",
        "\\section{",
        "\\begin{tabular}{l}",
        "&",
        "\\item[",
        "\\cite{",
        "\\\\",
        "\\footnote{a",
        "%\n",
        "$a",
    ):
        with suppress(IngestError):
            parse(source("\\begin{document}" + part * 2000, "a.tex"))
