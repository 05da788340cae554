"""`backtalk train`: trains a dialogue model on a corpus and, in lm/, its language model.

The numbers of the card are measured on the test pairs with the model as it will be loaded (16-bit weights
included). A network whose card is written is finished and is not trained again.
"""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text
from torch import nn

from backtalk import __version__
from backtalk.data.pairs import Prepared, prepare
from backtalk.errors import InputError
from backtalk.models.device import free_bytes, pick_device, product_precision
from backtalk.models.folder import Network, TextSettings, build_network, open_folder, save_folder, write_card
from backtalk.output_file import PARTIAL
from backtalk.specs import identity_values
from backtalk.specs.train import TrainSpec
from backtalk.store.folder import output_folder
from backtalk.store.typed import read_json
from backtalk.terminal import make_console
from backtalk.training.mle import Progress as Report
from backtalk.training.mle import mean_log_likelihood, perplexity, train

FILES = ("card.json", "config.json", "vocab.json", "model.safetensors", "checkpoint.safetensors")
"""The files of each network; the card is removed first."""


def train_model(spec: TrainSpec, fresh: bool = False) -> Path:
    """Trains, resumes, or finds the training done. Returns the model folder."""
    for name in ("momentum", "weight_decay"):
        if getattr(spec, name) and spec.optimizer != "sgd":
            raise InputError(f"--{name.replace('_', '-')} is for --optimizer sgd; leave it out")
    device = pick_device(spec.device)
    out = Path(spec.out)
    names = [*FILES, "lm", *(f"lm/{name}" for name in FILES)]
    with output_folder(out, "train", names if fresh else None):
        _train(spec, out, fresh, device, make_console(stderr=True))
    return out


def _train(spec: TrainSpec, out: Path, fresh: bool, device: torch.device, console: Console) -> None:
    facts = identity_values(spec)
    folders = _folders(spec, out)
    if not fresh and all(_finished(folder, facts) for folder in folders.values()):
        if len(folders) == 2:
            complete_card(out)
        console.print(f"{out} is already trained with these settings; --fresh trains it again.")
        return
    with console.status(Text(f"Reading {spec.data} ...")):
        prepared = prepare(spec)
    if fresh:  # the new training has its data: the earlier one goes
        for name in (name for file in FILES for name in (file, file + PARTIAL)):
            (out / name).unlink(missing_ok=True)
            (out / "lm" / name).unlink(missing_ok=True)
    console.print(
        f"{len(prepared.train.replies):,} training pairs, {len(prepared.valid.replies):,} for validation, "
        f"{len(prepared.test.replies):,} for testing; {len(prepared.vocabulary):,} words."
    )
    for kind in folders:
        _refuse_too_large(kind, spec, prepared, device)
    for kind, folder in folders.items():
        if not _finished(folder, facts):
            _train_one(kind, spec, prepared, folder, facts, device, console)
    card = complete_card(out) if len(folders) == 2 else read_json(out / "card.json")
    console.print(f"Test perplexity {card['test_perplexity']:.2f}.")
    if len(folders) == 2:
        level = card["language_model_test_perplexity"]
        console.print(f"The language model's on the same replies: {level:.2f}.")
    hint = "" if card["kind"] == "lm" else f" Talk with it: backtalk chat --model {out}"
    console.print(f"Trained: {out}.{hint}")


def _train_one(
    kind: str,
    spec: TrainSpec,
    prepared: Prepared,
    folder: Path,
    facts: dict[str, Any],
    device: torch.device,
    console: Console,
) -> None:
    """Trains a network, writes its folder, loads it again and measures it. Loading needs a card, so a card
    without numbers, marked as unfinished, is written first."""
    # tf32 products while training on a GPU; the card's numbers are in float32.
    fast = product_precision("high") if device.type == "cuda" else nullcontext()
    with torch.random.fork_rng(), fast:
        network = _fresh_network(kind, spec, len(prepared.vocabulary)).to(device)
        checkpoint = folder / "checkpoint.safetensors"
        own = {"kind": kind, "data_sha256": prepared.digest(), **facts}
        reports = train(network, prepared.train, prepared.valid, spec, checkpoint, own, device)
        title = "language model" if kind == "lm" else f"{spec.arch} model"
        _show_progress(reports, title, spec.epochs, console)
    text = TextSettings(spec.recipe, spec.max_input, spec.max_output)
    digest = save_folder(folder, network, prepared.vocabulary, text, spec.half)
    card: dict[str, Any] = {
        "name": spec.name or Path(spec.out).name,
        "kind": kind,
        "data": prepared.corpus.name,
        "licence": spec.licence or prepared.corpus.licence,
        "backtalk": __version__,
        "parameters": sum(value.numel() for value in network.parameters()),
        "words": len(prepared.vocabulary),
        "pairs": {part: len(getattr(prepared, part).replies) for part in ("train", "valid", "test")},
        "sha256": digest,
        "spec": facts,
    }
    write_card(folder, {**card, "finished": False})
    mean = mean_log_likelihood(open_folder(folder, device)[0], prepared.test, device)
    card |= {"T_in" if kind == "lm" else "T_out": mean, "test_perplexity": round(perplexity(mean), 2)}
    write_card(folder, {**card, "finished": True})
    checkpoint.unlink(missing_ok=True)


def complete_card(out: Path) -> dict[str, Any]:
    """Copies the language model's numbers into the model's card."""
    card, lm = read_json(out / "card.json"), read_json(out / "lm" / "card.json")
    whole = card | {"T_in": lm["T_in"], "language_model_test_perplexity": lm["test_perplexity"]}
    if whole != card:
        write_card(out, whole)
    return whole


def _refuse_too_large(kind: str, spec: TrainSpec, prepared: Prepared, device: torch.device) -> None:
    """Refuses before anything is allocated: weights, gradients, Adam's two moments and a batch's logits with
    their gradient have to fit the free memory."""
    words, (pairs, longest) = len(prepared.vocabulary), prepared.train.replies.shape
    with torch.device("meta"):  # no memory
        parameters = sum(one.numel() for one in build_network(kind, _sizes(kind, spec, words)).parameters())
    needed = 4 * (4 * parameters + 2 * min(spec.batch, pairs) * longest * words)
    if needed > (free := free_bytes(device)):
        sizes = f"{needed / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB are free"
        mend = "lower --hidden, --embedding, --layers, --vocabulary or --batch"
        raise InputError(f"training {parameters:,} weights takes {sizes}; {mend}")


def _fresh_network(kind: str, spec: TrainSpec, words: int) -> Network:
    torch.manual_seed(spec.seed)
    network = build_network(kind, _sizes(kind, spec, words))
    for part in network.modules():
        if isinstance(part, nn.Embedding):
            nn.init.uniform_(part.weight, -spec.embedding_start, spec.embedding_start)
    return network


def _sizes(kind: str, spec: TrainSpec, words: int) -> dict[str, Any]:
    names = ("embedding", "hidden", "layers", "dropout")
    sizes: dict[str, Any] = {"vocabulary": words, **{name: getattr(spec, name) for name in names}}
    if kind == "seq2seq":
        sizes |= {"attention": spec.arch == "attention", "shared_embedding": spec.shared_embedding}
        sizes |= spec.network()
    return sizes


def _show_progress(reports: Iterator[Report], title: str, epochs: int, console: Console) -> None:
    columns = (*Progress.get_default_columns()[:3], TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(title, total=None)
        for report in reports:
            bar.update(task, total=report.steps, completed=report.step)
            if report.valid_perplexity is None:
                bar.update(task, description=f"{title}, loss {report.loss:.3f}")
            else:
                epoch = f"{title}: epoch {report.epoch + 1} of {epochs}"
                console.print(f"{epoch}, validation perplexity {report.valid_perplexity:.2f}")


def _folders(spec: TrainSpec, out: Path) -> dict[str, Path]:
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
        changed = ", ".join(key for key in facts if card.get("spec", {}).get(key) != facts[key])
        why = f"{folder} holds a model trained with other settings ({changed})"
        raise InputError(f"{why}; use --fresh to replace it, or another --out")
    return True
