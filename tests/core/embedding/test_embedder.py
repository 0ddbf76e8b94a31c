from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mcpvectordb import Config, Database
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, RERANKER, Model
from mcpvectordb.embedding.embedder import (
    OnnxEmbedder,
    Reranker,
    StaticEmbedder,
    checked,
    pooled,
    processors,
    read_table,
    sigmoid,
    spread,
)
from mcpvectordb.embedding.encoder_graph import INT32
from mcpvectordb.embedding.weights import locate
from mcpvectordb.errors import EmbeddingFailed, InvalidInput, ModelDamaged
from tests.support import ROOT, scaled
from tests.support_onnx import WORDS, graph, model_file, table, write_model
from tests.support_static import STATIC_WORDS, needs_the_static_model, safetensors, static_model


@dataclass(frozen=True)
class ModelRow:
    """A user's embedder that returns the given vectors."""

    vectors: Any
    name: str = "mine"
    dimension: int = 2

    def embed(self, texts, *, query=False):
        return self.vectors


def test_usable_vectors_come_back_as_contiguous_float32():
    given = np.asfortranarray(np.array([[3.0, 4.0], [0.0, 1.0]]))
    vectors = checked(ModelRow(given), ["a", "b"])
    assert (
        vectors.dtype == np.float32
        and vectors.flags.c_contiguous
        and vectors.tolist() == given.tolist()
    )


def test_no_texts_give_no_rows_without_a_call_of_the_embedder():
    assert checked(ModelRow(None, dimension=7), []).shape == (0, 7)


def test_the_query_flag_reaches_the_embedder():
    class Asked(ModelRow):
        def embed(self, texts, *, query=False):
            return [[1.0, float(query)] for _ in texts]

    assert checked(Asked(None), ["a"], query=True).tolist() == [[1, 1]]
    assert checked(Asked(None), ["a"]).tolist() == [[1, 0]]


@pytest.mark.parametrize("vectors", [[[1.0, 2.0, 3.0]], [[1.0, 2.0]] * 2, [1.0, 2.0], [[]]])
def test_a_wrong_shape_is_refused_with_both_shapes(vectors):
    with pytest.raises(
        EmbeddingFailed, match=r"mine gave an array of shape .* it must be \(1, 2\)"
    ):
        checked(ModelRow(vectors), ["a"])


@pytest.mark.parametrize("vectors", [[[1.0], [1.0, 2.0]], [["a", "b"]], [[None, object()]]])
def test_a_result_that_is_not_an_array_of_numbers_is_refused(vectors):
    with pytest.raises(EmbeddingFailed, match="mine gave no array of numbers"):
        checked(ModelRow(vectors), ["a"])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, 1e-24, 1e7, 1e200])
def test_a_vector_that_cannot_be_ranked_is_refused_with_its_text(bad):
    with pytest.raises(
        EmbeddingFailed,
        match=r"mine gave a vector that cannot be ranked .* for the text 'the second'",
    ):
        checked(
            ModelRow([[1.0, 0.0], [bad, 0.0], [bad, 0.0]]), ["the first", "the second", "the third"]
        )


@pytest.mark.parametrize("good", [1e-6, 1e6, -1.0])
def test_lengths_at_the_limits_are_accepted(good):
    assert checked(ModelRow([[good, 0.0]]), ["a"])[0, 0] == np.float32(good)


def test_the_error_has_only_the_beginning_of_a_long_text():
    with pytest.raises(EmbeddingFailed) as caught:
        checked(ModelRow([[0.0, 0.0]]), ["x" * 10_000])
    assert len(str(caught.value)) < 250 and "xxx…" in str(caught.value)


numbers = st.floats(-1e3, 1e3, width=32)
outputs = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)).flatmap(
    lambda shape: st.lists(numbers, min_size=math.prod(shape), max_size=math.prod(shape)).map(
        lambda values: np.array(values, np.float32).reshape(shape)
    )
)


def naive_unit(row: list[float]) -> list[float]:
    length = math.sqrt(math.fsum(value * value for value in row))
    return [value / length if length else 0.0 for value in row]


def naive_layer_norm(row: list[float]) -> list[float]:
    mean = math.fsum(row) / len(row)
    variance = math.fsum((value - mean) ** 2 for value in row) / len(row)
    return [(value - mean) / math.sqrt(variance + 1e-5) for value in row]


def naive_mean(tokens: list[list[float]]) -> list[float]:
    return [math.fsum(column) / len(tokens) for column in zip(*tokens, strict=True)]


@given(outputs, st.sampled_from(["mean", "cls"]), st.booleans(), st.none() | st.integers(1, 6))
def test_a_vector_is_pooled_normalised_cut_and_scaled_to_length_one(
    output, pooling, layer_norm, dimension
):
    rows = [naive_mean(each) if pooling == "mean" else each[0] for each in output.tolist()]
    if layer_norm:
        rows = [naive_layer_norm(row) for row in rows]
    expected = np.array([naive_unit(row[:dimension]) for row in rows])
    found = pooled(output, pooling, layer_norm=layer_norm, dimension=dimension)
    assert found == pytest.approx(expected, abs=1e-4) and found.dtype == np.float32
    # One that is pooled already is only scaled.
    firsts = pooled(output, "cls", False, dimension)
    assert np.array_equal(firsts, pooled(output[:, 0], "mean", False, dimension))


def test_a_zero_vector_stays_zero_and_a_nan_stays_a_nan():
    output = np.array([[0.0, 0.0], [math.nan, 1.0]], np.float32)
    assert pooled(output, "mean", False, 2)[0].tolist() == [0, 0]
    assert np.isnan(pooled(output, "mean", False, 2)[1]).all()


@given(log_odds=st.floats(-1e4, 1e4))
def test_a_probability_is_between_0_and_1_and_keeps_the_order(log_odds: float) -> None:
    assert 0 <= sigmoid(log_odds) <= 1
    assert sigmoid(log_odds) <= sigmoid(log_odds + 1)
    assert sigmoid(log_odds) + sigmoid(-log_odds) == pytest.approx(1)


NOWHERE = Path("nowhere")
TASKS = Path("/proc/self/task")
MINILM = CATALOGUE["all-MiniLM-L6-v2"]
TEXTS = [
    "",
    "a",
    "How do I rotate keys?",
    "Keys are rotated every ninety days.",
    "東京",
    "the cat\nsat",
    "x" * 300,
]
# Runs in a separate process, which locates the model itself.
LOAD = """
from pathlib import Path
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.embedder import OnnxEmbedder
from mcpvectordb.embedding.weights import locate
model = CATALOGUE["all-MiniLM-L6-v2"]
embedder = OnnxEmbedder(model, locate(model, Path("nowhere")))
"""


@pytest.fixture(scope="module")
def minilm():
    embedder = OnnxEmbedder(MINILM, locate(MINILM, NOWHERE))
    yield embedder
    embedder.close()


@pytest.fixture(scope="module")
def alone(minilm):
    return {text: minilm.embed([text])[0].tobytes() for text in TEXTS}


def tiny(directory: Path, content: bytes, **fields: object) -> OnnxEmbedder:
    """An embedder with a tiny graph."""
    write_model(directory, content)
    paths = {"model": directory / "model.onnx", "tokenizer": directory / "tokenizer.json"}
    files = {role: model_file(path) for role, path in paths.items()}
    return OnnxEmbedder(
        Model(**{"name": "tiny", "dimension": 6, "max_tokens": 64, "files": files, **fields}), paths
    )


@settings(max_examples=scaled(25))
@given(texts=st.lists(st.sampled_from(TEXTS), max_size=8))
def test_a_text_has_the_same_bits_alone_and_in_any_batch(minilm, alone, texts):
    assert [vector.tobytes() for vector in minilm.embed(texts)] == [alone[text] for text in texts]


def test_a_text_has_the_same_bits_in_another_process(alone):
    code = LOAD + f"import sys; sys.stdout.buffer.write(embedder.embed({TEXTS!r}).tobytes())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout == b"".join(alone[text] for text in TEXTS)
    assert result.stderr == b""


def test_threads_that_start_together_load_one_session_and_agree(alone):
    loads = []

    class CountingEmbedder(OnnxEmbedder):
        def _load_graph(self):
            loads.append(1)
            return super()._load_graph()

    embedder = CountingEmbedder(MINILM, locate(MINILM, NOWHERE))
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(embedder.embed(TEXTS[:3]).tobytes()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {b"".join(alone[text] for text in TEXTS[:3])} and len(loads) == 1


def test_a_text_that_a_model_cannot_see_at_once_is_the_mean_of_its_parts(tmp_path):
    embedder = tiny(tmp_path, graph(table(6)), max_tokens=4)
    mean = embedder.embed(["cat dog", "dog a", "sea"]).astype(np.float64).mean(axis=0)
    assert embedder.embed(["cat dog dog a sea"])[0] == pytest.approx(
        mean / np.linalg.norm(mean), abs=1e-6
    )


def test_bge_small_embeds_queries_and_passages_differently():
    model = CATALOGUE["bge-small-en-v1.5"]
    try:
        embedder = OnnxEmbedder(model, locate(model, NOWHERE))
    except LookupError:
        pytest.skip("the extra `quality`, which brings bge-small, is not installed")
    [question] = checked(embedder, ["how are keys rotated?"], query=True)
    [plain] = checked(embedder, [f"{model.query_prefix}how are keys rotated?"])
    near, far = checked(
        embedder, ["Keys are renewed every ninety days.", "The cat sat on the mat."]
    )
    assert question.tobytes() == plain.tobytes() and question @ near > question @ far + 0.1
    embedder.close()


@pytest.mark.parametrize(
    ("query", "prefix"), [(True, "search _ query :"), (False, "search _ document :")]
)
def test_a_graph_of_nomics_shape_gets_prefix_mean_layer_norm_and_matryoshka_cut(
    tmp_path, query, prefix
):
    rows = table(12)
    embedder = tiny(
        tmp_path,
        graph(rows),
        dimension=5,
        layer_norm=True,
        query_prefix="search_query: ",
        document_prefix="search_document: ",
    )
    ids = [
        WORDS.index(word)
        for word in ["[CLS]", *prefix.split(), "a", "sea", "##side", "cat", "[SEP]"]
    ]
    pooled = rows[ids].astype(np.float64).mean(axis=0)
    cut = ((pooled - pooled.mean()) / np.sqrt(pooled.var() + 1e-5))[:5]
    assert checked(embedder, ["A seaside cat"], query=query)[0] == pytest.approx(
        cut / np.linalg.norm(cut), abs=1e-6
    )


@pytest.mark.parametrize(
    "options",
    [{"inputs": ["input_ids"]}, {"inputs": ["input_ids", "attention_mask"]}, {"kind": INT32}],
)
def test_a_graph_is_fed_the_inputs_it_has_in_their_type(tmp_path, options):
    full = tiny(tmp_path / "a", graph(table(6)))
    other = tiny(tmp_path / "b", graph(table(6), **options))
    assert full.embed(["cat"]).tobytes() == other.embed(["cat"]).tobytes()


def test_the_output_of_a_graph_that_pools_itself_is_used(tmp_path):
    rows = table(6)
    total = rows[[WORDS.index(word) for word in ("[CLS]", "cat", "dog", "[SEP]")]].sum(axis=0)
    found = tiny(tmp_path, graph(rows, pooled=True), pooling="cls").embed(["cat dog"])[0]
    assert found == pytest.approx(total / np.linalg.norm(total), abs=1e-6)


def test_a_graph_that_gives_too_few_values_is_refused(tmp_path):
    embedder = tiny(tmp_path, graph(table(4)))
    with pytest.raises(EmbeddingFailed, match=r"tiny gave an output of shape \(1, 3, 4\)"):
        embedder.embed(["cat"])


def test_a_run_that_fails_names_the_model(tmp_path, capfd):
    embedder = tiny(tmp_path, graph(table(6)[:4]))
    with pytest.raises(EmbeddingFailed, match="tiny failed on a text of 3 tokens"):
        embedder.embed(["cat"])
    assert capfd.readouterr() == ("", "")


def test_a_file_with_the_right_digest_that_is_not_a_graph_is_refused(tmp_path, capfd):
    with pytest.raises(EmbeddingFailed, match=r"ONNX Runtime .* cannot load .*model\.onnx"):
        tiny(tmp_path, b"no graph").embed(["cat"])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_damaged_file_is_refused_before_it_is_loaded(tmp_path, name):
    embedder = tiny(tmp_path, graph(table(6)))
    damaged = bytearray((tmp_path / name).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / name).write_bytes(damaged)
    with pytest.raises(ModelDamaged, match=f"{name} is not the file it should be"):
        embedder.embed(["cat"])


def test_nothing_is_loaded_before_it_is_needed(tmp_path):
    embedder = tiny(tmp_path, graph(table(6)))
    (tmp_path / "model.onnx").unlink()
    assert embedder.tokens.encode("cat", 9) == [2, 16, 3]
    with pytest.raises(ModelDamaged, match="cannot be read: No such file"):
        embedder.embed(["cat"])


def test_after_close_the_next_text_loads_the_model_again(tmp_path):
    embedder = tiny(tmp_path, graph(table(6)))
    before = embedder.embed(["cat"]).tobytes()
    embedder.close()
    embedder.close()
    assert embedder.embed(["cat"]).tobytes() == before


@pytest.mark.skipif(
    not TASKS.is_dir(), reason="this system does not list a process's threads, native ones included"
)
def test_no_thread_is_left_behind(minilm):
    minilm.embed(TEXTS)
    before = len(list(TASKS.iterdir()))
    embedder = OnnxEmbedder(MINILM, locate(MINILM, NOWHERE))
    embedder.embed(TEXTS)
    # The kernel may list a joined thread for a moment.
    deadline = time.monotonic() + 60
    while len(list(TASKS.iterdir())) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(list(TASKS.iterdir())) <= before


@pytest.mark.parametrize(
    ("kind", "name"), [(OnnxEmbedder, RERANKER), (Reranker, "all-MiniLM-L6-v2")]
)
def test_a_model_of_another_kind_is_refused(kind, name):
    with pytest.raises(InvalidInput, match=f"{name} is a model of the kind .*, not {kind.kind}"):
        kind(CATALOGUE[name], {})


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system does not bind processes to processors"
)
def test_only_the_processors_this_process_may_use_are_counted():
    ours = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(ours)})
        assert processors() == 1
    finally:
        os.sched_setaffinity(0, ours)
    assert processors() == len(ours)


@given(items=st.lists(st.integers(), max_size=40), threads=st.integers(1, 5))
def test_spread_work_comes_back_in_order(items, threads):
    assert spread(lambda item: item * 2, items, threads) == [item * 2 for item in items]


def test_spread_work_stops_at_the_first_failure():
    begun = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 0:
            raise ValueError("nothing")
        time.sleep(0.2)

    with pytest.raises(ValueError, match="nothing"):
        spread(work, range(1000), 2)
    assert len(begun) <= 3  # the failed one, and one on each thread at that moment


def test_an_interrupt_ends_a_long_embedding_soon():
    code = (
        LOAD
        + "print(len(embedder.embed(['a'])), flush=True)\nembedder.embed([f'{n} ' * 250 for n in "
        "range(5000)])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"1\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.rstrip().endswith(b"KeyboardInterrupt") and process.returncode != 0


def test_a_program_may_end_while_a_thread_is_embedding():
    code = (
        LOAD
        + """
import threading, time
def work():
    try:
        embedder.embed([f'{n} ' * 250 for n in range(5000)])
    except RuntimeError:
        pass  # Python is shutting down
embedder.embed(['a'])
threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
print('end')
"""
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"end\n", b"")


# Embeds a query and searches by it, with the model that comes with the package.
SEARCH = """
import sys
from mcpvectordb import Config, Database
with Database(sys.argv[1], config=Config(model="all-MiniLM-L6-v2")) as db:
    db.documents.ingest_text("Keys are rotated every ninety days.", source="keys.md")
    results = db.documents.search("how often do keys change?", mode="vector")
    assert results.legs == ("vector",) and results.hits, results
"""


def _traced(trace: Path) -> list[str]:
    """The beginning of a command that writes down all uses of the network; empty without strace."""
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "-o", str(trace), "true"]).returncode:
        return []
    return [strace, "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o", str(trace)]


def test_a_vector_search_leaves_nothing_in_the_home_folder_and_uses_no_network(
    tmp_path: Path,
) -> None:
    home, trace = tmp_path / "home", tmp_path / "trace"
    home.mkdir()
    dropped = ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME", "XDG_DATA_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    subprocess.run(
        [*_traced(trace), sys.executable, "-c", SEARCH, str(tmp_path / "notes.db")],
        env={**kept, "HOME": str(home), "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=120,
    )
    assert not list(home.rglob("*"))
    used = trace.read_text() if trace.exists() else ""
    assert "AF_INET" not in used, used


QUERY = "How many people live in Berlin?"
PASSAGES = [
    "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square "
    "kilometers.",
    "Berlin is well known for its museums.",
]


@pytest.fixture(scope="module")
def reranker() -> Iterator[Reranker]:
    model = CATALOGUE[RERANKER]
    if not weights.installed(model, NOWHERE):
        pytest.skip("the extra quality is not installed")
    made = Reranker(model, weights.locate(model, NOWHERE))
    yield made
    made.close()


def test_the_example_of_the_model_card_gives_its_published_scores(reranker: Reranker) -> None:
    assert reranker.logits(QUERY, PASSAGES) == pytest.approx([9.2, -4.1], abs=0.4)
    good, bad = reranker.scores(QUERY, PASSAGES)
    assert 0 < bad < 0.1 < 0.9 < good < 1
    assert reranker.scores(QUERY, PASSAGES[::-1]) == [bad, good]


def test_a_score_does_not_depend_on_the_other_passages(reranker: Reranker) -> None:
    together = reranker.logits(
        QUERY, [*PASSAGES, "short", "a much longer passage " * 30, PASSAGES[0]]
    )
    assert (
        together[:2]
        == reranker.logits(QUERY, PASSAGES)
        == [reranker.logits(QUERY, [each])[0] for each in PASSAGES]
    )
    assert together[4] == together[0]


@pytest.mark.parametrize(
    ("query", "passage"), [("", ""), ("x", ""), ("", "y"), ("word " * 2000, "word " * 5000)]
)
def test_empty_and_very_long_pairs_are_scored(reranker: Reranker, query: str, passage: str) -> None:
    assert len(reranker.scores(query, [passage])) == 1


@pytest.fixture
def vectors() -> NDArray[np.float32]:
    return np.random.default_rng(3).normal(size=(len(STATIC_WORDS), 4)).astype(np.float32)


def unit(row: NDArray[np.float32]) -> NDArray[np.float32]:
    return row / np.linalg.norm(row)


def test_a_text_is_the_mean_of_its_tokens_scaled_to_length_one(
    tmp_path: Path, vectors: NDArray[np.float32]
) -> None:
    embedder = StaticEmbedder(*static_model(tmp_path, vectors))
    got = embedder.embed(["Green tea", "cups", "tea tea the"])
    row = {word: vectors[place] for place, word in enumerate(STATIC_WORDS)}
    expected = [
        row["green"] + row["tea"],
        row["cup"] + row["##s"],
        2 * row["tea"] + row["the"],
    ]
    assert np.allclose(got, [unit(each) for each in expected], atol=1e-6)
    assert embedder.tokens_embedded == 7


def test_unknown_tokens_count_for_nothing_unless_there_are_no_others(
    tmp_path: Path, vectors: NDArray[np.float32]
) -> None:
    embedder = StaticEmbedder(*static_model(tmp_path, vectors))
    got = embedder.embed(["tea 🙂 zebra", "tea", "🙂", "", "[CLS]"])
    assert np.array_equal(got[0], got[1])
    assert np.allclose(got[2:], unit(vectors[STATIC_WORDS.index("[UNK]")]), atol=1e-6)


def test_a_text_is_cut_at_the_longest_input(tmp_path: Path, vectors: NDArray[np.float32]) -> None:
    embedder = StaticEmbedder(*static_model(tmp_path, vectors))
    assert np.array_equal(*embedder.embed(["tea " * 8, "tea " * 8 + "cup " * 100]))


def test_files_are_verified_before_they_are_read(
    tmp_path: Path, vectors: NDArray[np.float32]
) -> None:
    model, files = static_model(tmp_path, vectors)
    files["model"].write_bytes(safetensors(vectors + 1))
    with pytest.raises(ModelDamaged, match="SHA-256"):
        StaticEmbedder(model, files).embed(["tea"])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "header has 0 bytes"),
        (b"\xff" * 8, "not a safetensors file"),
        (safetensors(np.ones((2, 4), np.float32), length=10**5), "not a safetensors file"),
        (safetensors(np.ones((2, 4), np.float32), [1]), "not a JSON object"),
        (safetensors(np.ones((2, 4), np.float32), length=5), "not a JSON object"),
        (safetensors(np.ones((2, 4), np.float32), {"weights": {}}), "does not hold one table"),
        (safetensors(np.ones((0, 4), np.float32)), "does not hold one table"),
        (safetensors(np.ones((2, 5), np.float32)), "does not hold one table"),
        (safetensors(np.ones((2, 4), np.float32)) + b"more", "does not hold one table"),
        (
            safetensors(
                np.ones((2, 4), np.float32),
                {"embeddings": {"dtype": "I64", "shape": [2, 4], "data_offsets": [0, 32]}},
            ),
            "does not hold one table",
        ),
    ],
)
def test_a_file_that_is_no_table_of_vectors_is_refused(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelDamaged, match=complaint):
        read_table(path, 4)


def test_metadata_in_the_header_is_allowed(tmp_path: Path) -> None:
    table = np.ones((2, 4), np.float32)
    header = {
        "__metadata__": {"format": "pt"},
        "embeddings": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]},
    }
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(table, header))
    assert np.array_equal(read_table(path, 4), table)


@needs_the_static_model
def test_the_real_model_knows_what_is_alike() -> None:
    model = CATALOGUE["potion-base-8M"]
    embedder = StaticEmbedder(model, weights.locate(model, Config().models_folder()))
    car, vehicle, soup = checked(embedder, ["a fast car", "a quick vehicle", "a bowl of soup"])
    assert car @ vehicle > 0.5 > car @ soup


@needs_the_static_model
def test_a_file_changes_to_it_and_back(path: Path) -> None:
    with Database(path, config=Config(model="all-MiniLM-L6-v2")) as db:
        db.documents.ingest_text("The cat sleeps on the sofa.", source="cat")
        for name, dimension in (("potion-base-8M", 256), ("all-MiniLM-L6-v2", 384)):
            db.use_model(name)
            assert (db.stats().model, db.stats().dimension) == (name, dimension)
            assert db.documents.search("feline", mode="vector").legs == ("vector",)
            assert db.check() == []
