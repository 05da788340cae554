"""On a GPU: the same numbers as on a processor, and a draft in bfloat16 that ranks alike."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective
from backtalk.specs import ModelOptions
from tests.models.transformer.test_weights import AROUND, goals, random_ids
from tests.models.transformer.tiny import CHATML, KINDS, make_folder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def both(
    folder: Path, kind: str, chat: str = "", **options: Any
) -> tuple[TransformerModel, TransformerModel]:
    """The same weights in float32, on the processor and on the GPU."""
    path = str(make_folder(folder, kind, chat))
    settings = ModelOptions(dtype="float32", max_reply=8, **options)
    return load(path, "cpu", settings), load(path, "cuda", settings)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_the_same(tmp_path: Path, kind: str) -> None:
    here, there = both(tmp_path, kind, **AROUND)
    inputs, targets, candidates = random_ids(here, 3, 5), goals(here), random_ids(here, 3, 40)
    weights = torch.rand(targets.shape)
    for position in (0, 2, 4):
        mine = here.score_substitutions(inputs, position, candidates, targets)
        theirs = there.score_substitutions(inputs.cuda(), position, candidates.cuda(), targets.cuda())
        torch.testing.assert_close(theirs.log_probs.cpu(), mine.log_probs, atol=2e-3, rtol=1e-4)
        assert (theirs.is_argmax.cpu() == mine.is_argmax).float().mean() > 0.99
    mine_gradient = here.gradient(inputs, targets, weights)
    their_gradient = there.gradient(inputs.cuda(), targets.cuda(), weights.cuda()).cpu()
    scale = float(mine_gradient.abs().max())
    torch.testing.assert_close(their_gradient, mine_gradient, atol=2e-3 * max(1.0, scale), rtol=0)


def test_a_draft_ranks_as_the_model_does(tmp_path: Path) -> None:
    _, model = both(tmp_path, "llama", CHATML)
    draft = model.draft()
    inputs, targets = random_ids(model, 3, 5).cuda(), goals(model).cuda()
    candidates = random_ids(model, 3, 100).cuda()
    exact = model.score_substitutions(inputs, 2, candidates, targets).log_probs.sum(2)
    coarse = draft.score_substitutions(inputs, 2, candidates, targets).log_probs.sum(2)
    best = exact.argmax(1, keepdim=True)
    assert draft._scorer._decoder is not None
    assert model._scorer._decoder is not None
    kept = coarse.topk(8, dim=1).indices
    reached = exact.gather(1, kept).amax(1)
    # The model's own best, or one as good within the noise of bfloat16, is among the draft's finalists.
    assert (reached >= exact.gather(1, best)[:, 0] - 0.3).all()


@pytest.mark.parametrize("kind", [Gibbs, Gcg])
def test_a_search_with_a_draft_ends_in_typeable_triggers(tmp_path: Path, kind: Any) -> None:
    here, there = both(tmp_path, "llama", CHATML)
    objective = Objective(greedy=False, average=False, enough_out=-0.5)
    targets = [there.encode_target(text) for text in ("no", "you are rude", "leave me")]
    found = kind(5, top=16, sweeps=3, precision="bfloat16").run(there, objective, targets, [1, 2, 3])
    for one, target in zip(found, targets, strict=True):
        assert tuple(there.encode_input(there.decode(one.ids))) == one.ids
        scores = here.score(torch.tensor([one.ids]), torch.tensor([target]))
        own = objective.output_loss(scores, torch.ones(1, len(target), dtype=torch.bool))
        assert one.loss == pytest.approx(float(own), abs=5e-3)


def test_more_candidates_make_the_processor_wait_no_oftener(tmp_path: Path) -> None:
    """It may wait for the tokenizer and for what fits, once a call, never for a candidate."""
    _, model = both(tmp_path, "llama", CHATML)
    inputs, targets = random_ids(model, 3, 5).cuda(), goals(model).cuda()

    def waits(count: int) -> list[str]:
        candidates = random_ids(model, 3, count).cuda()
        model.score_substitutions(inputs, 2, candidates, targets)  # what is found out once
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                model.score_substitutions(inputs, 2, candidates, targets)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        told = "called a synchronizing CUDA operation"  # the mode itself is announced once, in other words
        return [f"{one.filename}:{one.lineno}" for one in seen if told in str(one.message)]

    assert waits(200) == waits(20)
