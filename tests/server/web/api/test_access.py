from __future__ import annotations

from mcpvectordb import Access
from tests.server.web.support_web_server import Served


def test_clients_are_listed_and_let_out(served: Served) -> None:
    access = Access(served.db.path)
    about = {"client_name": "Phone", "redirect_uris": ["https://phone.test/back"]}
    code = access.consent("https://phone.test/x", about, ["read"], "https://notes.test/mcp", {})
    issued = access.exchange(code, "code", ["read"])
    assert issued is not None
    [client] = served.get("/api/clients")["clients"]
    assert (client["name"], client["host"], client["scopes"]) == ("Phone", "phone.test", ["read"])
    assert served.post(f"/api/clients/{client['id']}/revoke") == {"revoked": client["id"]}
    assert served.get("/api/clients") == {"clients": []}
    assert access.token(issued[0], "access") is None
    assert served.ask("POST", f"/api/clients/{client['id']}/revoke")[0] == 404
