"""Searches whose positions are recorded: as the plain ones, with a recorder that does the work again on a
processor, with one that fails or lies, and with CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from backtalk.models.device import pick_device
from backtalk.models.lstm import scoring
from backtalk.models.lstm.model import LocalModel
from backtalk.searches.gibbs import RecordingGibbs
from backtalk.searches.recorded import MOST_CANDIDATES, Recorder, Work
from backtalk.types import Found
from tests.searches.test_gibbs import OBJECTIVES, random_model

NEAR = 1e-5  # on some processors a product of other rows beside a row differs in its last bits
TEXTS = ("go stop", "rain", "red cat sun", "two dog", "stop")


class Again(Recorder):
    """A recording that does the work once more, on the memory it was recorded with."""

    def __init__(self, change: Callable[[Work], Work] = lambda work: work) -> None:
        super().__init__(torch.device("cpu"))
        self.change = change
        self.done: list[str] = []

    def plain(self, work: Work) -> None:
        self.done.append("plain")
        work()

    def record(self, work: Work) -> Work:
        self.done.append("record")
        changed = self.change(work)

        def replay() -> None:
            self.done.append("replay")
            changed()

        return replay


def search(model: LocalModel, name: str, recorder: Recorder | None, **how: Any) -> list[Found]:
    pick_device("cpu")  # the first product in bfloat16 changes later products in float32 on some processors
    targets = [model.encode_target(text) for text in TEXTS]
    seeds = list(range(len(targets)))
    gibbs = RecordingGibbs(5, top=6, sweeps=4, recorder=recorder, **how)
    return gibbs.run(model, OBJECTIVES[name], targets, seeds)


def fail(_: Work) -> Work:
    raise RuntimeError("operation not permitted\nwhen stream is capturing")


def assert_alike(found: list[Found], plain: list[Found]) -> None:
    """The same triggers by the same steps. Finished rows stay in a recorded batch, so floats may differ in
    their last bits."""
    assert [(one.ids, one.candidates, one.note) for one in found] == [
        (one.ids, one.candidates, one.note) for one in plain
    ]
    for one, other in zip(found, plain, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=NEAR)
        assert one.loss_by_sweep == pytest.approx(other.loss_by_sweep, abs=NEAR)
        assert one.scores == pytest.approx(other.scores, abs=NEAR)
        assert one.series.keys() == other.series.keys()
        for name, values in one.series.items():
            assert values == pytest.approx(other.series[name], abs=NEAR)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("how", [{}, {"stop_at_hit": True}, {"precision": "tf32"}], ids=str)
def test_a_recorded_search_finds_what_the_plain_one_does(name: str, how: dict[str, Any]) -> None:
    model, recorder = random_model(), Again()
    found = search(model, name, recorder, **how)
    assert_alike(found, search(model, name, None, **how))
    assert found == search(model, name, Again(fail), **how)  # the same batches, nothing recorded
    assert recorder.trusted
    assert not recorder.off


def test_a_position_is_recorded_once_and_replayed() -> None:
    model, recorder = random_model(), Again()
    sweeps = max(len(one.loss_by_sweep) for one in search(model, "io of all words", recorder)) - 1
    assert sweeps == 4
    plain, recorded, replayed = (recorder.done.count(what) for what in ("plain", "record", "replay"))
    assert (plain, recorded, replayed) == (5 + 1, 5, 3 * 5 + 1)  # one more each for the check
    # A second search of the same size: its first position alone is plain, and all are recorded again.
    recorder.done.clear()
    search(model, "io of all words", recorder)
    assert recorder.done[:4] == ["plain", "record", "replay", "record"]
    assert (recorder.done.count("plain"), recorder.done.count("record")) == (1, 5)


def test_targets_are_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network remembers their lengths until they are; to read those back would break a recording."""
    versions: dict[int, set[int]] = {}
    by_length = scoring._by_length

    def noted(targets: Tensor) -> tuple[Tensor, list[int]]:
        versions.setdefault(id(targets), set()).add(targets._version)
        return by_length(targets)

    monkeypatch.setattr(scoring, "_by_length", noted)
    recorder = Again()
    search(random_model(), "io", recorder)
    assert recorder.trusted
    assert versions
    assert all(len(seen) == 1 for seen in versions.values())


def test_where_nothing_can_be_recorded_the_search_is_plain() -> None:
    model, recorder = random_model(), Again(fail)
    assert_alike(search(model, "io", recorder), search(model, "io", None))
    assert recorder.off == "operation not permitted"
    assert recorder.done.count("record") == 3


def test_one_failure_is_made_up_for() -> None:
    left = ["the first"]

    def fail_once(work: Work) -> Work:
        if left:
            raise RuntimeError(left.pop())
        return work

    model, recorder = random_model(), Again(fail_once)
    assert_alike(search(model, "io", recorder), search(model, "io", None))
    assert not recorder.off
    assert recorder.done.count("replay") > 0


def test_a_recording_that_does_something_else_is_not_used() -> None:
    model, recorder = random_model(), Again(lambda work: lambda: None)
    assert_alike(search(model, "sample", recorder), search(model, "sample", None))
    assert "other words" in recorder.off


def test_many_candidates_are_not_recorded() -> None:
    model, recorder = random_model(), Again()
    rows = MOST_CANDIDATES // 6 + 1
    target = model.encode_target("go")
    seeds = list(range(rows))
    gibbs = RecordingGibbs(length=2, top=6, sweeps=1, recorder=recorder)
    gibbs.run(model, OBJECTIVES["sample"], [target] * rows, seeds)
    assert not recorder.done


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs need a GPU")
@pytest.mark.parametrize("name", ["sample", "io", "io of all words"])
@pytest.mark.parametrize("how", [{}, {"stop_at_hit": True}, {"precision": "tf32"}], ids=str)
def test_graphs_find_what_the_plain_search_does(name: str, how: dict[str, Any]) -> None:
    model = random_model()
    model.network.cuda()
    assert model.language_model is not None
    model.language_model.cuda()
    recorder = Recorder(torch.device("cuda"))
    plain = search(model, name, None, **how)
    for _ in range(3):
        found = search(model, name, recorder, **how)
        assert [one.ids for one in found] == [one.ids for one in plain]
        assert [one.loss for one in found] == pytest.approx([one.loss for one in plain], abs=1e-3)
        assert [one.candidates for one in found] == [one.candidates for one in plain]
    assert recorder.trusted
    assert not recorder.off
