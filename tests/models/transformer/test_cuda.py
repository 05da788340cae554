"""On a GPU: the same numbers in fewer bits, and memory that really runs out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from backtalk.errors import InputError
from backtalk.models.transformer import memory
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.scoring import Row, token_log_probs
from backtalk.specs import ModelOptions
from tests.models.transformer.test_log_prob import DIALOGUES, REPLIES
from tests.models.transformer.tiny import CHATML, KINDS, make_folder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_the_same(tmp_path: Path, kind: str) -> None:
    folder = str(make_folder(tmp_path, kind))
    here, there = (load(folder, device, ModelOptions(dtype="float32")) for device in ("cpu", "cuda"))
    for mine, theirs in zip(
        there.log_prob(DIALOGUES, REPLIES), here.log_prob(DIALOGUES, REPLIES), strict=True
    ):
        assert mine == pytest.approx(theirs, abs=1e-3)
    assert there.reply(DIALOGUES) == here.reply(DIALOGUES)
    # Not so a sample: where two tokens meet, rounding decides. On one device it is the same again.
    assert there.sample(DIALOGUES, [1, 2, 3]) == there.sample(DIALOGUES, [1, 2, 3])


def test_auto_is_bfloat16(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path, "llama", CHATML)), "cuda")
    assert model.network.dtype == torch.bfloat16
    assert all(value <= 0 for row in model.log_prob(DIALOGUES, REPLIES) for value in row)
    assert len(model.reply(DIALOGUES)) == 3


@pytest.fixture
def crowded() -> Iterator[None]:
    """A GPU with 1 GiB left."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    taken = torch.empty(free - (1 << 30), dtype=torch.uint8, device="cuda")
    yield
    del taken
    torch.cuda.empty_cache()


def wide_rows() -> list[Row]:
    """Together some 3 GB of logits in float32 for a vocabulary of 320, beside what else they take."""
    return [Row([5] * 60, [number % 300 + 5] * 60) for number in range(40000)]


@pytest.mark.usefixtures("crowded")
def test_a_crowded_gpu_makes_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(memory.MOST_TOKENS, "cuda", 1 << 40)  # memory alone decides
    model = load(str(make_folder(tmp_path, "llama")), "cuda")
    assert len(model.score_rows(wide_rows())) == 40000


@pytest.mark.usefixtures("crowded")
def test_a_wrong_plan_backs_off_or_ends_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(str(make_folder(tmp_path, "llama")), "cuda")
    rows = wide_rows()
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 50)
    monkeypatch.setitem(memory.MOST_TOKENS, "cuda", 1 << 40)
    with pytest.raises(InputError, match="memory ran out on cuda"):
        model.score_rows(rows)  # half of it is too much as well
    fits = 1

    def tokens(count: int) -> None:
        token_log_probs(model.network, model.batch(rows[:count]))

    with torch.no_grad():
        while fits < len(rows):  # find what just fits, then ask for half as much again
            try:
                tokens(2 * fits)
            except torch.cuda.OutOfMemoryError:
                break
            fits *= 2
    torch.cuda.empty_cache()
    assert len(model.score_rows(rows[: 2 * fits])) == min(2 * fits, len(rows))
