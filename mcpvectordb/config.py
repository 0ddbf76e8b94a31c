"""The configuration; the library reads the environment only where `Config.from_env` is called.

The one exception is the key of an endpoint, which is kept in no object (`embedding/endpoint.py`).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from mcpvectordb.errors import InvalidInput

_PREFIX = "MCPVECTORDB_"
SERVER_VARIABLES = frozenset(
    _PREFIX + name
    for name in (
        "DB SURFACE TRANSPORT HOST PORT ROOT DISABLE_TOOL ALLOW_HOST PUBLIC_URL UNATTENDED TOKEN"
    ).split()
)
"""Variables that the server reads beside those of Config; the command line reads MCPVECTORDB_DB."""

PRECISIONS = ("float32", "float16")
"""The types in which a file can store embeddings of texts."""

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}
_DAY = 86_400
_POSITIVE = 1, math.inf, "positive"
_TIMEOUT = math.ulp(0.0), _DAY, "above 0 and at most 86400 seconds"
# The least and the most that a number may be, and how an error says it.
_RANGES: Mapping[str, tuple[float, float, str]] = {
    **dict.fromkeys(("vector_weight", "history_share"), (0, 1, "0 to 1")),
    **dict.fromkeys(("read_timeout", "fetch_timeout", "parse_timeout"), _TIMEOUT),
    **dict.fromkeys(("max_source_bytes", "max_chunks"), _POSITIVE),
    **dict.fromkeys(("parse_memory", "parse_output_bytes", "parse_output_ratio"), _POSITIVE),
    **dict.fromkeys(("max_image_bytes", "max_image_bytes_total"), _POSITIVE),
    "busy_timeout": (0, math.inf, "0 or more seconds"),
    "host_interval": (0, _DAY, "0 to 86400 seconds"),
    "history_days": (0, 36_500, "0 to 36500 days"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """How a Database behaves; the model and chunk sizes stored in a file take precedence over this.

    model               the embedding model of a new file; "" is the best one installed
    chunk_size          tokens per chunk in a new file; 0 is the default of the model
    chunk_overlap       tokens that a chunk repeats from the one before it
    embeddings          float32 or float16, as which a new file stores what models make of texts;
                        "" is float32, or what the export has that the file is made from
    vector_weight       weight of the vector leg in hybrid searches for passages, 0 to 1; None is
                        the default of the model; `python -m benchmarks known_items` measures
                        others
    read_only           open for reading; nothing is written, not even a lock file on read-only
                        media
    busy_timeout        seconds to wait for another process's write
    read_timeout        seconds that a question may spend reading the file and ranking; the time of
                        models does not count
    resident_bytes      memory for postings and codes of embeddings kept per process; 0 keeps none
    max_source_bytes    largest file or download that is ingested
    allow_urls          False refuses every http and https source
    allow_private_urls  True allows URLs of this machine and of private networks
    fetch_timeout       seconds for a whole download, redirects included
    host_interval       seconds between two downloads from one host; 0 does not wait
    proxy               http://[user:password@]host:port for downloads and endpoints that are not
                        in a private network; "" connects directly
    parse_timeout       seconds that parsing a file may take
    parse_memory        bytes of address space of the parser, where the system can limit it; the
                        reader of an import has twice as much
    parse_output_bytes  largest text, in bytes, that a file may be parsed into
    parse_output_ratio  how many times as large as the file its text may be, beyond the first
                        megabyte
    parse_sandbox       False lets the parser use the network and files; Linux confines it else
    ocr_languages       languages of OCR, as Tesseract names them ("eng+deu"); "" never runs it
    max_chunks          most chunks that a document may be split into
    project             the name of the project that every folder belongs to; "" or auto leaves it
                        to the folder (`Database.projects`). The command line and the server search
                        and store in this project
    language            language of memories: english searches words by their stems, any other as
                        they are spelled
    indexed_metadata    comma-separated metadata keys of memories that a new file indexes for
                        filters
    history_days        days for which versions that were replaced or deleted are kept; 0 keeps none
    history_share       the share of the file that they may take, 0 to 1; the oldest are dropped
    remote_passphrase   what encrypts the bundles of remotes that are encrypted and have no file
                        with a passphrase
    max_image_bytes     largest image of a memory
    max_image_bytes_total  largest sum of all images of a memory
    reranker            the model that reranks; "" is the cross-encoder of the extra quality
    rerank_memories     False keeps the MCP tools that search memories from using the
                        cross-encoder, where it is installed
    models_dir          folder of pulled and added models; "" is one in the platform's data folder
    cache_dir           folder of what can be made again, such as optimized graphs; "" is one in the
                        platform's cache folder
    model_hub           URL that `model pull` downloads from
    """

    ENV_PREFIX: ClassVar[str] = _PREFIX

    model: str = ""
    chunk_size: int = 0
    chunk_overlap: int = 0
    embeddings: str = ""
    vector_weight: float | None = None
    read_only: bool = False
    busy_timeout: float = 30.0
    read_timeout: float = 10.0
    resident_bytes: int = 1_000_000_000
    max_source_bytes: int = 100_000_000
    allow_urls: bool = True
    allow_private_urls: bool = False
    fetch_timeout: float = 30.0
    host_interval: float = 1.0
    proxy: str = field(default="", repr=False)
    parse_timeout: float = 30.0
    parse_memory: int = 1_000_000_000
    parse_output_bytes: int = 20_000_000
    parse_output_ratio: int = 100
    parse_sandbox: bool = True
    ocr_languages: str = "eng"
    max_chunks: int = 100_000
    project: str = ""
    language: str = "english"
    indexed_metadata: str = "status,agent_name,task_name,project,report_type"
    history_days: float = 30.0
    history_share: float = 0.1
    remote_passphrase: str = field(default="", repr=False)
    max_image_bytes: int = 10 * 2**20
    max_image_bytes_total: int = 100 * 2**20
    reranker: str = ""
    rerank_memories: bool = True
    models_dir: str = ""
    cache_dir: str = ""
    model_hub: str = "https://huggingface.co"

    def __post_init__(self) -> None:
        if self.chunk_size != 0 and not 16 <= self.chunk_size <= 2000:
            raise InvalidInput(
                f"chunk_size must be 0 (automatic) or 16 to 2000 tokens, not {self.chunk_size}"
            )
        if self.chunk_overlap < 0 or (
            self.chunk_size and self.chunk_overlap > self.chunk_size // 2
        ):
            raise InvalidInput(
                f"chunk_overlap must be 0 to half of chunk_size, not {self.chunk_overlap}"
            )
        if self.embeddings not in ("", *PRECISIONS):
            raise InvalidInput(
                f"embeddings must be {' or '.join(PRECISIONS)}, not {self.embeddings!r}"
            )
        for name, (least, most, allowed) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise InvalidInput(f"{name} must be {allowed}, not {value}")
        if not re.fullmatch(r"(\w+(\+\w+)*)?", self.ocr_languages, re.ASCII):
            raise InvalidInput(
                f"ocr_languages must be names such as eng or eng+deu, not {self.ocr_languages!r}"
            )
        if self.proxy and not _is_proxy(self.proxy):
            # Its value is not repeated, because it may contain a password.
            raise InvalidInput(
                "proxy must look like http://host:port or http://user:password@host:port; write "
                "special characters of the password as %XX"
            )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """The configuration from variables MCPVECTORDB_<FIELD>; an unknown one is an error.

        Variables of the server (`SERVER_VARIABLES`) are known and ignored.
        """
        environ = os.environ if environ is None else environ
        known = {cls.ENV_PREFIX + each.name.upper(): each for each in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in environ.items():
            if not name.startswith(cls.ENV_PREFIX) or name in SERVER_VARIABLES:
                continue
            if name not in known:
                from difflib import get_close_matches

                every = sorted([*known, *SERVER_VARIABLES])
                near = get_close_matches(name, every, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(every)}"
                raise InvalidInput(f"unknown environment variable {name}; {hint}")
            default = known[name].default
            # None is the default of an optional number.
            kind = float if default is None else type(default)
            values[known[name].name] = _parse(name, text, kind)
        return cls(**values)

    def models_folder(self) -> Path:
        """The folder of pulled and added models."""
        if self.models_dir:
            return Path(self.models_dir).expanduser()
        return self.data_folder() / "models"

    def cache_folder(self) -> Path:
        """The folder of what can be made again at any time."""
        import platformdirs

        if self.cache_dir:
            return Path(self.cache_dir).expanduser()
        return Path(platformdirs.user_cache_dir("mcpvectordb", appauthor=False))

    @staticmethod
    def data_folder() -> Path:
        """The platform's folder for this user's data."""
        import platformdirs

        return Path(platformdirs.user_data_dir("mcpvectordb", appauthor=False))


def how_to_allow(name: str) -> str:
    """The end of an error about a limit: the field of Config that sets it, and its variable."""
    if name not in Config.__dataclass_fields__:
        raise KeyError(name)
    return f"({name}); set {_PREFIX}{name.upper()} to change this limit"


def _is_proxy(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme == "http"
            and bool(parts.hostname)
            and parts.port != 0
            and not (parts.path.strip("/") or parts.query or parts.fragment)
        )
    except ValueError:
        return False


def _parse(name: str, text: str, type_: type) -> Any:
    try:
        if type_ is bool:
            word = text.strip().lower()
            if word not in _TRUE | _FALSE:
                raise ValueError
            return word in _TRUE
        return type_(text)
    except ValueError:
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[type_]
        raise InvalidInput(f"{name} must be {wanted}, not {text!r}") from None
