"""XML: lines of "element: text" and headings; of entities, only short texts are allowed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.records import Parsed, Source

DEEPEST = 1000
LONGEST_ENTITY = 200
_CHARACTER_REFERENCE = re.compile(r"&#(?:\d+|x[0-9a-fA-F]+);")
TITLES = frozenset(["title", "name", "head", "heading", "headline", "subject"])


def parse(source: Source) -> Parsed:
    """Return the text of an XML document of any kind."""
    reader = _XmlReader(source.name)
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    parser.EntityDeclHandler = reader.declare
    try:
        parser.Parse(source.raw, True)
    except expat.ExpatError as error:
        raise ParseFailed(f"{source.name} is not well-formed XML: {error}") from None
    text = markdown_writer.blocks(reader.blocks)
    return markdown_writer.finish(source, text, title=reader.title, headings=0)


@dataclass(slots=True)
class _OpenElement:
    """An element that is not closed yet: its text and the blocks of its children."""

    name: str
    attributes: list[str]
    words: list[str] = field(default_factory=list)
    mixed: bool = False
    leaf: bool = True
    blocks: list[str] = field(default_factory=list)


class _XmlReader:
    """Makes blocks as elements close; an element with mixed content is one paragraph."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = ""
        self.open: list[_OpenElement] = []
        self.blocks: list[str] = []

    def declare(self, _: str, parameter: bool, text: str | None, *__: object) -> None:
        """Allow an entity that stands for a short text; expansion is bounded by `LONGEST_ENTITY`.

        Expat expands it. One that refers to other entities, to a file or to markup is refused.
        """
        plain = _CHARACTER_REFERENCE.sub("", text or "")
        if parameter or text is None or len(text) > LONGEST_ENTITY or set("&%<") & set(plain):
            raise ParseFailed(
                f"{self.name} declares XML entities, which can expand to gigabytes or read files; "
                "save it without a document type definition"
            )

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.open) >= DEEPEST:
            raise ParseFailed(f"{self.name} has elements nested more than {DEEPEST} deep")
        if self.open:
            self.open[-1].leaf = False
        if self.open and self.open[0].name == "svg":
            attributes = {}  # they describe shapes; the words of a drawing are text
        plain = [
            f"{_local(key)}: {text}"
            for key, value in attributes.items()
            if (text := markdown_writer.line(value))
        ]
        self.open.append(_OpenElement(_local(tag), plain))

    def text(self, text: str) -> None:
        self.open[-1].words.append(text)
        self.open[-1].mixed = self.open[-1].mixed or not text.isspace()

    def end(self, _: str) -> None:
        element = self.open.pop()
        text = markdown_writer.line("".join(element.words))
        parent = self.open[-1] if self.open else None
        if parent is not None:
            parent.words += [" " if element.blocks else "", text, " " if element.blocks else ""]
        blocks = self._blocks(element, text)
        if parent is None:
            self.blocks += blocks
        else:
            parent.blocks += blocks

    def _blocks(self, element: _OpenElement, text: str) -> list[str]:
        if element.leaf and text and element.name.lower() in TITLES:
            self.title = self.title or text
            return [markdown_writer.heading(len(self.open), text)]
        if element.leaf or element.mixed:
            about = f" ({', '.join(element.attributes)})" if element.attributes else ""
            return (
                [markdown_writer.prose(f"{element.name}{about}: {text}")] if text or about else []
            )
        return _joined([*element.attributes, *element.blocks])


def _joined(blocks: list[str]) -> list[str]:
    """Join the short lines of a record into one block; keep longer blocks separate."""
    if any(block.startswith("#") or "\n" in block or len(block) > 200 for block in blocks):
        return blocks
    return ["\n".join(blocks)] if blocks else []


def _local(name: str) -> str:
    return name.rpartition("}")[2]
