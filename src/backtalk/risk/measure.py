"""What an estimate reads: the model, what counts, and what inputs are drawn from, from its spec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backtalk.audit.backend import digest
from backtalk.audit.cases import read_cases
from backtalk.audit.consent import NO_CONSENT, Consent, agreed_judge
from backtalk.errors import InputError
from backtalk.hits import parse_criterion
from backtalk.models.lstm.model import LocalModel
from backtalk.models.prefix_tree import Served
from backtalk.protocols import Service, TextModel
from backtalk.registry import load_model
from backtalk.risk.inputs import Batch, Distribution, SampledInputs
from backtalk.risk.language import Array, InputModel, LSTMInputs
from backtalk.risk.learnt import kept_by, proposals_of, triggers_of
from backtalk.risk.listed import Counted, listed
from backtalk.risk.said import SAMPLED_WORK, Greedy, Rated, check_served
from backtalk.risk.turns import read_turns
from backtalk.specs.risk import RiskSpec
from backtalk.store import JUDGE
from backtalk.store.draws import Block
from backtalk.store.folder import kind_of
from backtalk.types import Access, Target

ALL = 10**6  # more targets than any list has
EMBEDDED = "chitchat"  # the model whose language model stands in for one that a model does not have
LISTED = ("exact", "greedy")  # hits by listed sentences
DRAWS = 3000  # by default: 2 minutes of two cores for the embedded model and list
ROWS = {"cpu": 1 << 17, "cuda": 1 << 22}  # next-token distributions of a block, about ten seconds
ASKED = 32  # inputs of a block that a service is asked
TOP = 10  # inputs of a block that are kept


@dataclass
class Measure:
    """Everything that a block of draws needs."""

    spec: RiskSpec
    model: TextModel
    consent: Consent = NO_CONSENT
    given: Sequence[Target] | None = None  # the targets, instead of those that the spec names

    @cached_property
    def counted(self) -> Counted:
        spec, served = self.spec, Served(self.spec.temperature, self.spec.top_p)
        if spec.hit not in LISTED:
            check_served(self.model, served)
            judge = agreed_judge(spec.scorer, spec.device, self.consent)
            threshold = parse_criterion(spec.hit).threshold
            return Rated(self.model, judge, threshold, spec.replies, served, spec.seed)
        targets = self.given
        if targets is None:
            targets = read_cases(spec.targets, self.model, spec.limit or ALL, spec.seed)
        return listed(self.model, targets, served) if spec.hit == "exact" else Greedy(self.model, targets)

    @cached_property
    def distribution(self) -> Distribution:
        spec = self.spec
        if spec.inputs:
            return read_turns(spec.inputs, self.model, spec.seed)
        return SampledInputs(input_model(spec.input_model, self.model, spec.device), spec.seed)

    @cached_property
    def planned(self) -> int:
        """How many draws; a file has no more than its turns."""
        most = self.distribution.most
        return min(self.spec.draws or most or DRAWS, most or 10**12)

    @cached_property
    def block_size(self) -> int:
        """About ten seconds of work, which is what a kill can lose."""
        device = getattr(getattr(self.model, "device", None), "type", "cpu")
        rows = ROWS[device]
        if isinstance(self.model, Service):
            rows = ASKED * self.counted.work
        elif at_once := getattr(self.model, "at_once", 0):  # replies of a large model
            rows = at_once * SAMPLED_WORK
        return self.spec.block or max(1, min(rows // self.counted.work, self.planned))

    @cached_property
    def triggers(self) -> list[str]:
        """Those that the pilot begins with."""
        name = self.spec.proposal
        return [] if name in ("auto", "none") or kind_of(Path(name)) == "risk" else triggers_of(name)

    def depends_on(self) -> dict[str, str]:
        found = {"inputs": self.distribution.fingerprint}
        if isinstance(self.counted, Rated):
            found[JUDGE] = self.counted.scorer.fingerprint
        return {**found, "triggers": digest(self.triggers)} if self.triggers else found

    def prepare(self, folder: Path, report: Callable[[str], object]) -> None:
        """Learns the proposals, or reads those that the run keeps."""
        inputs = self.distribution
        if self.spec.proposal == "none" or not isinstance(inputs, SampledInputs):
            return
        if isinstance(inputs.p, LSTMInputs):
            wanted = (self.spec.seed, self.planned, self.triggers)
            name = self.spec.proposal
            given = kept_by(name, inputs.p) if name != "auto" and kind_of(Path(name)) == "risk" else None
            inputs.proposals = proposals_of(folder, inputs.p, self._chances, *wanted, report, given)

    def _chances(self, batch: Batch) -> Array:
        found: Array = self.counted.read(batch).chance.sum(1)
        return found

    def facts(self) -> dict[str, Any]:
        distribution, counted = self.distribution, self.counted
        return {
            "counted": counted.described,
            "served": served_as(self.spec, self.model),
            "distribution": distribution.described,
            "unit": distribution.unit,
            "parts": list(counted.parts),
            "draws": self.planned,
            "notes": list(counted.notes),
        }

    def block(self, start: int, stop: int) -> Block:
        """The draws from `start` to `stop`; their time is not known yet."""
        batch = self.distribution.draw(start, stop)
        read = self.counted.read(batch)
        weight = np.exp(batch.log_weight)
        z = weight * read.chance.sum(1)
        by_target = read.by_target
        sums = np.zeros(0) if by_target is None else (weight[:, None] * by_target).sum(0)
        arrays: dict[str, NDArray[Any]] = {"sum_target": sums}
        arrays |= {"chance": read.chance, "log_weight": batch.log_weight, "source": batch.source}
        if batch.group is not None:
            arrays["group"] = batch.group
        targets, top = self.counted.targets, np.argsort(-z, kind="stable")[:TOP]
        rows = [
            {
                "text": batch.texts[i],
                "z": float(z[i]),
                "log_chance": float(np.log(read.chance[i].sum())),
                "target": "" if by_target is None else targets[int(by_target[i].argmax())].id,
                "said": "" if read.said is None else read.said[i],
            }
            for i in map(int, top)
            if z[i] > 0
        ]
        return Block(start, stop - start, 0.0, arrays, {"inputs": rows})


def input_model(name: str, model: TextModel, device: str) -> InputModel:
    """The language model of a name; without one the model's own, else the embedded one."""
    owner = load_model(name or EMBEDDED, device) if name or not _has_own(model) else model
    if not isinstance(owner, LocalModel):
        raise InputError(f"--input-model {name}: only language models of ours can be sampled exactly")
    if owner.language_model is None:
        raise InputError(f"{owner.name} has no language model; name another --input-model")
    title = "the model's own language model" if owner is model else f"the language model of {owner.name}"
    return LSTMInputs(owner, owner.language_model, title)


def _has_own(model: TextModel) -> bool:
    return isinstance(model, LocalModel) and model.language_model is not None


def served_as(spec: RiskSpec, model: TextModel) -> str:
    """How replies are chosen, in words."""
    if model.access == Access.TEXT:
        return "the reply that it is served with"
    if spec.hit == "greedy":
        return "the likeliest reply"
    words = "sampled replies"
    if spec.temperature != 1.0:
        words += f" at temperature {spec.temperature:g}"
    return f"{words} from the top {spec.top_p:g}" if spec.top_p < 1 else words


def check_spec(spec: RiskSpec) -> None:
    """Refuses settings that can't work, before the model loads."""
    if spec.temperature == 0 and spec.hit != "greedy":
        raise InputError(
            "--temperature 0 is greedy decoding: use --hit greedy, whose risk is 0 or 1 an input"
        )
    if spec.inputs and spec.proposal not in ("auto", "none"):
        raise InputError(
            "--proposal RUN is for inputs of a language model; the turns of --inputs are all read"
        )
    if spec.inputs and spec.input_model:
        raise InputError("--inputs and --input-model are two distributions; leave one out")
    if spec.hit in LISTED:
        return
    kind = parse_criterion(spec.hit).kind
    if kind == "contains":
        why = "replies that contain one sentence may contain another too, so their chances can't be added"
        raise InputError(f"--hit contains: {why}; use exact, or a scorer with --hit toxic-0.5")
    if kind != "toxic":
        raise InputError(
            f"--hit {spec.hit} is no event whose risk can be told; use exact, greedy or toxic-0.5"
        )
