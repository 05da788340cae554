from __future__ import annotations

from pathlib import Path

import pytest

from tests.searches.ast.worlds import plant


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that turns rude after one word."""
    return plant(tmp_path_factory.mktemp("planted"))
