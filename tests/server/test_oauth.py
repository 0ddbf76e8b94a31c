"""Web and phone assistants come in by OAuth, and nobody else does."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from mcpvectordb import Access, Config
from mcpvectordb_server import oauth
from mcpvectordb_server.connections import MAX_BODY
from mcpvectordb_server.surface import STORES, expose
from mcpvectordb_server.surfaces import NAMES, load
from tests.core.ingest.test_urls import self_signed
from tests.server.clients import service
from tests.server.little_surface import LITTLE, Shelf
from tests.server.support_http import TOKEN, Running
from tests.server.support_oauth import BACK, CHALLENGE, PASSPHRASE, Form, Web
from tests.support_web import Site, page

# One tool changes, two read, three take sources.
SURFACE = replace(
    LITTLE,
    tools=tuple(
        replace(each, hints=STORES) if each.name == "add" else each for each in LITTLE.tools
    ),
)
OPEN = Config(allow_private_urls=True)  # so that a client's document may be on this machine


class Clock:
    """Now, and later when a test says so."""

    def __init__(self) -> None:
        self.later = 0.0

    def __call__(self) -> float:
        import time

        return time.time() + self.later


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def access(folder: Path, clock: Clock) -> Access:
    made = Access(folder / "notes.db", folder=folder, config=OPEN, clock=clock, work=16)
    made.set_passphrase(PASSPHRASE)
    return made


@pytest.fixture(scope="module")
def running(access: Access) -> Iterator[Running]:
    made = serving(access)
    yield made
    made.stop()


@pytest.fixture
def web(running: Running, clock: Clock) -> Iterator[Web]:
    yield Web(running.url)
    clock.later = 0


def serving(access: Access, url: str = "") -> Running:
    return Running(
        "streamable-http",
        service(Shelf(), SURFACE),
        oauth=lambda here: oauth.AuthorizationServer(access, url or here, expose([SURFACE])),
    )


# --- what clients find


def test_without_a_token_a_client_is_told_where_to_get_one(web: Web) -> None:
    refused = web.call("")
    told = refused.headers["www-authenticate"]
    assert refused.status == 401
    metadata = f"{web.url}/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{metadata}"' in told
    assert "error" not in told
    resource = web.ask("GET", "/.well-known/oauth-protected-resource/mcp").json
    assert resource["resource"] == f"{web.url}/mcp"
    assert resource["authorization_servers"] == [web.url]
    server = web.ask("GET", "/.well-known/oauth-authorization-server").json
    assert server["issuer"] == web.url
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["token_endpoint_auth_methods_supported"] == ["none"]
    assert server["scopes_supported"] == ["read", "write", "ingest"]
    assert server["client_id_metadata_document_supported"] is True


def test_the_bearer_token_works_beside_and_may_do_everything(web: Web) -> None:
    assert web.call(TOKEN, "tools/call", name="add", arguments={"note": "tea"}).status == 200
    assert 'error="invalid_token"' in web.call(TOKEN + "x").headers["www-authenticate"]


def test_each_tool_of_every_surface_needs_a_scope() -> None:
    surfaces = [load(name) for name in NAMES]
    found = {
        f"{surface.name}.{tool.name}": oauth.scope_of(tool)
        for surface in surfaces
        for tool in surface.tools
    }
    assert {name for name, scope in found.items() if scope == "ingest"} == {
        "mcpvectordb.ingest_file",
        "mcpvectordb.ingest_url",
        "openrag.ingest_document",
        "desk.ingest",
    }
    writes = {name.partition(".")[2] for name, scope in found.items() if scope == "write"}
    assert writes >= {"remember", "update", "forget", "delete_document", "vector_add"}
    assert not writes & {"search", "read", "get", "query", "status", "verify", "list_documents"}


# --- the whole way


class Kept:
    """What a client keeps between two starts."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: Any = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


def conversed(web: Web, kept: Kept, talk: Callable[[Client], Any], **more: Any) -> Any:
    """What a conversation results in that the SDK's client has after it was let in."""
    answered: list[AuthorizationCodeResult] = []

    async def person(url: str) -> None:
        shown = await anyio.to_thread.run_sync(web.ask, "GET", url.removeprefix(web.url))
        sent = await anyio.to_thread.run_sync(web.submit, shown.text)
        answered.append(AuthorizationCodeResult(**sent.back))

    async def callback() -> AuthorizationCodeResult:
        return answered.pop()

    about = OAuthClientMetadata(client_name="The SDK", redirect_uris=[AnyUrl(BACK)])

    async def run() -> Any:
        auth = OAuthClientProvider(
            f"{web.url}/mcp",
            about,
            kept,
            redirect_handler=person,
            callback_handler=callback,
            **more,
        )
        async with create_mcp_http_client(auth=auth) as client:
            over = streamable_http_client(f"{web.url}/mcp", http_client=client)
            async with Client(over) as session:
                return await talk(session)

    with anyio.from_thread.start_blocking_portal() as portal:
        return portal.call(run)


async def kept_note(session: Client) -> Any:
    await session.call_tool("add", {"note": "oolong at ninety degrees"})
    return await session.call_tool("find", {"word": "oolong"})


def test_the_sdks_client_registers_is_let_in_calls_refreshes_and_is_revoked(
    web: Web, access: Access, clock: Clock
) -> None:
    kept = Kept()
    assert not conversed(web, kept, kept_note).is_error
    assert kept.tokens is not None
    assert kept.tokens.scope == "read write ingest"
    assert kept.client.client_secret is None
    first = kept.tokens
    assert web.call(first.access_token).status == 200
    refreshed = web.refresh(kept.client.client_id, first.refresh_token or "").json
    assert web.call(refreshed["access_token"]).status == 200
    [known] = [each for each in access.connected() if each.name == "The SDK"]
    assert (known.host, known.scopes) == ("client.test", ("read", "write", "ingest"))
    access.revoke(known.id)
    assert web.call(refreshed["access_token"]).status == 401
    assert web.refresh(kept.client.client_id, refreshed["refresh_token"]).json == {
        "error": "invalid_grant",
        "error_description": "refresh token does not exist",
    }


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site on this machine, where clients describe themselves."""
    certificate = self_signed(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    memory = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    memory.load_cert_chain(certificate)
    made = Site(memory)
    yield made
    made.close()


def document(url: str, **changed: Any) -> bytes:
    about = {"client_id": url, "client_name": "Described", "redirect_uris": [BACK], **changed}
    return json.dumps(about).encode()


def test_the_sdks_client_is_known_by_the_document_at_its_address(
    web: Web, access: Access, described: Site
) -> None:
    url = described.url("/client.json", "localhost", "https")
    described.pages["/client.json"] = page(document(url))
    kept = Kept()
    assert not conversed(web, kept, kept_note, client_metadata_url=url).is_error
    assert kept.client.client_id == url
    assert [each.host for each in access.connected() if each.name == "Described"] == ["localhost"]
    assert len(described.seen) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda url: page(document(url + "x")), "is not the client"),
        (lambda url: page(b"<html>"), "is not the client"),
        (lambda url: page(b"[" * 10_000), "is not the client"),
        (lambda url: page(document(url), status=404), "failed"),
        (lambda url: page(b"", status=302, Location=url + "2"), "failed"),
        (lambda url: page(document(url, client_name="x" * 20_000)), "too large"),
        (lambda url: page(document(url, redirect_uris=["javascript:alert(1)"])), "redirect URI"),
        (lambda url: page(document(url, redirect_uris=[])), "redirect_uris"),
    ],
)
def test_a_document_that_is_not_the_clients_lets_nobody_in(
    answer: Callable[[str], Any], said: str, web: Web, described: Site
) -> None:
    url = described.url("/wrong.json", "localhost", "https")
    described.pages["/wrong.json"] = answer(url)
    described.pages["/wrong.json2"] = page(document(url))
    shown = web.page(url)
    assert (shown.status, said in shown.text) == (400, True), shown.text
    assert "location" not in shown.headers


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/client.json",
        "https://localhost/client.json",
        "https://169.254.169.254/latest",
        "https://[::ffff:10.0.0.1]/x",
        "http://client.test/x",
        "https://client.test",
        "https://client.test/../x",
        "https://me@client.test/x",
    ],
)
def test_no_private_address_is_asked_for_a_client(url: str, folder: Path, clock: Clock) -> None:
    closed = serving(Access(folder / "notes.db", folder=folder, clock=clock))
    try:
        shown = Web(closed.url).page(url)
    finally:
        closed.stop()
    assert (shown.status, "location" in shown.headers) == (400, False)
    assert "ALLOW_PRIVATE" not in shown.text


# --- where the answer goes


@pytest.mark.parametrize(
    "uri",
    [
        "javascript:alert(1)",
        "JavaScript://client.test/%0aalert(1)",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "http://client.test/back",
        "http://127.0.0.1.client.test/",
        "https://client.test/back#fragment",
        "https://client.test/back#",
        "https://me:secret@client.test/",
        "ws://client.test/",
        "not a url",
    ],
)
def test_a_redirect_uri_that_could_do_harm_cannot_be_registered(uri: str, web: Web) -> None:
    assert web.register(redirect_uris=[BACK, uri]).status == 400


@pytest.mark.parametrize(
    "uri",
    [
        "https://client.test/back/",
        "https://client.test/back/../evil",
        "https://client.test/back?x=1",
        "https://client.test.evil.test/back",
        "https://client.test@evil.test/back",
        "https://client.test:444/back",
        "http://client.test/back",
        "https://client.test/back#",
        "javascript:alert(1)",
        "//evil.test/back",
        "",
    ],
)
def test_the_answer_goes_nowhere_else(uri: str, web: Web) -> None:
    client = web.client()
    for given in (
        web.page(client, redirect_uri=uri),
        web.page(client, redirect_uri=uri, scope="x"),
    ):
        assert (given.status, "location" in given.headers) == (400, False), given.text


def test_a_program_on_the_device_may_listen_on_any_port(web: Web) -> None:
    client = web.client(redirect_uris=["http://127.0.0.1:1/cb", "cursor://mcp/cb"])
    for uri in ("http://127.0.0.1:54321/cb", "cursor://mcp/cb"):
        code = web.allow(client, redirect_uri=uri).back["code"]
        assert web.redeem(client, code, redirect_uri=uri).status == 200
    others = (
        "http://127.0.0.1:5/other http://localhost:1/cb http://u:p@127.0.0.1:1/cb cursor://mcp/cb2"
    )
    for uri in others.split():
        assert web.page(client, redirect_uri=uri).status == 400


def test_the_answer_names_who_gives_it_and_brings_the_state_back(web: Web) -> None:
    client, back = web.client(redirect_uris=[f"{BACK}?kept=yes"]), f"{BACK}?kept=yes"
    shown = web.page(client, redirect_uri=back, state="a&b=ü").text
    denied = web.form("/authorize", Form(shown).hidden | {"answer": "deny"}, Origin=web.url)
    for answer, named in ((web.submit(shown), "code"), (denied, "error")):
        assert (answer.status, named in answer.back) == (303, True)
        assert (answer.back["iss"], answer.back["state"]) == (web.url, "a&b=ü")
        assert answer.back["kept"] == "yes"


def test_no_link_to_the_server_leads_elsewhere_without_an_answer_of_the_person(web: Web) -> None:
    client = web.client()
    for changed in ({"response_type": "token"}, {"scope": "everything"}, {"code_challenge": None}):
        shown = web.page(client, **changed)
        assert (shown.status, "location" in shown.headers) == (400, False)
        assert "request is not valid: " in shown.text


# --- codes and tokens


@pytest.mark.parametrize(
    "changed",
    [
        {"code_challenge": None},
        {"code_challenge_method": "plain"},
        {"response_type": "token"},
        {"resource": "https://elsewhere.test/mcp"},
        {"scope": "everything"},
    ],
)
def test_a_request_without_what_it_needs_gets_an_error_and_no_page(
    changed: dict[str, str | None], web: Web
) -> None:
    answer = web.page(web.client(), **changed)
    assert (answer.status, "<form" in answer.text) == (400, False)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"code_verifier": "w" * 50}, "invalid_grant"),
        ({"code_verifier": CHALLENGE}, "invalid_grant"),
        ({"code_verifier": None}, "invalid_request"),
        ({"redirect_uri": "https://client.test/other"}, "invalid_request"),
        ({"redirect_uri": None}, "invalid_request"),
        ({"resource": "https://elsewhere.test/mcp"}, "invalid_target"),
        ({"code": "x" * 43}, "invalid_grant"),
        ({"grant_type": "password"}, "invalid_request"),
        ({"client_id": "somebody"}, "invalid_client"),
    ],
)
def test_a_code_is_good_for_nothing_without_all_that_belongs_to_it(
    changed: dict[str, str | None], error: str, web: Web
) -> None:
    client = web.client()
    answer = web.redeem(client, web.code(client), **changed)
    assert (answer.json["error"], "access_token" in answer.text) == (error, False)


def test_a_code_of_another_client_is_unknown(web: Web) -> None:
    mine, other = web.client(), web.client()
    code = web.code(mine)
    assert web.redeem(other, code).json["error"] == "invalid_grant"
    assert web.redeem(mine, code).status == 200


def test_a_code_that_comes_again_takes_its_tokens_along(web: Web) -> None:
    client = web.client()
    code = web.code(client)
    tokens = web.redeem(client, code).json
    assert web.call(tokens["access_token"]).status == 200
    assert web.redeem(client, code, code_verifier="stolen" * 9).json["error"] == "invalid_grant"
    assert web.call(tokens["access_token"]).status == 401
    assert web.refresh(client, tokens["refresh_token"]).json["error"] == "invalid_grant"


def test_codes_and_tokens_expire(web: Web, clock: Clock) -> None:
    client = web.client()
    code, tokens = web.code(client), web.tokens(client)
    clock.later = 30 * 86_400 + 1
    assert web.redeem(client, code).json["error"] == "invalid_grant"
    assert web.refresh(client, tokens["refresh_token"]).json["error"] == "invalid_grant"
    assert tokens["expires_in"] == 3_600


def test_an_access_token_that_has_expired_lets_nobody_in(access: Access, clock: Clock) -> None:
    clock.later = -3_601
    try:
        code = access.consent("c", {"redirect_uris": [BACK]}, ["read"], "http://x/mcp", {})
        issued = access.exchange(code, "code", ["read"])
        assert issued is not None
        provider = oauth.Provider(access, "http://x/mcp")
        assert provider.access_token(issued[0]) is None
    finally:
        clock.later = 0


def test_a_refresh_token_that_comes_again_revokes_its_family(web: Web) -> None:
    client = web.client()
    first = web.tokens(client)
    second = web.refresh(client, first["refresh_token"]).json
    assert web.call(second["access_token"]).status == 200
    assert web.refresh(client, first["refresh_token"]).json["error"] == "invalid_grant"
    assert web.call(second["access_token"]).status == 401
    assert web.refresh(client, second["refresh_token"]).json["error"] == "invalid_grant"


def test_a_refresh_token_is_of_one_client_and_one_resource(web: Web) -> None:
    mine, other = web.client(), web.client()
    token = web.tokens(mine)["refresh_token"]
    assert web.refresh(other, token).json["error"] == "invalid_grant"
    elsewhere = web.refresh(mine, token, resource="https://elsewhere.test/mcp")
    assert elsewhere.json["error"] == "invalid_target"
    assert web.refresh(mine, token).status == 200


def test_scopes_do_not_grow_by_refreshing(web: Web) -> None:
    client = web.client()
    tokens = web.tokens(client, scope="read")
    assert tokens["scope"] == "read"
    more = web.refresh(client, tokens["refresh_token"], scope="read write")
    assert more.json["error"] == "invalid_scope"
    assert web.refresh(client, tokens["refresh_token"]).json["scope"] == "read"


def test_a_token_for_another_public_url_of_the_same_file_lets_nobody_in(
    web: Web, access: Access
) -> None:
    client = web.client()
    tokens, code = web.tokens(client), web.code(client)
    other = serving(access, url="https://other.test")
    try:
        there = Web(other.url)
        assert there.call(tokens["access_token"]).status == 401
        assert there.refresh(client, tokens["refresh_token"]).json["error"] == "invalid_grant"
        assert there.redeem(client, code, resource=None).json["error"] == "invalid_grant"
    finally:
        other.stop()
    assert web.call(tokens["access_token"]).status == 200


def test_several_servers_on_one_file_know_the_same_and_see_at_once_what_is_revoked(
    web: Web, access: Access, folder: Path
) -> None:
    other = serving(Access(folder / "notes.db", folder=folder), url=web.url)
    try:
        there, client = Web(other.url), web.client()
        tokens = there.redeem(client, web.code(client), resource=None).json
        assert (
            web.call(tokens["access_token"]).status,
            there.call(tokens["access_token"]).status,
        ) == (
            200,
            200,
        )
        done = web.form("/revoke", {"token": tokens["refresh_token"], "client_id": client})
        assert done.status == 200
        assert (
            web.call(tokens["access_token"]).status,
            there.call(tokens["access_token"]).status,
        ) == (
            401,
            401,
        )
    finally:
        other.stop()


def test_nobody_revokes_the_token_of_another_client(web: Web) -> None:
    token = web.tokens(web.client())["access_token"]
    assert web.form("/revoke", {"token": token, "client_id": "somebody"}).status == 200
    assert web.call(token).status == 200


# --- scopes


def test_a_token_may_do_what_its_scopes_say(web: Web) -> None:
    token = web.tokens(web.client(), scopes="read")["access_token"]
    assert web.call(token, "tools/list").status == 200
    found = web.call(token, "tools/call", name="find", arguments={"word": "x"})
    assert found.status == 200
    refused = web.call(token, "tools/call", name="add", arguments={"note": "x"})
    told = refused.headers["www-authenticate"]
    assert refused.status == 403
    assert 'error="insufficient_scope"' in told
    assert 'scope="read write"' in told
    assert "resource_metadata=" in told


def test_without_read_no_content_is_seen(web: Web) -> None:
    token = web.tokens(web.client(), scopes="write")["access_token"]
    for method, params in (
        ("tools/call", {"name": "add", "arguments": {"note": "x"}}),  # it may say what was there
        ("tools/call", {"name": "find", "arguments": {"word": "x"}}),
        ("tools/call", {"name": ["add"]}),
        ("resources/read", {"uri": "little://x"}),
        ("resources/templates/list", {}),
        ("prompts/get", {"name": "x"}),
        ("completion/complete", {}),
    ):
        assert web.call(token, method, **params).status == 403, method


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("coding", ["utf-8", "utf-16", "utf-32", "utf-8-sig", "surrogate", "twice"])
def test_no_way_of_writing_a_message_is_a_way_around_its_scope(
    coding: str, version: str, web: Web, running: Running
) -> None:
    token = web.tokens(web.client(), scopes="read")["access_token"]
    call = {"name": "add", "arguments": {"note": "smuggled", "x": "\ud800"}}
    if coding != "surrogate":
        del call["arguments"]["x"]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    body = json.dumps(message)
    if coding == "twice":
        body = body.replace('"name": "add"', '"name": "find", "name": "add"')
    raw = body.encode() if coding in ("surrogate", "twice") else body.encode(coding)
    status, text, _ = running.answer(
        "POST",
        "/mcp",
        raw,
        Authorization=f"Bearer {token}",
        MCP_Protocol_Version=version,
        Mcp_Method="tools/call",
        Mcp_Name="find",
    )
    assert status in (400, 403), text
    assert "smuggled" not in text


def test_what_is_no_message_or_too_long_is_refused_from_a_client_too(
    web: Web, running: Running
) -> None:
    token = web.tokens(web.client())["access_token"]
    for method in ([], {}, {"a": 1}, None, 5, ""):
        body = {"jsonrpc": "2.0", "id": 1, "method": method}
        assert running.request(body=body, Authorization=f"Bearer {token}")[0] == 400, method
    long = b'{"a": "' + b"x" * MAX_BODY + b'"}'
    assert running.request(body=long, Authorization=f"Bearer {token}")[0] == 413
    assert running.request(body="null", Authorization=f"Bearer {token}")[0] == 400


def test_what_was_not_asked_for_is_not_given(web: Web) -> None:
    client = web.client()
    shown = web.page(client, scope="read offline_access")
    assert Form(shown.text).boxes == ["read"]
    sent = Form(shown.text).hidden | {"read": "yes", "write": "yes", "ingest": "yes"}
    answer = {"passphrase": PASSPHRASE, "answer": "allow"}
    code = web.form("/authorize", sent | answer, Origin=web.url).back["code"]
    assert web.redeem(client, code).json["scope"] == "read"


def test_a_session_belongs_to_the_client_that_has_begun_it(web: Web) -> None:
    mine, other = web.tokens(web.client()), web.tokens(web.client())
    session = web.call(mine["access_token"], "initialize").headers["mcp-session-id"]
    for token in (other["access_token"], TOKEN):
        stolen = web.ask("GET", "/mcp", Mcp_Session_Id=session, Authorization=f"Bearer {token}",
                         Accept="text/event-stream")  # fmt: skip
        assert stolen.status == 404


# --- the person


def test_the_page_says_who_comes_from_where_and_wants_what(web: Web) -> None:
    client = web.client(client_name='<script>alert("x")</script>\u202eevil' + "x" * 500)
    shown = web.page(client).text
    assert "<script" not in shown
    assert "\u202e" not in shown
    assert "&lt;script&gt;" in shown
    assert "<b>client.test</b>" in shown
    assert "nobody has checked its name" in shown
    assert "x" * 100 not in shown
    assert Form(shown).boxes == ["read", "write", "ingest"]


def test_the_page_is_in_no_frame_runs_nothing_and_is_kept_nowhere(web: Web) -> None:
    for shown in (web.page(web.client()), web.page("somebody")):
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "script" not in policy
        assert shown.headers["x-frame-options"] == "DENY"
        assert shown.headers["cache-control"] == "no-store"
        assert "set-cookie" not in shown.headers


@pytest.mark.parametrize("origin", ["https://evil.test", "null", "", "http://127.0.0.1:1"])
def test_no_other_page_can_answer_for_the_person(origin: str, web: Web) -> None:
    answer = web.submit(web.page(web.client()).text, Origin=origin)
    assert (answer.status, "location" in answer.headers) == (403, False)


def test_no_way_of_asking_but_get_goes_without_the_pages_origin(web: Web) -> None:
    sent = Form(web.page(web.client()).text).hidden | {"answer": "deny"}
    kind = "application/x-www-form-urlencoded"
    refused = web.ask("HEAD", "/authorize", urlencode(sent), Content_Type=kind)
    assert (refused.status, "location" in refused.headers) == (403, False)


def test_what_the_person_denies_is_denied(web: Web) -> None:
    sent = Form(web.page(web.client()).text).hidden
    for answer in ({"answer": "deny", "passphrase": PASSPHRASE}, {}):
        assert (
            web.form("/authorize", sent | answer, Origin=web.url).back["error"] == "access_denied"
        )


def test_a_form_that_was_changed_is_checked_like_a_new_request(web: Web) -> None:
    form = Form(web.page(web.client()).text).hidden
    answer = {"answer": "allow", "passphrase": PASSPHRASE, "read": "yes"}
    changed = form | answer | {"redirect_uri": "https://evil.test/"}
    refused = web.form("/authorize", changed, Origin=web.url)
    assert (refused.status, "location" in refused.headers) == (400, False)


def test_wrong_passphrases_have_to_wait_longer_and_longer(
    folder: Path, clock: Clock, web: Web, access: Access
) -> None:
    client = web.client()
    try:
        for _ in range(5):
            assert "not the passphrase" in web.allow(client, "wrong").text
        for passphrase in ("wrong", PASSPHRASE):
            assert "too many" in web.allow(client, passphrase).text.lower()
        clock.later = 31
        assert "not the passphrase" in web.allow(client, "wrong").text
        clock.later = 31 + 31
        assert "too many" in web.allow(client, PASSPHRASE).text.lower()
        clock.later = 31 + 62
        assert "code" in web.allow(client).back
        assert "not the passphrase" in web.allow(client, "").text
    finally:
        access.set_passphrase(PASSPHRASE)


def test_nothing_is_allowed_by_allowing_nothing(web: Web) -> None:
    sent = Form(web.page(web.client()).text).hidden
    answer = web.form(
        "/authorize", sent | {"answer": "allow", "passphrase": PASSPHRASE}, Origin=web.url
    )
    assert (answer.status, "choose what is allowed" in answer.text.lower()) == (403, True)


# --- bounds


def test_large_bodies_and_many_registrations_fill_nothing(web: Web, access: Access) -> None:
    kept = web.client()
    web.code(kept)
    first = web.client()
    for path in ("/register", "/token", "/authorize", "/revoke"):
        assert web.ask("POST", path, "x" * 20_000, Origin=web.url).status == 413
    assert web.register(redirect_uris=[f"https://client.test/{n}" for n in range(21)]).status == 400
    for _ in range(100):
        web.client()
    assert access.client(first) is None
    assert access.client(kept) is not None


def test_another_host_gets_nothing_not_even_the_metadata(web: Web) -> None:
    for path in ("/.well-known/oauth-authorization-server", "/authorize", "/token"):
        assert web.ask("GET", path, Host="evil.test").status == 421


@pytest.mark.parametrize("path", ["/authorize", "/token", "/register", "/revoke"])
@pytest.mark.parametrize("body", ["", "{", "\x00", "a=%ff%00&client_id=%00", "[]", "null"])
def test_nonsense_is_answered_and_no_error_of_ours(path: str, body: str, web: Web) -> None:
    for kind in (
        "application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
    ):
        answer = web.ask("POST", path, body, Content_Type=kind, Origin=web.url)
        assert answer.status < 500, (kind, answer.text)
    assert web.ask("GET", f"{path}?{urlencode({'client_id': body})}").status < 500
