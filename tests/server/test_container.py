"""The Dockerfile: what a linter looks for, and its steps done in a folder of its own, without an engine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.clients import hello
from tests.server.support_http import TOKEN
from tests.support import ROOT

Step = tuple[str, str]
FILE = ROOT / ".docker" / "Dockerfile"


def steps() -> list[Step]:
    """The instructions of the Dockerfile with what they are given, in their order."""
    lines = [each for each in FILE.read_text("utf-8").splitlines() if not each.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name, given.strip()) for name, given in re.findall(r"^([A-Z]+) (.*)$", joined, re.M)]


def given(name: str) -> list[str]:
    return [each for step, each in steps() if step == name]


def environment() -> dict[str, str]:
    """The variables of the image."""
    return dict(each.split("=", 1) for value in given("ENV") for each in shlex.split(value))


def test_the_image_is_as_linters_want_it() -> None:
    known = {"FROM", "WORKDIR", "COPY", "RUN", "LABEL", "ENV", "VOLUME", "EXPOSE", "USER"}
    names = [name for name, _ in steps()]
    assert set(names) <= known | {"HEALTHCHECK", "ENTRYPOINT"}
    for image in given("FROM"):
        assert re.fullmatch(r"python:3\.\d+-slim( AS build)?", image), (
            "a tag, and none that moves far"
        )
    [user] = given("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user), (
        "numbers, so that Kubernetes can see it is not root"
    )
    assert names.index("USER") > max(at for at, name in enumerate(names) if name in ("RUN", "COPY"))
    assert f"--uid {user.partition(':')[0]}" in given("RUN")[-1]
    assert given("VOLUME") == ["/data"] and given("HEALTHCHECK") and len(given("ENTRYPOINT")) == 1
    assert not re.search(
        r"(?i)token=|password|secret|curl |wget |sudo|apt-get|\.\.", "\n".join(map(str, steps()))
    )
    assert all(len(run.splitlines()) == 1 for run in given("RUN"))


def test_all_that_is_copied_is_there_and_nothing_else_reaches_the_builder() -> None:
    copied = [
        each
        for value in given("COPY")
        if not value.startswith("--from=")
        for each in value.split()[:-1]
    ]
    assert all((ROOT / each).exists() for each in copied)
    allowed = FILE.with_name("Dockerfile.dockerignore").read_text("utf-8").split("\n")
    assert allowed[1] == "*"
    assert {each[1:] for each in allowed if each.startswith("!")} == set(copied)


def test_the_variables_are_those_of_the_server_and_name_the_volume() -> None:
    from mcpvectordb_server.options import parse

    options = parse([], environment())
    assert (str(options.db), options.surfaces) == ("/data/notes.db", ("desk",))
    assert (options.host, options.port, options.transport) == ("0.0.0.0", 8000, "stdio")
    assert given("EXPOSE") == [str(options.port)]
    assert environment()["HOME"] == environment()["XDG_DATA_HOME"] == "/data"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root folder of the image: the steps of its first stage, done in a folder.

    Tests download nothing: what it is built with comes from a folder of wheels, as in CI, and what it
    needs is that of this Python.
    """
    if not any(Path(os.environ.get("PIP_FIND_LINKS", "")).glob("setuptools-*.whl")):
        pytest.skip("PIP_FIND_LINKS names no folder with a wheel of setuptools")
    root = tmp_path_factory.mktemp("image")
    folders = {name: root / name for name in ("src", "opt", "data", "tmp")}
    for folder in folders.values():
        folder.mkdir()
    (first,) = (number for number, step in enumerate(steps()) if step[0] == "FROM" and number)
    for name, value in steps()[:first]:
        *sources, target = value.split()
        if name == "COPY":
            for source in sources:
                place = folders["src"] / target / (source if target == "./" else "")
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, place)
        elif name == "RUN" and ".ci/wheels" not in value:  # which downloads
            command = value.replace("/opt/", f"{root}/opt/").replace(
                "python -m venv", f"{sys.executable} -m venv"
            )
            command = command.replace(" install ", " install --quiet --no-deps ")
            command = command.replace("PIP_FIND_LINKS=/wheels ", "")
            done = subprocess.run(
                ["sh", "-euc", command],
                cwd=folders["src"],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
    [packages] = (folders["opt"] / "mcpvectordb").glob("lib/python*/site-packages")
    ours = [each for each in sys.path if each.endswith("site-packages")]
    (packages / "beside.pth").write_text("\n".join(ours))
    return root


def inside(image: Path, **more: str) -> dict[str, str]:
    """The variables of a container, with its folders in the one that stands in for its root."""
    moved = {
        name: re.sub(r"(?<![\w/])/(data|opt)", rf"{image}/\1", value).replace(
            "$PATH", os.environ["PATH"]
        )
        for name, value in environment().items()
    }
    return {**moved, "TMPDIR": str(image / "tmp"), "MCPVECTORDB_HOST": "127.0.0.1", **more}


def state(folder: Path) -> dict[str, int]:
    return {str(each): each.stat().st_mtime_ns for each in folder.rglob("*") if each.is_file()}


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="an image of Linux")
def test_the_image_serves_over_stdio_and_writes_to_the_volume_alone(image: Path) -> None:
    [entry] = map(json.loads, given("ENTRYPOINT"))
    before = state(image / "opt")
    lines = [
        {"id": 1, "method": "initialize", "params": hello()},
        {"method": "notifications/initialized"},
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": "remember", "arguments": {"text": "Tea at 80 degrees."}},
        },
    ]
    sent = "".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in lines)
    done = subprocess.run(
        [image / "opt" / "mcpvectordb" / "bin" / entry[0], *entry[1:]],
        input=sent,
        env=inside(image),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "remembered: memory:1" in done.stdout
    assert (image / "data" / "notes.db").is_file()
    assert state(image / "opt") == before


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="an image of Linux")
def test_the_health_check_asks_a_server_over_http_and_none_over_stdio(image: Path) -> None:
    [check] = given("HEALTHCHECK")
    command = ["sh", "-c", check.partition(" CMD ")[2]]
    assert subprocess.run(command, env=inside(image), check=False).returncode == 0
    environ = inside(
        image,
        MCPVECTORDB_TRANSPORT="streamable-http",
        MCPVECTORDB_TOKEN=TOKEN,
        MCPVECTORDB_PORT="0",
    )
    with subprocess.Popen(
        [image / "opt" / "mcpvectordb" / "bin" / "mcpvectordb-server"],
        env=environ,
        cwd="/",
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        port = re.search(r"127\.0\.0\.1:(\d+)", server.stderr.readline())[1]  # type: ignore[index]
        environ["MCPVECTORDB_PORT"] = port
        assert subprocess.run(command, env=environ, check=False).returncode == 0
        server.terminate()
        server.wait(30)
        sick = subprocess.run(command, env=environ, capture_output=True, check=False)
        assert sick.returncode != 0


def _own_processes() -> bool:
    """Whether this user may make a namespace of processes."""
    unshare = shutil.which("unshare")
    return (
        bool(unshare)
        and not subprocess.run(
            [unshare, "--pid", "--fork", "true"], check=False, capture_output=True
        ).returncode
    )


@pytest.mark.skipif(not _own_processes(), reason="needs a namespace of processes")
def test_a_server_that_is_the_first_process_of_a_container_ends_by_sigterm(path: Path) -> None:
    with subprocess.Popen(
        [
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            sys.executable,
            "-m",
            "mcpvectordb_server",
            "--db",
            str(path),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as outside:
        assert outside.stdin is not None and outside.stdout is not None
        first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}
        outside.stdin.write(json.dumps(first) + "\n")
        outside.stdin.flush()
        assert json.loads(outside.stdout.readline())["id"] == 1
        children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        try:
            assert outside.wait(30) == 128 + signal.SIGTERM
        finally:
            outside.kill()
