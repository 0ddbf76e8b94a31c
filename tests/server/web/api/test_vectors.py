from __future__ import annotations

from tests.server.web.support_web_server import Served


def test_vectors_are_searched_by_numbers_or_by_one_of_them(filled: Served) -> None:
    for query in ({"embedding": [1, 0]}, {"like": "v1"}):
        found = filled.post("/api/vectors/search", **query)["hits"]
        assert [hit["vector"]["id"] for hit in found] == ["v1", "v2"] and found[0]["value"] == 1.0
    for query in ({}, {"embedding": [1.0], "like": "v1"}, {"embedding": []}):
        assert filled.ask("POST", "/api/vectors/search", query)[0] == 400
    assert filled.ask("POST", "/api/vectors/search", {"like": "none"})[0] == 404
