from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from mcpvectordb.config import Config
from mcpvectordb.ingest import secret_files
from mcpvectordb.ingest.secret_files import is_secret_place, secret_in
from mcpvectordb.ingest.sources import SecretFile, read_path
from tests.support_files import KEYS, TOKENS, make

PROSE = b"Keys are kept in many places, and whoever reads this should know what they look like.\n"
PRIVATE_KEY = (
    b"-----BEGIN RSA " + b"PRIVATE KEY-----\n" + b"a1" * 400 + b"\n-----END RSA PRIVATE KEY-----\n"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, which is reached through a link as well."""
    (tmp_path / "users" / "me").mkdir(parents=True)
    (tmp_path / "home").symlink_to(tmp_path / "users")
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path / "home" / "me"))
    return tmp_path / "home" / "me"


@pytest.mark.parametrize("name", [
    ".unheard-of/settings.json", ".unheard-ofrc", ".config/some program/notes.md", "Library/Preferences/some.plist",
    "AppData/Roaming/Program/x.json",
])  # fmt: skip
def test_what_programs_keep_in_the_home_folder_is_a_secret_whatever_its_name(
    home: Path, name: str
) -> None:
    path = make(home / name)
    (home / "innocent.md").symlink_to(path)
    for each in (path, path.resolve(), home / "innocent.md"):
        with pytest.raises(SecretFile, match=r"only a person may ingest it.*mcpvectordb ingest"):
            read_path(each, config=Config(), guard=True)
    assert read_path(path, config=Config()).raw == b"content"


def test_a_secret_is_one_by_every_name_that_its_folder_has(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS, which a second name of the folder of all users stands in for here."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(platformdirs, "user_data_dir", lambda *_, **__: str(tmp_path / "data"))
    settings, token = make(home / ".unheard-of" / "x.json"), make(tmp_path / "data" / "token")
    (tmp_path / "USERS").symlink_to(tmp_path / "users")
    (tmp_path / "DATA").symlink_to(tmp_path / "data")
    others = [tmp_path / "USERS/me/.unheard-of/x.json", tmp_path / "DATA/token"]
    assert all(each.samefile(file) for each, file in zip(others, (settings, token), strict=True))
    monkeypatch.setattr(secret_files, "MANY_NAMES", False)
    assert not any(map(is_secret_place, others))
    monkeypatch.setattr(secret_files, "MANY_NAMES", True)
    assert all(map(is_secret_place, others))
    assert not is_secret_place(make(tmp_path / "USERS/me/notes.md"))
    assert not is_secret_place(tmp_path / "nowhere/notes.md")


@pytest.mark.parametrize("name", [
    "notes.md", "project/.github/workflow.md", "project/.hidden.md", "Library/Mobile Documents/notes.md",
    "Library/CloudStorage/Drive/notes.md", "AppData/Local/Temp/notes.md", "librarything/notes.md",
])  # fmt: skip
def test_documents_in_the_home_folder_are_read(home: Path, name: str) -> None:
    assert read_path(make(home / name), config=Config(), guard=True).raw == b"content"


def test_a_root_that_is_hidden_in_the_home_folder_is_read(home: Path) -> None:
    path, other = make(home / ".notes" / "a.md"), make(home / ".other" / "a.md")
    secret = make(home / ".notes" / ".env")
    assert read_path(path, config=Config(), guard=True, roots=[home / ".notes"]).raw
    assert not is_secret_place(path.resolve(), [home / ".notes"])
    for each, roots in (
        (path, [home]),
        (other, [home, home / ".notes"]),
        (secret, [home / ".notes"]),
    ):
        with pytest.raises(SecretFile):
            read_path(each, config=Config(), guard=True, roots=roots)


@pytest.mark.parametrize("home", ["/", "~"])
def test_an_account_without_a_home_folder_reads_what_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    assert read_path(make(tmp_path / "a.md"), config=Config(), guard=True).raw == b"content"


@pytest.mark.parametrize("suffix", [".json", ".YAML", ".toml", ".ini", ".conf"])
def test_one_token_makes_settings_a_secret(suffix: str) -> None:
    assert secret_in(PROSE * 20 + TOKENS[1], suffix) == "a file of keys or tokens"
    assert secret_in(PROSE * 20 + PRIVATE_KEY, suffix) == "a private key"
    assert secret_in(PROSE * 20, suffix) == ""


@pytest.mark.parametrize(
    "text",
    [
        PROSE * 20 + b"```\n" + PRIVATE_KEY + b"```\n" + PROSE,
        b"-----BEGIN PGP SIGNED MESSAGE-----\n" + PROSE + b"Never send a PRIVATE KEY.\n",
        b"-----BEGIN CERTIFICATE-----\n" + b"a1" * 400 + b"\n-----END CERTIFICATE-----\n",
        b"sk-learn-tutorial-for-beginners\nsk-SK_translation_messages_all\n",
        b"a token looks like ghp_... or eyJhbGciOi...\n",
        b"# Keys\nA file starts with -----BEGIN RSA PRIVATE KEY-----",
        b"integrity: sha512-" + b"a1" * 43 + b"==\n",
    ],
)
def test_texts_that_quote_or_resemble_a_key_are_no_secrets(text: bytes) -> None:
    assert secret_in(text, ".md") == ""


def test_a_key_after_some_words_is_a_secret() -> None:
    assert secret_in(b"the key of the old server:\n\n" + PRIVATE_KEY, ".txt") == "a private key"
    assert secret_in(PRIVATE_KEY.replace(b"\n", b"\r\n") * 60) == "a private key"
    for key in KEYS:
        assert secret_in(b"\n" + key) == "a private key"


@pytest.mark.parametrize("piece", [b"a.", b"sk-", b"eyJaaaaaaaa.", b"A=\t", b"-----BEGIN ", b"1"])
def test_a_text_that_imitates_names_and_tokens_is_searched_in_linear_time(piece: bytes) -> None:
    # An expression that tries every end for every start would not finish these in a day.
    text = piece * (99_000 // len(piece))
    assert secret_in(text, ".txt") == ""
    assert secret_in(TOKENS[1] + b"\n" + text, ".txt") == ""
