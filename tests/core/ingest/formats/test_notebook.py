from __future__ import annotations

import json
from typing import Any

import pytest

from mcpvectordb.errors import ParseFailed
from tests.support_formats import read


def notebook(*cells: dict[str, Any], **more: Any) -> str:
    about = {"kernelspec": {"language": "python"}, "language_info": {"name": "python"}}
    return json.dumps(
        {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5} | more
    )


def code(source: list[str] | str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "source": source,
        "outputs": outputs,
        "metadata": {},
        "execution_count": 1,
    }


def text(source: list[str] | str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def test_cells_come_in_order_with_code_and_outputs_fenced() -> None:
    raw = notebook(
        text(["# Analysis\n", "\n", "Some words."]),
        code(["x = 1\n", "print(x)"], {"output_type": "stream", "name": "stdout", "text": ["1\n"]}),
        code(
            "x + 1",
            {
                "output_type": "execute_result",
                "data": {"text/plain": ["2"], "text/html": ["<b>2</b>"]},
            },
        ),
        code(
            "1 / 0",
            {
                "output_type": "error",
                "ename": "ZeroDivisionError",
                "evalue": "division by zero",
                "traceback": [],
            },
        ),
    )
    parsed = read(raw, "a.ipynb")
    assert parsed.text == (
        "# Analysis\n\nSome words.\n\n```python\nx = 1\nprint(x)\n```\n\n```\n1\n```\n\n"
        "```python\nx + 1\n```\n\n```\n2\n```\n\n```python\n1 / 0\n```\n\n```\nZeroDivisionError: "
        "division by zero\n```\n"
    )
    assert parsed.title == "Analysis" and parsed.metadata == {"language": "python"}


def test_pictures_are_left_out_and_long_outputs_shortened() -> None:
    raw = notebook(
        code(
            "plot()", {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 1000}}
        ),
        code("log()", {"output_type": "stream", "text": "line\n" * 10_000}),
    )
    written = read(raw, "a.ipynb").text
    assert "iVBOR" not in written and len(written) < 3000 and "\n…\n```" in written


def test_notebooks_of_version_3_are_read() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Old"},
        {"cell_type": "code", "input": "1+1", "outputs": [{"output_type": "pyout", "text": ["2"]}]},
    ]
    raw = json.dumps({"worksheets": [{"cells": cells}], "metadata": {}, "nbformat": 3})
    assert read(raw, "a.ipynb").text == "## Old\n\n```python\n1+1\n```\n\n```\n2\n```\n"


@pytest.mark.parametrize(
    "raw", ['{"a": 1}', "[]", "3", '{"cells": "none"}', '{"cells": [1, null]}']
)
def test_json_that_is_not_a_notebook_fails_clearly(raw: str) -> None:
    with pytest.raises(ParseFailed, match=r"a\.ipynb is not a notebook: it has no cells"):
        read(raw, "a.ipynb")


def test_invalid_cells_are_ignored() -> None:
    raw = notebook(
        {"cell_type": 5, "source": {"a": 1}},
        {"source": [1, "words", None]},
        code("x", {"data": 3}, {"text": 7}),
    )
    assert read(raw, "a.ipynb").text == "words\n\n```python\nx\n```\n"
