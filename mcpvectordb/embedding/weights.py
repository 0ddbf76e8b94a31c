"""Find, download and verify the files of models, and keep their optimized graphs.

The files are part of an installed package, whose code is never imported, or are pulled from a hub,
or are added by the user (`add_model`). Pulled and added ones are in `folder/NAME/`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any

from mcpvectordb.config import Config
from mcpvectordb.embedding.catalogue import (
    CATALOGUE,
    DEFAULT,
    VOCABULARY,
    Model,
    ModelFile,
    described,
    is_endpoint,
    same_model,
)
from mcpvectordb.embedding.tokenizer import SHIPPED
from mcpvectordb.errors import (
    FetchFailed,
    InvalidInput,
    MCPVectorDBError,
    ModelDamaged,
    ModelMissing,
    Refused,
    Unwritable,
)
from mcpvectordb.records import Progress, ProgressCallback, Record
from mcpvectordb.storage.new_file import flush_to_disk, sync_folder


class Removed(Record):
    """The folder of a model that was deleted, and how many bytes its files had."""

    folder: str
    bytes: int


# In the folder of an added model: its entry for the catalogue.
DESCRIPTION = "model.json"
TIMEOUT = 60  # seconds without any data
BLOCK = 1 << 16
_RESUME = "run the same command again to resume it"
# Where packages lie that were installed with this one: looked into first, because the module that
# knows of all others takes 14 ms to import.
_PACKAGES = Path(__file__).parents[2]


def find(name: str, folder: Path) -> Model:
    """Return the model of this name from the catalogue or from the folder of added models.

    ModelMissing lists all names.
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    known = {**CATALOGUE, **{model.name: model for model in added(folder)}}
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ModelMissing(f"there is no model {name!r}{hint} (known are {', '.join(known)})")


def embedder(name: str, folder: Path) -> Model:
    """Return the model of this name, which must be one that embeds."""
    model = find(name, folder)
    if model.kind != "embedder":
        raise InvalidInput(
            f"{name} ranks pairs of texts and cannot embed; `mcpvectordb model list` shows those "
            f"that can, and MCPVECTORDB_RERANKER={name} uses this one for reranking"
        )
    return model


def find_build(name: str, digest: str, folder: Path) -> Model:
    """Return the model that a file was embedded with; ModelMissing if it is another one here."""
    try:
        model = find(name, folder)
    except ModelMissing as error:
        if not is_endpoint(digest):
            raise
        raise ModelMissing(
            f"this file is embedded by the endpoint {name}, which is not known on this machine; "
            f"run: mcpvectordb model add-endpoint {name} --url URL --model MODEL"
        ) from error
    if not same_model(model.digest, digest):
        raise ModelMissing(
            f"this file was embedded with another build of {name}: "
            f"run `mcpvectordb model use {name}` to embed it again"
        )
    return model


def default(folder: Path) -> Model:
    """Return the best installed model, for a new database without a named model."""
    models = [CATALOGUE[name] for name in DEFAULT]
    return next((model for model in models if installed(model, folder)), models[-1])


def added(folder: Path) -> list[Model]:
    """Return the models that the user added, sorted by name."""
    found = []
    for path in sorted(folder.glob(f"[!.]*/{DESCRIPTION}")):
        try:
            found.append(described({**json.loads(path.read_bytes()), "name": path.parent.name}))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelDamaged(
                f"{path} is invalid ({error}); remove its folder and add the model again"
            ) from error
    return found


def installed(model: Model, folder: Path) -> bool:
    """Return whether all files of a model are on this machine."""
    return None not in _paths(model, folder).values()


def locate(model: Model, folder: Path) -> dict[str, Path]:
    """Return the model's files by role, unverified; ModelMissing says how to install them."""
    paths = _paths(model, folder)
    missing = [model.files[role].name for role, path in paths.items() if path is None]
    if missing:
        raise ModelMissing(
            f"the model {model.name} is not on this machine ({', '.join(missing)} missing); run: "
            f"{model.command}"
        )
    return {role: path for role, path in paths.items() if path is not None}


def verify(path: Path, file: ModelFile) -> None:
    """Raise ModelDamaged unless the file at `path`, or its head, has the expected digest."""
    found, expected = sha256(path, file.head), file.head_sha256 or file.sha256
    if found != expected:
        raise ModelDamaged(
            f"{path} is not the file it should be: its SHA-256 is {found}, not {expected}; "
            "delete it and get the model again"
        )


def sha256(path: Path, head: int = 0) -> str:
    """Return the SHA-256 of a model's file, or of its first `head` bytes, in hexadecimal."""
    try:
        with path.open("rb") as stream:
            if head:
                return hashlib.sha256(stream.read(head)).hexdigest()
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelDamaged(f"{path} cannot be read: {error.strerror}") from error


def pull(
    model: Model, folder: Path, *, hub: str, progress: ProgressCallback | None = None
) -> dict[str, Path]:
    """Download a model's missing files from `hub` (a base URL), resuming; return all files."""
    if model.hub is None:
        raise InvalidInput(f"{model.name} is not pulled from a hub; run: {model.command}")
    for role, path in _paths(model, folder).items():
        file = model.files[role]
        if path is None or not _is_good(path, file):
            url = f"{hub.rstrip('/')}/{model.hub}/resolve/main/{file.path}"
            with writing(folder):
                _fetch(url, folder / model.name / file.name, file, progress or (lambda _: None))
    return locate(model, folder)


def remove(name: str, folder: Path, *, in_use: Sequence[str] = (), force: bool = False) -> Removed:
    """Delete what the folder of models has of one: pulled or added files, an endpoint's entry.

    The files of a package stay. A model `in_use` raises Refused unless `force`.
    """
    place = folder / name
    if name.startswith(".") or place.parent != folder or not place.is_dir() or place.is_symlink():
        model = find(name, folder)
        raise InvalidInput(
            f"{name} comes with the package {model.carrier}, which pip removes"
            if model.carrier and installed(model, folder)
            else f"nothing of {name} is in {folder}"
        )
    if name in in_use and not force:
        raise Refused(
            f"{name} is the model of this file, which could be searched by words alone without it; "
            "embed the file by another first (`mcpvectordb model use`), or remove it by force"
        )
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    with writing(folder), tempfile.TemporaryDirectory(prefix=".adding-", dir=folder) as gone:
        place.replace(Path(gone) / name)  # at once: half a model is none
    return Removed(folder=str(place), bytes=size)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Create the model folder if needed; OSError in the block becomes Unwritable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except MCPVectorDBError:
        raise
    except OSError as error:
        raise Unwritable(f"cannot fill the folder of models {folder}: {error}") from error


@contextmanager
def adding(folder: Path, name: str) -> Iterator[Path]:
    """A new folder, which is the model's of this name once its files are written."""
    with writing(folder), tempfile.TemporaryDirectory(prefix=".adding-", dir=folder) as temporary:
        made, final = Path(temporary) / name, folder / name
        made.mkdir()
        yield made
        if final.exists():  # that of an endpoint, which has nothing but its description
            settle(made / DESCRIPTION, final / DESCRIPTION)
        else:
            settle(made, final)


def describe(model: Model, folder: Path) -> None:
    """Write a model's entry for the catalogue into its folder."""
    (folder / DESCRIPTION).write_text(json.dumps(asdict(model), indent=2))


def settle(temporary: Path, final: Path) -> None:
    """Sync and rename; after a crash the final path has the old or the new content."""
    for path in (*temporary.rglob("*"), temporary):
        (sync_folder if path.is_dir() else flush_to_disk)(path)
    temporary.replace(final)
    sync_folder(final.parent)


def _paths(model: Model, folder: Path) -> dict[str, Path | None]:
    return {
        role: next(filter(Path.is_file, _places(model, file, folder)), None)
        for role, file in model.files.items()
    }


def _places(model: Model, file: ModelFile, folder: Path) -> Iterator[Path]:
    if file == VOCABULARY:
        yield SHIPPED
    if model.carrier:
        carried = PurePosixPath(model.carried_in, file.path)
        if (beside := _PACKAGES / carried).is_file():
            yield beside
        else:
            from importlib.metadata import PackageNotFoundError, distribution

            with suppress(PackageNotFoundError):
                yield Path(str(distribution(model.carrier).locate_file(carried)))
    yield folder / model.name / file.name


def _is_good(path: Path, file: ModelFile) -> bool:
    with suppress(ModelDamaged):
        verify(path, file)
        return True
    return False


def _fetch(url: str, target: Path, file: ModelFile, progress: ProgressCallback) -> None:
    """Download into a .part file next to the target, verify it, then rename it."""
    target.parent.mkdir(exist_ok=True)
    part = target.with_name(target.name + ".part")
    have = part.stat().st_size if part.exists() else 0
    if have < file.size:
        have = _download(url, part, have, file, progress)
    if have < file.size:
        raise FetchFailed(f"{url} ended after {have} of {file.size} bytes; {_RESUME}")
    if not _is_good(part, file):
        part.unlink()
        raise ModelDamaged(
            f"{url} is not the file expected: its SHA-256 is not {file.sha256}; it was deleted"
        )
    settle(part, target)


def _download(url: str, part: Path, have: int, file: ModelFile, progress: ProgressCallback) -> int:
    """Append the rest of the file to `part`, which has so many bytes; return its new size."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    from mcpvectordb.network import parse_url, tls

    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with _reaching(url, "cannot be reached", "is this machine online? then run it again"):
        parse_url(url)
        request = Request(url, headers=headers)  # noqa: S310 - it is http or https
        try:
            response = urlopen(request, timeout=TIMEOUT, context=tls())  # noqa: S310
        except HTTPError as error:
            error.close()
            if error.code == 416 and have:  # the server's file is shorter than our part
                return _download(url, part, 0, file, progress)
            raise FetchFailed(f"{url} answered {error.code} {error.reason}") from None
    # A server without support for ranges sends everything again.
    with response, part.open("ab" if response.status == 206 else "wb") as stream:
        while stream.tell() <= file.size:  # more is another file, perhaps an endless one
            with _reaching(url, "broke off", _RESUME):
                block = response.read(BLOCK)
            if not block:
                break
            stream.write(block)
            progress(Progress(step=file.name, done=stream.tell(), total=file.size))
    return part.stat().st_size


@contextmanager
def _reaching(url: str, what: str, advice: str) -> Iterator[None]:
    from http.client import HTTPException

    try:
        yield
    except FetchFailed:
        raise
    except (OSError, HTTPException, Refused) as error:
        reason = getattr(error, "reason", error)  # urllib wraps the system's own error
        raise FetchFailed(f"{url} {what}: {reason}; {advice}") from error


# --- optimized graphs, kept in the cache folder: loading one takes a quarter of optimizing it again
#
# A model's own graph is verified and optimized by ONNX Runtime whenever a session is made, which is
# most of what a single search by meaning costs. What comes out of it is kept in a folder named
# after the model's digest and everything else that shaped it, with the weights in a file of their
# own, which ONNX Runtime maps instead of parsing. The outputs are the same bits.
#
# The digests of both are kept in the user's data folder, where confirmed folders are as well:
# whoever can only write to the cache folder can replace the files, but not what they must be.

GRAPH, WEIGHTS = "graph.onnx", "weights.bin"
SMALLEST = 1024  # bytes of a tensor that is kept beside the graph


class GraphCache:
    """The optimized graph of one model in a cache folder, if there is one.

    `assembly` is the version of `encoder_graph` that makes it, 0 for a graph of its file.
    """

    def __init__(self, folder: Path, digest: str, assembly: int = 0) -> None:
        self._folder = folder
        self._key = f"{digest[:32]}-{assembly}" if assembly else digest[:32]

    def find(self) -> Path | None:
        """The optimized graph; None if there is none, or if its files are not what was kept."""
        place = self._place()
        with suppress(OSError, ValueError, ModelDamaged):
            if json.loads(_record(place).read_bytes()) == _digests(place):
                return place / GRAPH
        return None

    def keep(self, model: Path | bytes) -> None:
        """Optimize a graph (a file or its content) and keep the result, unless it is kept already.

        Where a folder cannot be written nothing is kept, and the next process optimizes again.
        """
        if self.find() is not None:
            return
        place = self._place()
        record = _record(place)
        with suppress(OSError):
            for folder in (self._folder, record.parent):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with (
                tempfile.TemporaryDirectory(prefix=".", dir=self._folder) as graphs,
                tempfile.TemporaryDirectory(prefix=".", dir=record.parent) as records,
            ):
                made, noted = Path(graphs) / place.name, Path(records) / record.name
                made.mkdir()
                _optimize(model, made)
                noted.write_text(json.dumps(_digests(made)))
                if self.find() is None:  # another process may have been faster
                    shutil.rmtree(place, ignore_errors=True)
                    settle(made, place)
                    settle(noted, record)

    def _place(self) -> Path:
        """The folder of this model's graph for this ONNX Runtime on this kind of processor."""
        import onnxruntime

        return self._folder / f"{self._key}-{onnxruntime.__version__}-{platform.machine()}"


def _record(place: Path) -> Path:
    """The file with the digests of what was kept in a place."""
    name = hashlib.sha256(os.path.realpath(place).encode(errors="surrogateescape")).hexdigest()
    return Config.data_folder() / "graphs" / f"{name}.json"


def _digests(place: Path) -> dict[str, str]:
    return {name: sha256(place / name) for name in (GRAPH, WEIGHTS)}


def _optimize(model: Path | bytes, place: Path) -> None:
    """Write the graph that a session makes of a model, and its weights, into a folder."""
    import onnxruntime

    options: Any = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = os.fspath(place / GRAPH)
    prefix = "session.optimized_model_external_initializers_"
    options.add_session_config_entry(f"{prefix}file_name", WEIGHTS)
    options.add_session_config_entry(f"{prefix}min_size_in_bytes", str(SMALLEST))
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has its own for a disk that is full
        raise OSError(f"the optimized graph cannot be written: {error}") from error
