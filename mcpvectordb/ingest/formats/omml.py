"""Office equations (OMML) as text in the manner of LaTeX."""

from __future__ import annotations

from typing import Any

from mcpvectordb.ingest.formats.ooxml import children, find, local, value

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
        case "sSup":
            return f"{inside('e')}^{{{inside('sup')}}}"
        case "sSub":
            return f"{inside('e')}_{{{inside('sub')}}}"
        case "sSubSup":
            return f"{inside('e')}_{{{inside('sub')}}}^{{{inside('sup')}}}"
        case "nary":
            sign = value(find(element, "naryPr", "chr")) or "∫"
            lower, upper = inside("sub"), inside("sup")
            limits = (f"_{{{lower}}}" if lower else "") + (f"^{{{upper}}}" if upper else "")
            return f"{_OPERATORS.get(sign, sign)}{limits} {inside('e')}"
        case "d":
            begin, end = (
                _character(find(element, "dPr"), name, usual)
                for name, usual in (("begChr", "("), ("endChr", ")"))
            )
            parts = [latex(part, depth) for part in children(element, "e")]
            return f"{begin}{', '.join(parts)}{end}"
        case "func":
            return f"\\{inside('fName').strip()} {inside('e')}"
        case "limLow":
            return f"{inside('e')}_{{{inside('lim')}}}"
        case "limUpp":
            return f"{inside('e')}^{{{inside('lim')}}}"
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


def _character(properties: Any, name: str, usual: str) -> str:
    """A bracket; one that is declared as empty is none."""
    declared = find(properties, name)
    return usual if declared is None else value(declared)
