"""The server under official MCP tools. They come from package registries, so they run on request only:

EXTERNAL_JUDGES=1 python -m pytest tests/external --full -rs
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcpvectordb import Access, Database
from tests.external.judges import ROOT, judge
from tests.server.support_oauth import PASSPHRASE, Web
from tests.server.test_oauth import serving
from tests.support import Letters

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not os.environ.get("EXTERNAL_JUDGES"), reason="runs only with EXTERNAL_JUDGES=1"
    ),
]


@pytest.fixture
def url() -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.external.conformance_server"],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a tool's figures, also when the test passes."""

    def write(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}\n")

    return write


def test_the_conformance_suite_fails_only_for_features_that_are_not_offered(
    url: str, report: Callable[[str], None]
) -> None:
    baseline = ("--expected-failures", str(HERE / "conformance_baseline.yml"))
    done = judge("conformance", "server", "--url", url, "--suite", "all", *baseline)
    total = re.search(r"Total: (\d+) passed, (\d+) failed", done.stdout)
    assert total, done.stdout + done.stderr
    report(f"conformance suite: {total[0]} (those that failed are in the baseline)")
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(total[1]) >= 15


def inspected(
    path: Path, options: str, surface: str = "mcpvectordb"
) -> subprocess.CompletedProcess[str]:
    """What the inspector says of our server, over stdio."""
    server = (sys.executable, "-m", "mcpvectordb_server", "--db", str(path), "--surface", surface)
    environ = ("--cli", "-e", f"PYTHONPATH={ROOT}")
    return judge("mcp-inspector", *environ, *options.split(), "--transport", "stdio", "--", *server)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_accepts_every_schema(era: str, path: Path) -> None:
    done = inspected(path, f"--protocol-era {era} --method tools/list --strict")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)["tools"]) == 7


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_lists_and_reads_resources(era: str, path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("Water at 80 degrees.", source="tea.md", embed=False)
    answers = [
        inspected(path, f"--protocol-era {era} --method {method}", "desk")
        for method in (
            "resources/list",
            "resources/templates/list",
            "resources/read --uri mcpvectordb://documents/default/tea.md",
        )
    ]
    assert [(each.returncode, each.stderr) for each in answers] == 3 * [(0, "")]
    listed, templates, read = (json.loads(each.stdout) for each in answers)
    assert [each["name"] for each in listed["resources"]] == ["default/tea.md"]
    assert len(templates["resourceTemplates"]) == 5
    assert "Water at 80 degrees." in read["contents"][0]["text"]


def test_the_typescript_client_is_told_of_a_changed_resource(path: Path) -> None:
    done = judge(str(HERE / "sdk_resources.mjs"), sys.executable, str(path))
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert answers["changed"] == answers["uri"] == "mcpvectordb://documents/default/tea.md"
    assert "Water at 80 degrees." in answers["read"]
    assert answers["completed"]["completion"]["values"] == ["default/tea.md"]
    assert answers["gone"] == -32602


def test_every_call_of_the_inspector_s_load_test_succeeds(
    path: Path, report: Callable[[str], None]
) -> None:
    done = inspected(
        path,
        "--method tools/call --tool-name search --tool-arg query=tea --load --load-requests 300 "
        "--load-concurrency 20 --format json",
    )
    assert done.returncode == 0, done.stderr
    load = json.loads(done.stdout)["result"]
    report(
        f"inspector's load: {load['ok']} of {load['requests']} calls, {load['throughput']:.0f} per "
        f"second"
    )
    assert load["ok"] == load["requests"] == 300


def test_the_typescript_client_accepts_every_reply(path: Path, tmp_path: Path) -> None:
    note = tmp_path / "tea.md"
    note.write_text("# Tea\n\nWater at 80 degrees.\n")
    done = judge(str(HERE / "sdk_client.mjs"), sys.executable, str(path), str(note))
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert len(answers["tools"]) == 7
    assert answers["found"]["results"][0]["content"] == "# Tea\n\nWater at 80 degrees."
    assert answers["read"]["content"] == "# Tea\n\nWater at 80 degrees.\n"
    assert answers["deleted"]["deleted_chunks"] == 1
    assert [each["status"] for each in answers["errors"]] == ["error"] * 8


@pytest.fixture
def public(tmp_path: Path) -> Iterator[str]:
    """The URL of a server that lets OAuth clients in."""
    access = Access(tmp_path / "notes.db", folder=tmp_path)
    access.set_passphrase(PASSPHRASE)
    running = serving(access)
    yield f"{running.url}/mcp"
    running.stop()


def test_the_typescript_client_is_let_in_refreshes_and_asks_for_more(public: str) -> None:
    done = judge(str(HERE / "oauth_client.mjs"), public, PASSPHRASE)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert (answers["scope"], answers["tools"], answers["again"]) == ("read", 9, 9)
    assert "client_secret" not in answers["client"]
    assert "write" in answers["asksFor"]


def test_the_inspector_gets_in_by_a_token(public: str) -> None:
    web = Web(public.removesuffix("/mcp"))
    token = web.tokens(web.client())["access_token"]
    listed = ("--cli", public, "--transport", "http", "--method", "tools/list")
    assert judge("mcp-inspector", *listed, "--stored-auth-only").returncode != 0
    done = judge("mcp-inspector", *listed, "--header", f"Authorization: Bearer {token}")
    assert len(json.loads(done.stdout)["tools"]) == 9, done.stderr


def test_the_bundle_s_manifest_is_valid() -> None:
    done = judge(
        "mcpb", "validate", str(ROOT / "mcpvectordb_server" / "packaging" / "manifest.json")
    )
    assert "Manifest schema validation passes!" in done.stdout + done.stderr
