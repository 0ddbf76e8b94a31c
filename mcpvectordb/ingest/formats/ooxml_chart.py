"""The data of a chart in an Office file: its title, and a table of the values that were cached."""

from __future__ import annotations

from typing import Any

from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.ooxml import children, find, local, value

MOST_POINTS = 10_000


def chart_markdown(root: Any) -> str:
    """Return a chart's title and its series as the columns of a table."""
    if root is None:
        return ""
    chart = find(root, "chart")
    title = find(chart, "title")
    words = (
        (each.text or "" for each in title.iter() if local(each) == "t")
        if title is not None
        else ()
    )
    series = [each for each in root.iter() if local(each) == "ser"]
    columns = [_points(find(each, "val")) or _points(find(each, "yVal")) for each in series]
    labels: dict[int, str] = {}
    for each in series:
        labels = labels or _points(find(each, "cat")) or _points(find(each, "xVal"))
    names = [" ".join(_points(find(each, "tx")).values()) for each in series]
    rows = [["", *names]]
    for at in sorted({at for column in [labels, *columns] for at in column})[:MOST_POINTS]:
        rows.append([labels.get(at, ""), *(column.get(at, "") for column in columns)])
    return markdown_writer.blocks(
        [
            markdown_writer.prose(markdown_writer.line(f"Chart: {''.join(words)}")),
            markdown_writer.table(rows) if len(rows) > 1 else "",
        ]
    )


def _points(element: Any) -> dict[int, str]:
    """The cached values of a reference by their index; a plain value has the index 0."""
    if element is None:
        return {}
    points = {
        int(index): text.text or ""
        for point in element.iter()
        if local(point) == "pt"
        and (index := value(point, "idx")).isdigit()
        and (text := find(point, "v")) is not None
    }
    plain = next(children(element, "v"), None)
    return points or ({0: plain.text or ""} if plain is not None else {})
