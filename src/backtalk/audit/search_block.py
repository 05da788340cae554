"""One block of cases, searched as one batch on a model's weights and scored by a forward pass.

With `--universal` a block is the whole list, and its findings share one trigger. Some of the targets are held
out: the search does not see them, and the trigger is tried on them.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import TypeGuard

import numpy as np

from backtalk.audit.cases import can_say
from backtalk.models.together import together
from backtalk.protocols import WeightsModel
from backtalk.scorers.likelihood import score_elsewhere, score_triggers
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective
from backtalk.searches.trial import row_seed
from backtalk.searches.watch import Watch
from backtalk.searches.weights_search import WeightsSearch
from backtalk.types import Finding, Found, SpokenTurn, Target

HELD_OUT = 71  # the stream of random numbers that chooses held-out targets
Row = tuple[Target, int, int]  # a target, a restart and its seed


def is_universal(search: WeightsSearch) -> TypeGuard[Gibbs]:
    return isinstance(search, Gibbs) and search.universal


def search_block(
    model: WeightsModel,
    search: WeightsSearch,
    objective: Objective,
    seed: int,
    targets: Sequence[Target],
    watch: Watch | None = None,
    others: Mapping[str, WeightsModel] = MappingProxyType({}),
) -> list[Finding]:
    """The findings of some cases, searched and scored as one batch; restart by restart within a case. The
    search minimises the mean loss over the model and the `others`, whose scores are stored by name."""
    models = [model, *others.values()]
    searched = together(models)
    findings: list[Finding] = []
    known: list[Target] = []
    for target in targets:
        if not can_say(model, target.text):
            missing = model.unknown_words(target.text)
            note = f"the model does not know: {', '.join(missing)}" if missing else "the target has no words"
            findings.append(Finding(target.id, 0, "skipped", target.text, note=note))
        else:
            known.append(target)
    if not known:
        return findings
    started = time.perf_counter()
    rows = _rows(search, seed, known)
    wanted = [model.encode_target(target.text) for target, _, _ in rows]
    every = search.run(searched, objective, wanted, [own for _, _, own in rows], watch)
    found = [(row, one) for row, one in zip(rows, every, strict=True) if one.ids]  # the rows that it reached
    if not found:
        return findings
    if is_universal(search):
        found = _shared(found, known, {target.id for target, _, _ in rows})
    goals = [model.encode_target(target.text) for (target, _, _), _ in found]
    scored = score_triggers(model, [one.ids for _, one in found], goals)
    texts = [model.decode(one.ids) for _, one in found]
    elsewhere = score_elsewhere(others, texts, [target.text for (target, _, _), _ in found])
    seconds = (time.perf_counter() - started) / len(found)
    for ((target, restart, own_seed), one), text, score, more in zip(
        found, texts, scored, elsewhere, strict=True
    ):
        valid = all(tuple(each.encode_input(text)) == one.ids for each in models)
        findings.append(
            Finding(
                case=target.id,
                restart=restart,
                status="found" if valid else "nothing",
                target=target.text,
                turns=(SpokenTurn("user", text, one.ids),),
                reply=score.reply,
                scores={**one.scores, **score.scores, **more, "loss": one.loss},
                series={**one.series, **score.series, "loss_by_sweep": one.loss_by_sweep},
                seed=own_seed,
                candidates=one.candidates,
                queries=1,
                seconds=seconds,
                note=one.note if valid else "the trigger can't be typed: its words read back differently",
            )
        )
    return findings


def _rows(search: WeightsSearch, seed: int, targets: Sequence[Target]) -> list[Row]:
    """Each target with each restart. For a universal trigger, all rows of a restart have the same seed, and
    held-out targets have no rows."""
    restarts = range(search.restarts)
    if not is_universal(search):
        return [(one, restart, row_seed(seed, one.id, restart)) for one in targets for restart in restarts]
    order = np.random.default_rng([seed, HELD_OUT]).permutation(len(targets)).tolist()
    held = set(order[: min(round(search.held_out * len(targets)), len(targets) - 1)])
    seen = [target for place, target in enumerate(targets) if place not in held]
    return [(one, restart, row_seed(seed, "universal", restart)) for restart in restarts for one in seen]


def _shared(
    found: Sequence[tuple[Row, Found]], targets: Sequence[Target], seen: Set[str]
) -> list[tuple[Row, Found]]:
    """One row for each target, with the trigger of the best restart. `held_out` is 1 for targets that the
    search has not `seen`."""
    best, trigger = min(found, key=lambda one: one[1].loss)
    spent = Counter[str]()
    for (target, _, _), one in found:
        spent[target.id] += one.candidates
    shared = []
    for target in targets:
        scores = {**trigger.scores, "held_out": float(target.id not in seen)}
        shared.append(((target, *best[1:]), trigger._replace(candidates=spent[target.id], scores=scores)))
    return shared
