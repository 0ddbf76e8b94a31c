"""Secrets are left out of texts, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.secrets import planted
from mcpvectordb.memories.memory import left_out
from mcpvectordb.text.secrets import redacted, redacted_values


def test_planted_secrets_of_every_kind_are_left_out_and_a_marker_says_so() -> None:
    for kind, secret, text in planted():
        kept = redacted(text)
        assert secret not in kept.text, kind
        assert kept.kinds and "[redacted: " in kept.text
        assert redacted(kept.text) == (kept.text, ())


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("my <private>home\naddress</private>, ok", "my [redacted: private], ok"),
        ("<private>a <PRIVATE>b</private> c</private> d", "[redacted: private] d"),
        ("ok\n<private>never closed", "ok\n[redacted: private]"),
        ("https://bob:s3cr3t@host/x?a=1", "https://bob:[redacted: password]@host/x?a=1"),
        ("export API_TOKEN=Zk3vQ8xW1nB6tYp0", "export API_TOKEN=[redacted: token]"),
        ('{"password": "hunter2"}', '{"password": "[redacted: password]"}'),
        ("?api_key=9f8e7d6c5b4a3928&page=2", "?api_key=[redacted: key]&page=2"),
    ],
)
def test_what_stands_around_a_secret_stays(text: str, kept: str) -> None:
    assert redacted(text).text == kept


@pytest.mark.parametrize(
    "text",
    [
        "password: str",
        "token = get_token()",
        "password = os.environ['DB_PASSWORD']",
        "PASSWORD=$DB_PASSWORD",
        "api_key: ${API_KEY}",
        "the password is wrong",
        "max_tokens=4096, token_count: 128000",
        "tokenizer: bert-base-uncased",
        "secret_name: projects/1234567890/secrets/db",
        "postgresql://user:password@host/db",
        "password: <your password>",
        "commit 9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c",
        "sha256:9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0",
        "id 550e8400-e29b-41d4-a716-446655440000",
        "put it between `<private>` tags, or <private> ones",
        "a block -----BEGIN PRIVATE KEY----- to -----END PRIVATE KEY-----",
        "Authorization: Bearer <token>",
        "set the password to something longer",
        "",
    ],
)
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert redacted(text) == (text, ())


_PIECES = [
    *("password", "token", "API_KEY", "secret", "=", ": ", " is ", '"', "'", "`", " ", "\n", "\\"),
    *("<private>", "</private>", "://", "bob:", "@", "hunter2", "Zk3vQ8xW1nB6tYp0RmLs", "[", "]"),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "AKIA" + "Q2" * 8, "é", "密码"),
    *("eyJhbGciOiJIUzI1NiJ9", ".", "ghp_" + "a1" * 18, "[redacted: key]", "cookie: ", "\ud800"),
]


@given(st.lists(st.sampled_from(_PIECES) | st.text(max_size=8), max_size=30).map("".join))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redacted(text)
    assert redacted(once.text).text == once.text
    assert (once.text == text) == (not once.kinds)


@given(st.text(alphabet=st.characters(exclude_characters="=:@<-_.", max_codepoint=0x2FFF)))
def test_words_without_any_sign_of_a_secret_are_unchanged(text: str) -> None:
    if not any(name in text.lower() for name in ("key", "pass", "secret", "tok", "bearer")):
        assert redacted(text).text == text


def test_metadata_is_searched_by_its_keys_and_values() -> None:
    values = {"password": "hunter2", "deep": [{"url": "https://a:s3cr3t@h"}], "n": 1, "ok": "yes"}
    kept, kinds = redacted_values(values)
    assert kept == {
        "password": "[redacted: password]",
        "deep": [{"url": "https://a:[redacted: password]@h"}],
        "n": 1,
        "ok": "yes",
    }
    assert left_out(kinds) == "2 secrets were left out (password)"
    assert redacted_values({"note": "fine"}) == ({"note": "fine"}, ())
