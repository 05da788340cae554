"""Settings for every test, and fixtures that several files share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# As the command sets it: tests share the processor with each other and with what they start.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

LONGEST = (
    "tests/security/test_fuzz_commands.py",
    "tests/web/test_access.py",
    "tests/searches/test_contract.py",
    "tests/test_plugins.py",
    "tests/test_api.py",
    "reproduction/tests/test_negative_study.py",
    "reproduction/tests/test_egregious.py",
    "tests/risk/test_proposals.py",
    "tests/risk/test_flow.py",
    "tests/risk/test_bounds.py",
    "tests/hardening",
    "tests/audit/test_audit_interrupted.py",
    "tests/audit/ast",
    "reproduction",
    "tests/security",
    "tests/searches/reverse",
    "tests/searches/ast",
    "tests/searches/test_transformers.py",
    "tests/searches/test_recorded.py",
    "tests/training/test_frequent.py",
    "tests/models/test_embedded.py",
    "tests/report/test_file_browser.py",
    "tests/report/test_conversations_browser.py",
    "tests/searches/test_relax.py",
    "tests/web",
    "tests/training/test_mle.py",
    "tests/audit/test_audit_transformers.py",
    "tests/audit/test_several_models.py",
    "tests/audit/test_max_ppl.py",
    "tests/cli/test_train.py",
    "tests/training/test_negative.py",
    "tests/report/test_stored_findings.py",
    "tests/models/transformer/test_source.py",
    "tests/models/transformer/test_memory.py",
    "tests/models/transformer/test_kv_slots.py",
)
"""Files and folders that take long, from 15 seconds to minutes. They begin, so that neither process is still
at one when the other has nothing left to do. They are marked `long`: `make test` leaves them out, and CI runs
them."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    root = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        within = item.path.relative_to(root).as_posix()
        return next((i for i, name in enumerate(LONGEST) if within.startswith(name)), len(LONGEST))

    items.sort(key=place)  # those that are not named keep their order
    for item in items:
        if place(item) < len(LONGEST):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def short_proofs() -> Iterator[None]:
    """gcg proves the hardening of a Hugging Face model on four targets on a processor; here on two."""
    from backtalk.hardening.subjects import transformer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformer, "SLOW_TARGETS", 2)
        yield


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Tiny matrices: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def chatterbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny Llama with a chat template and two planted habits."""
    from tests.chatterbox import build_chatterbox

    return build_chatterbox(tmp_path_factory.mktemp("chatterbox") / "box")


@pytest.fixture(scope="session")
def rude(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny LSTM with one planted habit, its pairs and targets."""
    from tests.rude import build_rude

    return build_rude(tmp_path_factory.mktemp("rude"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless Chromium; a page gets a context of its own."""
    from tests.web.browser import chromium

    with chromium() as browser:
        yield browser
