"""PPTX: each slide is a page with its title as heading, bullets, tables, diagrams and notes."""

from __future__ import annotations

from typing import Any

from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.archive import Archive
from mcpvectordb.ingest.formats.ooxml import (
    children,
    find,
    local,
    main_part,
    properties,
    relations,
    value,
)
from mcpvectordb.records import Parsed, Source

TITLES = ("title", "ctrTitle")
DECORATION = ("sldNum", "dt", "ftr", "hdr", "sldImg")


def parse(source: Source) -> Parsed:
    """Return the text of a presentation, slide by slide."""
    archive = Archive(source)
    part = main_part(archive, "ppt/presentation.xml")
    targets = {key: target for key, (_, target) in relations(archive, part).items()}
    order = find(archive.xml(part), "sldIdLst")
    slides = [
        targets.get(_relation_id(slide), "") for slide in (order if order is not None else ())
    ]
    pages = [_slide(archive, slide) for slide in slides]
    metadata = properties(archive)
    title = markdown_writer.title(
        source, metadata.pop("title", ""), *map(markdown_writer.first_heading, pages[:1])
    )
    return markdown_writer.finish(
        source,
        pages,
        title=title,
        metadata={**metadata, "slides": len(pages)},
        nothing="its slides hold pictures only; supply the text directly",
    )


def _relation_id(slide: Any) -> str:
    """The id of the slide's relation (r:id); the attribute id without namespace is another one."""
    return next((text for key, text in slide.items() if key.endswith("}id")), "")


def _slide(archive: Archive, part: str) -> str:
    root = archive.xml(part)
    if root is None:
        return ""
    linked = relations(archive, part).values()
    shapes = [shape for shape in root.iter() if local(shape) in ("sp", "graphicFrame")]
    shapes.sort(key=lambda shape: _placeholder(shape) not in TITLES)
    blocks = [_shape(shape) for shape in shapes]
    blocks += [_bullets(archive.xml(target)) for kind, target in linked if kind == "diagramData"]
    notes = markdown_writer.blocks(
        _notes(archive.xml(target)) for kind, target in linked if kind == "notesSlide"
    )
    return markdown_writer.blocks([*blocks, notes and f"Notes: {notes}"])


def _placeholder(shape: Any) -> str:
    """The placeholder type of a shape, "" for other shapes."""
    mark = find(find(shape, "nvSpPr"), "nvPr", "ph")
    return (value(mark, "type") or "body") if mark is not None else ""


def _shape(shape: Any) -> str:
    kind = _placeholder(shape)
    if kind in DECORATION:
        return ""
    if kind in TITLES:
        return markdown_writer.heading(1, " ".join(text for _, text in _paragraphs(shape)))
    if local(shape) == "graphicFrame":
        return markdown_writer.blocks(_table(each) for each in shape.iter() if local(each) == "tbl")
    return (
        _bullets(shape)
        if kind
        else markdown_writer.prose("\n".join(text for _, text in _paragraphs(shape)))
    )


def _table(table: Any) -> str:
    rows = (children(row, "tc") for row in children(table, "tr"))
    return markdown_writer.table(
        [[" ".join(text for _, text in _paragraphs(cell)) for cell in row] for row in rows]
    )


def _bullets(element: Any) -> str:
    paragraphs = _paragraphs(element) if element is not None else []
    if len(paragraphs) == 1:
        return markdown_writer.prose(paragraphs[0][1])
    return "\n".join(f"{'  ' * level}- {text}" for level, text in paragraphs)


def _notes(root: Any) -> str:
    bodies = (
        shape for shape in root.iter() if local(shape) == "sp" and _placeholder(shape) == "body"
    )
    return "\n\n".join(text for body in bodies for _, text in _paragraphs(body))


def _paragraphs(element: Any) -> list[tuple[int, str]]:
    """The paragraphs with text in an element, each with its level."""
    found = []
    for paragraph in (each for each in element.iter() if local(each) == "p"):
        words = (
            each.text or "" if local(each) == "t" else " "
            for each in paragraph.iter()
            if local(each) in ("t", "br")
        )
        if text := markdown_writer.line("".join(words)):
            level = value(find(paragraph, "pPr"), "lvl")
            found.append((min(int(level), 8) if level.isdigit() else 0, text))
    return found
