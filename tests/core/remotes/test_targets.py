"""Each target with the real programs: git on a bare repository, sftp on a server of this machine."""

from __future__ import annotations

import getpass
import hashlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpvectordb import InvalidInput, MCPVectorDBError, TooLarge, Unreachable, Unwritable
from mcpvectordb.remotes import targets
from mcpvectordb.remotes.targets import FolderTarget, GitTarget, SftpTarget, Target, target_of
from tests.core.remotes.conftest import Open

SERVER = shutil.which("sftp-server", path="/usr/lib/openssh:/usr/libexec:/usr/lib/ssh") or ""
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="needs git")
needs_sftp = pytest.mark.skipif(
    not (shutil.which("sftp") and SERVER), reason="needs sftp and sftp-server"
)


def name_of(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()}.bundle"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "repository"], check=True)
    return tmp_path / "repository"


@pytest.fixture
def local_sftp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """sftp that talks to a server of this machine, whatever host is named; its arguments."""
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "sftp"
    program.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> {programs}/arguments\n"
        f'exec {shutil.which("sftp")} -q -b - -D "{SERVER} -d {tmp_path}"\n'
    )
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    return programs / "arguments"


@pytest.fixture(
    params=[
        "folder",
        pytest.param("git", marks=needs_git),
        pytest.param("sftp", marks=needs_sftp),
    ]
)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    (tmp_path / "a folder").mkdir()
    if request.param == "git":
        return GitTarget(str(request.getfixturevalue("repository")), tmp_path / "cache")
    if request.param == "sftp":
        request.getfixturevalue("local_sftp")
        return SftpTarget("me@example.org", "a folder")
    return FolderTarget(tmp_path / "a folder")


def test_bundles_are_added_listed_read_and_removed(target: Target) -> None:
    assert target.names() == {}
    first, second = b"first" * 1000, bytes(range(256))
    target.change({name_of(first): first}, [])
    target.change({name_of(second): second}, [])
    assert target.names() == {name_of(first): 5000, name_of(second): 256}
    assert (target.read(name_of(first)), target.read(name_of(second))) == (first, second)
    target.change({}, [name_of(first), name_of(b"never there")])
    assert target.names() == {name_of(second): 256}


def test_a_bundle_that_is_too_large_is_not_read(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"x" * 2000
    target.names()
    target.change({name_of(content): content}, [])
    target.names()
    monkeypatch.setattr(targets, "MOST_BYTES", 1000)
    with pytest.raises(TooLarge, match="no bundle has more than 1,000"):
        target.read(name_of(content))


@pytest.mark.parametrize("kind", ["git", "sftp"])
def test_machines_meet_through_git_and_ssh(
    kind: str, machine: Open, home: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "git":
        if not shutil.which("git"):
            pytest.skip("needs git")
        place = f"git+{request.getfixturevalue('repository')}"
    else:
        if not SERVER:
            pytest.skip("needs sftp-server")
        request.getfixturevalue("local_sftp")
        place = "host:shared"
    laptop, desktop = machine("laptop", place), machine("desktop", place)
    laptop.documents.ingest_text("apple", source="a.md")
    desktop.documents.ingest_text("pear", source="b.md")
    for db in (laptop, desktop, laptop):
        [done] = db.remotes.sync()
        assert not done.problem
    assert laptop.documents.count() == desktop.documents.count() == 2
    laptop.forget("a.md")
    for db in (laptop, desktop, laptop):
        db.remotes.sync("others")
    assert desktop.documents.count() == 1


@needs_git
def test_a_remote_by_git_may_be_called_as_a_file_of_ours_is(
    machine: Open, repository: Path
) -> None:
    db = machine("laptop")
    db.remotes.add("state.db", f"git+{repository}")
    db.documents.ingest_text("apple", source="a.md")
    assert db.remotes.sync("state.db")[0].sent == 1


def has(folder: Path, word: bytes) -> bool:
    """Whether any object of a repository has a word, also one that no branch reaches."""
    command = ["git", f"--git-dir={folder}", "cat-file", "--batch-all-objects", "--batch"]
    return word in subprocess.run(command, capture_output=True, check=True).stdout


@needs_git
def test_what_other_machines_fetched_of_something_forgotten_is_removed(
    repository: Path, tmp_path: Path
) -> None:
    def opened(name: str) -> GitTarget:  # each exchange opens its target anew
        return GitTarget(str(repository), tmp_path / name)

    for content in (b"forgotten", b"kept"):
        opened("one").names()
        opened("one").change({name_of(content): content}, [])
    opened("two").names()
    target = opened("one")
    target.names()
    target.change({}, [name_of(b"forgotten")])
    assert has(tmp_path / "two" / "git", b"forgotten")
    assert opened("two").names().keys() == {name_of(b"kept")}
    assert has(tmp_path / "two" / "git", b"kept")
    assert not has(tmp_path / "two" / "git", b"forgotten")
    branch = ["git", f"--git-dir={repository}", "update-ref", "-d", "refs/heads/mcpvectordb"]
    subprocess.run(branch, check=True)
    assert opened("two").names() == {}
    assert not has(tmp_path / "two" / "git", b"kept")


@needs_git
def test_what_was_fetched_of_a_remote_goes_with_it(
    machine: Open, home: Path, repository: Path
) -> None:
    db = machine("laptop", f"git+{repository}")
    db.documents.ingest_text("apple", source="a.md")
    db.remotes.sync()
    assert list((home / "data").rglob("HEAD"))
    db.remotes.remove("others")
    assert not list((home / "data").rglob("HEAD"))
    db.remotes.add("others", f"git+{repository}")
    assert db.remotes.sync()[0].received == 1


@needs_git
def test_a_repository_that_is_named_from_a_folder_is_found_from_others(
    machine: Open, home: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.parent)
    db = machine("laptop", f"git+{repository.name}")
    assert db.remotes.browse()[0].target == f"git+{repository}"
    monkeypatch.chdir(home / "shared")
    assert db.remotes.sync("others")[0].problem == ""


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="is its disk there"):
        FolderTarget(tmp_path / "missing").names()
    with pytest.raises(Unwritable):
        FolderTarget(tmp_path / "missing").change({name_of(b""): b""}, [])
    assert list(tmp_path.iterdir()) == []


def test_nothing_half_written_is_seen_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(part: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(targets, "flush_to_disk", full)
    with pytest.raises(Unwritable, match="No space left"):
        FolderTarget(tmp_path).change({name_of(b"x"): b"x"}, [])
    assert list(tmp_path.iterdir()) == []


@needs_git
def test_pushes_of_two_machines_at_once_both_arrive(repository: Path, tmp_path: Path) -> None:
    contents = [[f"{who} {number}".encode() for number in range(3)] for who in "ab"]

    def push(who: int) -> None:
        target = GitTarget(str(repository), tmp_path / f"cache-{who}")
        target.names()
        for content in contents[who]:
            target.change({name_of(content): content}, [])

    threads = [threading.Thread(target=push, args=(who,)) for who in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = GitTarget(str(repository), tmp_path / "cache").names()
    assert found.keys() == {name_of(each) for both in contents for each in both}


@needs_git
def test_what_was_removed_is_not_in_the_history_of_the_branch(
    repository: Path, tmp_path: Path
) -> None:
    target, other = (GitTarget(str(repository), tmp_path / each) for each in ("one", "two"))
    target.names()
    for content in (b"forgotten", b"kept"):
        target.change({name_of(content): content}, [])
    other.names()
    target.change({}, [name_of(b"forgotten")])
    assert other.names().keys() == {name_of(b"kept")}
    for folder in (repository, tmp_path / "one" / "git", tmp_path / "two" / "git"):
        git = ["git", f"--git-dir={folder}"]
        listed = subprocess.run(
            [*git, "rev-list", "--objects", "--all"], capture_output=True, check=True
        )
        assert name_of(b"forgotten").encode() not in listed.stdout
    id = subprocess.run(
        ["git", "hash-object", "--stdin"], input=b"forgotten", capture_output=True, check=True
    )
    for folder in ("one", "two"):  # nor in the copies of the machines
        there = [
            "git",
            f"--git-dir={tmp_path / folder / 'git'}",
            "cat-file",
            "-e",
            id.stdout.strip(),
        ]
        assert subprocess.run(there, capture_output=True, check=False).returncode


@needs_git
def test_what_else_is_in_the_branch_stays_and_is_no_bundle(
    repository: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)
    (work / "README.md").write_text("Bundles of my notes.")
    (work / "folder" / name_of(b"x")).write_bytes(b"x")
    (work / name_of(b"link")).symlink_to("/etc/passwd")
    git = ["git", "-C", str(work), "-c", "user.name=me", "-c", "user.email=me@example.org"]
    for words in (
        "init -q -b mcpvectordb",
        "add .",
        "commit -qm first",
        f"push -q {repository} HEAD",
    ):
        subprocess.run([*git, *words.split()], check=True)
    target = GitTarget(str(repository), tmp_path / "cache")
    assert target.names() == {}
    target.change({name_of(b"y"): b"y"}, [])
    assert target.names() == {name_of(b"y"): 1}
    listed = subprocess.run(
        ["git", f"--git-dir={repository}", "ls-tree", "-r", "--name-only", "mcpvectordb"],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert set(listed.stdout.split()) == {
        "README.md", f"folder/{name_of(b'x')}", name_of(b"link"), name_of(b"y")
    }  # fmt: skip


@needs_git
def test_git_runs_no_program_and_asks_nothing(tmp_path: Path) -> None:
    for hostile in ("--upload-pack=touch x", "ext::sh -c touch% x", "fd::17", "http://x/y", "-x"):
        with pytest.raises(InvalidInput, match="no git repository"):
            target_of(f"git+{hostile}", tmp_path)
    for hostile in (
        "git+ssh://-oProxyCommand=touch${IFS}x/y",
        "git+-oProxyCommand=x:y",
        "git+/none",
    ):
        with pytest.raises(MCPVectorDBError):
            target_of(hostile, tmp_path / "cache").names()
    assert not (tmp_path / "x").exists() and not Path("x").exists()


@pytest.mark.parametrize(
    "place", ["", "  ", "a\nb", "https://example.org/x.git", "-oProxyCommand=touch x:y", "ho st:x", "a;b:c", "$(x):y", "`x`:y"]
)  # fmt: skip
def test_a_text_that_names_no_target_is_refused(place: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        target_of(place, tmp_path)


def test_targets_are_told_apart(tmp_path: Path) -> None:
    kinds = {
        "~/Dropbox/notes": FolderTarget,
        "/mnt/share": FolderTarget,
        "./odd:name": FolderTarget,
        r"C:\shared": FolderTarget,
        "git+https://example.org/notes.git": GitTarget,
        "git+git@example.org:me/notes.git": GitTarget,
        "git+ssh://git@example.org/notes.git": GitTarget,
        "nas:notes": SftpTarget,
        "me@192.0.2.7:/srv/notes": SftpTarget,
        "me@[2001:db8::7]:notes": SftpTarget,
    }
    assert {each: type(target_of(each, tmp_path)) for each in kinds} == kinds


@needs_sftp
def test_hosts_and_paths_are_never_options_or_patterns(local_sftp: Path, tmp_path: Path) -> None:
    for path in ('od"d', "-l", "st*r", "[x]", "back\\slash", "two words"):
        (tmp_path / path).mkdir()
        target = SftpTarget("host", path)
        target.change({name_of(b"x"): b"x"}, [])
        assert target.names() == {name_of(b"x"): 1}, path
    arguments = local_sftp.read_text().splitlines()
    assert "BatchMode=yes" in arguments and arguments[-2:] == ["--", "host"]


@needs_sftp
def test_a_folder_that_is_not_there_on_the_host_is_an_error(local_sftp: Path) -> None:
    with pytest.raises(Unreachable, match="sftp"):
        SftpTarget("host", "missing").names()


def test_a_program_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for place, program in (("host:x", "sftp"), ("git+/x", "git")):
        with pytest.raises(Unreachable, match=f"the program {program} is not installed"):
            target_of(place, tmp_path / "cache").names()


def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sftp"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(targets, "_SECONDS", 0.2)
    with pytest.raises(Unreachable, match="took longer"):
        SftpTarget("host", "x").names()


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server of ssh on this machine, which `sftp` reaches as the host `here`."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not (program and SERVER):
        pytest.skip("needs sshd")
    for key in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key], check=True
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nPidFile none\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nStrictModes no\nUsePAM no\n"
        f"Subsystem sftp {SERVER}\n"
    )
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {(tmp_path / 'host.pub').read_text()}")
    (tmp_path / "ssh_config").write_text(
        f"Host here\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n"
        f" IdentityFile {tmp_path}/user\n IdentitiesOnly yes\n UserKnownHostsFile {tmp_path}/known\n"
    )
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sftp").write_text(
        f'#!/bin/sh\nexec {shutil.which("sftp")} -F {tmp_path}/ssh_config "$@"\n'
    )
    (programs / "sftp").chmod(0o700)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    Path("/run/sshd").mkdir(exist_ok=True)
    with subprocess.Popen([program, "-D", "-e", "-f", tmp_path / "sshd_config"]) as running:
        while running.poll() is None:
            with socket.socket() as knocking:
                if not knocking.connect_ex(("127.0.0.1", port)):
                    break
        if running.poll() is not None:
            pytest.skip("sshd does not start here")
        yield
        running.terminate()


def test_a_real_server_of_ssh_is_reached(sshd: None, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    target = SftpTarget("here", str(tmp_path / "notes"))
    target.change({name_of(b"x"): b"x"}, [])
    assert target.names() == {name_of(b"x"): 1} and target.read(name_of(b"x")) == b"x"
    target.change({}, [name_of(b"x")])
    assert target.names() == {}


def test_what_a_killed_process_left_in_a_folder_is_removed(tmp_path: Path) -> None:
    old, new = (tmp_path / f".{name_of(b'x')}.{each * 32}.part" for each in "ab")
    for each in (old, new):
        each.write_bytes(b"half")
    os.utime(old, (0, 0))
    FolderTarget(tmp_path).change({name_of(b"y"): b"y"}, [])
    assert {each.name for each in tmp_path.iterdir()} == {new.name, name_of(b"y")}
