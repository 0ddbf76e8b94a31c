"""The model of the extra `multilingual`: its tokenizer, its graph in the cache, its vectors."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Database
from mcpvectordb.embedding.catalogue import CATALOGUE, Model
from mcpvectordb.embedding.embedder import OnnxEmbedder
from mcpvectordb.embedding.tokenizer import PieceTokens
from mcpvectordb.embedding.weights import GRAPH, WEIGHTS, _record, installed, locate, verify
from mcpvectordb.errors import InvalidInput, ModelDamaged
from tests.support import ROOT
from tests.support_e5s1 import Tiny
from tests.support_onnx import model_file

pytestmark = pytest.mark.long

NOWHERE = Path("nowhere")
E5 = CATALOGUE["multilingual-e5-small"]
FIXTURES = ROOT / "tests" / "fixtures"
real = pytest.mark.skipif(
    not installed(E5, NOWHERE), reason="the extra multilingual is not installed"
)
# The begin of the vectors of two texts: they change with `encoder_graph`, whose VERSION must be
# raised then.
GOLDEN = {
    "Wie wird das Wetter morgen?": [0.0507, 0.0047, -0.0416, -0.0852, 0.0699, -0.0279],
    "明天天气怎么样？": [0.0474, 0.0068, -0.0186, -0.0679, 0.0965, -0.0248],
}


def tiny(folder: Path, content: bytes | None = None) -> tuple[Model, dict[str, Path]]:
    """A model of some kilobytes in the format of the real one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.bin"
    path.write_bytes(content or Tiny().content())
    files = dict.fromkeys(("model", "tokenizer"), model_file(path))
    model = Model(name="tiny", dimension=32, max_tokens=16, assembly=1, files=files)
    return model, dict.fromkeys(files, path)


def kept(cache: Path) -> Path:
    (found,) = cache.iterdir()
    return found


def test_a_graph_is_assembled_once_and_kept_with_its_digests(tmp_path: Path) -> None:
    model, files = tiny(tmp_path / "model")
    alone = OnnxEmbedder(model, files).embed(["cats sea"])
    first = OnnxEmbedder(model, files, cache=tmp_path / "cache").embed(["cats sea"])
    place = kept(tmp_path / "cache")
    assert {each.name for each in place.iterdir()} == {GRAPH, WEIGHTS}
    files["model"].write_bytes(b"gone: what is kept is enough")
    tokenizer = {**files, "tokenizer": tiny(tmp_path / "again")[1]["tokenizer"]}
    again = OnnxEmbedder(model, tokenizer, cache=tmp_path / "cache").embed(["cats sea"])
    assert alone.tobytes() == first.tobytes() == again.tobytes()


def test_a_kept_graph_that_cannot_be_loaded_does_not_stop_anything(tmp_path: Path) -> None:
    model, files = tiny(tmp_path / "model")
    cache = tmp_path / "cache"
    expected = OnnxEmbedder(model, files, cache=cache).embed(["cats sea"])
    (kept(cache) / GRAPH).write_bytes(b"nonsense")  # with its digest in the data folder
    digests = {
        each: hashlib.sha256((kept(cache) / each).read_bytes()).hexdigest()
        for each in (GRAPH, WEIGHTS)
    }
    _record(kept(cache)).write_text(json.dumps(digests))
    assert (
        OnnxEmbedder(model, files, cache=cache).embed(["cats sea"]).tobytes() == expected.tobytes()
    )


def test_processes_that_begin_at_once_end_with_one_graph(tmp_path: Path) -> None:
    model, files = tiny(tmp_path / "model")
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.core.embedding.test_multilingual import tiny\n"
        "from mcpvectordb.embedding.embedder import OnnxEmbedder\n"
        "model, files = tiny(Path(sys.argv[1]))\n"
        "vector = OnnxEmbedder(model, files, cache=Path(sys.argv[2])).embed(['cats sea'])\n"
        "print(vector.tobytes().hex())"
    )
    arguments = [sys.executable, "-c", code]
    runs = [
        subprocess.Popen(
            [*arguments, str(tmp_path / str(number)), str(tmp_path / "cache")],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        for number in range(4)
    ]
    found = {run.communicate()[0] for run in runs}
    assert found == {OnnxEmbedder(model, files).embed(["cats sea"]).tobytes().hex() + "\n"}
    assert kept(tmp_path / "cache").is_dir()


@pytest.mark.skipif(os.name != "posix", reason="limits of file sizes are set in POSIX")
def test_where_the_disk_is_full_nothing_is_kept(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from tests.core.embedding.test_multilingual import tiny\n"
        "from mcpvectordb.embedding.embedder import OnnxEmbedder\n"
        "model, files = tiny(Path(sys.argv[1]))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))\n"
        "print(OnnxEmbedder(model, files, cache=Path(sys.argv[2])).embed(['cats sea']).shape)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "model"), str(tmp_path / "cache")]
    run = subprocess.run(arguments, capture_output=True, cwd=ROOT, text=True)
    assert (run.returncode, run.stdout) == (0, "(1, 32)\n"), run.stderr
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_pieces_of_special_tokens_are_not_found_in_texts(tmp_path: Path) -> None:
    _, files = tiny(tmp_path)
    tokens = PieceTokens(files["tokenizer"])
    assert tokens.encode("cat seaside", 16) == [0, 7, 5, 6, 2]
    for mark in ("", "\0", "\1"):
        marked = tokens.encode(f"{mark}<s> {mark}</s> {mark}<pad> seaside", 64)
        assert not {0, 1, 2} & set(marked[1:-1])
    assert tokens.encode("", 16) == tokens.encode(" \n", 16) == [0, 2]
    assert tokens.encode("cat ～", 16) == [0, 7, 4, 11, 2]


def test_with_damaged_weights_a_text_is_stored_and_found_by_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def distribution(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    (tmp_path / E5.name).mkdir()
    (tmp_path / E5.name / "e5-small-q4.bin").write_bytes(b"nonsense")
    config = Config(model=E5.name, models_dir=str(tmp_path))
    with Database(tmp_path / "test.db", config=config) as db:
        done = db.documents.ingest_text("Äpfel sind rot.", source="a.md")
        assert done.pending == 1 and "is not the file it should be" in done.note
        assert [hit.item.text for hit in db.documents.search("Äpfel")] == ["Äpfel sind rot."]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> OnnxEmbedder:
    return OnnxEmbedder(E5, locate(E5, NOWHERE), cache=tmp_path_factory.mktemp("graphs"))


@real
def test_tokens_are_those_of_sentencepiece(embedder: OnnxEmbedder) -> None:
    texts = [
        text
        for path in sorted((FIXTURES / "languages").glob("*.json"))
        for entry in json.loads(path.read_text("utf-8"))["entries"]
        for text in entry.values()
    ]
    expected = json.loads((FIXTURES / "pieces.json").read_text())
    more = json.loads((FIXTURES / "scripts.json").read_text("utf-8"))
    found = [embedder.tokens.encode(text, 512)[1:-1] for text in [*texts, *more]]
    assert found == expected and len(found) == 210


@pytest.fixture(scope="module")
def whole() -> PieceTokens:
    """A tokenizer that has all pieces."""
    tokens = PieceTokens(locate(E5, NOWHERE)["tokenizer"])
    assert len(tokens._tokenizer.get_vocab()) > 250_000
    return tokens


SCRIPTS = (
    "abcdefgh ÄÖßéñ 0123456789 .,;:!?-_()[]{}<>/\\|@#$%^&*~`'\"= \t\n\0\1▁\uff5e\ue0ff\u3000"
    "абвгдежз αβγδεζ אבגדה ابتثجح हिन्दी বাংলা தமிழ் ไทย 한국어 日本語カタカナひらがな 中文汉字 ՀԱՅ ქართ "
    "\u0301\u200d\u00ad\ufeff\ufb01½℃①𝔘😀👩🏽"
)
WORDS = [
    "query: ", "the ", "lighthouse", "Donaudampfschiff", "<s>", "\0</s>", "\1<unk>", "как работает",
    "天气怎么样", "नमस्ते", "مرحبا", "สวัสดี", "안녕하세요", "-" * 30, "def f(x):\n", "ab" * 40, "中" * 40,
]  # fmt: skip


@real
@given(st.lists(st.text(SCRIPTS, max_size=12) | st.sampled_from(WORDS) | st.text(max_size=6)))
def test_a_tokenizer_of_the_pieces_in_a_text_gives_the_tokens_of_the_whole_one(
    whole: PieceTokens, parts: list[str]
) -> None:
    text = "".join(parts)
    alone = PieceTokens(locate(E5, NOWHERE)["tokenizer"])
    try:
        expected = whole.encode_parts(text, 64, 8)
    except InvalidInput as error:
        with pytest.raises(InvalidInput, match=str(error)):
            alone.encode_parts(text, 64, 8)
        return
    assert alone.encode_parts(text, 64, 8) == expected
    assert alone.token_starts(text).tolist() == whole.token_starts(text).tolist()
    assert "_tokenizer" not in vars(alone)


@real
def test_when_texts_have_had_as_many_pieces_as_there_are_all_are_read(whole: PieceTokens) -> None:
    tokens = PieceTokens(locate(E5, NOWHERE)["tokenizer"])
    for number in range(0, 250_000, 5_000):
        text = " ".join(tokens._piece(id).decode() for id in range(number, number + 5_000))
        assert tokens.encode(text, 512) == whole.encode(text, 512)
    assert "_tokenizer" in vars(tokens)


def test_threads_that_begin_at_once_share_a_tokenizer(tmp_path: Path) -> None:
    code = (
        "import sys, threading; from concurrent.futures import ThreadPoolExecutor\n"
        "from pathlib import Path\n"
        "from mcpvectordb.embedding.tokenizer import tokenizer_of\n"
        "start = threading.Barrier(8)\n"
        "def work(number):\n"
        "    start.wait()\n"
        "    tokens = tokenizer_of(Path(sys.argv[1]))\n"
        "    return id(tokens), tuple(tokens.encode('cat seaside', 16))\n"
        "print(len(set(ThreadPoolExecutor(8).map(work, range(8)))))"
    )
    _, files = tiny(tmp_path)
    arguments = [sys.executable, "-c", code, str(files["tokenizer"])]
    run = subprocess.run(arguments, capture_output=True, cwd=ROOT, text=True)
    assert (run.returncode, run.stdout) == (0, "1\n"), run.stderr


@real
def test_of_the_weights_the_tokenizer_verifies_the_pieces(
    tmp_path: Path, whole: PieceTokens
) -> None:
    file = E5.files["tokenizer"]
    path = tmp_path / "weights.bin"
    content = bytearray(locate(E5, NOWHERE)["tokenizer"].read_bytes())
    assert file.head == content.index(whole._texts) + len(whole._texts)
    content[file.head] ^= 1
    path.write_bytes(content)
    verify(path, file)  # of the model, whose file is verified as a whole, it is another
    with pytest.raises(ModelDamaged):
        verify(path, E5.files["model"])
    content[file.head - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelDamaged):
        verify(path, file)


@real
def test_every_character_is_normalised_as_the_weights_file_says() -> None:
    content = locate(E5, NOWHERE)["tokenizer"].read_bytes()
    count, _, _, _, _, size = struct.unpack_from("<5iQ", content, 44)
    at = 76 + 8 * count + size
    rules, _ = struct.unpack_from("<iI", content, at)
    at += 8
    normalizer = PieceTokens(locate(E5, NOWHERE)["tokenizer"])._normalizer
    for _ in range(rules):
        code, length = struct.unpack_from("<IB", content, at)
        expected = "".join(map(chr, struct.unpack_from(f"<{length}I", content, at + 5)))
        at += 5 + 4 * length
        assert normalizer.normalize_str(f"({chr(code)})") == f"({expected})", hex(code)
    assert rules > 4000


@real
def test_vectors_are_those_of_the_version_in_the_catalogue(embedder: OnnxEmbedder) -> None:
    for text, expected in GOLDEN.items():
        assert embedder.embed([text])[0][:6] == pytest.approx(expected, abs=0.003)


@real
def test_translations_are_nearer_than_other_sentences(embedder: OnnxEmbedder) -> None:
    questions = ["How is the weather tomorrow?", "Where is the railway station?"]
    others = ["Wie wird das Wetter morgen?", "火车站在哪里？", "¿Dónde está la estación de tren?"]
    nearest = np.argmax(embedder.embed(others) @ embedder.embed(questions, query=True).T, axis=1)
    assert nearest.tolist() == [0, 1, 1]
