"""PPTX: each slide is a page with its title as heading, bullets, tables, diagrams and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mcpvectordb.ingest.formats import markdown
from mcpvectordb.ingest.formats.archive import (
    Archive,
    chart_markdown,
    children,
    find,
    latex,
    local,
    relation_id,
    value,
)
from mcpvectordb.records import Parsed, Source

TITLES = ("title", "ctrTitle")
DECORATION = ("sldNum", "dt", "ftr", "hdr", "sldImg")


def parse(source: Source) -> Parsed:
    """Return the text of a presentation, slide by slide."""
    archive = Archive(source)
    part = archive.main_part("ppt/presentation.xml")
    targets = {key: target for key, (_, target) in archive.relations(part).items()}
    order = archive.xml(part).iterfind("{*}sldIdLst/*")
    pages = [_slide(archive, targets.get(relation_id(slide), "")) for slide in order]
    nothing = "its slides hold pictures only; supply the text directly"
    metadata = {**archive.properties(), "slides": len(pages)}
    return markdown.finish(source, pages, metadata, headings=1, nothing=nothing)


def _slide(archive: Archive, part: str) -> str:
    root = archive.xml(part)
    linked, targets = archive.relations(part), archive.links(part)
    shapes = root.iter("{*}sp", "{*}graphicFrame", "{*}pic")
    titles_first = sorted(shapes, key=lambda shape: _placeholder(shape) not in TITLES)
    blocks = [_shape(shape, targets) for shape in titles_first]
    for shape in root.iter("{*}chart"):
        _, target = linked.get(relation_id(shape), ("", ""))
        blocks.append(chart_markdown(archive.xml(target)))
    for kind, target in linked.values():
        if kind == "diagramData":
            blocks.append(_bullets(archive.xml(target), targets))
        elif kind == "comments":
            blocks += _comments(archive.xml(target))
    notes = markdown.blocks(
        text
        for kind, target in linked.values()
        if kind == "notesSlide"
        for shape in archive.xml(target).iter("{*}sp")
        if _placeholder(shape) == "body"
        for _, text in _paragraphs(shape, {})
    )
    return markdown.blocks([*blocks, notes and f"Notes: {notes}"])


def _comments(root: Any) -> list[str]:
    """The comments of a slide, in the old form (p:text) or the new one (paragraphs)."""
    found = []
    for comment in root.iter("{*}cm", "{*}reply"):
        own = [each.text or "" for each in children(comment, "text")]
        for body in children(comment, "txBody"):
            own += [text for _, text in _paragraphs(body, {})]
        found.append(markdown.prose(markdown.line("Comment: " + " ".join(own))))
    return found


def _placeholder(shape: Any) -> str:
    """The placeholder type of a shape, "" for other shapes."""
    mark = find(find(shape, "nvSpPr"), "nvPr", "ph")
    return (value(mark, "type") or "body") if mark is not None else ""


def _shape(shape: Any, targets: Mapping[str, str]) -> str:
    kind = _placeholder(shape)
    if local(shape) == "pic":
        return markdown.image(value(find(shape, "nvPicPr", "cNvPr"), "descr"))
    if kind in DECORATION:
        return ""
    if kind in TITLES:
        return markdown.heading(1, " ".join(text for _, text in _paragraphs(shape, targets)))
    if local(shape) == "graphicFrame":
        return markdown.blocks(_table(each, targets) for each in shape.iter("{*}tbl"))
    if kind:
        return _bullets(shape, targets)
    return markdown.prose("\n".join(text for _, text in _paragraphs(shape, targets)))


def _table(table: Any, targets: Mapping[str, str]) -> str:
    rows = (children(row, "tc") for row in children(table, "tr"))
    return markdown.table(
        [[" ".join(text for _, text in _paragraphs(cell, targets)) for cell in row] for row in rows]
    )


def _bullets(element: Any, targets: Mapping[str, str]) -> str:
    paragraphs = _paragraphs(element, targets)
    if len(paragraphs) == 1:
        return markdown.prose(paragraphs[0][1])
    return "\n".join(f"{'  ' * level}- {text}" for level, text in paragraphs)


def _paragraphs(element: Any, targets: Mapping[str, str]) -> list[tuple[int, str]]:
    """The paragraphs with text in an element, each with its level."""
    found = []
    for paragraph in element.iter("{*}p"):
        if text := markdown.line("".join(_inline(paragraph, targets))):
            level = value(find(paragraph, "pPr"), "lvl")
            found.append((min(int(level), 8) if level.isdigit() else 0, text))
    return found


def _inline(element: Any, targets: Mapping[str, str]) -> Iterator[str]:
    """The text of a paragraph: its runs, with their links, and its equations."""
    for child in element:
        name = local(child)
        if name in ("r", "fld"):
            click = find(child, "rPr", "hlinkClick")
            target = targets.get(relation_id(click), "") if click is not None else ""
            text = find(child, "t")
            yield markdown.link(text.text or "" if text is not None else "", target)
        elif name == "br":
            yield " "
        elif name == "oMath":
            yield f" ${latex(child)}$ "
        elif name not in ("pPr", "endParaRPr", "Fallback"):
            yield from _inline(child, targets)
