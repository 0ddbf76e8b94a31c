from __future__ import annotations

from tests.server.web.support_web_server import Served


def test_stores_and_vectors_are_listed(filled: Served) -> None:
    [store] = filled.get("/api/stores")["stores"]
    assert (store["name"], store["metric"], store["vectors"]) == ("default", "cosine", 2)
    found = filled.get("/api/vectors")
    assert [each["id"] for each in found["vectors"]] == ["v2", "v1"] and found["total"] == 2
    assert "embedding" not in found["vectors"][0]
    assert filled.get("/api/vectors?numbers=true")["vectors"][1]["embedding"] == [1.0, 0.0]
    assert "default" in filled.get("/api/vectors?store=defalt")["note"]


def test_vectors_are_searched_by_numbers_or_by_one_of_them(filled: Served) -> None:
    for query in ({"embedding": [1, 0]}, {"like": "v1"}):
        found = filled.post("/api/vectors/search", **query)["hits"]
        assert [hit["vector"]["id"] for hit in found] == ["v1", "v2"] and found[0]["value"] == 1.0
    for query in ({}, {"embedding": [1.0], "like": "v1"}, {"embedding": []}):
        assert filled.ask("POST", "/api/vectors/search", query)[0] == 400
    assert filled.ask("POST", "/api/vectors/search", {"like": "none"})[0] == 404


def test_a_vector_is_stored_and_removed(served: Served) -> None:
    made = served.post("/api/vectors", id="a", embedding=[1, 2.5], store="s", metadata={"k": 1})
    assert made["status"] == "added" and made["vector"]["dimension"] == 2
    assert served.post("/api/vectors", id="a", embedding=[3, 4], store="s")["status"] == "updated"
    assert served.post("/api/vectors/delete", id="a", store="s") == {"deleted": True}
    assert served.post("/api/vectors/delete", id="a", store="s") == {"deleted": False}
    for wrong in ([], ["x"], [1e400], None):
        assert served.ask("POST", "/api/vectors", {"id": "a", "embedding": wrong})[0] == 400
