"""Which secrets memories leave out, and what they take for one: `python -m benchmarks secrets`.

Made-up secrets of each kind are planted in sentences, code, settings, logs and JSON; one is found
if nothing stays of it but the marker. A false alarm is anything that is redacted in the text files
of folders: by default in the source, the documents and the tests of this repository (whose tests
have secrets that they made up); name others, or files, such as conversations.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.processes import ROOT
from mcpvectordb.text.secrets import redacted

TEXTS = ".py .md .txt .rst .json .jsonl .toml .yaml .yml .js .ts .css .html .sql .c .h".split()
HEX, UPPER, WORD = "0123456789abcdef", string.ascii_uppercase + string.digits, string.ascii_letters
WORD += string.digits
Draw = Callable[[random.Random], str]


def some(alphabet: str, length: int, before: str = "", after: str = "") -> Draw:
    """Random characters, with a digit among them, between fixed parts."""
    return lambda chance: (
        before + "".join(chance.choices(alphabet, k=length - 1)) + chance.choice("23456789") + after
    )


def key_block(chance: random.Random) -> str:
    """A private key as OpenSSL writes it."""
    lines = ["".join(chance.choices(WORD + "+/", k=64)) for _ in range(12)]
    return "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"])


def web_token(chance: random.Random) -> str:
    """A JSON Web Token."""
    return ".".join(["eyJhbGciOiJIUzI1NiJ9", *(some(WORD, n)(chance) for n in (60, 43))])


# Shapes, which are found wherever they stand.
SHAPES: dict[str, Draw] = {
    "AWS access key": some(UPPER, 16, "AKIA"),
    "GitHub token": some(WORD, 36, "ghp_"),
    "GitHub fine-grained token": some(WORD, 70, "github_pat_"),
    "GitLab token": some(WORD, 20, "glpat-"),
    "Anthropic key": some(WORD, 90, "sk-ant-api03-"),
    "OpenAI key": some(WORD, 48, "sk-"),
    "OpenAI project key": some(WORD, 60, "sk-proj-"),
    "Google API key": some(WORD, 35, "AIza"),
    "Google OAuth secret": some(WORD, 28, "GOCSPX-"),
    "Slack bot token": some(WORD, 24, "xoxb-123456789012-"),
    "Slack webhook": some(WORD, 24, "https://hooks.slack.com/services/T00000000/B00000000/"),
    "Stripe key": some(WORD, 24, "sk_live_"),
    "Twilio key": some(HEX, 32, "SK"),
    "SendGrid key": lambda chance: f"SG.{some(WORD, 22)(chance)}.{some(WORD, 43)(chance)}",
    "Mailgun key": some(HEX, 32, "key-"),
    "Telegram token": some(WORD, 33, "1234567890:AA"),
    "npm token": some(WORD, 36, "npm_"),
    "PyPI token": some(WORD, 80, "pypi-"),
    "Hugging Face token": some(WORD, 34, "hf_"),
    "Groq key": some(WORD, 52, "gsk_"),
    "Vault token": some(WORD, 90, "hvs."),
    "DigitalOcean token": some(HEX, 64, "dop_v1_"),
    "Shopify token": some(HEX, 32, "shpat_"),
    "Databricks token": some(HEX, 32, "dapi"),
    "Docker token": some(WORD, 27, "dckr_pat_"),
    "Azure storage key": some(WORD + "+/", 86, "AccountKey=", "=="),
    "JSON Web Token": web_token,
    "private key block": key_block,
    "age key": some(UPPER, 58, "AGE-SECRET-KEY-1"),
}
AROUND = {
    "sentence": "Please use {} for the deploy, it works since Monday.",
    "end of a sentence": "I rotated it, the new one is {}.",
    "list": "- staging: none\n- production: {}\n- local: none",
    "code": 'client = Client(base_url=BASE, credential="{}")',
    "JSON": '{{"user": "bob", "value": "{}", "retries": 3}}',
    "log": "2026-11-18T10:00:00Z INFO http: sent header {} to api.example.com",
    "fence": "```sh\nexport VALUE={}\ncurl https://api.example.com\n```",
    "other script": "请使用 {} 来部署。",
}
# Any word can be a password: it is found by what stands before it.
WORDS = {
    "password": ["hunter2", "Tr0ub4dor&3", "correct-horse-7-battery", "s3cr3t!", "Winter2026!"],
    "token": ["9f8e7d6c5b4a39281706f5e4d3c2b1a0", "Zk3vQ8xW1nB6tYp0RmLs", "a1B2-c3D4-e5F6-g7H8"],
}
NAMED: dict[str, tuple[str, list[str]]] = {
    "password in a URL": ("postgresql://bob:{}@db.example.com:5432/app", WORDS["password"]),
    "Redis URL": ("redis://:{}@cache.example.com/0", WORDS["password"]),
    "environment file": ("HOST=db\nDB_PASSWORD={}\nPORT=5432", WORDS["password"]),
    "exported variable": ("export API_TOKEN={}", WORDS["token"]),
    "YAML": ("db:\n  user: bob\n  password: {}\n", WORDS["password"]),
    "JSON password": ('{{"user": "bob", "password": "{}"}}', WORDS["password"]),
    "Python": ('connect(user="bob", password="{}")', WORDS["password"]),
    "TOML": ('api_key = "{}"', WORDS["token"]),
    "JavaScript": ("const clientSecret = '{}';", WORDS["token"]),
    "connection string": ("Server=db;Database=app;User Id=sa;Password={};", WORDS["password"]),
    "bearer header": ("curl -H 'Authorization: Bearer {}' https://x.example.com", WORDS["token"]),
    "X-API-Key header": ("X-API-Key: {}", WORDS["token"]),
    "cookie": ("Cookie: session={}; path=/", WORDS["token"]),
    "curl -u": ("curl -u bob:{} https://x.example.com", WORDS["password"]),
    "option of a command": ("deploy --user bob --password {} --now", WORDS["password"]),
    "sshpass": ("sshpass -p {} ssh bob@example.com", WORDS["password"]),
    ".netrc": ("machine example.com login bob password {}", WORDS["password"]),
    "query of a URL": ("https://x.example.com/v1?api_key={}&page=2", WORDS["token"]),
    "said in a sentence": ("The password for the NAS is {}, write it down.", WORDS["password"]),
    "German": ("Das Passwort ist {}.", WORDS["password"]),
    "Markdown": ("**Password:** `{}`", WORDS["password"]),
    "AWS secret": ("aws_secret_access_key = {}", [some(WORD + "+/", 40)(random.Random(1))]),
    "private tags": ("my address is <private>{}</private>, thanks", ["12 Elm Street", "x"]),
}


def planted() -> Iterator[tuple[str, str, str]]:
    """The kind of a secret, the secret, and a text that has it."""
    chance = random.Random(36)
    for kind, draw in SHAPES.items():
        for around in AROUND.values():
            secret = draw(chance)
            yield kind, secret, around.format(secret)
    for kind, (around, secrets) in NAMED.items():
        for secret in secrets:
            yield kind, secret, around.format(secret)


def main(arguments: list[str]) -> None:
    """Measure what is found, then what is found where there is nothing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks secrets", description=__doc__)
    parser.add_argument("places", nargs="*", type=Path, metavar="FOLDER or FILE")
    parser.add_argument("--show", action="store_true", help="print every miss and false alarm")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows: dict[str, report.Row] = {}
    for kind, secret, text in planted():
        row = rows.setdefault(kind, {"kind": kind, "planted": 0, "found": 0})
        found = secret not in redacted(text).text
        row["planted"] += 1
        row["found"] += found
        if options.show and not found:
            print(f"missed: {text!r}")
    total = {"kind": "all", **{name: sum(row[name] for row in rows.values()) for name in _COUNTS}}
    report.show([*rows.values(), total], [], as_json=options.json)
    places = options.places or [ROOT / name for name in ("mcpvectordb", ".github", "tests")]
    report.show([alarms(place, show=options.show) for place in places], [], as_json=options.json)


_COUNTS = ("planted", "found")


def alarms(place: Path, *, show: bool) -> report.Row:
    """How much is redacted in the text files at a place."""
    characters = count = 0
    begin = time.process_time()
    for text in texts(place):
        characters += len(text)
        kept = redacted(text)
        count += len(kept.kinds)
        if show and kept.kinds:
            at = (line for line in kept.text.splitlines() if "[redacted: " in line)
            print("\n".join(f"alarm: {line.strip()[:160]}" for line in at))
    seconds = time.process_time() - begin
    return {
        "where": place.name,
        "million characters": characters / 1e6,
        "redacted": count,
        "per million": count / (characters / 1e6 or 1),
        "million characters per CPU s": characters / 1e6 / (seconds or 1),
    }


def texts(place: Path) -> Iterator[str]:
    """The texts at a place; of JSON the strings in it, each by itself."""
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    for file in files:
        if file.suffix in TEXTS and file.is_file():
            text = file.read_text("utf-8", "replace")
            if file.suffix not in (".json", ".jsonl"):
                yield text
                continue
            for line in [text] if file.suffix == ".json" else text.splitlines():
                yield from strings(json.loads(line))


def strings(value: object) -> Iterator[str]:
    """All strings in a JSON value but for keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from strings(each)
