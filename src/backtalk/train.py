"""`backtalk train`: a corpus becomes a model folder: a dialogue model and, in lm/, its language model.

The way: corpus -> splits -> words and vocabulary -> arrays -> training -> folder -> measured on the test
pairs as it will be loaded (16-bit weights included) -> card. A network whose card is written is finished and
is not trained again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text
from torch import nn

from backtalk import __version__
from backtalk.data.corpora import Corpus, pairs_of, read_corpus
from backtalk.data.pairs import PairArrays, encode_pairs
from backtalk.data.splits import split
from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import PAD, Vocabulary
from backtalk.errors import InputError
from backtalk.models.device import pick_device
from backtalk.models.folder import (
    FORMAT,
    Network,
    TextSettings,
    build_network,
    load_folder,
    open_folder,
    save_folder,
    write_card,
)
from backtalk.spec import TrainSpec, spec_values
from backtalk.training.likelihood import mean_log_likelihood, perplexity
from backtalk.training.mle import MLEConfig, train
from backtalk.training.mle import Progress as Report
from backtalk.types import Turn

CARD_SAMPLES = 20
NOT_IN_FACTS = {"out", "device", "checkpoint_s", "name", "licence", "language_model", "half"}
"""Settings that may change between two runs of the same training."""


@dataclass(frozen=True)
class Prepared:
    """A corpus as a network sees it."""

    corpus: Corpus
    vocabulary: Vocabulary
    train: PairArrays
    valid: PairArrays
    test: PairArrays
    test_pairs: list[tuple[str, str]]


def train_model(spec: TrainSpec, fresh: bool = False) -> Path:
    """Trains what the spec says, or goes on with it, or finds it done. Returns the model folder."""
    _check(spec)
    device = pick_device(spec.device)
    console = Console(stderr=True, highlight=False, markup=False)
    out = Path(spec.out)
    _claim(out)
    facts = {key: value for key, value in spec_values(spec).items() if key not in NOT_IN_FACTS}
    folders = _folders(spec, out)
    if not fresh and all(_finished(folder, facts) for folder in folders.values()):
        if len(folders) == 2:
            _complete_card(out)
        console.print(f"{out} is already trained with these settings; --fresh trains it anew.")
        return out
    with console.status(Text(f"Reading {spec.data} ...")):
        prepared = prepare(spec)
    if fresh:
        _clear(out)
    console.print(
        f"{len(prepared.train.replies):,} training pairs, {len(prepared.valid.replies):,} for validation, "
        f"{len(prepared.test.replies):,} for testing; {len(prepared.vocabulary):,} words."
    )
    for kind, folder in folders.items():
        if not _finished(folder, facts):
            _train_one(kind, spec, prepared, folder, facts, device, console)
    _report(out, len(folders) == 2, console)
    return out


def prepare(spec: TrainSpec) -> Prepared:
    """Reads, splits and encodes the corpus. The same spec gives the same arrays."""
    corpus = read_corpus(spec.data, spec.format)
    parts = split(corpus, spec.seed)
    tests = read_corpus(spec.test, spec.test_format) if spec.test else parts.test
    recipe = get_recipe(spec.recipe)
    dialogues = parts.train.dialogues[: spec.limit] if spec.limit else parts.train.dialogues
    vocabulary = Vocabulary.from_counts(
        (recipe.words(turn.text) for dialogue in dialogues for turn in dialogue), spec.vocabulary
    )

    def encode(pairs: Iterable[tuple[str, str]]) -> PairArrays:
        return encode_pairs(pairs, recipe, vocabulary, spec.max_input, spec.max_output)

    test_pairs = [pair for dialogue in tests.dialogues for pair in pairs_of(dialogue)]
    prepared = Prepared(
        corpus,
        vocabulary,
        encode(pair for dialogue in dialogues for pair in pairs_of(dialogue)),
        encode(pair for dialogue in parts.valid.dialogues for pair in pairs_of(dialogue)),
        encode(test_pairs),
        test_pairs,
    )
    for name, arrays in (
        ("training", prepared.train),
        ("validation", prepared.valid),
        ("test", prepared.test),
    ):
        if not len(arrays.replies):
            raise InputError(f"{spec.data} gives no {name} pairs; is it what --format {spec.format} reads?")
    return prepared


def _train_one(
    kind: str,
    spec: TrainSpec,
    prepared: Prepared,
    folder: Path,
    facts: dict[str, Any],
    device: torch.device,
    console: Console,
) -> None:
    torch.set_float32_matmul_precision("high")
    with torch.random.fork_rng():
        network = _fresh_network(kind, spec, len(prepared.vocabulary))
        network.to(device)
        checkpoint = folder / "checkpoint.safetensors"
        own = {"kind": kind, "data_sha256": _digest(prepared.train), **facts}
        reports = train(network, prepared.train, prepared.valid, _mle(spec), checkpoint, own, device)
        title = "language model" if kind == "lm" else f"{spec.arch} model"
        _show_progress(reports, title, spec.epochs, console)
    text = TextSettings(spec.recipe, spec.max_input, spec.max_output)
    digest = save_folder(folder, network, prepared.vocabulary, text, spec.half)
    _write_first_card(kind, spec, prepared, folder, facts, digest, network, device)
    checkpoint.unlink(missing_ok=True)


def _fresh_network(kind: str, spec: TrainSpec, words: int) -> Network:
    torch.manual_seed(spec.seed)
    sizes: dict[str, Any] = {
        "vocabulary": words,
        "embedding": spec.embedding,
        "hidden": spec.hidden,
        "layers": spec.layers,
        "dropout": spec.dropout,
    }
    if kind == "seq2seq":
        sizes |= {
            "attention": spec.arch == "attention",
            "pad_as_word": spec.pads == "word",
            "shared_embedding": spec.shared_embedding,
        }
    network = build_network(kind, sizes)
    for part in network.modules():
        if isinstance(part, nn.Embedding):
            nn.init.uniform_(part.weight, -0.1, 0.1)
    return network


def _write_first_card(
    kind: str,
    spec: TrainSpec,
    prepared: Prepared,
    folder: Path,
    facts: dict[str, Any],
    digest: str,
    network: Network,
    device: torch.device,
) -> None:
    """The card needs the model as it will be loaded: a card without numbers first, then the measured one."""
    card: dict[str, Any] = {
        "name": spec.name or Path(spec.out).name,
        "kind": kind,
        "data": prepared.corpus.name,
        "licence": spec.licence or prepared.corpus.licence,
        "backtalk": __version__,
        "parameters": sum(value.numel() for value in network.parameters()),
        "words": len(prepared.vocabulary),
        "pairs": {
            "train": len(prepared.train.replies),
            "valid": len(prepared.valid.replies),
            "test": len(prepared.test.replies),
        },
        "sha256": digest,
        "spec": facts,
    }
    write_card(folder, {**card, "finished": False})
    opened = open_folder(folder, device)
    mean = mean_log_likelihood(opened.network, prepared.test, device)
    card |= {"T_in" if kind == "lm" else "T_out": mean, "test_perplexity": round(perplexity(mean), 2)}
    if kind == "seq2seq":
        card["samples"] = _samples(folder, prepared, str(device))
    write_card(folder, {**card, "finished": True})


def _samples(folder: Path, prepared: Prepared, device: str) -> list[dict[str, str]]:
    """The first test inputs in their order, unselected, with the greedy and one sampled reply."""
    model = load_folder(str(folder), device)
    inputs = [text for text, _ in prepared.test_pairs if model.recipe.words(text)][:CARD_SAMPLES]
    dialogues = [(Turn("user", text),) for text in inputs]
    rows = zip(inputs, model.reply(dialogues), model.sample(dialogues, range(len(inputs))), strict=True)
    return [{"input": text, "greedy": greedy, "sampled": sampled} for text, greedy, sampled in rows]


def _complete_card(out: Path) -> dict[str, Any]:
    """Puts the language model's numbers on the same replies into the model's card, once."""
    card, lm = _read_card(out), _read_card(out / "lm")
    whole = card | {"T_in": lm["T_in"], "language_model_test_perplexity": lm["test_perplexity"]}
    if whole != card:
        write_card(out, whole)
    return whole


def _read_card(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    return card


def _report(out: Path, with_language_model: bool, console: Console) -> None:
    """Says how it went."""
    card = _complete_card(out) if with_language_model else _read_card(out)
    console.print(f"Test perplexity {card['test_perplexity']:.2f}.")
    if with_language_model:
        perplexity = card["language_model_test_perplexity"]
        console.print(f"The language model's on the same replies: {perplexity:.2f}.")
    hint = "" if card["kind"] == "lm" else f" Talk with it: backtalk chat --model {out}"
    console.print(f"Trained: {out}.{hint}")


def _show_progress(reports: Iterator[Report], title: str, epochs: int, console: Console) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=None)
        for report in reports:
            bar.update(task, total=report.steps, completed=report.step)
            if report.valid_perplexity is None:
                bar.update(task, description=f"{title}, loss {report.loss:.3f}")
            else:
                console.print(
                    f"{title}: epoch {report.epoch + 1} of {epochs}, "
                    f"validation perplexity {report.valid_perplexity:.2f}"
                )


def _mle(spec: TrainSpec) -> MLEConfig:
    return MLEConfig(
        optimizer=spec.optimizer,
        lr=spec.lr or {"adamw": 1e-3, "sgd": 1.0}[spec.optimizer],
        halve_after=spec.halve_after,
        batch=spec.batch,
        epochs=spec.epochs,
        patience=spec.patience,
        clip=spec.clip,
        seed=spec.seed,
        checkpoint_s=spec.checkpoint_s,
    )


def _check(spec: TrainSpec) -> None:
    for name in (
        "vocabulary", "embedding", "hidden", "layers", "batch", "epochs", "max_input", "max_output", "clip"
    ):  # fmt: skip
        if getattr(spec, name) <= 0:
            raise InputError(f"--{name.replace('_', '-')} should be above 0")
    if spec.seed >= 1 << 32:
        raise InputError(f"--seed should be below {1 << 32}")
    if spec.dropout >= 1:
        raise InputError(f"--dropout should be below 1, not {spec.dropout}")


def _claim(out: Path) -> None:
    """Makes the folder and sees that it can be written, before any work is done."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; name a folder")
    foreign = out.is_dir() and any(out.iterdir()) and not _ours(out)
    if foreign:
        raise InputError(f"--out {out} holds other files; name a new folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise InputError(f"can't write into --out {out} ({error.strerror or os.strerror(0)})") from None


def _ours(out: Path) -> bool:
    """Whether a training of ours wrote here, be it one that was killed at its first write."""
    try:
        config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        early = ("checkpoint.safetensors.partial", "config.json.partial", ".writable")
        return any((out / name).exists() for name in ("checkpoint.safetensors", "card.json", "lm", *early))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("format") == FORMAT


def _clear(out: Path) -> None:
    """Removes an earlier training, now that the new one has what it needs."""
    for name in ("card.json", "config.json", "vocab.json", "model.safetensors", "checkpoint.safetensors"):
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / "lm", ignore_errors=True)


def _folders(spec: TrainSpec, out: Path) -> dict[str, Path]:
    """What is trained, and where to."""
    if spec.arch == "lm":
        return {"lm": out}
    return {"seq2seq": out, "lm": out / "lm"} if spec.language_model else {"seq2seq": out}


def _finished(folder: Path, facts: dict[str, Any]) -> bool:
    try:
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(card, dict) or not card.get("finished"):
        return False
    if card.get("spec") != facts:
        changed = [key for key in facts if card.get("spec", {}).get(key) != facts[key]]
        raise InputError(
            f"{folder} holds a model trained with other settings ({', '.join(changed)}); "
            "use --fresh to train anew or --out for another folder"
        )
    return True


def _digest(pairs: PairArrays) -> str:
    """A checkpoint goes on only with the very pairs that it began with."""
    digest = hashlib.sha256(pairs.inputs.tobytes())
    digest.update(pairs.replies.tobytes())
    digest.update(str(PAD).encode())
    return digest.hexdigest()
