from __future__ import annotations

import re

import pytest

from mcpvectordb_server.web import one_file
from mcpvectordb_server.web.assets import assets


def script(monkeypatch: pytest.MonkeyPatch, **modules: str) -> str:
    files = {f"{name}.js": (text.encode(), "", "", b"") for name, text in modules.items()}
    monkeypatch.setattr(one_file, "assets", lambda: files)
    return one_file.script_of("a.js")


def test_each_module_stands_once_before_those_that_import_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = script(
        monkeypatch,
        a='import * as b from "./b.js";\nimport { c as d } from "./c.js";\nb.f(d);\n',
        b='import { c } from "./c.js";\nexport function f() {\n\treturn c;\n}\n',
        c="export const c = 1;\n",
    )
    assert [made.index(f'modules["{name}.js"] =') for name in "cba"] == sorted(
        made.index(f'modules["{name}.js"] =') for name in "abc"
    )
    assert 'const b = modules["b.js"];' in made
    assert 'const { c: d } = modules["c.js"];' in made
    assert "return { f };" in made and "export" not in made


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('import { b } from "./b.js";\n', "imports itself"),
        ('import b from "./b.js";\n', "cannot be a part"),
        ('const b = await import("./b.js");\n', "cannot be a part"),
        ("export default 1;\n", "cannot be a part"),
        ('const end = "</script>";\n', "cannot be a part"),
    ],
)
def test_what_would_not_be_the_same_in_one_script_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        script(monkeypatch, a=text, b='import { a } from "./a.js";\nexport const b = 1;\n')


def test_the_view_has_the_page_s_own_modules() -> None:
    made = one_file.view()
    for name in ("dom.js", "hits.js", "markdown.js", "text.js"):
        for line in re.findall("^export (function .*)$", assets()[name][0].decode(), re.M):
            assert f"\n{line}\n" in made, line
    assert made.count("</script>") == 1
