"""Line charts on logarithmic axes as SVG, legible on light and on dark ground. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 340, 300  # of one chart
LEFT, RIGHT, TOP, BOTTOM = 60, 22, 34, 46
KEY = 20  # height of a line of the key
COLOURS = ("#d9480f", "#1c7ed6", "#2f9e44", "#9c36b5", "#c99700", "#0c8599", "#e64980", "#868e96")
GROUND = "#868e96"  # between black and white: axes and words

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines by name; both axes are logarithmic, so all figures are above 0."""

    title: str
    across: str
    up: str
    lines: Mapping[str, Points]


def drawing(charts: Sequence[Chart]) -> str:
    """Charts side by side with one key below: the same name has the same colour in all."""
    names = list(dict.fromkeys(name for chart in charts for name in chart.lines))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    wide, high = WIDTH * len(charts), HEIGHT + KEY * math.ceil(len(names) / 3) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" '
        f'font-family="sans-serif" font-size="12" '
        f'fill="{GROUND}">'
    ]
    parts += [
        f'<g transform="translate({WIDTH * place} 0)">{_chart(chart, colours)}</g>'
        for place, chart in enumerate(charts)
    ]
    for place, (name, colour) in enumerate(colours.items()):
        x, y = LEFT + place % 3 * (wide - LEFT) / 3, HEIGHT + KEY * (place // 3) + 10
        parts.append(
            f'<path d="M{x:.0f} {y} h18" stroke="{colour}" stroke-width="2.5"/>'
            f'<text x="{x + 24:.0f}" y="{y + 4}">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _chart(chart: Chart, colours: Mapping[str, str]) -> str:
    points = [point for line in chart.lines.values() for point in line]
    across, up = (
        _Axis([point[side] for point in points], length)
        for side, length in ((0, WIDTH - LEFT - RIGHT), (1, HEIGHT - TOP - BOTTOM))
    )
    floor = HEIGHT - BOTTOM
    parts = [
        f'<text x="{LEFT}" y="18" font-size="14" font-weight="bold">{escape(chart.title)}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 8}">{escape(chart.across)}</text>',
        f'<text transform="translate(14 {floor}) rotate(-90)">{escape(chart.up)}</text>',
    ]
    for value, place in up.ticks():
        parts.append(
            f'<path d="M{LEFT} {floor - place:.1f} H{WIDTH - RIGHT}" stroke="{GROUND}" '
            f'stroke-opacity="0.3"/>'
            f'<text x="{LEFT - 6}" y="{floor - place + 4:.1f}" '
            f'text-anchor="end">{short(value)}</text>'
        )
    for value, place in across.ticks():
        parts.append(
            f'<path d="M{LEFT + place:.1f} {TOP} V{floor}" stroke="{GROUND}" stroke-opacity="0.3"/>'
            f'<text x="{LEFT + place:.1f}" y="{floor + 16}" '
            f'text-anchor="middle">{short(value)}</text>'
        )
    for name, line in chart.lines.items():
        places = [(LEFT + across.place(x), floor - up.place(y)) for x, y in line]
        parts.append(
            f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" fill="none" '
            f'stroke="{colours[name]}" stroke-width="2.5"/>'
        )
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colours[name]}"/>' for x, y in places
        ]
    return "".join(parts)


class _Axis:
    """From the power of ten below the least figure to the one above the largest."""

    def __init__(self, values: Sequence[float], length: float) -> None:
        self._least = math.floor(math.log10(min(values)) + 1e-9)
        self._most = max(self._least + 1, math.ceil(math.log10(max(values)) - 1e-9))
        self._length = length

    def place(self, value: float) -> float:
        return self._length * (math.log10(value) - self._least) / (self._most - self._least)

    def ticks(self) -> list[tuple[float, float]]:
        return [
            (10.0**power, self.place(10.0**power)) for power in range(self._least, self._most + 1)
        ]


def short(value: float) -> str:
    """A power of ten in few letters: 0.1, 10, 100k, 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
