from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backtalk.searches.ast.config import AstConfig
from tests.searches.ast.worlds import plant


@pytest.fixture(scope="module", autouse=True)
def shallow_trees() -> Iterator[None]:
    """Trees of one turn: what the planted model was trained on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AstConfig, "depth", 1)
        yield


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that turns rude after one word."""
    return plant(tmp_path_factory.mktemp("planted"))
