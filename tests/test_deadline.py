"""A time limit: work that looks at it ends with the reason, an inner limit hides an outer one, and the work
of models and searches does look."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from backtalk.deadline import check_time, late_after, time_limit
from backtalk.errors import OutOfTime
from backtalk.hits import parse_criterion
from backtalk.models.folder import load_embedded
from backtalk.models.transformer.loading import load
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import objective_for
from backtalk.types import Thresholds, Turn
from tests.planted import plant

OVER = late_after(time.monotonic() - 1, "--max-time 1s")


def test_a_limit_names_itself_once_it_would_be_passed() -> None:
    late = late_after(time.monotonic() + 3600, "--max-time 1h")
    assert not late(0.0)
    assert "--max-time 1h" in late(3601.0)


def test_the_innermost_limit_counts() -> None:
    check_time()
    with time_limit(OVER):
        with pytest.raises(OutOfTime, match="--max-time 1s"):
            check_time()
        with time_limit(None):
            check_time()
        with pytest.raises(OutOfTime):
            check_time()
    check_time()


def test_replies_and_searches_of_our_models_end() -> None:
    model = load_embedded("chitchat", "cpu")
    objective = objective_for(parse_criterion("chance-1e-6"), Thresholds(-3.0, None))
    goals = [model.encode_target("go away")]
    search = Gibbs(length=2, top=4, sweeps=2, restarts=1)
    assert search.run(model, objective, goals, [1])
    with time_limit(OVER):
        with pytest.raises(OutOfTime):
            model.reply([(Turn("user", "hello"),)])
        with pytest.raises(OutOfTime):
            search.run(model, objective, goals, [1])


def test_replies_of_a_hugging_face_model_end(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = load(str(plant(tmp_path / "gpt2", "gpt2")), "cpu")
    with time_limit(OVER), pytest.raises(OutOfTime):
        model.reply([(Turn("user", "hello"),)])
