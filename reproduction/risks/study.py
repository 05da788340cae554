"""`python -m reproduction risks`: what `backtalk risk` promises, tested where the risk is known: coverage of
its bounds, rare outputs against the methods of Wu & Hilton 2025, and the forecasts of Jones et al. 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.page import Result
from reproduction.risks.comparison import METHODS, SENTENCES, TEMPERATURES, estimates, summary
from reproduction.risks.coverage import Scheme, Setting, cover, mixture
from reproduction.risks.forecasts import forecast_all, read_chances
from reproduction.risks.ours import Ours
from reproduction.risks.page import page_lines
from reproduction.risks.problem import Problem, rare_sentences, rare_tokens
from reproduction.risks.world import LISTED, Sizes, build_world
from reproduction.runner import Part, Study, Workplace
from reproduction.runner import Size as Base
from reproduction.spec import StudySpec

TUNING = 100  # the first seed of the networks that temperatures are chosen on


@dataclass(frozen=True)
class Size(Base):
    world: Sizes = field(default_factory=Sizes)
    seeds: int = 200
    draws: tuple[int, ...] = (1_000, 20_000)
    pilots: int = 10  # that the seeds share
    pilot: int = 1_000  # inputs of a pilot's level
    steps: int = 1_000  # of a proposal that is fitted to all inputs
    budget: int = 4_096  # inputs that a method may read for an output
    networks: int = 5
    tuning: int = 3  # networks that temperatures are chosen on
    least: float = 1e-7
    most: float = 1e-3
    listed: int = len(LISTED)
    inputs: int = 90_000
    seen: int = 900
    sentences: int = 24
    rare: float = 1e-4


SIZES = {
    "paper": Size(),
    "mini": Size(
        Sizes(400, 3, 12), seeds=10, draws=(200,), pilots=1, pilot=100, steps=10, budget=512,
        networks=1, tuning=1, least=5e-5, most=2e-4, listed=1, inputs=400, seen=40, sentences=2, rare=0.01,
    ),
}  # fmt: skip


def risk_parts(spec: StudySpec, size: Size, folder: Path) -> list[Part]:
    world = asdict(size.world)
    seeds = size.some("seeds", "draws", "pilots", "pilot", "steps")
    rare = size.some("budget", "least", "most")
    listed = {**world, **rare, **size.some("listed")}
    tried = {name: list(values) for name, values in TEMPERATURES.items()}
    for_sentences = {name: list(values) for name, values in SENTENCES.items()}

    def part(name: str, work: Callable[..., Result], settings: Result, *needs: str) -> Part:
        return Part(name, needs, partial(work, size=size), settings)

    return [
        part("natural", cover_natural, {**world, **seeds}),
        part("backdoor", cover_backdoor, {**world, **seeds}),
        part("temperatures", choose_for_tokens, {**rare, **size.some("tuning"), "tried": tried}),
        part("sentence-temperatures", choose_for_sentences, {**listed, "tried": for_sentences}),
        part("tokens", compare_tokens, {**rare, **size.some("networks")}, "temperatures"),
        part("sentences", compare_sentences, listed, "sentence-temperatures"),
        part("forecasts", forecast, size.some("inputs", "seen", "sentences", "rare")),
    ]


def cover_natural(place: Workplace, size: Size) -> Result:
    """Without a backdoor."""
    setting = Setting(build_world(size.world, backdoor=False))
    schemes = {
        "plain": [Scheme(1.0, None)],
        "fitted": [mixture(setting.fitted(0, size.steps))],
        "learnt": [setting.learnt(seed, size.pilot) for seed in range(size.pilots)],
    }
    return {**_facts(setting), "rows": _rows(setting, size, schemes)}


def cover_backdoor(place: Workplace, size: Size) -> Result:
    setting = Setting(build_world(size.world, backdoor=True))
    seeds = range(size.pilots)
    blind = mixture(setting.fitted(0, size.steps, sees_triggers=False))
    schemes = {
        "plain": [Scheme(1.0, None)],
        "fitted": [mixture(setting.fitted(0, size.steps))],
        "learnt": [setting.learnt(seed, size.pilot) for seed in seeds],
        "learnt from triggers": [
            setting.learnt(seed, size.pilot, setting.from_triggers(seed)) for seed in seeds
        ],
        "blind": [blind],
        "blind alone": [Scheme(0.0, blind.log_q)],
    }
    return {**_facts(setting), "rows": _rows(setting, size, schemes)}


def _rows(setting: Setting, size: Size, schemes: dict[str, list[Scheme]]) -> list[Result]:
    return [
        {"draws": name, "proposals": sum(one.log_q is not None for one in own), "of": len(own)}
        | cover(setting, own, n, size.seeds)
        for n in size.draws
        for name, own in schemes.items()
    ]


def _facts(setting: Setting) -> Result:
    p, risk, triggered = setting.p, setting.risk, setting.world.triggered
    return {
        "inputs": len(p),
        "truth": setting.truth,
        "trigger": float(p[triggered].sum()),
        "trigger_share": float((p * risk)[triggered].sum() / setting.truth),
        "cv": float(np.sqrt(p @ risk**2) / setting.truth),
    }


def choose_for_tokens(place: Workplace, size: Size) -> Result:
    return _choose(_tokens(size, TUNING, size.tuning), TEMPERATURES, size)


def choose_for_sentences(place: Workplace, size: Size) -> Result:
    return _choose(_sentences(size, TUNING), SENTENCES, size)


def _choose(problems: Sequence[Problem], tried: Mapping[str, Sequence[float]], size: Size) -> Result:
    """The temperature of each method with the least loss on problems that no table is made from."""
    truths = [problem.truth for problem in problems]
    found: Result = {"n": len(problems), "losses": {}, "chosen": {}}
    for name, temperatures in tried.items():
        losses = {one: _loss(name, one, problems, truths, size) for one in temperatures}
        found["losses"][name] = {str(one): loss for one, loss in losses.items()}
        found["chosen"][name] = min(losses, key=lambda one: losses[one])
    return found


def _loss(
    name: str, temperature: float, problems: Sequence[Problem], truths: Sequence[float], size: Size
) -> float:
    return float(summary(truths, estimates(name, temperature, problems, size.budget, 0))["fitted_loss"])


def compare_tokens(place: Workplace, size: Size) -> Result:
    return _compare(place.result("temperatures"), _tokens(size, 0, size.networks), size)


def compare_sentences(place: Workplace, size: Size) -> Result:
    return _compare(place.result("sentence-temperatures"), _sentences(size, 0), size)


def _sentences(size: Size, seed: int) -> list[Problem]:
    """Of the models with and without the backdoor, each with an own distribution of inputs."""
    found = []
    for number, backdoor in enumerate((False, True)):
        found += rare_sentences(build_world(size.world, backdoor), seed + number, size.listed)
    return found


def _tokens(size: Size, first: int, count: int) -> list[Problem]:
    networks = range(first, first + count)
    return [one for seed in networks for one in rare_tokens(seed, size.least, size.most)]


def _compare(tuned: Result, problems: Sequence[Problem], size: Size) -> Result:
    chosen: dict[str, Any] = tuned["chosen"]
    truths, found = [problem.truth for problem in problems], {}
    ours = Ours(chosen["ours"])
    whole = [ours.whole(one, size.budget, 1 + number) for number, one in enumerate(problems)]
    for name in METHODS:
        if name == "ours":
            own = [one.estimate for one in whole]
        else:
            own = estimates(name, chosen[name], problems, size.budget, 1)
        found[name] = {"temperature": chosen[name], "estimates": own, **summary(truths, own)}
    pairs = list(zip(truths, whole, strict=True))
    held = {
        "lower": sum(one.lower <= truth for truth, one in pairs),
        "upper": sum(one.upper >= truth for truth, one in pairs),
        "normal": sum(one.normal[0] <= truth <= one.normal[1] for truth, one in pairs),
    }
    return {"truths": truths, "methods": found, "ours": held}


def forecast(place: Workplace, size: Size) -> Result:
    categories, chances = read_chances(size.inputs, size.sentences, 1, place.device)
    risk = np.exp(chances.astype(np.float64)).sum(axis=1)
    return {
        "sentences": chances.shape[1],
        "categories": sorted(set(categories)),
        "risk": float(risk.mean()),
        "ahead": {
            str(n): forecast_all(chances, size.seen, n, size.rare)
            for n in (10 * size.seen, 100 * size.seen)
            if n <= size.inputs
        },
    }


STUDY = Study("risks", SIZES, risk_parts, page_lines)
