"""ZIP archives as containers of documents, and what the Office formats in them have in common.

Sizes are checked before anything is decompressed.
"""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from lxml import etree

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown
from mcpvectordb.records import Source

MOST_UNPACKED = 256_000_000
MOST_MEMBERS = 20_000
# By the names that Office and OpenDocument have for what a document says of itself.
_PROPERTIES = {"creator": "author", "initial-creator": "author", "keyword": "keywords"}
_PROPERTIES |= {"creation-date": "created", "date": "modified"}
_PROPERTIES |= {
    name: name for name in "title subject keywords description created modified language".split()
}


class Archive:
    """The members of a ZIP archive; ParseFailed for one that is damaged, encrypted or too large.

    Those of Office are parts with relations between them.
    """

    def __init__(self, source: Source) -> None:
        self.name = source.name
        try:
            self._zip = zipfile.ZipFile(BytesIO(source.raw))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError):
            why = "it is truncated or not a ZIP archive, which its type requires"
            raise markdown.damaged(source.name, why) from None
        members = self._zip.infolist()
        unpacked = sum(member.file_size for member in members)
        if len(members) > MOST_MEMBERS or unpacked > MOST_UNPACKED:
            raise ParseFailed(
                f"{source.name} would unpack to more than {MOST_UNPACKED // 10**6} MB"
            )
        if any(member.flag_bits & 1 for member in members):
            raise markdown.encrypted(source.name)
        self.members = frozenset(member.filename for member in members)

    def read(self, member: str) -> bytes:
        """Return a member's bytes, b"" if it does not exist."""
        if member not in self.members:
            return b""
        try:
            return self._zip.read(member)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError) as error:
            why = f"{member} cannot be unpacked ({error})"
            raise markdown.damaged(self.name, why) from None

    def xml(self, member: str) -> Any:
        """Return a member's root element, an empty one without it; entities are not resolved."""
        raw = self.read(member)
        parser = etree.XMLParser(
            resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
        )
        try:
            return etree.fromstring(raw, parser) if raw.strip() else etree.Element("missing")
        except etree.XMLSyntaxError as error:
            raise markdown.damaged(self.name, f"{member}: {error.msg}") from None

    def relations(self, part: str) -> dict[str, tuple[str, str]]:
        """Return the relations of a part by id: the last word of the type, and the target part."""
        folder = posixpath.dirname(part)
        found = {}
        for relation in self._relations(part):
            if relation.get("TargetMode") != "External":
                target = posixpath.join("/", folder, relation.get("Target") or "")
                kind = (relation.get("Type") or "").rpartition("/")[2]
                found[relation.get("Id")] = (kind, posixpath.normpath(target).lstrip("/"))
        return found

    def links(self, part: str) -> dict[str, str]:
        """Return the targets of a part's hyperlinks by the id of their relation."""
        return {
            relation.get("Id"): relation.get("Target") or ""
            for relation in self._relations(part)
            if relation.get("TargetMode") == "External"
            and (relation.get("Type") or "").endswith("/hyperlink")
        }

    def _relations(self, part: str) -> Any:
        folder, name = posixpath.split(part)
        return self.xml(posixpath.join(folder, "_rels", f"{name}.rels"))

    def main_part(self, usual: str) -> str:
        """Return the name of the part with the document itself."""
        part = dict(self.relations("").values()).get("officeDocument", usual)
        if part not in self.members:
            raise markdown.damaged(self.name, f"its part {part} is missing")
        return part

    def properties(self, part: str = "") -> dict[str, str]:
        """Return title, author, dates and the like, from this part or the one of Office."""
        linked = dict(self.relations("").values())
        found: dict[str, str] = {}
        for element in self.xml(part or linked.get("core-properties", "docProps/core.xml")).iter():
            if (key := _PROPERTIES.get(local(element))) and element.text:
                found.setdefault(key, element.text)
        return found


def local(element: Any) -> str:
    """Return an element's name without its namespace, which differs between editions."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def children(element: Any, *names: str) -> Iterator[Any]:
    """Return the children with these names."""
    found: Iterator[Any] = element.iterchildren(*(f"{{*}}{name}" for name in names))
    return found


def find(element: Any, *path: str) -> Any:
    """Return the first descendant along a path of names, or None."""
    for name in path:
        element = next(children(element, name), None) if element is not None else None
    return element


def value(element: Any, name: str = "val") -> str:
    """Return an attribute of any namespace; "" if the element or the attribute is missing."""
    if element is None:
        return ""
    return next((text for key, text in element.items() if key.rpartition("}")[2] == name), "")


def relation_id(element: Any) -> str:
    """Return the id of a relation that an element refers to (r:id); "" without one."""
    return next((text for key, text in element.items() if key.endswith("}id")), "")


# --- charts: their title, and a table of the values that were cached

MOST_POINTS = 10_000


def chart_markdown(root: Any) -> str:
    """Return a chart's title and its series as the columns of a table."""
    chart = find(root, "chart")
    if chart is None:
        return ""
    title = find(chart, "title")
    words = () if title is None else (each.text or "" for each in title.iter("{*}t"))
    series = list(root.iter("{*}ser"))
    columns = [_points(find(each, "val")) or _points(find(each, "yVal")) for each in series]
    labels: dict[int, str] = {}
    for each in series:
        labels = labels or _points(find(each, "cat")) or _points(find(each, "xVal"))
    names = [" ".join(_points(find(each, "tx")).values()) for each in series]
    rows = [["", *names]]
    for at in sorted({at for column in [labels, *columns] for at in column})[:MOST_POINTS]:
        rows.append([labels.get(at, ""), *(column.get(at, "") for column in columns)])
    return markdown.blocks(
        [
            markdown.prose(markdown.line(f"Chart: {''.join(words)}")),
            markdown.table(rows) if len(rows) > 1 else "",
        ]
    )


def _points(element: Any) -> dict[int, str]:
    """The cached values of a reference by their index; a plain value has the index 0."""
    if element is None:
        return {}
    points = {
        int(index): text.text or ""
        for point in element.iter("{*}pt")
        if (index := value(point, "idx")).isdigit() and (text := find(point, "v")) is not None
    }
    plain = next(children(element, "v"), None)
    return points or ({0: plain.text or ""} if plain is not None else {})


# --- equations (OMML) as text in the manner of LaTeX

DEEPEST = 50
_OPERATORS = {"∑": "\\sum", "∏": "\\prod", "∫": "\\int", "⋃": "\\bigcup", "⋂": "\\bigcap"}


def latex(equation: Any, depth: int = 0) -> str:
    """Return an equation, or a part of one, on one line."""
    if equation is None or depth > DEEPEST:
        return ""
    return "".join(_part(child, depth + 1) for child in equation)


def _part(element: Any, depth: int) -> str:
    """One element: a fraction, a root, a script and so on, or the parts of any other one."""

    def inside(name: str) -> str:
        return latex(find(element, name), depth)

    match local(element):
        case "t":
            return element.text or ""
        case "f":
            return f"\\frac{{{inside('num')}}}{{{inside('den')}}}"
        case "rad":
            degree = inside("deg")
            return f"\\sqrt{f'[{degree}]' if degree else ''}{{{inside('e')}}}"
        case "sSup" | "limUpp":
            return f"{inside('e')}^{{{inside('sup') or inside('lim')}}}"
        case "sSub" | "limLow":
            return f"{inside('e')}_{{{inside('sub') or inside('lim')}}}"
        case "sSubSup":
            return f"{inside('e')}_{{{inside('sub')}}}^{{{inside('sup')}}}"
        case "nary":
            sign = value(find(element, "naryPr", "chr")) or "∫"
            lower, upper = inside("sub"), inside("sup")
            limits = (f"_{{{lower}}}" if lower else "") + (f"^{{{upper}}}" if upper else "")
            return f"{_OPERATORS.get(sign, sign)}{limits} {inside('e')}"
        case "d":
            parts = ", ".join(latex(part, depth) for part in children(element, "e"))
            begin, end = find(element, "dPr", "begChr"), find(element, "dPr", "endChr")
            left = "(" if begin is None else value(begin)  # declared as empty, there is none
            return f"{left}{parts}{')' if end is None else value(end)}"
        case "func":
            return f"\\{inside('fName').strip()} {inside('e')}"
        case "m":
            rows = (
                " & ".join(latex(cell, depth) for cell in children(row, "e"))
                for row in children(element, "mr")
            )
            return "\\begin{matrix}" + " \\\\ ".join(rows) + "\\end{matrix}"
        case name if name.endswith("Pr"):
            return ""
        case _:
            return latex(element, depth)
