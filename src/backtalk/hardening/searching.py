"""Search inside the hardening of a Hugging Face model: before a batch is trained on, and before a candidate
is measured, gibbs looks for a new trigger of every target on the network as it is.

Inputs that were found before stop working after an update or two; the sentence itself is to be unlearnt.
He & Glass 2020 search anew in every iteration for the same reason. The search aims at the output alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from backtalk.audit.backends.fixed import FoundCase
from backtalk.models.device import product_precision
from backtalk.models.transformer.model import TransformerModel
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective, objective_for
from backtalk.searches.seeds import row_seed
from backtalk.store import Run
from backtalk.store.folder import DATABASE
from backtalk.types import Turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backtalk.hardening.lora_plan import LoraPlan


class Widening(Protocol):
    """Adds inputs to cases; `when` fixes its randomness beside the case."""

    def __call__(self, cases: Sequence[FoundCase], when: str) -> list[FoundCase]: ...


@dataclass(frozen=True)
class Searched:
    """What a run of a search on weights says of the search inside the hardening."""

    length: int
    top: int
    sweeps: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def searched_by(findings: str, sweeps: int) -> Searched | None:
    """How the triggers of a run were found; None where they were not searched on weights."""
    if not (Path(findings) / DATABASE).is_file():
        return None
    with Run.open(Path(findings)) as run:
        own = run.spec["search"]
        if run.asks or run.plays or "length" not in own:
            return None
        settings = {**own, **run.facts.get("effort", {})}
        return Searched(int(settings["length"]), int(settings["top"]), sweeps)


@dataclass(frozen=True)
class GibbsWidening:
    """gibbs, one restart, left at the first hit."""

    model: TransformerModel
    search: Gibbs
    objective: Objective
    seed: int

    def __call__(self, cases: Sequence[FoundCase], when: str) -> list[FoundCase]:
        model = self.model
        goals = [model.encode_target(case.target.text) for case in cases]
        seeds = [row_seed(self.seed, f"harden/{when}/{case.target.id}", 0) for case in cases]
        with _evaluating(model):
            found = self.search.run(model, self.objective, goals, seeds)
        wider = []
        for case, one in zip(cases, found, strict=True):
            text = model.decode(one.ids)
            can_be_typed = tuple(model.encode_input(text)) == one.ids
            new = ((Turn("user", text),),) if can_be_typed else ()
            wider.append(replace(case, inputs=tuple(dict.fromkeys((*case.inputs, *new)))))
        return wider


def widening_of(plan: LoraPlan) -> Widening | None:
    if plan.searched is None:
        return None
    how, on_gpu = plan.searched, plan.parent.device.type == "cuda"
    # On a GPU with a draft of the network as it is: its adapter is part of the weights there.
    precision: Literal["float32", "bfloat16"] = "bfloat16" if on_gpu else "float32"
    search = Gibbs(how.length, how.top, how.sweeps, True, not on_gpu, precision, restarts=1)
    objective = objective_for(plan.criterion, plan.thresholds)
    return GibbsWidening(plan.parent, search, objective, plan.spec.seed)


@contextmanager
def _evaluating(model: TransformerModel) -> Iterator[None]:
    """Without dropout; training goes on in the mode it was in."""
    was = model.network.training
    model.network.eval()
    try:
        with product_precision("high") if model.device.type == "cuda" else nullcontext():
            yield
    finally:
        model.network.train(was)
