"""Settings for every test, and fixtures that several files share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

# As the command sets it: tests share the processor with each other and with what they start.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Tiny matrices: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
