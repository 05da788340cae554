"""The Python API, which `import backtalk` offers. Nothing here prints or exits; bad input is an InputError.

A name passed here counts as typed on the command line, so `py:module:function` may run its code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from backtalk.audit import flow
from backtalk.audit import verify as verification
from backtalk.audit.backend import Overrides
from backtalk.audit.consent import Consent
from backtalk.audit.verify import Verdict
from backtalk.data.openings import opening_id
from backtalk.data.targets import make_targets, write_targets
from backtalk.errors import InputError
from backtalk.hardening import flow as hardening
from backtalk.hardening.folder import REPORT, hardened_name, read_record
from backtalk.hardening.methods.negative import Negative
from backtalk.hardening.methods.npo import Npo
from backtalk.hardening.methods.unlikelihood import Unlikelihood
from backtalk.hardening.proof import verify_hardening
from backtalk.hits import hits_by_finding, parse_criterion
from backtalk.models.service.function import FunctionModel
from backtalk.models.transformer.loading import MEMORY, frozen, wrap
from backtalk.models.transformer.model import TransformerModel
from backtalk.output_file import write_output
from backtalk.protocols import Scorer, TextModel
from backtalk.registry import default_search, find_model, is_transformer, judge_name
from backtalk.registry import load_model as load_named
from backtalk.registry import load_scorer as load_named_scorer
from backtalk.report.comparison import Comparison, compare_runs
from backtalk.report.hardening_record import Row, read_hardening
from backtalk.report.risk_record import RiskEstimate
from backtalk.report.run_page import render_run
from backtalk.risk import flow as estimates
from backtalk.risk.traffic import measure_traffic
from backtalk.runs import summary as runs
from backtalk.scorers.cost import Cost
from backtalk.searches.ast.config import Ast
from backtalk.searches.beam import Beam
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.random import Random
from backtalk.searches.relax import Relax
from backtalk.searches.reverse.searches import Retrieval, Reverse, Utterances
from backtalk.specs import ModelOptions, build_spec, flat_spec
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import HardenSpec
from backtalk.specs.risk import RiskSpec
from backtalk.stats import Rate
from backtalk.store import Run as StoredRun
from backtalk.types import Case, Finding, Name, Opening, Origin, Progress, Target
from backtalk.wording import with_interval

__all__ = [
    "Ast", "Beam", "Comparison", "Consent", "Finding", "Gcg", "Gibbs", "Hardening", "InputError",
    "ModelOptions", "Negative", "Npo", "Opening", "Progress", "Random", "Relax", "Retrieval", "Reverse",
    "RiskEstimate", "Run", "Target", "Unlikelihood", "Utterances", "Verdict", "audit", "compare", "harden",
    "load_model", "load_scorer", "risk", "verify",
]  # fmt: skip


def load_model(
    name: str, device: str = "auto", options: ModelOptions | None = None, trust_remote_code: bool = False
) -> TextModel:
    """Loads a model by name or folder; `options` are for Hugging Face models."""
    typed = Name(name, Origin.TYPED)
    return load_named(typed, device, options, (typed,) if trust_remote_code else ())


def load_scorer(name: str = "", device: str = "auto") -> Scorer:
    """Loads a scorer by name or folder, by default the best one installed. `score(texts)` returns a number
    from 0 to 1 for each text."""
    return load_named_scorer(Name(name or judge_name(), Origin.TYPED), device)


def audit(
    model: Any = "chitchat",
    cases: str | Sequence[str | Case] = "mal",
    search: Any = "",
    hit: str = "",
    *,
    out: str | Path = "",
    root: str | Path = "runs",
    limit: int = 0,
    options: ModelOptions | None = None,
    fresh: bool = False,
    consent: Consent | None = None,
    progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Run:
    """Searches for inputs that make a model say what it must not say, and returns the run.

    `model` is a name or folder, a model of `load_model`, a Python function from a conversation to a reply, or
    a pair (PreTrainedModel, tokenizer) in memory. A list that continues with other models' names asks for
    triggers that work on all of them; findings also hold the scores of the others. `cases` is a list's name,
    a file, or a list of sentences, Targets or Openings. `search` is a search, such as `Gibbs(sweeps=3)`, or
    its name; empty: by the model's access. The same call resumes an unfinished run and returns a finished
    one; `fresh` starts over. `progress` is called with reports.
    Requests to other machines need `consent=Consent(yes=True)`. `settings` are flags of `backtalk audit`:
    reference, seed, block, max_time, max_candidates and device.
    """
    first, *others = model if isinstance(model, list) and model else [model]
    loaded, name = _model(first, options)
    if not all(isinstance(one, str | Path) for one in others):
        raise InputError("the models after the first are names or folders")
    if not search:
        search, _ = default_search(find_model(name)[0].access if loaded is None else loaded.access)
    values = {"model": name, "search": search, "hit": hit, "options": options or ModelOptions(), **settings}
    values["other_models"] = [Name(str(one), Origin.TYPED) for one in others]
    if isinstance(cases, str):
        values |= {"targets": cases, "limit": limit}
    spec = build_spec(AuditSpec, values, "audit")
    listed = None if isinstance(cases, str) else _cases(cases, spec.search.backend)[: limit or None]
    given = Overrides(
        model=loaded, cases=listed, in_memory=_in_memory(loaded), measure_traffic=measure_traffic
    )
    with _evaluating(loaded):
        results = flow.audit(spec, str(out), Path(root), fresh, given, consent or Consent(), progress)
    runs.refuse_unscored(results)
    run = Run(results.folder, loaded, name)
    run.summary = results.summary
    return run


def risk(
    model: Any = "chitchat",
    targets: str | Sequence[str | Target] = "mal",
    inputs: str | Path = "",
    hit: str = "exact",
    *,
    out: str | Path = "",
    root: str | Path = "runs",
    options: ModelOptions | None = None,
    fresh: bool = False,
    consent: Consent | None = None,
    progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> RiskEstimate:
    """Estimates how often a model says what it must not say, with bounds that hold.

    `model` is as in `audit`. `targets` is a list's name, a file, or a list of sentences or Targets. `inputs`
    is a file of real turns; without one, inputs are drawn from a language model (`input_model`). The same
    call resumes an unfinished estimate. `settings` are flags of `backtalk risk`, such as `draws=100_000`.
    """
    loaded, name = _model(model, options)
    values = {
        "model": name,
        "hit": hit,
        "inputs": str(inputs),
        "options": options or ModelOptions(),
        **settings,
    }
    if isinstance(targets, str):
        values["targets"] = targets
    spec = build_spec(RiskSpec, values, "risk")
    listed = None if isinstance(targets, str) else _cases(targets, "")
    given = Overrides(model=loaded, cases=listed, in_memory=_in_memory(loaded))
    with _evaluating(loaded):
        return estimates.risk(spec, str(out), Path(root), fresh, given, consent or Consent(), progress).found


def verify(run: Run | str | Path, model: Any = None, device: str = "auto") -> Verdict:
    """Recomputes every finding of a run. A model in memory has to be passed again."""
    return (run if isinstance(run, Run) else Run(run)).verify(model, device)


def compare(before: Run | str | Path, after: Run | str | Path, criterion: str = "") -> Comparison:
    """What was fixed, what remains and what is new between two runs over the same cases."""
    first, second = (one.folder if isinstance(one, Run) else Path(one) for one in (before, after))
    return compare_runs(first, second, criterion or None)


def harden(
    model: str | Path = "chitchat",
    cases: Run | str | Path | Sequence[str | Target | tuple[str, str]] = "mal-wide",
    method: Any = "negative",
    *,
    data: str | Path = "",
    out: str | Path = "hardened",
    fresh: bool = False,
    trust_remote_code: bool = False,
    progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Hardening:
    """Trains a model not to say what it must not say, proves it, and returns the hardening.

    `model` is a name or folder. `cases` are the sentences for a model of ours: a list's name, a file, or a
    list of sentences or Targets. For a Hugging Face model they are findings: a Run, its folder, a file, or a
    list of (input, reply) pairs. `method` is a method, such as `Npo(beta=0.2)`, or its name. `data` are pairs
    that keep the other replies as they are. `settings` are flags of `backtalk harden`, such as
    `iterations=5`. The same call resumes an unfinished hardening; `fresh` starts over.
    """
    name = Name(str(model), Origin.TYPED)
    if not isinstance(cases, Run | str | Path):
        cases = _cases_file(cases, Path(f"{out}.cases.jsonl"))
    given = str(cases.folder if isinstance(cases, Run) else cases)
    values = {"model": name, "method": method, "data": str(data), "out": str(out), **settings}
    if is_transformer(name):
        values["findings"] = given
    elif settings.get("against") != "frequent":
        values["targets"] = given
    spec = flat_spec(HardenSpec, values, "harden")
    done = hardening.harden(
        spec, fresh, Consent(trusted=(name,) if trust_remote_code else ()), progress=progress
    )
    return Hardening(done.out)


class Hardening:
    """A finished hardening in its folder. Weights other than those of its proof are refused."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.record = read_record(self.folder)
        """The content of summary.json."""

    @cached_property
    def model(self) -> TextModel:
        """The hardened model."""
        return load_model(hardened_name(self.folder, self.record))

    @property
    def proof(self) -> list[Row]:
        """Hits of the original and the hardened model, by list, search and criterion."""
        return read_hardening(self.record).proof

    @property
    def cost(self) -> Cost:
        """Perplexity and diversity of both models."""
        return read_hardening(self.record).cost

    def verify(self, device: str = "auto") -> Verdict:
        """Recomputes every finding of the proof."""
        return verify_hardening(self.folder, device)

    def report(self) -> Path:
        """Writes the HTML page again and returns its path."""
        hardening.write_report(self.folder, self.record)
        return self.folder / REPORT

    def __repr__(self) -> str:
        return f"Hardening({str(self.folder)!r}: {read_hardening(self.record).claim()})"


class Run:
    """A run of an audit, in its folder."""

    def __init__(self, folder: str | Path, model: TextModel | None = None, named: str = "") -> None:
        """`model` is the audited model if it is in memory; `named` is its name as typed."""
        self.folder = Path(folder)
        self._model, self._named = model, named
        with StoredRun.open(self.folder) as run:
            self.search = run.search
            self.hit: str = run.spec["hit"]
            """The criterion that the search aimed at."""
            self.model: str = run.spec["model"]
            self.cases = run.cases

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json, computed from the stored findings."""
        with StoredRun.open(self.folder) as run:
            return runs.summarise(run)

    def rates(self) -> dict[str, Rate]:
        """The hit rate by each criterion."""
        return {name: Rate.of(one["hits"], one["n"]) for name, one in self.summary["hits"].items()}

    def findings(self) -> Iterator[Finding]:
        """Every finding, in the order of the cases and their restarts."""
        with StoredRun.open(self.folder) as run:
            yield from run.each_finding()

    def to_pandas(self) -> Any:
        """A data frame with a row a finding: case, trigger, reply, scores, and a column a criterion."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise InputError("to_pandas needs pandas; install it with `pip install pandas`") from None
        with StoredRun.open(self.folder) as run:
            criteria, findings = runs.criteria_of(run), run.findings()
            hits = hits_by_finding(findings, criteria, run.thresholds)
        names, rows = ("case", "kind", "restart", "status", "target", "trigger", "reply"), []
        for one in findings:
            met = hits[one.case, one.restart]
            row = {name: getattr(one, name) for name in names} | {"hit": self.hit in met, **one.scores}
            rows.append(row | {criterion.name: criterion.name in met for criterion in criteria})
        return pandas.DataFrame(rows)

    def report(self, path: str | Path = "") -> Path:
        """Writes the HTML page, by default to the run's folder, and returns its path."""
        with StoredRun.open(self.folder) as run:
            results = runs.read_results(run)
        try:
            if not path:
                return runs.write_pages(results)
            write_output(Path(path), render_run(results.shown))
        except OSError as error:
            raise InputError(f"can't write {error.filename or path}: {error.strerror}") from None
        return Path(path)

    def verify(self, model: Any = None, device: str = "auto") -> Verdict:
        """Recomputes every finding, with the audited model or with `model`."""
        loaded, name = (self._model, self._named) if model is None else _model(model, None)
        typed = name if name and not name.startswith(MEMORY) else ""
        with _evaluating(loaded):
            return verification.verify(self.folder, device, typed, Overrides(model=loaded))

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}: {self._headline()})"

    def _headline(self) -> str:
        rate = self.rates().get(parse_criterion(self.hit).name)
        return "nothing tried" if rate is None else f"{self.hit} {with_interval(rate)}"

    def _repr_html_(self) -> str:
        """A notebook shows the rates as a table."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{rate.hits:,} of {rate.n:,}</td><td>{rate.rate:.1%}</td>"
            f"<td>{rate.low:.1%} to {rate.high:.1%}</td></tr>"
            for name, rate in self.rates().items()
        )
        title = escape(f"{self.model}, {self.search}: {self._headline()}")
        head = "<tr><th>criterion</th><th>hits</th><th>rate</th><th>95% interval</th></tr>"
        return f"<table><caption>{title}</caption>{head}{rows}</table>"


def _cases_file(cases: Sequence[str | Target | tuple[str, str]], path: Path) -> Path:
    if not cases:
        raise InputError("there are no cases; pass at least one sentence or pair")
    pairs = [one for one in cases if isinstance(one, tuple)]
    if pairs and len(pairs) < len(cases):
        raise InputError("cases are sentences, or pairs of an input and a reply, and all of one kind")
    if pairs:
        rows = (json.dumps({"input": text, "reply": reply}) + "\n" for text, reply in pairs)
        write_output(path, "".join(rows))
    else:
        texts = [one for one in cases if isinstance(one, str)]
        targets = [one for one in cases if isinstance(one, Target)]
        write_targets(path, [*make_targets(texts), *targets])
    return path


def _model(model: Any, options: ModelOptions | None) -> tuple[TextModel | None, str]:
    if isinstance(model, str | Path):
        return None, Name(str(model), Origin.TYPED)
    if isinstance(model, tuple) and len(model) == 2:
        wrapped = wrap(*model, options)
        return wrapped, wrapped.name
    if isinstance(model, TextModel):
        return model, model.name
    if callable(model):
        name = f"{MEMORY}{getattr(model, '__qualname__', type(model).__name__)}"
        return FunctionModel(name, model), name
    raise InputError(f"a model is a name, a function, or a (PreTrainedModel, tokenizer), not {type(model)}")


def _in_memory(model: TextModel | None) -> str:
    """What a run records about a model in memory, which no name can load."""
    if model is None or not model.name.startswith(MEMORY):
        return ""
    if isinstance(model, FunctionModel):
        return "no: the model was a Python function in memory, so this run can't be verified elsewhere"
    return "only with the same model in memory, which is known by its weights"


def _evaluating(model: TextModel | None) -> AbstractContextManager[None]:
    """Puts the caller's own network into evaluation mode and restores it."""
    if isinstance(model, TransformerModel) and model.name.startswith(MEMORY):
        return frozen(model.network)
    return nullcontext()


def _cases(cases: Sequence[str | Case], backend: str) -> list[Case]:
    if not cases:
        raise InputError("there are no cases; pass at least one sentence")
    texts = [one for one in cases if isinstance(one, str)]
    ready = [one for one in cases if isinstance(one, Target | Opening)]
    if len(ready) == len(cases):
        return ready
    if len(texts) < len(cases):
        raise InputError("cases are sentences, Targets or Openings, and all of one kind")
    if backend == "conversation":
        return [Opening(opening_id((text,)), (text,)) for text in texts]
    return list(make_targets(texts))
