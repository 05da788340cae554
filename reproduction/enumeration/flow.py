"""`python -m reproduction enumerate`: every input of a bounded space, and which targets are answers
(He & Glass 2019, appendix B).

The folder holds outputs.safetensors, the answers so far, replaced atomically every half minute: a killed run
resumes from it. summary.json is written last; a folder that has it is finished. Answers are found with fast
matrix products (tf32 on a GPU); every hit is decoded again in float32, and the two are compared on random
inputs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from backtalk.errors import InputError
from backtalk.models.device import product_precision
from backtalk.models.lstm.model import LocalModel
from backtalk.output_file import write_whole
from backtalk.registry import load_model
from backtalk.specs import identity_values, parse_duration
from backtalk.store.folder import output_folder
from backtalk.terminal import make_console
from backtalk.training.resumable import load_checkpoint, save_checkpoint
from backtalk.wording import duration
from reproduction.data.characters import read_list, read_lists
from reproduction.enumeration.outputs import draw_inputs, summarise
from reproduction.enumeration.page import render_enumeration
from reproduction.enumeration.search import Enumeration, Outputs, Space
from reproduction.spec import EnumerateSpec

SAVE_EVERY_S = 30.0
PROBE = {"cpu": 2_000, "cuda": 200_000}  # inputs on which the rate is measured before anything begins
MERGE_AT = 1 << 23  # answers of shards that are merged at once
SAMPLED = 1 << 16  # inputs drawn at once; the draw depends on it


@dataclass
class Tally:
    """The answers so far. Answers of new shards are merged in batches, because a merge sorts the whole."""

    whole: Outputs
    done: int = 0  # inputs tried
    seconds: float = 0.0
    aside: list[Outputs] = field(default_factory=list)

    def add(self, part: Outputs, inputs: int) -> None:
        self.aside.append(part)
        self.done += inputs
        if sum(len(one.codes) for one in self.aside) > max(MERGE_AT, len(self.whole.codes) // 2):
            self.join()

    def join(self) -> Outputs:
        if self.aside:
            self.whole, self.aside = Outputs.merge([self.whole, *self.aside]), []
        return self.whole


def enumerate_model(
    spec: EnumerateSpec, out: Path, console: Console | None = None, fresh: bool = False
) -> dict[str, Any]:
    """Runs or resumes an enumeration, or finds it finished. Returns the summary."""
    console = console or make_console(stderr=True)
    limit_s = parse_duration(spec.max_time)
    model = _load(spec)
    lists = read_lists(spec.lists, spec.text, model.vocabulary.entries)
    words = _words_inside(spec, lists)
    enumeration = Enumeration(model, _space(spec, model))
    facts = {
        **identity_values(spec),
        "fingerprint": model.fingerprint,
        "targets": hashlib.sha256(json.dumps([lists, words]).encode()).hexdigest(),
    }
    folder = _Folder(out, facts)
    with folder.claimed(fresh):
        if (summary := folder.summary()) is not None:
            console.print(f"{out} is already done; --fresh starts anew.")
            return summary
        tally = folder.load(enumeration)
        with product_precision("high"):
            _refuse_what_takes_too_long(enumeration, spec, tally, limit_s)
            _work(enumeration, spec, tally, folder, console)
        summary = summarise(spec, enumeration, tally.whole, tally.seconds, lists, words)
        folder.finish(summary)
    return summary


def _work(
    enumeration: Enumeration, spec: EnumerateSpec, tally: Tally, folder: _Folder, console: Console
) -> None:
    total = spec.sample or enumeration.space.inputs
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("of {task.total:,} inputs, left"),
        TimeRemainingColumn(),
    )
    began, saved, saving_s = time.monotonic(), time.monotonic(), 0.0
    before = tally.seconds
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("decoding", total=total, completed=tally.done)
        for part, inputs in _parts(enumeration, spec, tally.done):
            tally.add(part, inputs)
            bar.update(task, completed=tally.done)
            tally.seconds = before + time.monotonic() - began
            # Saving must stay a small part of the work, however large the table grows.
            if tally.done < total and time.monotonic() - saved > max(SAVE_EVERY_S, 10 * saving_s):
                started = time.monotonic()
                folder.save(tally, enumeration)
                saved = time.monotonic()
                saving_s = saved - started
    tally.join()
    _wait(enumeration.model)
    tally.seconds = before + time.monotonic() - began
    folder.save(tally, enumeration)


def _parts(enumeration: Enumeration, spec: EnumerateSpec, done: int) -> Iterator[tuple[Outputs, int]]:
    if not spec.sample:
        for shard in enumeration.shards(done):
            yield enumeration.decode_shard(shard), len(shard)
        return
    for start in range(done, spec.sample, SAMPLED):
        index = draw_inputs(enumeration, min(SAMPLED, spec.sample - start), spec.seed, f"sample {start}")
        yield Outputs.tally(enumeration.decode_inputs(index), index), len(index)


def _refuse_what_takes_too_long(
    enumeration: Enumeration, spec: EnumerateSpec, tally: Tally, limit_s: float
) -> None:
    space, probe = enumeration.space, PROBE[enumeration.model.device.type]
    total = spec.sample or space.inputs
    left = total - tally.done
    if left <= 10 * probe:
        return
    index = draw_inputs(enumeration, probe, spec.seed, "probe")
    enumeration.decode_inputs(index[: probe // 10])  # the first kernels are slow
    _wait(enumeration.model)
    began = time.perf_counter()
    enumeration.decode_inputs(index)
    _wait(enumeration.model)
    rate = probe / (time.perf_counter() - began)
    if limit_s and left / rate > limit_s:
        raise InputError(
            f"inputs of length {space.length} over {len(space.symbols)} symbols are {total:,}: about "
            f"{duration(left / rate)} at {rate:,.0f} a second, more than --max-time {spec.max_time}; "
            "shorten --length, name fewer --symbols, draw some with --sample, or raise --max-time"
        )


def _wait(model: LocalModel) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


# The model, the space and the words of a spec


def _load(spec: EnumerateSpec) -> LocalModel:
    model = load_model(spec.model, spec.device)
    if not isinstance(model, LocalModel):
        raise InputError(f"{spec.model} is not a model of ours; enumeration needs the folder of one")
    return model


def _space(spec: EnumerateSpec, model: LocalModel) -> Space:
    if not spec.symbols:
        return Space(tuple(model.searchable().nonzero().squeeze(1).tolist()), spec.length)
    if missing := model.unknown_words(spec.symbols):
        raise InputError(f"--symbols: {spec.model} does not know {' '.join(missing)}")
    return Space(tuple(sorted(set(model.encode_input(spec.symbols)))), spec.length)


def _words_inside(spec: EnumerateSpec, lists: dict[str, list[str]]) -> tuple[str, list[str]] | None:
    name = spec.outside or ("normal" if spec.text else "")
    if not name:
        return None
    return name, lists[name] if name in lists else read_list(Path(name))


# The folder


class _Folder:
    """The only writer of a folder that holds this enumeration and no other."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path, self.facts = path, facts
        self.outputs, self.result = path / "outputs.safetensors", path / "summary.json"
        self.page = path / "report.html"

    @contextmanager
    def claimed(self, fresh: bool) -> Iterator[None]:
        files = (self.result, self.outputs, self.page)
        with output_folder(self.path, "enumerate", [path.name for path in files], mode=0o700):
            if fresh:
                for path in files:
                    path.unlink(missing_ok=True)
            yield

    def summary(self) -> dict[str, Any] | None:
        if not self.result.exists() or not self.outputs.exists():
            return None
        self._stored()
        summary: dict[str, Any] = json.loads(self.result.read_text(encoding="utf-8"))
        return summary

    def load(self, enumeration: Enumeration) -> Tally:
        stored = self._stored()
        device = enumeration.model.device
        if stored is None:
            return Tally(Outputs.none(device))
        tensors, facts = stored
        enumeration.depth = facts["depth"]  # on another device shards would be of another size
        columns = (tensors[name].to(device) for name in Outputs._fields)
        return Tally(Outputs(*columns), facts["done"], facts["seconds"])

    def save(self, tally: Tally, enumeration: Enumeration) -> None:
        progress = {"done": tally.done, "seconds": tally.seconds, "depth": enumeration.depth}
        save_checkpoint(self.outputs, tally.join()._asdict(), {"spec": self.facts, **progress})

    def finish(self, summary: dict[str, Any]) -> None:
        write_whole(self.page, render_enumeration(summary))
        write_whole(self.result, json.dumps(summary, indent=1, ensure_ascii=False) + "\n")

    def _stored(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        stored = load_checkpoint(self.outputs)
        if stored and (known := stored[1].get("spec")) != self.facts:
            changed = [key for key in self.facts if not known or known.get(key) != self.facts[key]]
            raise InputError(
                f"{self.path} holds another enumeration ({', '.join(changed)} differ); "
                "use --fresh to replace it or --out for another folder"
            )
        return stored
