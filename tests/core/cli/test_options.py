from __future__ import annotations

from tests.support_cli import Shell


def test_conditions_are_written_with_comparison_signs(filled: Shell) -> None:
    assert "apple.md" in filled.run("list", "--where", "metadata.year>=2024")
    assert "apple.md" not in filled.run("list", "--where", "metadata.year>2024")
    assert "pear.txt" in filled.run("list", "-w", "title^=pear", "-w", "metadata.n=3")
    filled.run("list", "--where", "nonsense", code=1)
    assert "FIELD=VALUE" in filled.err
