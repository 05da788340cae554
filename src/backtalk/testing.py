"""Contract checks for what backtalk and its plugins register: searches, models and scorers.

Our own tests run them over everything that is registered; the author of a plugin can run them too:

    from backtalk.testing import check_search
    check_search(MySearch(length=3), "chitchat", ["go away", "you bore me"], tmp_path)

A contract that is broken is an AssertionError that says which.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from backtalk.api import Run, audit, load_model
from backtalk.audit.flow import BACKENDS
from backtalk.protocols import Scorer, TextModel
from backtalk.registry import search_config
from backtalk.specs import build_spec, spec_values
from backtalk.types import Case, Turn

ALONE = 0.99  # the least share of triggers that stay the same in other batches: sums round differently


def check_search(
    search: Any, model: Any, cases: str | Sequence[str | Case], folder: Path, **settings: Any
) -> Run:
    """A search is rebuilt from its settings, repeats itself, does not depend on the batch, keeps its budget,
    resumes where it stopped and can be verified. `settings` go to `audit`. Returns the unbroken run."""
    _check_config(search)
    settings = {"device": "cpu", **settings}
    whole = audit(model, cases, search, out=folder / "whole", **settings)
    found = _found(whole)
    assert found, f"{search.name} ended with no finding"

    again = audit(model, cases, search, out=folder / "again", **settings)
    assert _found(again) == found, f"{search.name} finds something else with the same seed"

    _check_budget(search, whole)
    alone = audit(model, cases, search, out=folder / "alone", **{**settings, "block": 1})
    pairs = zip(whole.findings(), alone.findings(), strict=True)
    same = sum(one.trigger == other.trigger for one, other in pairs)
    assert same >= ALONE * len(found), f"{search.name} finds something else when cases are searched alone"

    part = audit(model, cases, search, out=folder / "part", **{**settings, "block": 1, "max_candidates": 1})
    done = len({one.case for one in part.findings()})
    if len(whole.cases) > 1:
        assert done < len(whole.cases), f"{search.name} went on past --max-candidates"
    part = audit(model, cases, search, out=folder / "part", **{**settings, "block": 1})  # resumes it
    assert _found(part) == _found(alone), f"{search.name} resumed ends elsewhere than unbroken"

    verdict = whole.verify()
    assert not verdict.problems, f"{search.name} can't be verified: {verdict.problems[0]}"
    return whole


def _check_config(search: Any) -> None:
    name = type(search).name
    assert search_config(name) is type(search), f"{name} names another search than {type(search).__name__}"
    assert search.backend in BACKENDS, f"{name} names no backend: {search.backend!r}"
    values = {key: value for key, value in spec_values(search).items() if key != "name"}
    assert build_spec(type(search), values, name) == search, f"{name} is not rebuilt from its settings"


def _check_budget(search: Any, run: Run) -> None:
    if search.backend == "weights":
        loaded: Any = run._model or load_model(run.model, "cpu")
        most = search.fitted(loaded).most_candidates
        for one in run.findings():
            assert 0 < one.candidates <= most, f"{search.name} tried {one.candidates} candidates of {most}"
    if search.backend == "replies":
        spent = run.summary["queries"]
        assert spent <= search.max_queries, f"{search.name} sent {spent} queries of {search.max_queries}"


def _found(run: Run) -> list[dict[str, Any]]:
    """The findings without the time they took, with NaN equal to NaN."""
    found = [asdict(replace(one, seconds=0.0)) for one in run.findings()]
    return [{**one, "scores": repr(one["scores"]), "series": repr(one["series"])} for one in found]


def check_model(model: TextModel, texts: Sequence[str] = ("hello", "how are you", "good night")) -> None:
    """A model replies to each dialogue alone as it does in a batch, and replying does not change it."""
    dialogues = [(Turn("user", text),) for text in texts]
    before = model.fingerprint
    together = model.reply(dialogues)
    assert len(together) == len(dialogues), f"{model.name} gives {len(together)} replies to {len(dialogues)}"
    assert all(isinstance(one, str) for one in together), f"a reply of {model.name} is not text"
    assert [model.reply([one])[0] for one in dialogues] == together, f"{model.name} depends on the batch"
    assert model.fingerprint == before, f"{model.name} changes its fingerprint when it replies"


def check_scorer(scorer: Scorer, texts: Sequence[str] = ("you are nice", "go away", "")) -> None:
    """A scorer gives a number from 0 to 1 for each text, whatever else is in the batch."""
    scores = scorer.score(texts)
    assert len(scores) == len(texts), f"{scorer.name} gives {len(scores)} scores for {len(texts)} texts"
    assert all(0 <= score <= 1 for score in scores.tolist()), f"{scorer.name} leaves 0 to 1"
    for text, score in zip(texts, scores.tolist(), strict=True):
        (alone,) = scorer.score([text]).tolist()
        assert abs(alone - score) < 1e-5, f"{scorer.name} depends on the batch"
