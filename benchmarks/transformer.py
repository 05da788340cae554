"""Candidates a second of searches on a Hugging Face model, against two ceilings measured in the same run:
the matrix products of its linear layers for the tokens that are not in the shared KV cache, and a plain
batched forward pass of whole prompts.

Every job runs once before it is timed. Triggers and targets are random tokens, which does not affect speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.transformer.model import TransformerModel
from backtalk.protocols import WeightsModel
from backtalk.registry import is_transformer, load_model, search_config
from backtalk.searches.objective import Objective
from backtalk.searches.trial import FINALISTS
from backtalk.specs import ModelOptions
from backtalk.types import Turn
from benchmarks.search import best_of

ROWS = {"cpu": 1, "cuda": 64}
TOP = {"cpu": 8, "cuda": 512}
FEW = 16
"""Targets of what is slow on a GPU, and as slow with more of them."""
ALL_WORDS = Objective(greedy=False, average=True, enough_out=0.0)
"""No token is ever good enough, so no row ends early."""


@dataclass(frozen=True)
class Sizes:
    """Of what is measured; 0 takes what suits the device."""

    length: int = 15
    """Tokens of a trigger."""
    target: int = 8
    """Tokens of a target, its end counted."""
    top: int = 0
    """Candidates at a position."""
    rows: int = 0
    """Targets searched together."""


class BenchLine(NamedTuple):
    name: str
    candidates_per_s: float
    ceiling_share: float | None
    """Of the matrix products alone; None for them."""
    tokens: float
    """Read for a candidate, on average."""


class _Job(NamedTuple):
    name: str
    work: Callable[[], object]
    candidates: int
    tokens: float


class TransformerBench:
    """One model, and one batch of candidates at three positions that stand for a sweep."""

    def __init__(
        self, name: str, device: str = "auto", options: ModelOptions | None = None, sizes: Sizes | None = None
    ) -> None:
        if not is_transformer(name):
            raise InputError(f"{name} is not a Hugging Face model; the benchmark `search` measures LSTMs")
        options = options or ModelOptions()
        if options.dtype == "auto":  # what decides is float32; a GPU ranks with a copy in bfloat16
            options = replace(options, dtype="float32")
        model = load_model(name, device, options)
        assert isinstance(model, TransformerModel)
        self.model, self.device = model, model.device
        kind, sizes = self.device.type, sizes or Sizes()
        self.sizes = replace(sizes, top=sizes.top or TOP[kind], rows=sizes.rows or ROWS[kind])
        if self.sizes.length < 1 or self.sizes.target < 2:
            raise InputError("a trigger has at least one token and a target two, its end counted")
        self.before, self.after = around(model)
        allowed = model.searchable().nonzero().squeeze(1)
        draw = torch.Generator().manual_seed(0)

        def tokens(*shape: int) -> Tensor:
            return allowed[torch.randint(len(allowed), shape, generator=draw).to(allowed.device)]

        rows, length = self.sizes.rows, self.sizes.length
        end = torch.full((rows, 1), model.prompts.end, device=allowed.device)
        self.inputs = tokens(rows, length)
        self.targets = torch.cat([tokens(rows, self.sizes.target - 1), end], 1)
        self.candidates = tokens(rows, self.sizes.top)
        self.positions = sorted({0, length // 2, length - 1})
        self.title = (
            f"{name} on {self.device}, {torch.get_num_threads()} threads: trigger {length}, "
            f"target {self.sizes.target}, {self.before} tokens before and {self.after} between, "
            f"{self.sizes.top} candidates a position, {rows} targets at once"
        )

    def lines(self) -> Iterator[BenchLine]:
        jobs = self._jobs()
        best = best_of([job.work for job in jobs], self.device, 1)
        rates = [job.candidates / seconds for job, seconds in zip(jobs, best, strict=True)]
        ceiling = rates[0]
        for job, rate in zip(jobs, rates, strict=True):
            share = None if job is jobs[0] else rate / ceiling
            yield BenchLine(job.name, rate, share, job.tokens)

    def _jobs(self) -> list[_Job]:
        s = self.sizes
        draft = self.model.draft() if self.device.type == "cuda" else None
        network = (draft or self.model).network  # the ceilings are in the numbers that rank
        length = self.before + s.length + self.after + s.target - 1
        read = self._read()
        few = min(s.rows, FEW)
        count = len(self.positions) * s.top
        some = min(self.candidates.numel(), 64 if draft is None else 4096)
        jobs = [
            _Job("matrix products alone", products(network, some, round(read), s.target), some, read),
            _Job("plain forward of whole prompts", forward(network, some, length, s.target), some, length),
            _Job("substitutions, cache shared", self._substitutions(self.model, few), few * count, read),
        ]
        if draft is not None:
            work = self._substitutions(draft, s.rows)
            jobs.append(_Job("substitutions, bfloat16 draft", work, s.rows * count, read))
        sweep = s.length * s.top
        jobs += [_Job("gibbs, a sweep", self._search("gibbs", s.rows), s.rows * sweep, read)]
        # The time of each part of a sweep, as if it were all of it.
        jobs += [_Job(f"  {name} alone", work, s.rows * s.top, read) for name, work in self._parts()]
        jobs += [_Job("gcg, as many", self._search("gcg", s.rows), s.rows * sweep, read)]
        if self.model.language_model is not None:  # it writes the triggers, and each is read whole
            whole = self.before + (s.length + 1) / 2 + self.after + s.target - 1
            jobs += [_Job("beam, as many drawn", self._search("beam", few), few * sweep, whole)]
        return jobs

    def _read(self) -> float:
        """Tokens that are run for a candidate: from the changed position on."""
        if self.model.is_encoder_decoder:
            return float(self.before + self.sizes.length + self.after + self.sizes.target)
        from_there = [self.sizes.length - position for position in self.positions]
        return sum(from_there) / len(from_there) + self.after + self.sizes.target - 1

    def _substitutions(self, model: WeightsModel, rows: int) -> Callable[[], None]:
        inputs, candidates, targets = (x[:rows] for x in (self.inputs, self.candidates, self.targets))

        @torch.no_grad()
        def work() -> None:
            for position in self.positions:
                model.score_substitutions(inputs, position, candidates, targets)

        return work

    def _parts(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """What a position of a sweep takes beside the ranking of its candidates."""
        model, place = self.model, self.sizes.length // 2
        weights = torch.ones(self.targets.shape, device=self.device)
        best = self.candidates[:, :FINALISTS]
        checked = self.inputs.repeat(FINALISTS, 1)
        yield "gradients", lambda: model.gradient(self.inputs, self.targets, weights, [place])
        yield "finalists", lambda: model.score_substitutions(self.inputs, place, best, self.targets)
        yield "tokenizer", lambda: model.survives(checked)

    def _search(self, name: str, rows: int) -> Callable[[], object]:
        search = search_config(name)(self.sizes.length, self.sizes.top, sweeps=1)
        goals, seeds = self.targets[:rows].tolist(), range(rows)
        return lambda: search.run(self.model, ALL_WORDS, goals, seeds)


def around(model: TransformerModel) -> tuple[int, int]:
    """Tokens of the prompt before and behind what a user types."""
    text = "hello there my friend"
    ids = model.encode_input(text)
    prompt = model.prompt_ids((Turn("user", text),))
    for start in range(len(prompt) - len(ids) + 1):
        if prompt[start : start + len(ids)] == ids:
            return start, len(prompt) - start - len(ids)
    return 0, max(0, len(prompt) - len(ids))


def products(network: Any, rows: int, read: int, target: int) -> Callable[[], None]:
    made: dict[tuple[int, int], Tensor] = {}

    def matrix(first: int, second: int) -> Tensor:
        return made.setdefault(
            (first, second), torch.randn(first, second, device=network.device, dtype=network.dtype)
        )

    work = [
        (matrix(count, fan_in), matrix(fan_in, fan_out))
        for count, fan_in, fan_out in product_shapes(network, rows, read, target)
    ]

    @torch.no_grad()
    def multiply() -> None:
        for left, right in work:
            for start in range(0, len(left), 1 << 16):
                torch.mm(left[start : start + (1 << 16)], right)

    return multiply


def product_shapes(network: Any, rows: int, read: int, target: int) -> list[tuple[int, int, int]]:
    """(rows, in, out) of every linear layer: `read` tokens a row, `target` at the output layer; of an encoder
    and a decoder each reads its own side."""
    head = network.get_output_embeddings()
    shapes: list[tuple[int, int, int]] = []
    for name, module in network.named_modules():
        kind, weight = type(module).__name__, getattr(module, "weight", None)
        if kind not in ("Linear", "Conv1D") or weight is None:
            continue
        fan_out, fan_in = weight.shape if kind == "Linear" else reversed(weight.shape)
        tokens = target if module is head or name.split(".")[0] == "decoder" else read
        shapes.append((rows * tokens, int(fan_in), int(fan_out)))
    return shapes


def forward(network: Any, rows: int, length: int, target: int) -> Callable[[], None]:
    vocabulary = network.get_input_embeddings().weight.shape[0]
    ids = torch.randint(vocabulary, (rows, length), device=network.device)
    head = network.get_output_embeddings()

    @torch.no_grad()
    def read() -> None:
        if network.config.is_encoder_decoder:
            network(input_ids=ids[:, : length - target], decoder_input_ids=ids[:, :target], use_cache=False)
            return
        body = getattr(network, network.base_model_prefix, network)
        hidden = body(input_ids=ids, use_cache=False)[0]  # (rows, length, hidden)
        logits = head(hidden[:, -target:])
        logits.logsumexp(-1)

    return read
