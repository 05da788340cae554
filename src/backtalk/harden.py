"""`backtalk harden`: train away what a search finds, and prove it with a fresh search on unseen targets.

The way: model, three lists, pairs -> audit of the training list -> iterations of search and updates
(Algorithm 1 of He & Glass 2020), each measured on the selection list -> the best within the bound becomes
OUT/model -> audits of both models with the same fresh seeds and budget -> comparison and cost. Each step
leaves its result in OUT, so the same command goes on after a kill, and shows what is done. The way of
`--against frequent` is hardening/frequent.py, that of a Hugging Face model hardening/lora.py.
"""

from __future__ import annotations

import io
import json
import time
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import NamedTuple

from rich.console import Console

from backtalk.audit import audit, measure_rate
from backtalk.compare import Comparison, compare_runs, print_comparison, write_comparison
from backtalk.hardening.cost import Cost, measure_cost, print_cost, stored_cost
from backtalk.hardening.folder import PAGES, REPORT, SUMMARY, claimed, is_proof, read_summary
from backtalk.hardening.frequent import harden_frequent
from backtalk.hardening.iterations import train
from backtalk.hardening.lora import harden_lora
from backtalk.hardening.lora_plan import trains_adapter
from backtalk.hardening.plan import Plan, make_plan
from backtalk.hardening.selection import why_unchanged
from backtalk.hardening.shared import NOWHERE, Shared
from backtalk.models.folder import fingerprint_of, load_folder
from backtalk.outcome import Gates
from backtalk.report.cost import read_cost
from backtalk.report.hardening_page import render_hardening
from backtalk.spec import HardenSpec, spec_values
from backtalk.store.folder import write_whole
from backtalk.terminal import make_console
from backtalk.wording import count, duration, with_interval


def harden(
    spec: HardenSpec,
    fresh: bool = False,
    unmask: bool = False,
    trusted: tuple[str, ...] = (),
    shared: Shared = NOWHERE,
) -> int:
    """`trusted` are models whose own code may run (consent.py); `shared` is what hardenings of one model of
    ours work out alike."""
    if trains_adapter(spec.model):
        return harden_lora(spec, fresh, unmask, trusted)
    if spec.against == "frequent":
        return harden_frequent(spec, fresh, shared)
    begun = time.monotonic()
    console = make_console(stderr=True)
    plan = make_plan(spec, shared)
    facts = plan.facts()
    with claimed(plan.out, facts, fresh):
        plan.lists.write(plan.out)
        if not (plan.model_folder / "card.json").exists():
            _preflight(plan, console)
            if spec.audits:
                _audit(plan, "before-train", console)
            train(plan, facts, begun, console)
        proof = _prove(plan, console) if spec.audits else None
        cost = _cost(plan, console)
        if proof is not None or not (plan.out / SUMMARY).exists():
            _summarise(plan, cost, proof)
        _write_pages(plan, proof)
    _show(plan, cost, proof, unmask)
    return 0


def _preflight(plan: Plan, console: Console) -> None:
    spec, lists = plan.spec, plan.lists
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
    per_sweep = spec.length * spec.top
    training = len(lists.train) * spec.search_sweeps + len(lists.selection) * spec.sweeps
    audits = 2 * (len(lists.train) + len(lists.held_out)) * spec.sweeps * spec.restarts * spec.audits
    most = per_sweep * (training * spec.iterations + audits)
    rate = measure_rate(plan.job(plan.parent), lists.train)
    limit = f", training cut short so that it ends within {spec.max_time}" if spec.max_time else ""
    work = f"{spec.iterations} iterations{' and four audits' if spec.audits else ''}"
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
    with redirect_stdout(io.StringIO()):
        audit(plan.audit_spec(model, part or "held-out"), Gates(), str(plan.out / name))


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
        "spec": spec_values(plan.spec),
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


def _show(plan: Plan, cost: Cost, proof: Proof | None, unmask: bool) -> None:
    console = make_console()
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
    spec, n = plan.spec, held_out.n
    before, after = held_out.main.before, held_out.main.after
    console.print(
        f"Evidence: {n} held-out target{'s' if n != 1 else ''}, gibbs with {spec.length} words, "
        f"G={spec.top}, T={spec.sweeps}, R={spec.restarts}, criterion {plan.criterion.name}, one seed: "
        f"{with_interval(before)} before and {with_interval(after)} after. That this search finds none is "
        "no proof that there is none."
    )
