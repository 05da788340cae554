"""`backtalk audit`: spec -> model, search, cases -> run folder -> blocks -> hits -> report. One direction.

Cases are cut by index into blocks of a fixed number, which depends on the spec alone. A block is searched as
one batch, scored by a plain forward pass and committed at once; a killed run goes on at its first missing
block and ends bit for bit where the unbroken one does. Hits are decided afterwards, from what is stored.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from backtalk import __version__
from backtalk.blackbox.job import read_as
from backtalk.blocks import (
    choose_folder,
    end_work,
    open_run,
    row_seed,
    time_limit,
    versions,
    work_through,
)
from backtalk.cases import can_say, read_cases
from backtalk.consent import NOTHING_SAID, Consent
from backtalk.effort import Effort, Pace, fit_effort
from backtalk.errors import InputError
from backtalk.gates import check_gates
from backtalk.hits import LIKELIHOOD_KINDS, Criterion, parse_criterion
from backtalk.outcome import Gates, finish_run
from backtalk.protocols import Drafting, Search, WeightsModel
from backtalk.reference import Reference, bounded, find_reference, with_judge
from backtalk.registry import (
    find_model,
    find_search,
    is_transformer,
    load_model,
    resolve,
    usual_length,
)
from backtalk.scorers.likelihood import score_triggers
from backtalk.searches.gibbs import GibbsConfig, allowed_words
from backtalk.searches.objective import Objective, make_objective
from backtalk.searches.relax import Relax, RelaxConfig, network_model
from backtalk.spec import (
    BLACK_BOX,
    LEARNT,
    MODEL_OPTIONS,
    OLDER_DEFAULTS,
    AuditSpec,
    ModelOptions,
    build_spec,
    but_before,
    model_options,
    parse_duration,
    refuse_set,
    spec_values,
)
from backtalk.store import Run, identity_of
from backtalk.terminal import make_console
from backtalk.types import Access, Finding, SpokenTurn, Target, Thresholds

BLOCK_CANDIDATES = {"cpu": 40_000, "cuda": 150_000_000}
"""The most candidates in a block. Rows stop early, so this is some five to thirty seconds of work."""
TRANSFORMER_CANDIDATES = {"cpu": 1, "cuda": 1_000_000}
"""The same for a Hugging Face model; on a processor a case is a block."""
MOST_ROWS = 4_000
"""Rows (case x restart) of a block at most: the gradient of all of them is taken at once."""
MUCH_LONGER = 2.0
"""So many times as long in bfloat16 is said."""
NOT_IDENTITY = {"max_time", "max_candidates"}
"""Budgets: a run may go on with another one."""
DEFAULT_HIT, WITHOUT_LANGUAGE_MODEL = "io-sample-avg-k1", "o-sample-avg-k1"


@dataclass(frozen=True)
class AuditJob:
    """Everything that the blocks need."""

    model: WeightsModel
    search: Search
    objective: Objective
    spec: AuditSpec


def audit(
    spec: AuditSpec,
    gates: Gates,
    out: str = "",
    root: Path = Path("runs"),
    fresh: bool = False,
    consent: Consent = NOTHING_SAID,
    reference: Reference | None = None,
) -> int:
    """Runs, or goes on with, or shows, what the spec says. Returns the exit status.

    `consent` is asked before the first request to a model that is asked; `reference` is what is likely, where
    another model's T_out and T_in count.
    """
    if spec.hit:
        parse_criterion(spec.hit)  # before anything loads
    check_gates(gates, spec.hit, Path(out or root))
    if spec.search == "ast":
        from backtalk.adversarial.flow import audit_openings

        return audit_openings(spec, gates, out, root, fresh, consent)
    if works_by_asking(spec):
        from backtalk.blackbox.flow import audit_replies

        return audit_replies(spec, gates, out, root, fresh, consent)
    begun = time.monotonic()
    console = make_console(stderr=True)
    spec = replace(spec, length=spec.length or usual_length(spec.model))
    model = _load(spec, consent)
    usual = DEFAULT_HIT if model.language_model is not None else WITHOUT_LANGUAGE_MODEL
    spec = replace(spec, hit=spec.hit or usual)
    criterion = parse_criterion(spec.hit)
    reference = bounded(reference or find_reference(model, spec.reference), spec.max_ppl)
    _check(spec, criterion, model, reference.thresholds)
    targets = read_cases(spec.targets, model, spec.limit, spec.seed)
    if not any(can_say(model, target.text) for target in targets):
        raise InputError(f"no target of {spec.targets} has only words that {spec.model} knows; nothing to do")
    facts = _facts(model, reference, targets)
    identity = audit_identity(spec_values(spec), facts, targets)
    folder = choose_folder(spec.model, spec.search, identity, out, root, fresh)
    objective = _objective(spec, criterion, reference.thresholds)
    block = spec.block or _block_size(spec, model)

    def create() -> Run:
        chosen = _choose_effort(spec, model, objective, targets, begun)
        return Run.create(folder, spec_values(spec), {**facts, **chosen}, targets, identity, block, fresh)

    with open_run(folder, identity, create, fresh) as run:
        return _work(run, _job(run, spec, model, objective), gates, console, begun)


def audit_identity(values: Mapping[str, Any], facts: Mapping[str, Any], targets: Sequence[Target]) -> str:
    """What makes two audits of weights the same. `values` are those of the spec."""
    unused = {*NOT_IDENTITY, *BLACK_BOX, *LEARNT, *MODEL_OPTIONS, "max_ppl"}  # that is T_in
    kept = {key: value for key, value in but_before(values).items() if key not in unused}
    if values.get("language_model"):
        kept["language_model"] = values["language_model"]
    return identity_of({**kept, "thresholds": facts["thresholds"]}, facts["fingerprint"], targets)


def works_by_asking(spec: AuditSpec) -> bool:
    """Whether the audit asks the model: the search wants no weights, or the model gives none. A search that
    can do both asks a Hugging Face model if it is told how to ask, or aims at what a reply says."""
    search = find_search(spec.search)
    if not search.text:
        return False
    if search.needs == Access.TEXT or find_model(spec.model)[0].access < search.needs:
        return True
    told = any(
        field.name in BLACK_BOX and getattr(spec, field.name) != field.default for field in fields(spec)
    )
    by_reply = bool(spec.hit) and parse_criterion(spec.hit).kind not in LIKELIHOOD_KINDS
    return is_transformer(spec.model) and (told or by_reply)


def resume(folder: Path, gates: Gates, typed: str = "", consent: Consent = NOTHING_SAID) -> int:
    """Goes on with a run from what its folder says, to its end: a budget held for the command that had it.
    `typed` is the model's name where the command line repeats it."""
    with Run.open(folder) as run:
        values = {key: value for key, value in run.spec.items() if key not in NOT_IDENTITY}
        spec = build_spec(AuditSpec, {**OLDER_DEFAULTS, **values}, str(folder / "spec.yaml"))
        spec, stored = replace(spec, model=run.model(typed)), run.facts
    check_gates(gates, spec.hit, folder)
    if spec.search == "ast":
        from backtalk.adversarial.flow import resume_openings

        return resume_openings(spec, folder, gates, consent)
    if stored.get("access") in ("TEXT", "LOGPROBS"):
        from backtalk.blackbox.flow import resume_replies

        return resume_replies(spec, folder, gates, consent)
    criterion = parse_criterion(spec.hit)
    model = _load(spec, consent)
    if model.fingerprint != stored["fingerprint"]:
        raise InputError(f"{spec.model} has changed since {folder} was begun; audit it anew")
    thresholds = Thresholds(stored["thresholds"]["T_out"], stored["thresholds"]["T_in"])
    objective = _objective(spec, criterion, thresholds)
    console = make_console(stderr=True)
    with Run.open(folder, write=True) as run:
        return _work(run, _job(run, spec, model, objective), gates, console)


def _job(run: Run, spec: AuditSpec, model: WeightsModel, objective: Objective) -> AuditJob:
    """With the effort that was chosen when the run was begun."""
    spec = replace(spec, **run.facts.get("effort", {}))
    return AuditJob(model, _search(spec, model), objective, spec)


def _block_size(spec: AuditSpec, model: WeightsModel) -> int:
    """Cases that are searched as one batch."""
    most = (TRANSFORMER_CANDIDATES if is_transformer(spec.model) else BLOCK_CANDIDATES)[_device(model)]
    rows = most // (find_search(spec.search).cost * _search(spec, model).most_candidates)
    return max(1, min(rows, MOST_ROWS) // spec.restarts)


def _choose_effort(
    spec: AuditSpec, model: WeightsModel, objective: Objective, targets: Sequence[Target], begun: float
) -> dict[str, Any]:
    """What of the search a slow model leaves time for, where a time was set."""
    if not spec.max_time or not _is_slow(spec, model):
        return {}
    left = parse_duration(spec.max_time) - (time.monotonic() - begun)
    full = Effort(spec.top, spec.sweeps, spec.restarts)
    pace = _pace(spec, model, objective, targets)
    effort = fit_effort(full, pace, spec.length, len(targets), max(1.0, left))
    return {"effort": asdict(effort)} if effort != full else {}


def _is_slow(spec: AuditSpec, model: WeightsModel) -> bool:
    return is_transformer(spec.model) and _device(model) == "cpu"


def _pace(spec: AuditSpec, model: WeightsModel, objective: Objective, targets: Sequence[Target]) -> Pace:
    from backtalk.bench import time_step

    goal = next(model.encode_target(t.text) for t in targets if can_say(model, t.text))
    candidate_s, step_s = time_step(model, goal, spec.length, objective.enough_in is not None)
    return Pace(candidate_s * _draft_cost(spec, model), step_s).of(spec.search)


def _facts(model: WeightsModel, reference: Reference, targets: Sequence[Target]) -> dict[str, Any]:
    """What a run must remember to be judged, shown and verified later."""
    return {
        "thresholds": {"T_out": reference.thresholds.out, "T_in": reference.thresholds.into},
        "reference": reference.source,
        "fingerprint": model.fingerprint,
        "words": {target.text: _words(model, target.text) for target in targets},
        **read_as(model),
        "versions": versions(),
        "hardware": {
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
            "device": _device(model),
        },
    }


def _work(run: Run, job: AuditJob, gates: Gates, console: Console, begun: float | None = None) -> int:
    todo = sorted(set(range(run.blocks)) - run.done_blocks())
    if todo:
        if run.done_blocks():
            console.print(
                f"Going on with {run.folder}: {len(run.done_blocks())} of {run.blocks} blocks are done."
            )
        run.set_state("running")
        run.append_log(f"{len(todo)} of {run.blocks} blocks to do, backtalk {__version__}")
        _preflight(run, job, len(todo), console)
        stopped = work_through(
            run, todo, lambda targets: search_block(job, targets), _budgets(run, job.spec, begun), console
        )
        end_work(run, stopped)
    return finish_run(run, gates)


def _budgets(run: Run, spec: AuditSpec, begun: float | None = None) -> Callable[[], str]:
    """What ends a run before its last block. What a Hugging Face model takes to load and to be measured
    counts as time, too."""
    out_of_time = time_limit(spec.max_time, begun if is_transformer(spec.model) else None)

    def enough() -> str:
        if reason := out_of_time():
            return reason
        if spec.max_candidates and run.candidates() >= spec.max_candidates:
            return f"--max-candidates {spec.max_candidates} was reached"
        return ""

    return enough


def search_block(job: AuditJob, targets: Sequence[Target]) -> list[Finding]:
    """The findings of some cases, searched and scored as one batch; restart by restart within a case."""
    model, spec = job.model, job.spec
    findings: list[Finding] = []
    rows: list[tuple[Target, int, int]] = []
    for target in targets:
        if not can_say(model, target.text):
            missing = model.unknown_words(target.text)
            note = f"the model does not know: {', '.join(missing)}" if missing else "the target has no words"
            findings.append(Finding(target.id, 0, "skipped", target.text, note=note))
        else:
            rows += [(target, r, row_seed(spec.seed, target.id, r)) for r in range(spec.restarts)]
    if not rows:
        return findings
    started = time.perf_counter()
    goals = [model.encode_target(target.text) for target, _, _ in rows]
    found = job.search.run(model, job.objective, goals, [seed for _, _, seed in rows])
    scored = score_triggers(model, [one.ids for one in found], goals)
    seconds = (time.perf_counter() - started) / len(rows)
    for (target, restart, seed), one, score in zip(rows, found, scored, strict=True):
        text = model.decode(one.ids)
        valid = tuple(model.encode_input(text)) == one.ids
        findings.append(
            Finding(
                case=target.id,
                restart=restart,
                status="found" if valid else "nothing",
                target=target.text,
                turns=(SpokenTurn("user", text, one.ids),),
                reply=score.reply,
                scores={**one.scores, **score.scores, "loss": one.loss},
                series={**one.series, **score.series, "loss_by_sweep": one.loss_by_sweep},
                seed=seed,
                candidates=one.candidates,
                queries=1,
                seconds=seconds,
                note=one.note if valid else "the trigger can't be typed: its words read back differently",
            )
        )
    return findings


def _preflight(run: Run, job: AuditJob, blocks: int, console: Console) -> None:
    """One line on what is coming; the rate is measured on a first small batch."""
    cases = min(len(run.targets), blocks * run.block_size)
    most = cases * job.spec.restarts * job.search.most_candidates
    rate = measure_rate(job, run.targets) / find_search(job.spec.search).cost
    if effort := run.facts.get("effort"):
        told = f"G={effort['top']}, T={effort['sweeps']}, R={effort['restarts']}"
        console.print(f"To keep --max-time {run.spec['max_time']} the search is smaller: {told}.")
    if (times := _draft_cost(job.spec, job.model)) >= MUCH_LONGER:
        console.print(
            f"Ranking in bfloat16 takes this processor up to {times:,.0f} times as long as in float32; "
            "--precision float32 is quicker."
        )
    console.print(
        f"{cases} cases, at most {most:,} candidates at about {rate:,.0f} a second: "
        f"at most {max(1, round(most / rate)):,} s. Run folder: {run.folder}"
    )


def measure_rate(job: AuditJob, targets: Sequence[Target]) -> float:
    """Candidates a second of one small substitution batch."""
    from backtalk.bench import time_substitutions

    if _is_slow(job.spec, job.model):
        return 1 / _pace(job.spec, job.model, job.objective, targets).candidate_s
    goals = [job.model.encode_target(t.text) for t in targets if can_say(job.model, t.text)][:8]
    with_lm = job.objective.enough_in is not None
    rate = time_substitutions(job.model, goals, job.spec.length, job.spec.top, with_lm)
    return rate / _draft_cost(job.spec, job.model)


def _draft_cost(spec: AuditSpec, model: WeightsModel) -> float:
    """How many times as long as by the model itself candidates are ranked, at least 1: many processors have
    no bfloat16."""
    from backtalk.bench import bfloat16_cost

    drafts = _drafts(spec, model) and isinstance(model, Drafting)
    return bfloat16_cost() if drafts and _device(model) == "cpu" else 1.0


def _load(spec: AuditSpec, consent: Consent) -> WeightsModel:
    entry, _ = find_model(spec.model)
    search = find_search(spec.search)
    if entry.access < search.needs:
        raise InputError(
            f"search {spec.search!r} needs {search.needs.name} access, "
            f"but {spec.model} gives {entry.access.name} only; reverse, retrieval and random do with replies"
        )
    loaded = load_model(spec.model, spec.device, deciding_options(spec), consent.trusted)
    model = with_judge(loaded, spec.language_model, spec.device)
    if not isinstance(model, WeightsModel):
        raise InputError(f"{spec.model} does not give the WEIGHTS access that {spec.search!r} needs")
    return model


def deciding_options(spec: AuditSpec) -> ModelOptions:
    """How the model is read: a hit is decided in float32, where nothing else is asked for; a GPU ranks in
    bfloat16."""
    options = model_options(spec)
    whole = is_transformer(spec.model) and options.dtype == "auto"
    return replace(options, dtype="float32") if whole else options


def _check(spec: AuditSpec, criterion: Criterion, model: WeightsModel, thresholds: Thresholds) -> None:
    refuse_set(spec, LEARNT, "is for --search ast; leave it out")
    unused = {*BLACK_BOX} - ({"language_model"} if is_transformer(spec.model) else set())
    refuse_set(spec, unused, f"is for searches that ask a model; {spec.search!r} reads its weights")
    if spec.search == "relax":
        network_model(model)
    if spec.max_ppl and not criterion.needs_language_model:
        raise InputError(f"--max-ppl is for an io- criterion, and {spec.hit} asks nothing of a trigger")
    if spec.max_ppl and spec.search == "relax":
        raise InputError("--max-ppl is for searches that try words; leave it out with relax")
    longest = getattr(model, "max_input", None)
    if longest and spec.length > longest:
        raise InputError(f"--length {spec.length} is more than the {longest} words that {spec.model} reads")
    if criterion.kind not in {"greedy", "sample-min", "sample-avg"}:
        raise InputError(f"search {spec.search!r} can't aim at {spec.hit!r}; name an o- or io- criterion")
    if criterion.needs_language_model and (model.language_model is None or thresholds.into is None):
        raise InputError(
            f"--hit {spec.hit} needs a language model, and {spec.model} has none; use an o- criterion"
        )


def _search(spec: AuditSpec, model: WeightsModel) -> Search:
    if spec.search == "relax":
        return Relax(
            RelaxConfig(
                spec.relax_space, spec.relax_lambda, spec.relax_steps, spec.relax_lr, length=spec.length
            )
        )
    top = spec.top
    if spec.search == "gibbs":  # which tries no more words than there are: blocks and estimates should know
        top = min(top, int(allowed_words(model, spec.with_unknown).sum()))
    config = GibbsConfig(
        spec.length,
        top,
        spec.sweeps,
        spec.stop_at_hit,
        spec.prune,
        spec.with_unknown,
        _drafts(spec, model),
        quick=spec.precision == "tf32",
    )
    search: Search = resolve(find_search(spec.search).path)(config)
    return search


def _drafts(spec: AuditSpec, model: WeightsModel) -> bool:
    wanted = spec.precision in {"bfloat16", "tf32"} or (spec.precision == "auto" and _device(model) == "cuda")
    return wanted and find_search(spec.search).drafts


def _objective(spec: AuditSpec, criterion: Criterion, thresholds: Thresholds) -> Objective:
    if spec.as_published and spec.all_words:
        raise InputError("--as-published and --all-words are two papers' ways; leave one out")
    objective = objective_for(criterion, thresholds, spec.lambda_in, spec.as_published, spec.all_words)
    if not spec.max_ppl:
        return objective
    return replace(objective, enough_in=thresholds.into, strict=True)  # the bound itself, whatever k is


def objective_for(
    criterion: Criterion,
    thresholds: Thresholds,
    lambda_in: float = 1.0,
    as_published: bool = False,
    whole: bool = False,
) -> Objective:
    """What a search that aims at the criterion minimises."""
    return make_objective(
        greedy=criterion.kind == "greedy",
        average=criterion.kind == "sample-avg",
        likely=criterion.needs_language_model,
        k=criterion.k,
        thresholds=thresholds,
        lambda_in=lambda_in,
        as_published=as_published,
        whole=whole,
    )


def _words(model: WeightsModel, text: str) -> list[str]:
    return [model.decode([i]) for i in model.encode_target(text)[:-1]]


def _device(model: WeightsModel) -> str:
    return model.searchable().device.type
