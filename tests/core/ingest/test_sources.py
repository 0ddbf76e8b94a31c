from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mcpvectordb.config import Config
from mcpvectordb.errors import InvalidInput, Refused, TooLarge, Unreadable
from mcpvectordb.ingest import sources
from mcpvectordb.ingest.sources import is_url, read, read_path
from mcpvectordb.records import Source
from tests.support_files import KEYS, SECRETS, TOKENS, make

CONFIG = Config()
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")

HARMLESS = """
    ssh/config.md environment.txt docs/env.md credentials.md credentials/guide.md secrets-of-tea.txt
    id_rsa.pub history.txt google/chrome-extensions/readme.md docker/config.json keys.md my.cnf.txt
""".split()


def test_a_file_is_read_with_its_identity_type_and_time(tmp_path: Path) -> None:
    path = make(tmp_path / "Report.PDF", b"%PDF")
    os.utime(path, (0, 1_767_323_045))
    found = read_path(path, config=CONFIG)
    assert (found.source, found.name, found.raw) == (str(path.resolve()), "Report.PDF", b"%PDF")
    assert (found.file_type, found.modified) == ("pdf", "2026-01-02T03:04:05+00:00")
    assert read_path(make(tmp_path / "Makefile"), config=CONFIG).file_type == "unknown"


def test_a_relative_path_and_a_tilde_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "a" / "note.txt")
    monkeypatch.chdir(tmp_path / "a")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    expected = str((tmp_path / "a" / "note.txt").resolve())
    assert read_path("../a/./note.txt", config=CONFIG).source == expected
    assert read_path("~/a/note.txt", config=CONFIG).source == expected


@POSIX
def test_a_link_is_read_under_the_path_of_its_target(tmp_path: Path) -> None:
    target = make(tmp_path / "real" / "note.txt")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "link").symlink_to("folder/note.txt")
    assert read_path(tmp_path / "link", config=CONFIG).source == str(target.resolve())


@pytest.mark.parametrize("name", [
    "missing.txt", "note.txt/inside", "", ".", "a\0b", "\udcff\ud800", "x" * 5000, "~nobody_at_all/x",
])  # fmt: skip
def test_the_error_for_an_unreadable_file_has_the_path_and_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make(tmp_path / "note.txt")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unreadable) as caught:
        read_path(name, config=CONFIG)
    assert repr(name) in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_the_error_for_a_folder_says_that_it_is_one(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="it is a folder"):
        read_path(tmp_path, config=CONFIG)
    with pytest.raises(Unreadable, match="it is a folder"):
        read_path(tmp_path.anchor, config=CONFIG)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to root"
)
def test_the_error_for_a_file_without_permission_says_so(tmp_path: Path) -> None:
    path = make(tmp_path / "closed.txt")
    path.chmod(0)
    with pytest.raises(Unreadable, match="Permission denied"):
        read_path(path, config=CONFIG)


@POSIX
def test_the_error_is_complete_without_a_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(Unreadable, match="no longer exists"):
        read_path("x.txt", config=CONFIG)


def test_the_error_for_a_large_file_has_its_size_and_the_limit(tmp_path: Path) -> None:
    path = make(tmp_path / "big.txt", b"x" * 11)
    with pytest.raises(TooLarge, match=r"11 bytes.*limit of 10 "):
        read_path(path, config=Config(max_source_bytes=10))
    assert len(read_path(path, config=Config(max_source_bytes=11)).raw) == 11


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_refused_with_guard_and_read_without(tmp_path: Path, name: str) -> None:
    path = make(tmp_path / name)
    with pytest.raises(Refused, match="secrets"):
        read_path(path, config=CONFIG, guard=True)
    assert read_path(path, config=CONFIG).raw == b"content"


@pytest.mark.parametrize("name", HARMLESS)
def test_names_that_resemble_secrets_are_read_with_guard(tmp_path: Path, name: str) -> None:
    assert read_path(make(tmp_path / name), config=CONFIG, guard=True).raw == b"content"


@POSIX
def test_a_secret_is_refused_as_link_and_as_target_of_a_link(tmp_path: Path) -> None:
    make(tmp_path / ".ssh" / "notes.txt")
    (tmp_path / "innocent.txt").symlink_to(tmp_path / ".ssh" / "notes.txt")
    make(tmp_path / "vault" / "key.txt")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".ssh").symlink_to(tmp_path / "vault")
    for path in ("innocent.txt", "home/.ssh/key.txt", "vault/../.ssh/notes.txt"):
        with pytest.raises(Refused, match="secrets"):
            read_path(tmp_path / path, config=CONFIG, guard=True)


@pytest.mark.parametrize("content", [*TOKENS, *(head + b"abc" for head in KEYS)])
def test_a_file_of_keys_or_tokens_is_refused_with_guard_under_any_name(
    tmp_path: Path, content: bytes
) -> None:
    path = make(tmp_path / "notes.txt", content)
    with pytest.raises(Refused, match=r"private key|keys or tokens"):
        read_path(path, config=CONFIG, guard=True)
    assert read_path(path, config=CONFIG).raw == content


def test_a_text_that_quotes_a_token_is_read_with_guard(tmp_path: Path) -> None:
    for token in TOKENS[:-1]:
        content = b"How to find tokens that somebody has left in a log of ours.\n" * 20 + token
        path = make(tmp_path / "a.md", content)
        assert read_path(path, config=CONFIG, guard=True).raw == content


def test_our_data_folder_is_refused_with_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Config, "data_folder", lambda: tmp_path / "data")
    token = make(tmp_path / "data" / "token")
    (tmp_path / "innocent.txt").symlink_to(token)
    for path in (token, tmp_path / "innocent.txt"):
        with pytest.raises(Refused, match=r"secrets are kept; .*mcpvectordb ingest FILE"):
            read_path(path, config=CONFIG, guard=True)
    assert read_path(token, config=CONFIG).raw == b"content"


@POSIX
def test_files_in_a_root_that_is_a_link_are_read(tmp_path: Path) -> None:
    make(tmp_path / "a" / "x.txt")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for path in ("a/x.txt", "b/x.txt"):
        roots = [tmp_path / "c", tmp_path / "b"]
        assert read_path(tmp_path / path, config=CONFIG, roots=roots).raw == b"content"


@POSIX
def test_a_folder_swapped_for_a_link_after_the_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "inside" / "sub" / "x.txt", b"public")
    make(tmp_path / "outside" / "x.txt", b"secret")
    check = sources._check_path

    def check_then_swap(*arguments: object) -> None:
        check(*arguments)  # type: ignore[arg-type]
        (tmp_path / "inside" / "sub").rename(tmp_path / "inside" / "old")
        (tmp_path / "inside" / "sub").symlink_to(tmp_path / "outside")

    monkeypatch.setattr(sources, "_check_path", check_then_swap)
    with pytest.raises(Unreadable):
        read_path(tmp_path / "inside" / "sub" / "x.txt", config=CONFIG, roots=[tmp_path / "inside"])


@POSIX
def test_a_file_replaced_between_check_and_open_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = make(tmp_path / "x.txt"), make(tmp_path / "y.txt", b"other")
    open_ = os.open

    def replace_then_open(name: str, *arguments: object, **options: object) -> int:
        if name == "x.txt" and other.exists():
            other.replace(path)
        return open_(name, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", replace_then_open)
    monkeypatch.setattr(os, "supports_dir_fd", {*os.supports_dir_fd, replace_then_open})
    with pytest.raises(Unreadable, match="was replaced"):
        read_path(path, config=CONFIG)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts handles in /proc")
def test_no_file_descriptor_is_left_open(tmp_path: Path) -> None:
    path = make(tmp_path / "a" / "x.txt", b"12345")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        read_path(path, config=CONFIG)
        with pytest.raises(TooLarge):
            read_path(path, config=Config(max_source_bytes=1))
        with pytest.raises(Refused):
            read_path(path, config=CONFIG, forbidden=[path])
        for missing in (tmp_path / "a" / "y.txt", tmp_path / "b" / "y.txt", path / "z"):
            with pytest.raises(Unreadable):
                read_path(missing, config=CONFIG)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    "source", ["http://x", "HTTPS://x", "ftp://x", "file:///etc/passwd", "gopher://x", "s3+x://y"]
)
def test_text_with_a_scheme_is_a_url(source: str) -> None:
    assert is_url(source)
    with pytest.raises(Refused):
        read(source, config=Config(allow_urls=False))


@pytest.mark.parametrize(
    "source", ["notes.txt", "C:\\notes.txt", "a/http://x", "http:x", "/http://x", Path("http:/x")]
)
def test_other_text_is_a_path(source: str | Path) -> None:
    assert not is_url(source)


def test_read_applies_all_rules_to_a_path(tmp_path: Path) -> None:
    path = make(tmp_path / ".env")
    assert read(str(path), config=CONFIG).raw == read(path, config=CONFIG).raw == b"content"
    for rule in ({"guard": True}, {"roots": [tmp_path / "x"]}, {"forbidden": [path]}):
        with pytest.raises(Refused):
            read(path, config=CONFIG, **rule)


def test_a_folder_outside_of_the_roots_or_of_secrets_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    (inside / ".ssh").mkdir(parents=True)
    sources.check_folder(inside, roots=[inside], guard=True)
    sources.check_folder(tmp_path)
    with pytest.raises(Refused, match="outside"):
        sources.check_folder(tmp_path, roots=[inside])
    with pytest.raises(Refused, match="outside"):
        sources.check_folder(inside / "..", roots=[inside])
    with pytest.raises(Refused):
        sources.check_folder(inside / ".ssh", guard=True)


def test_bytes_that_were_read_already_pass_the_same_checks_as_a_file() -> None:
    given = Source(source="notes/tea.md", name="tea.md", raw=b"# Tea", file_type="md")
    assert read(given, config=CONFIG, guard=True) is given
    with pytest.raises(TooLarge, match=r"notes/tea\.md has 5 bytes, more than the limit of 4"):
        read(given, config=Config(max_source_bytes=4))
    for blank in ({"source": " "}, {"name": ""}, {"source": "a\ud800"}):
        with pytest.raises(InvalidInput):
            read(replace(given, **blank), config=CONFIG)


@pytest.mark.parametrize("source", [".env", "backup/.ssh/id_rsa", "home/.aws/credentials", "a.txt"])
def test_bytes_of_secrets_are_refused_by_the_name_they_had_and_by_their_content(
    source: str,
) -> None:
    raw = KEYS[0] + b"AAAA" if source == "a.txt" else b"x"
    given = Source(source=source, name=Path(source).name, raw=raw, file_type="unknown")
    assert read(given, config=CONFIG) is given
    with pytest.raises(Refused, match="only a person may ingest it"):
        read(given, config=CONFIG, guard=True)


def test_a_note_of_a_vault_is_known_by_the_folder_of_obsidian(tmp_path: Path) -> None:
    (tmp_path / "vault" / ".obsidian").mkdir(parents=True)
    for name, noted in (("vault/a/b/n.md", True), ("vault/a.txt", False), ("n.md", False)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
        assert sources.read_path(tmp_path / name, config=Config()).vault is noted


@POSIX
@pytest.mark.parametrize("path", [
    "outside.txt", "inside/../outside.txt", "inside/link.txt", "inside/folder/outside.txt", "inside-not/x.txt", "missing.txt",
    "inside/dangling",
])  # fmt: skip
def test_paths_outside_of_the_roots_are_refused_whether_they_exist_or_not(
    tmp_path: Path, path: str
) -> None:
    make(tmp_path / "outside.txt")
    make(tmp_path / "inside-not" / "x.txt")
    make(tmp_path / "inside" / "a.txt")
    (tmp_path / "inside" / "link.txt").symlink_to(tmp_path / "outside.txt")
    (tmp_path / "inside" / "folder").symlink_to(tmp_path)
    (tmp_path / "inside" / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Refused, match="outside of the folders"):
        read_path(tmp_path / path, config=CONFIG, roots=[tmp_path / "inside"])
