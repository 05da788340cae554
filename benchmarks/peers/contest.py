"""What the contests on a real model share: their model, their referee, and nanoGCG's settings."""

from __future__ import annotations

import argparse
from ast import literal_eval
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from backtalk.errors import InputError
from backtalk.models.transformer.model import TransformerModel
from backtalk.registry import load_model, search_config
from backtalk.specs import ModelOptions
from backtalk.types import Name, Origin
from benchmarks.peers.moves import moved
from benchmarks.peers.referee import Judged, Referee
from benchmarks.peers.subject import Goal, Subject, export

NEAR = {"float32": 1e-2, "float16": 5e-2, "bfloat16": 0.1}
"""Largest distance of nanoGCG's loss of a trigger from the referee's. tf32 rounds like float16."""
T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """The model of a contest and the folder of its records."""

    subject: Subject
    referee: Referee
    work: Path
    share: tuple[int, int] = (1, 1)
    """K and M: nanoGCG searches for each M-th target from the K-th on."""
    only_searches: bool = False

    @cached_property
    def model(self) -> TransformerModel:
        """For the searches of ours that run in this process."""
        name, options = f"hf/{self.subject.folder}", ModelOptions(dtype="float32")
        model = load_model(Name(name, Origin.TYPED), self.referee.device, options)
        assert isinstance(model, TransformerModel)
        return model

    @classmethod
    def of(cls, arguments: argparse.Namespace, work: Path) -> Setting:
        subject = export(arguments.model, work.parent / "models")
        first, _, parts = arguments.part.partition("/")
        share = (int(first), int(parts or 1))
        only = arguments.search_only or share[1] > 1
        return cls(subject, Referee(subject.folder, device=arguments.device), work, share, only)

    def part(self, every: Mapping[int, T]) -> dict[int, T]:
        first, parts = self.share
        return {number: one for number, one in every.items() if number % parts == first - 1}


def peer_job(arguments: argparse.Namespace) -> dict[str, Any]:
    """nanoGCG's settings, but for its limit."""
    return {
        "model": arguments.model,
        "prefix": "",
        "trigger": arguments.length,
        "width": arguments.width,
        "topk": arguments.topk,
        "seed": arguments.seed,
        "device": arguments.device,
        "dtype": arguments.peer_dtype,
        "tf32": arguments.peer_tf32,
        "threads": arguments.threads,
        "clock": "wall",
        "seconds": 0.0,
        "filter": True,
    }


def search_of(tool: str, arguments: argparse.Namespace, **sizes: Any) -> Any:
    """A search of ours with the contest's settings; `gibbs:top=128:branches=1.0` changes some."""
    name, *own = tool.split(":")
    given = {"length": arguments.length, "top": arguments.top, "anneal": arguments.anneal, **sizes}
    for pair in own:
        key, _, value = pair.partition("=")
        given[key] = literal_eval(value)
    try:
        return moved(name, **given) or search_config(name)(**given)
    except TypeError as error:
        raise InputError(f"--tools {tool}: {error}") from None


def judge_records(
    records: Mapping[str, Any] | Sequence[Mapping[str, Any]], goals: Sequence[Goal], referee: Referee
) -> list[list[Judged]]:
    """Every trigger that was held for each target: of our one record, or of nanoGCG's, one a target."""
    if isinstance(records, Mapping):
        pairs = zip(records["held"], goals, strict=True)
        return [referee.judge(held, goal.ids) for held, goal in pairs]
    found = []
    for record, goal in zip(records, goals, strict=True):
        check_peer(record, goal, referee)
        held = dict.fromkeys(tuple(ids) for _, ids in record["incumbents"])
        found.append(referee.judge(list(held), goal.ids))
    return found


def check_peer(record: Mapping[str, Any], goal: Goal, referee: Referee) -> None:
    """That nanoGCG searched for the same tokens, and read them in the same prompt of the same model."""
    if record["target_ids"] != goal.ids:
        raise InputError(f"nanoGCG reads the target {goal.text!r} as other tokens")
    _, first = record["incumbents"][0]
    ((loss, _),) = referee.score([([*referee.before, *first, *referee.after], goal.ids)])
    job, own = record["job"], record["own_losses"][0]
    precision = "float16" if job["tf32"] and job["dtype"] == "float32" else job["dtype"]
    if abs(own - loss) > NEAR[precision]:
        raise InputError(f"nanoGCG computes the loss {own:.4f} of a trigger, and the referee {loss:.4f}")
