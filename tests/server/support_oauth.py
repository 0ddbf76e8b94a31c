"""Clients of our authorization server, well and ill behaved, and the person in front of the page."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

PASSPHRASE = "four words nobody guesses"
VERIFIER = "v" * 50
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().strip("=")
BACK = "https://client.test/back"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def back(self) -> dict[str, str]:
        """What the client gets by way of the browser."""
        return dict(parse_qsl(urlsplit(self.headers["location"]).query))


@dataclass
class Web:
    """Requests to one server, as any program can make them.

    `public` is the URL that it calls itself, where this is not its address.
    """

    url: str
    public: str = ""

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> Answer:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items() if value}
            if self.public:
                given["Host"] = urlsplit(self.public).netloc
            connection.request(method, path, body.encode() if body else None, given)
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, told, answer.read().decode())
        finally:
            connection.close()

    def form(
        self, path: str, sent: dict[str, str] | list[tuple[str, str]], **headers: str
    ) -> Answer:
        kind = "application/x-www-form-urlencoded"
        return self.ask("POST", path, urlencode(sent), Content_Type=kind, **headers)

    def register(self, **about: Any) -> Answer:
        given = {"client_name": "Test", "redirect_uris": [BACK], **about}
        return self.ask("POST", "/register", json.dumps(given), Content_Type="application/json")

    def client(self, **about: Any) -> str:
        id: str = self.register(**about).json["client_id"]
        return id

    def wanted(self, client: str, **changed: str | None) -> dict[str, str]:
        """The parameters of a request for authorization; None leaves one out."""
        usual: dict[str, str | None] = {
            "client_id": client,
            "response_type": "code",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "redirect_uri": BACK,
            "state": "the state",
            "resource": f"{self.public or self.url}/mcp",
        }
        return {name: value for name, value in (usual | changed).items() if value is not None}

    def page(self, client: str, **changed: str | None) -> Answer:
        return self.ask("GET", f"/authorize?{urlencode(self.wanted(client, **changed))}")

    def allow(
        self, client: str, passphrase: str = PASSPHRASE, scopes: str = "", **changed: str | None
    ) -> Answer:
        """What the browser gets when the person has looked at the page and allowed it."""
        shown = self.page(client, **changed)
        assert shown.status == 200, shown.text
        return self.submit(shown.text, passphrase, scopes)

    def submit(
        self, page: str, passphrase: str = PASSPHRASE, scopes: str = "", **headers: str
    ) -> Answer:
        form = Form(page)
        chosen = scopes.split() or form.boxes
        sent = form.hidden | dict.fromkeys(chosen, "yes") | {"passphrase": passphrase}
        headers = {"Origin": self.public or self.url, **headers}
        return self.form("/authorize", sent | {"answer": "allow"}, **headers)

    def code(self, client: str, **changed: Any) -> str:
        return self.allow(client, **changed).back["code"]

    def redeem(self, client: str, code: str, /, **changed: str | None) -> Answer:
        usual: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "client_id": client,
            "code": code,
            "code_verifier": VERIFIER,
            "redirect_uri": BACK,
            "resource": f"{self.public or self.url}/mcp",
        }
        sent = {name: value for name, value in (usual | changed).items() if value is not None}
        return self.form("/token", sent)

    def refresh(self, client: str, token: str, **more: str) -> Answer:
        sent = {"grant_type": "refresh_token", "client_id": client, "refresh_token": token, **more}
        return self.form("/token", sent)

    def tokens(self, client: str, **changed: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.redeem(client, self.code(client, **changed)).json
        return found

    def call(self, token: str, method: str = "tools/list", **params: Any) -> Answer:
        """One request to MCP, in a session of its own."""
        headers = {
            "Authorization": f"Bearer {token}" if token else "",
            "Content_Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        about = {"protocolVersion": "2025-06-18", "capabilities": {}}
        hello = {**about, "clientInfo": {"name": "test", "version": "1"}}
        begun = self.ask("POST", "/mcp", _message("initialize", hello), **headers)
        if begun.status != 200 or method == "initialize":
            return begun
        session = begun.headers["mcp-session-id"]
        return self.ask("POST", "/mcp", _message(method, params), Mcp_Session_Id=session, **headers)


def _message(method: str, params: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


class Form(HTMLParser):
    """The form of a page: what is hidden in it, and which boxes it has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.hidden: dict[str, str] = {}
        self.boxes: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "input" and given["type"] == "hidden":
            self.hidden[given["name"]] = given["value"]
        elif tag == "input" and given["type"] == "checkbox":
            self.boxes.append(given["name"])
