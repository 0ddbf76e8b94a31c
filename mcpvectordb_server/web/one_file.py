"""The view of a chat as one HTML document, made of the page's own files when it is asked for first.

A host puts it into a frame without network. So modules become one script, and the document allows
this script and this style by their digests, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache

from mcpvectordb_server.web.assets import assets

ENTRY, STYLES = "view.js", ("base.css", "views.css", "view.css")

_IMPORT = re.compile(
    r'^import (?:\{(?P<names>[^}]*)\}|\* as (?P<all>\w+)) from "\./(?P<module>[\w.]+)";\n', re.M
)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.M)


@cache
def view() -> str:
    """The document."""
    script, style = script_of(ENTRY), "\n".join(map(_file, STYLES))
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>mcpvectordb</title>\n<style>{style}</style>\n</head>\n"
        '<body class="view">\n<main id="main"></main>\n'
        '<div id="live" class="unseen" role="status" aria-live="polite"></div>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def script_of(entry: str) -> str:
    """A module and all that it imports as one script, each as a function that returns its exports.

    Raises ValueError for a module that imports or exports in another way, or itself.
    """
    done: dict[str, str] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"{name} imports itself by {above[-1]}")
        if name in done:
            return
        text = _file(name)
        for each in _IMPORT.finditer(text):
            add(each["module"], (*above, name))
        exports = ", ".join(_EXPORT.findall(text))
        body = _EXPORT.sub("", _IMPORT.sub(_bound, text))
        if re.search(r"^(?:import|export)\b|\bimport\(|</?script", body, re.M | re.I):
            raise ValueError(f"{name} cannot be a part of one script")
        done[name] = f'modules["{name}"] = (() => {{\n{body}return {{ {exports} }};\n}})();\n'

    add(entry, ())
    return '"use strict";\nconst modules = {};\n' + "".join(done.values())


def _bound(found: re.Match[str]) -> str:
    """The line that stands for an import."""
    names = found["all"] or f"{{{found['names'].replace(' as ', ': ')}}}"
    return f'const {names} = modules["{found["module"]}"];\n'


def _file(name: str) -> str:
    return assets()[name][0].decode()


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
