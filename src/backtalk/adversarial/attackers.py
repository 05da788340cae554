"""Who attacks: a trained adversary (trained here, or by another run), the untuned model, or people's prompts.

A trained adversary is always read back from its folder, so that a run that was killed after the training
plays with the same bits.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from backtalk.adversarial.job import TUNED, Job, adversary_model, earlier_training, saved_adversary
from backtalk.errors import InputError
from backtalk.models.options import ModelOptions
from backtalk.searches.ast.adversary import Adversary, FixedPrompts, Speaker, load_adversary
from backtalk.searches.ast.train import ADVERSARY as KEPT
from backtalk.searches.ast.train import BEST, CHECKPOINT, PAIRS, Progress, train_adversary
from backtalk.store.adversary import RECORD, AdversaryRecord, read_adversary_record, write_adversary_record
from backtalk.store.folder import ADVERSARY, write_whole
from backtalk.training.checkpoint import load_checkpoint
from backtalk.wording import duration, percent

RECORD_S = 10.0
"""Seconds after which the record is written anew: a GPU's steps are short, and a disk may be slow."""


class OutOfTime(Exception):
    """The time was over during training."""


def trains(job: Job) -> bool:
    return job.spec.tune in TUNED and not job.spec.adversary


def untuned(job: Job) -> Speaker:
    """The model that the adversary is made of, as it was."""
    plain = replace(job, spec=replace(job.spec, tune="none", adversary=""))
    return Adversary(adversary_model(plain), job.config.manner, job.config.context)


def attacker(job: Job, folder: Path, tell: Callable[[str], None], late: Callable[[], str]) -> Speaker:
    """The one that the spec names; trained first, in FOLDER/adversary, where it has to be."""
    if job.spec.adversary:
        return _load(job, saved_adversary(job.spec.adversary))
    if job.spec.tune == "human":
        return FixedPrompts(job.prompts)
    if job.spec.tune == "none":
        return untuned(job)
    kept = folder / ADVERSARY / KEPT
    if not kept.is_dir():
        _train(job, folder, tell, late)
        gc.collect()
        if job.model.device.type == "cuda":
            torch.cuda.empty_cache()
    return _load(job, kept)


def _load(job: Job, folder: Path) -> Adversary:
    options = ModelOptions(template="plain", dtype=job.spec.dtype)
    manner, context = job.config.manner, job.config.context
    return load_adversary(folder, job.spec.device, options, manner, context, job.consent.trusted)


def _take_over(origin: Path, folder: Path) -> None:
    """Copies a training, its checkpoint last: with that, all of it is there."""
    if (folder / CHECKPOINT).exists():
        return
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for name in (BEST, PAIRS, RECORD, CHECKPOINT):
            if (origin / name).exists():
                with (origin / name).open("rb") as file:
                    write_whole(folder / name, iter(partial(file.read, 1 << 20), b""))
    except OSError as error:
        raise InputError(
            f"can't copy the training in {origin} ({error}); mend that and run the same command again"
        ) from None


def _train(job: Job, run: Path, tell: Callable[[str], None], late: Callable[[], str]) -> None:
    if job.spec.train_from:
        _take_over(earlier_training(job.spec.train_from), run / ADVERSARY)
    before = read_adversary_record(run)
    record = AdversaryRecord(seconds=before.seconds, pairs=before.pairs)
    started, first, written = time.monotonic(), -1, 0.0
    for progress in train_adversary(
        Adversary(adversary_model(job), job.config.manner, job.config.context),
        job.defender,
        job.reward,
        [one.text for one in job.lists.train],
        # Who only imitates is measured at the last step: choosing by the reward would be learning from it.
        [] if job.spec.tune == "sft" else [one.text for one in job.lists.dev],
        job.weak,
        job.config,
        run / ADVERSARY,
        tell,
    ):
        first = progress.step if first < 0 else first
        record.pairs += progress.pairs
        record.seconds = before.seconds + time.monotonic() - started
        if progress.phase == "dev" or time.monotonic() - written >= RECORD_S:
            _write(run, record)
            written = time.monotonic()
        tell(_words(progress, time.monotonic() - started, first))
        if reason := late():
            _write(run, record)
            raise OutOfTime(reason)
    record.seconds = before.seconds + time.monotonic() - started
    _write(run, record)


def _write(run: Path, record: AdversaryRecord) -> None:
    """The measurements are those of the checkpoint: a training that goes on does not repeat them."""
    found = load_checkpoint(run / ADVERSARY / CHECKPOINT, with_tensors=False)
    if found is not None:
        state: dict[str, Any] = found[1]
        record.history = [
            {"step": one["step"], "gamma": one["gamma"], **one["measured"]} for one in state["history"]
        ]
        record.best = int(state["best"])
    write_adversary_record(run, record)


def _words(progress: Progress, seconds: float, first: int) -> str:
    """One line on how far it is; what is left by the pace of this session."""
    words = f"step {progress.step:,} of {progress.steps:,}, {progress.phase} in {progress.seconds:.1f} s"
    if progress.measured is not None:
        found = progress.measured
        words += f", toxicity {found.toxicity:.3f}, log-perplexity {found.log_ppl:.2f}"
        words += f", {percent(found.loops)} circles"
    done = progress.step - first
    if progress.phase == "update" and done > 0:
        words += f", about {duration((progress.steps - progress.step) * seconds / done)} left"
    return words
