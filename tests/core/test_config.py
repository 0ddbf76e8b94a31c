from __future__ import annotations

from pathlib import Path

import pytest

from mcpvectordb import Config, InvalidInput
from mcpvectordb.config import SERVER_VARIABLES
from mcpvectordb_server import options


def test_fields_come_from_the_environment_by_their_names() -> None:
    config = Config.from_env(
        {
            "MCPVECTORDB_MODEL": "m",
            "MCPVECTORDB_READ_ONLY": "yes",
            "MCPVECTORDB_CHUNK_SIZE": "100",
            "MCPVECTORDB_BUSY_TIMEOUT": "2.5",
            "HOME": "/x",
        }
    )
    assert (config.model, config.read_only, config.chunk_size, config.busy_timeout) == (
        "m",
        True,
        100,
        2.5,
    )


def test_a_vector_weight_is_a_number_or_the_default_of_the_model() -> None:
    assert Config.from_env({"MCPVECTORDB_VECTOR_WEIGHT": "0.4"}).vector_weight == 0.4
    assert Config().vector_weight is None


def test_the_library_does_not_read_the_environment_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MCPVECTORDB_MODEL", "other")
    assert Config().model == ""


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("MCPVECTORDB_MODLE", "x", "did you mean MCPVECTORDB_MODEL"),
        ("MCPVECTORDB_QQQQ", "x", "unknown environment variable"),
        ("MCPVECTORDB_CHUNK_SIZE", "many", "must be a whole number"),
        ("MCPVECTORDB_READ_ONLY", "perhaps", "must be true or false"),
        ("MCPVECTORDB_BUSY_TIMEOUT", "soon", "must be a number"),
        ("MCPVECTORDB_BUSY_TIMEOUT", "-1", "busy_timeout must be 0 or more"),
        ("MCPVECTORDB_CHUNK_SIZE", "5", "16 to 2000"),
        ("MCPVECTORDB_CHUNK_OVERLAP", "-1", "chunk_overlap must be"),
        ("MCPVECTORDB_VECTOR_WEIGHT", "1.1", "vector_weight must be 0 to 1, not 1.1"),
        ("MCPVECTORDB_VECTOR_WEIGHT", "nan", "vector_weight must be 0 to 1, not nan"),
        ("MCPVECTORDB_VECTOR_WEIGHT", "half", "must be a number"),
        ("MCPVECTORDB_MAX_SOURCE_BYTES", "0", "must be positive"),
        ("MCPVECTORDB_PARSE_OUTPUT_RATIO", "0", "parse_output_ratio must be positive"),
        ("MCPVECTORDB_MAX_CHUNKS", "0", "max_chunks must be positive"),
    ],
)
def test_a_misspelt_name_or_an_invalid_value_is_an_error(
    name: str, value: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        Config.from_env({name: value})


@pytest.mark.parametrize(
    "proxy",
    [
        "https://me:hunter2@proxy:1",
        "me:hunter2@proxy:1",
        "http://me:hunter2/x@proxy:1",
        "http://me:hunter2#x@proxy:1",
        "http://me:x@proxy:hunter2",
        "http://me:hunter2@",
        "http://me:hunter2@[::1",
    ],
)
def test_the_password_of_a_proxy_is_in_no_error(proxy: str) -> None:
    with pytest.raises(InvalidInput, match="proxy must look like http://host:port") as error:
        Config(proxy=proxy)
    assert "hunter2" not in str(error.value)
    with pytest.raises(InvalidInput) as error:
        Config.from_env({"MCPVECTORDB_PROXY": proxy})
    assert "hunter2" not in str(error.value)


def test_the_password_of_a_proxy_is_not_in_the_text_of_a_configuration() -> None:
    config = Config.from_env({"MCPVECTORDB_PROXY": "http://me:hunter2@proxy:8080/"})
    assert config.proxy == "http://me:hunter2@proxy:8080/"
    assert "hunter2" not in repr(config)


def test_variables_of_the_server_are_known_and_ignored() -> None:
    assert Config.from_env(dict.fromkeys(SERVER_VARIABLES, "x")) == Config()
    with pytest.raises(InvalidInput, match="did you mean MCPVECTORDB_SURFACE"):
        Config.from_env({"MCPVECTORDB_SURFACES": "x"})


def test_the_server_reads_exactly_the_variables_that_the_configuration_leaves_to_it() -> None:
    class Environment(dict[str, str]):
        """Records which variables are read by name."""

        def __init__(self) -> None:
            self.read: set[str] = set()

        def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
            self.read.add(name)
            return default

    environment = Environment()
    options.parse([], environment)
    assert environment.read == SERVER_VARIABLES


def test_the_folder_of_models_can_be_configured() -> None:
    assert Config(models_dir="~/m").models_folder() == Path.home() / "m"
    assert Config().models_folder().name == "models"
