"""XML: the text with its structure as "element: text" lines and headings; entities and their bombs
are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.records import Parsed, Source

DEEPEST = 1000
TITLES = frozenset(["title", "name", "head", "heading", "headline", "subject"])


def parse(source: Source) -> Parsed:
    """The text of an XML document of any kind."""
    reader = _XmlReader(source.name)
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(source.raw, True)
    except expat.ExpatError as error:
        raise ParseFailed(f"{source.name} is no well-formed XML: {error}") from None
    return markdown_writer.finish(
        source,
        [markdown_writer.blocks(reader.blocks)],
        title=markdown_writer.title(source, reader.title),
        paged=False,
    )


@dataclass(slots=True)
class _Open:
    """An element that is not closed yet: text of its own, and what its children have become."""

    name: str
    attributes: list[str]
    words: list[str] = field(default_factory=list)
    mixed: bool = False
    leaf: bool = True
    blocks: list[str] = field(default_factory=list)


class _XmlReader:
    """Builds blocks as elements close; an element with text between its children is one
    paragraph.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = ""
        self.open: list[_Open] = []
        self.blocks: list[str] = []

    def refuse(self, *_: object) -> None:
        raise ParseFailed(
            f"{self.name} declares XML entities, which can be made to swell or to read files; "
            "save it without a document type definition"
        )

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.open) >= DEEPEST:
            raise ParseFailed(f"{self.name} has elements nested more than {DEEPEST} deep")
        if self.open:
            self.open[-1].leaf = False
        if self.open and self.open[0].name == "svg":
            attributes = {}  # the shapes of a drawing; its words are text
        plain = [
            f"{_local(key)}: {text}"
            for key, value in attributes.items()
            if (text := markdown_writer.line(value))
        ]
        self.open.append(_Open(_local(tag), plain))

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

    def _blocks(self, element: _Open, text: str) -> list[str]:
        if element.leaf and text and element.name.lower() in TITLES:
            self.title = self.title or text
            return [markdown_writer.heading(len(self.open), text)]
        if element.leaf or element.mixed:
            about = f" ({', '.join(element.attributes)})" if element.attributes else ""
            return (
                [markdown_writer.prose(f"{element.name}{about}: {text}")] if text or about else []
            )
        return _gathered([*element.attributes, *element.blocks])


def _gathered(blocks: list[str]) -> list[str]:
    """A record of short lines becomes one block; longer content stays apart."""
    if any(block.startswith("#") or "\n" in block or len(block) > 200 for block in blocks):
        return blocks
    return ["\n".join(blocks)] if blocks else []


def _local(name: str) -> str:
    return name.rpartition("}")[2]
