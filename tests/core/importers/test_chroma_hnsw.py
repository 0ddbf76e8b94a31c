"""The files of an HNSW index, and the pickle that is never loaded."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.importers.chroma_hnsw import HnswVectors, plain

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=30,
)


class Persistent:
    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


class Harmful:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


@given(PLAIN, st.integers(2, 5))
def test_plain_data_is_read_as_pickle_reads_it(value: object, protocol: int) -> None:
    assert plain(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_an_instance_is_its_dict(protocol: int) -> None:
    pickled = pickle.dumps(Persistent(id_to_label={"a": 1}), protocol)
    assert plain(pickled) == {"id_to_label": {"a": 1}}


def test_nothing_that_a_pickle_names_is_called(tmp_path: Path) -> None:
    pickled = pickle.dumps({"id_to_label": Harmful(tmp_path / "made")})
    assert plain(pickled) == {"id_to_label": {}}
    assert not (tmp_path / "made").exists()
    pickle.loads(pickled)
    assert (tmp_path / "made").exists()


@given(st.binary(max_size=200))
def test_other_bytes_are_a_value_or_a_value_error(pickled: bytes) -> None:
    with contextlib.suppress(ValueError):
        plain(pickled)


@given(header=st.binary(min_size=0, max_size=100), data=st.binary(max_size=300))
def test_damaged_files_have_no_vectors(
    header: bytes, data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("segment")
    (folder / "header.bin").write_bytes(header)
    (folder / "data_level0.bin").write_bytes(data)
    (folder / "index_metadata.pickle").write_bytes(pickle.dumps({"id_to_label": {"a": 1}}))
    vectors = HnswVectors(folder, cosine=True)
    assert vectors.problems
    assert vectors.get("a") is None


def test_a_header_that_promises_more_than_there_is_is_refused(tmp_path: Path) -> None:
    (tmp_path / "header.bin").write_bytes(struct.pack("<i6Q", 1, 0, 2**40, 2**40, 100, 84, 20))
    (tmp_path / "data_level0.bin").write_bytes(bytes(100))
    (tmp_path / "index_metadata.pickle").write_bytes(pickle.dumps({"id_to_label": {"a": 0}}))
    vectors = HnswVectors(tmp_path, cosine=False)
    assert vectors.get("a") is None
    assert vectors.problems
