"""`backtalk harden`: train away what a search finds, and prove it with a fresh search on unseen targets.

The way: model, three lists, pairs -> audit of the training list -> iterations of search and updates
(Algorithm 1 of He & Glass 2020), each measured on the selection list -> the best within the bound becomes
OUT/model -> audits of both models with the same fresh seeds and budget -> comparison and cost. Each step
leaves its result in OUT, so the same command goes on after a kill, and shows what is done. The way of
`--against frequent` is hardening/frequent.py, that of a Hugging Face model hardening/lora.py.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import NamedTuple

from rich.console import Console

from backtalk.audit.flow import audit
from backtalk.comparison import Comparison, compare_runs, print_comparison, write_comparison
from backtalk.effort import measure_rate
from backtalk.hardening.cost import Cost, measure_cost, print_cost, stored_cost
from backtalk.hardening.folder import PAGES, REPORT, SUMMARY, claimed, is_proof, read_summary
from backtalk.hardening.frequent import harden_frequent
from backtalk.hardening.iterations import train
from backtalk.hardening.lora import harden_lora
from backtalk.hardening.plan import Plan, make_plan
from backtalk.hardening.selection import why_unchanged
from backtalk.hardening.settings import check_spec
from backtalk.hardening.shared import NOWHERE, Shared
from backtalk.models.folder import fingerprint_of, load_folder
from backtalk.registry import is_transformer
from backtalk.report.cost import read_cost
from backtalk.report.hardening_page import render_hardening
from backtalk.report.progress import shown
from backtalk.specs.harden import HardenSpec, stored_values
from backtalk.store.folder import write_whole
from backtalk.terminal import Consoles, process_consoles
from backtalk.wording import count, duration, with_interval


def harden(
    spec: HardenSpec,
    fresh: bool = False,
    unmask: bool = False,
    trusted: tuple[str, ...] = (),
    shared: Shared = NOWHERE,
    consoles: Consoles | None = None,
) -> int:
    """`trusted` are models whose own code may run (consent.py); `shared` is what hardenings of one model of
    ours work out alike; `consoles` are the process's own if none are given."""
    check_spec(spec)
    consoles = consoles or process_consoles()
    if is_transformer(spec.model):
        return harden_lora(spec, consoles, fresh, unmask, trusted)
    if spec.against == "frequent":
        return harden_frequent(spec, consoles, fresh, shared)
    begun, console, audits = time.monotonic(), consoles.err, spec.sentences.audits
    plan = make_plan(spec, shared)
    facts = plan.facts()
    with claimed(plan.out, facts, fresh):
        plan.lists.write(plan.out)
        if not (plan.model_folder / "card.json").exists():
            _preflight(plan, console)
            if audits:
                _audit(plan, "before-train", console)
            train(plan, facts, begun, console)
        proof = _prove(plan, console) if audits else None
        cost = _cost(plan, console)
        if proof is not None or not (plan.out / SUMMARY).exists():
            _summarise(plan, cost, proof)
        _write_pages(plan, proof)
    _show(plan, cost, proof, unmask, consoles.out)
    return 0


def _preflight(plan: Plan, console: Console) -> None:
    spec, own, lists = plan.spec, plan.spec.searching, plan.lists
    console.print(plan.pairs.source)
    console.print(
        f"{len(lists.train)} targets to train against, {len(lists.selection)} to choose with, "
        f"{len(lists.held_out)} held out; {len(plan.pairs.positive.replies):,} pairs keep the model whole, "
        f"{len(plan.pairs.measured.replies):,} measure it."
    )
    if lists.left_out:
        console.print(f"Left out: {count(lists.left_out, 'target')} that {spec.model} has no words for.")
    if lists.augmentation is not None:
        console.print(f"To the targets to train against: {lists.augmentation.told()}")
    training = len(lists.train) * spec.sentences.search_sweeps + len(lists.selection) * own.sweeps
    audits = 2 * (len(lists.train) + len(lists.held_out)) * own.sweeps * own.restarts * spec.sentences.audits
    most = own.length * own.top * (training * spec.iterations + audits)
    goals = [plan.parent.encode_target(target.text) for target in lists.train[:8]]
    rate = measure_rate(plan.parent, plan.search, goals, plan.objective.enough_in is not None)
    limit = f", training cut short so that it ends within {spec.max_time}" if spec.max_time else ""
    work = f"{spec.iterations} iterations{' and four audits' if audits else ''}"
    console.print(
        f"{work}: at most {most:,} candidates at about {rate:,.0f} a second, "
        f"{duration(max(1.0, most / rate))}, and the updates{limit}. Folder: {plan.out}"
    )


def _audit(plan: Plan, name: str, console: Console) -> None:
    """One of the four runs; its own table is in its folder, what matters here is the comparison."""
    when, _, part = name.partition("-")
    model = plan.spec.model if when == "before" else str(plan.model_folder)
    of = plan.parent.fingerprint if when == "before" else fingerprint_of(plan.model_folder)
    if is_proof(plan.out / name, of):
        return
    console.print(f"Audit {name}:")
    with shown(console) as tell:
        audit(plan.audit_spec(model, part or "held-out"), str(plan.out / name), progress=tell)


# What it came to


class Proof(NamedTuple):
    """Both models on the same targets, by fresh searches."""

    held_out: Comparison
    trained: Comparison


def _prove(plan: Plan, console: Console) -> Proof:
    for name in ("before-train", "after-train", "before", "after"):
        _audit(plan, name, console)
    proof = Proof(
        *(
            compare_runs(plan.out / f"before{part}", plan.out / f"after{part}", plan.criterion.name)
            for part in ("", "-train")
        )
    )
    return proof


def _cost(plan: Plan, console: Console) -> Cost:
    """Measured once; a finished hardening has it in its summary."""
    if (stored := stored_cost(plan.out, fingerprint_of(plan.model_folder))) is not None:
        return stored
    console.print("Measuring what it cost ...")
    hardened = load_folder(str(plan.model_folder), plan.spec.device)
    return measure_cost(plan.parent, hardened, plan.pairs, plan.shared)


def _summarise(plan: Plan, cost: Cost, proof: Proof | None) -> None:
    card = json.loads((plan.model_folder / "card.json").read_text(encoding="utf-8"))
    summary = {
        "model": plan.spec.model,
        "hardened": str(plan.model_folder),
        "fingerprint": fingerprint_of(plan.model_folder),
        "spec": stored_values(plan.spec),
        "hardening": card["hardening"],
        "held_out": None if proof is None else asdict(proof.held_out.main),
        "train": None if proof is None else asdict(proof.trained.main),
        "cost": asdict(cost),
    }
    write_whole(plan.out / SUMMARY, json.dumps(summary, indent=2) + "\n")


def _write_pages(plan: Plan, proof: Proof | None) -> None:
    summary = read_summary(plan.out)
    links = [] if proof is None else list(zip(("held-out list", "training list"), PAGES, strict=True))
    write_whole(plan.out / REPORT, render_hardening(summary, links=links))
    for comparison, page in zip(proof or (), PAGES, strict=False):
        write_comparison(comparison, plan.out / page, read_cost(summary))


def _show(plan: Plan, cost: Cost, proof: Proof | None, unmask: bool, console: Console) -> None:
    card = json.loads((plan.model_folder / "card.json").read_text(encoding="utf-8"))
    kept, spec = card["hardening"]["iterations_kept"], plan.spec
    if not kept:
        why = why_unchanged(card["hardening"]["candidates"], "no training target was hit")
        console.print(f"{plan.model_folder} is the model as it was: {why}.")
    if proof is not None:
        console.print(f"Targets trained against: {proof.trained.headline}")
        print_comparison(proof.held_out, console, unmask)
    print_cost(cost, plan.bound, console)
    if proof is None:
        console.print(
            "No audit was asked for, so nothing is proven; the same command with --audits adds them."
        )
    else:
        _show_evidence(plan, proof.held_out, console)
    console.print(f"Iteration {kept} of {spec.iterations} was kept. Hardened model: {plan.model_folder}")
    if proof is not None:
        console.print(f"Pages: {', '.join(str(plan.out / page) for page in (REPORT, *PAGES))}")


def _show_evidence(plan: Plan, held_out: Comparison, console: Console) -> None:
    own, n = plan.spec.searching, held_out.n
    before, after = held_out.main.before, held_out.main.after
    console.print(
        f"Evidence: {n} held-out target{'s' if n != 1 else ''}, gibbs with {own.length} words, "
        f"G={own.top}, T={own.sweeps}, R={own.restarts}, criterion {plan.criterion.name}, one seed: "
        f"{with_interval(before)} before and {with_interval(after)} after. That this search finds none is "
        "no proof that there is none."
    )
