"""Importers of JSON read whatever is in it: they report, and never fail with a foreign error."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpvectordb import MCPVectorDBError, importers
from mcpvectordb.importers.items import ImportOptions
from mcpvectordb.importers.source import ImportSource
from tests.support import scaled

KEYS = (
    "mapping current_node conversation_id id title create_time message author role content parts "
    "content_type text parent metadata recipient chat_messages uuid name sender created_at "
    "attachments extracted_content files type sessionId timestamp summary leafUuid isSidechain "
    "embedding values kind mcpvectordb chunks model settings language"
).split()
WORDS = ("user", "assistant", "human", "text", "code", "a", "all", "1.5", "2025-01-01", "\ud83d")
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.just("x")
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.sampled_from(WORDS), inner, max_size=6)
    ),
    max_leaves=30,
)
NAMES = ["chatgpt", "claude", "claude-code", "jsonl", "mcpvectordb"]


@pytest.mark.parametrize("kind", NAMES)
@settings(deadline=None, max_examples=scaled(60), suppress_health_check=list(HealthCheck))
@given(st.lists(values, min_size=1, max_size=4))
def test_any_json_is_read_or_refused(kind: str, content: list[Any]) -> None:
    lines = "\n".join(json.dumps(each) for each in content)
    found = importers.named(kind)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source.jsonl"
        path.write_text(lines if kind in NAMES[2:] else json.dumps(content))
        source = ImportSource(path, Path(folder))
        assert found.recognises(source) in (True, False)
        try:
            for _ in found.read(source, ImportOptions()):
                pass
        except MCPVectorDBError:
            pass
