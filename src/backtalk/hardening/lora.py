"""`backtalk harden --model hf/... | smollm2`: train away what was found, by an adapter, and show it on
findings that were kept apart.

The way: model, findings in three lists, pairs -> both lists asked of the model -> iterations of asking and
updates, each measured on the selection list -> the best within the bound becomes OUT/model -> the same lists
asked of the hardened model -> comparison and cost. Each step leaves its result in OUT, so the same command
goes on after a kill, and shows what is done.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from rich.console import Console

from backtalk.audit.backend import Given
from backtalk.audit.flow import audit
from backtalk.comparison import Comparison, compare_runs, print_comparison, write_comparison
from backtalk.hardening.anew import Anew, audit_anew
from backtalk.hardening.asking import Aim, AskedMeasure, AskingFinder
from backtalk.hardening.cost import Cost, print_cost, stored_cost
from backtalk.hardening.folder import (
    CHECKPOINT,
    INSTEAD,
    PAGES,
    SELECTION,
    SIDE,
    SUMMARY,
    claimed,
    is_proof,
)
from backtalk.hardening.fresh import Fresh, audit_fresh
from backtalk.hardening.instead import DRAWS, Reply, own_replies
from backtalk.hardening.iterations import follow, measured_candidate, say_candidate
from backtalk.hardening.lora_cost import cost_of, stored_side
from backtalk.hardening.lora_plan import LoraPlan, make_lora_plan
from backtalk.hardening.lora_result import hardened_fingerprint, load_hardened, write_adapter
from backtalk.hardening.searching import widening_of
from backtalk.hardening.selection import Candidate, Selection, why_unchanged
from backtalk.hardening.talk import Spoken, talking_of
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.quickening import quicken_model
from backtalk.report.progress import shown
from backtalk.spec import parse_duration
from backtalk.specs.harden import HardenSpec, stored_values
from backtalk.store.folder import write_whole
from backtalk.terminal import Consoles
from backtalk.training.lora import Adapter
from backtalk.training.lora_updates import LoraUpdates
from backtalk.training.negative import HardenProgress, Hit, train_on_hits
from backtalk.wording import with_interval

LISTS = {"before": "held-out", "before-train": "train"}
"""The runs over the model as it was, and the list of each."""


class Proof(NamedTuple):
    """Both models after the same inputs."""

    held_out: Comparison
    trained: Comparison


def harden_lora(
    spec: HardenSpec,
    consoles: Consoles,
    fresh: bool = False,
    unmask: bool = False,
    trusted: tuple[str, ...] = (),
) -> int:
    begun = time.monotonic()
    console, audits = consoles.err, spec.sentences.audits
    plan = make_lora_plan(spec, trusted)
    facts = plan.facts()
    with claimed(plan.out, facts, fresh):
        plan.lists.write(plan.out)
        is_trained = (plan.model_folder / "card.json").exists()
        cost = stored_cost(plan.out, hardened_fingerprint(plan)) if is_trained else None
        if not is_trained:
            _preflight(plan, console)
        if audits:
            for name, part in LISTS.items():
                _ask(plan, name, part, plan.parent, console)
        if cost is None:
            console.print("Measuring the model as it is ...")
            before = stored_side(plan.out / SIDE, plan.parent, plan.measured)
        if not is_trained:
            _train(plan, facts, begun, console)
        hardened = None
        if cost is None or (audits and not _has_proof(plan)):
            hardened = load_hardened(plan)
        proof = _prove(plan, hardened, console) if audits else None
        if cost is None:
            assert hardened is not None
            console.print("Measuring what it cost ...")
            cost = cost_of(before, hardened, plan.measured)
        hardened = None  # there may be room for one model alone
        anew = audit_anew(plan, console) if audits else None
        fresh_search = audit_fresh(plan, console) if audits else None
        if proof is not None or not (plan.out / SUMMARY).exists():
            _summarise(plan, cost, proof, anew, fresh_search)
    _show(plan, cost, proof, unmask, consoles.out)
    for again in (anew, fresh_search):
        if again is not None:
            consoles.out.print(again.told())
    return 0


def _preflight(plan: LoraPlan, console: Console) -> None:
    lists = plan.lists
    console.print(plan.source)
    keeping = f"{len(plan.positive):,} pairs"
    if plan.manner is not None:
        keeping += " and harmless replies of its own"
    elif plan.talk.kept:
        keeping += f" and {len(plan.talk.kept)} harmless turns of the same run"
    console.print(
        f"{len(lists.train)} findings to train against, {len(lists.selection)} to choose with, "
        f"{len(lists.held_out)} held out; {keeping} keep the model whole, "
        f"{len(plan.measured):,} measure it. T_out is {plan.thresholds.out:.2f}. Folder: {plan.out}"
    )
    if plan.talk.asked:
        console.print(
            f"After each iteration it takes {len(plan.talk.asked)} turns where no update sees them."
        )
    if (how := plan.searched) is not None:
        console.print(
            f"In every iteration gibbs looks for new triggers of {how.length} tokens, G={how.top}, "
            f"at most {how.sweeps} sweeps."
        )


def _train(plan: LoraPlan, facts: dict[str, Any], begun: float, console: Console) -> None:
    """Iterates, measures each iteration, and writes the best as OUT/model."""
    spec, lists, model = plan.spec, plan.lists, plan.parent
    sentences = tuple(dict.fromkeys(case.target.text for case in lists.train))
    aim = Aim(plan.criterion, plan.thresholds, sentences, plan.scorer, plan.manner)
    learnt = plan.learnt(_own_replies(plan, aim, console))
    widen = widening_of(plan)
    measure = AskedMeasure(model, lists.selection, aim, plan.measured, widen)
    selection = Selection(plan.out / SELECTION, plan.bound, facts, spec.keep)
    adapter = Adapter(model.network, plan.lora)
    model.forget_steps()
    quicken_model(model)
    turns = [Hit(tuple(row.prompt), tuple(row.reply)) for row in learnt]
    updates = LoraUpdates(
        adapter,
        model,
        plan.config,
        spec.adapter.micro_tokens,
        spec.adapter.gradient_checkpointing,
        None if plan.talk.played is None else turns,
    )
    finder = AskingFinder(model, updates, lists.train, aim, plan.config.margin, widen)
    n = len(lists.selection)
    talking = talking_of(model, adapter, plan.talk, spec.device)

    def heard(one: Candidate) -> Candidate:
        if talking is None:
            return one
        now = talking.spoken()
        before = Spoken(**selection.candidates[0].talk) if selection.candidates else now
        return replace(one, talk=now.as_dict(), broken=now.broken(before))

    if not selection.candidates:
        first = Candidate(0, measure.hits(), n, measure.perplexity(), len(lists.train))
        selection.add(heard(first), adapter.weights)

    def measured(report: HardenProgress) -> Candidate:
        return heard(measured_candidate(report, measure, n))

    def say(one: Candidate) -> None:
        found = f"{one.found} training inputs hit on the way, " if one.iterations else ""
        talk = f", {Spoken(**one.talk).told()}" if one.talk else ""
        said = f"{found}{one.hits} of {one.n} selection findings hit{talk}"
        say_candidate(one, said, selection, console)

    goals = [model.reply_ids(case.target.text) for case in lists.train]
    reports = train_on_hits(
        updates, goals, plan.positive_arrays(learnt), finder, plan.config, plan.out / CHECKPOINT, facts
    )
    idle = "no training finding hit"
    follow(reports, adapter.weights, selection, measured, say, idle, _deadline(plan, begun), console)
    selection.fill(adapter.weights)
    write_adapter(plan, adapter, selection)
    for leftover in (CHECKPOINT, SELECTION):
        (plan.out / leftover).unlink(missing_ok=True)


def _own_replies(plan: LoraPlan, aim: Aim, console: Console) -> list[Reply]:
    if plan.manner is None:
        return []
    cases = plan.lists.train
    console.print(f"Asking it {DRAWS} times after each of {len(cases)} training findings ...")
    own = own_replies(plan.parent, cases, aim, plan.out / INSTEAD)
    console.print(f"{len(own)} of these replies are harmless.")
    return own


def _deadline(plan: LoraPlan, begun: float) -> float:
    """When training has to end, so that the hardened model is measured in time; 0 where there is no limit.
    That takes about as long as measuring the model as it was did, which is over."""
    limit = parse_duration(plan.spec.max_time)
    if not limit:
        return 0.0
    return begun + max(0.0, 0.95 * limit - 1.5 * (time.monotonic() - begun))


# What it came to


def _ask(plan: LoraPlan, name: str, part: str, model: TransformerModel | None, console: Console) -> None:
    """One of the four runs, where it is not finished."""
    if _is_finished(plan, name):
        return
    assert model is not None
    console.print(f"Asking {name}:")
    named = plan.spec.model if name.startswith("before") else f"hf/{plan.model_folder}"
    found = plan.lists.by_name()[part]
    given = Given(
        model=model,
        cases=[case.target for case in found],
        reference=plan.reference,
        inputs={case.target.id: case.inputs for case in found},
    )
    with shown(console) as tell:
        audit(plan.run_spec(named, part), str(plan.out / name), given=given, progress=tell)


def _is_finished(plan: LoraPlan, name: str) -> bool:
    asked = plan.parent.fingerprint if name.startswith("before") else hardened_fingerprint(plan)
    return is_proof(plan.out / name, asked) and (plan.out / name / SUMMARY).exists()


def _has_proof(plan: LoraPlan) -> bool:
    return all(_is_finished(plan, name.replace("before", "after")) for name in LISTS)


def _prove(plan: LoraPlan, hardened: TransformerModel | None, console: Console) -> Proof:
    for name, part in LISTS.items():
        _ask(plan, name.replace("before", "after"), part, hardened, console)
    proof = Proof(
        *(
            compare_runs(plan.out / name, plan.out / name.replace("before", "after"), plan.criterion.name)
            for name in LISTS
        )
    )
    for comparison, page in zip(proof, PAGES, strict=True):
        write_comparison(comparison, plan.out / page)
    return proof


def _card(plan: LoraPlan) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((plan.model_folder / "card.json").read_text(encoding="utf-8"))
    return card


def _summarise(
    plan: LoraPlan, cost: Cost, proof: Proof | None, anew: Anew | None, fresh_search: Fresh | None
) -> None:
    summary = {
        "model": plan.spec.model,
        "hardened": f"hf/{plan.model_folder}",
        "fingerprint": hardened_fingerprint(plan),
        "spec": stored_values(plan.spec),
        "hardening": _card(plan)["hardening"],
        "held_out": None if proof is None else asdict(proof.held_out.main),
        "train": None if proof is None else asdict(proof.trained.main),
        "anew": None if anew is None else anew.as_dict(),
        "fresh": None if fresh_search is None else fresh_search.as_dict(),
        "cost": asdict(cost),
    }
    write_whole(plan.out / SUMMARY, json.dumps(summary, indent=2) + "\n")
    (plan.out / SIDE).unlink(missing_ok=True)


def _show_talk(candidates: list[dict[str, Any]], kept: int, console: Console) -> None:
    """How the kept model talks beside the model as it was, and which iterations do no more."""
    own = next((one for one in candidates if one["iterations"] == kept), {})
    if own.get("talk"):
        before, after = (Spoken(**one["talk"]).told() for one in (candidates[0], own))
        console.print(f"In conversations like those of the findings: before, {before}; after, {after}.")
    for one in candidates:
        if why := one.get("broken"):
            is_kept = " It is kept, as --keep last asks." * (one["iterations"] == kept)
            console.print(f"Iteration {one['iterations']} broke the model in conversations: {why}.{is_kept}")


def _show(plan: LoraPlan, cost: Cost, proof: Proof | None, unmask: bool, console: Console) -> None:
    told, spec = _card(plan)["hardening"], plan.spec
    kept = told["iterations_kept"]
    if not kept:
        why = why_unchanged(told["candidates"], "no training finding was hit")
        console.print(f"{plan.model_folder} is the model as it was: {why}.")
    if proof is not None:
        console.print(f"Findings trained against: {proof.trained.headline}")
        print_comparison(proof.held_out, console, unmask)
    print_cost(cost, plan.bound, console)
    _show_talk(told["candidates"], kept, console)
    if proof is None:
        console.print("No run was asked for, so nothing is proven; the same command with --audits adds them.")
    else:
        before, after = proof.held_out.main.before, proof.held_out.main.after
        console.print(
            f"Evidence: {proof.held_out.n} held-out findings, their inputs asked again, criterion "
            f"{plan.criterion.name}: {with_interval(before)} before and {with_interval(after)} after. That "
            "these inputs draw nothing out is no proof that no other does."
        )
    console.print(f"Iteration {kept} of {spec.iterations} was kept. Hardened model: hf/{plan.model_folder}")
    if proof is not None:
        console.print(f"Pages: {', '.join(str(plan.out / page) for page in PAGES)}")
