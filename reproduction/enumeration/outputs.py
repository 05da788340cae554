"""What an enumeration comes to: hits of each list, answers outside the words, hits checked again in float32.

Random inputs serve twice: to show answers from outside the words, each such input as likely as another, and
to measure how often fast products (tf32 on a GPU) and plain float32 lead to different answers.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.table import Column, Table
from rich.text import Text
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.vocabulary import EOS, PAD
from backtalk.models.device import product_precision
from backtalk.models.gpu import fused
from backtalk.models.lstm.decode import trim
from backtalk.models.lstm.model import LocalModel
from backtalk.terminal import make_console, printable
from backtalk.wording import count
from reproduction.enumeration.matching import (
    ListHits,
    inputs_among,
    match_lists,
    unfinished_inputs,
    word_codes,
)
from reproduction.enumeration.search import Enumeration, Outputs
from reproduction.spec import EnumerateSpec

COMPARE = {"cpu": 10_000, "cuda": 1_000_000}  # random inputs decoded both ways
TRIES = 50  # draws of inputs in which to find some whose answer lies outside the words


def summarise(
    spec: EnumerateSpec,
    enumeration: Enumeration,
    outputs: Outputs,
    seconds: float,
    lists: Mapping[str, Sequence[str]],
    words: tuple[str, Sequence[str]] | None,
) -> dict[str, Any]:
    """summary.json; `words` are the name and the words of the list that counts as inside."""
    model, inputs = enumeration.model, int(outputs.counts.sum())
    hits = match_lists(outputs, model, lists)
    summary: dict[str, Any] = {
        "model": spec.model,
        "fingerprint": model.fingerprint,
        "length": spec.length,
        "symbols": len(enumeration.space.symbols),
        "inputs": inputs,
        "space": enumeration.space.inputs,
        "sampled": bool(spec.sample),
        "seconds": round(seconds, 3),
        "inputs_per_s": inputs / max(seconds, 1e-9),
        "distinct_outputs": len(outputs.codes),
        "unfinished": unfinished_inputs(outputs, model),
        "lists": {
            name: {**found.as_dict(), "examples": _examples(enumeration, outputs, found, spec.examples)}
            for name, found in hits.items()
        },
        "device": torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else "cpu",
    }
    if words is not None:
        summary["outside"] = _outside(enumeration, spec, outputs, *words)
    if spec.recheck:
        confirmed = {name: _recheck(enumeration, outputs, found) for name, found in hits.items()}
        for name, counts in confirmed.items():
            summary["lists"][name]["confirmed"] = counts
        summary["recheck"] = {
            "hits": sum(row >= 0 for one in hits.values() for row in (*one.exact, *one.substring)),
            "confirmed": sum(sum(counts.values()) for counts in confirmed.values()),
        }
    summary["disagreement"] = _disagreement(enumeration, spec)
    return summary


def draw_inputs(enumeration: Enumeration, rows: int, seed: int, purpose: str) -> Tensor:
    """(rows,): numbers of inputs, uniform; the same for the same seed and purpose."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    index = torch.randint(0, enumeration.space.inputs, (rows,), generator=generator)
    return index.to(enumeration.model.device)


def _examples(enumeration: Enumeration, outputs: Outputs, found: ListHits, most: int) -> list[dict[str, Any]]:
    exact = [(text, row) for text, row in zip(found.texts, found.exact, strict=True) if row >= 0]
    known = {text for text, _ in exact}
    inside = [(text, row) for text, row in zip(found.texts, found.substring, strict=True) if row >= 0]
    rows = [*exact, *(one for one in inside if one[0] not in known)][:most]
    at = torch.tensor([row for _, row in rows], dtype=torch.int64, device=outputs.codes.device)
    shown = show_pairs(enumeration, outputs.firsts[at], outputs.codes[at])
    return [{"target": text, **pair} for (text, _), pair in zip(rows, shown, strict=True)]


def show_pairs(enumeration: Enumeration, index: Tensor, codes: Tensor) -> list[dict[str, str]]:
    """Inputs and answers as text."""
    model = enumeration.model
    inputs, answers = enumeration.space.ids(index).tolist(), enumeration.ids(codes).tolist()
    return [
        {"input": _show(model, ids), "output": _show(model, answer)}
        for ids, answer in zip(inputs, answers, strict=True)
    ]


def _show(model: LocalModel, ids: Sequence[int]) -> str:
    return model.recipe.show(model.vocabulary.words(i for i in trim(ids) if i != EOS))


def _outside(
    enumeration: Enumeration, spec: EnumerateSpec, outputs: Outputs, name: str, words: Sequence[str]
) -> dict[str, Any]:
    whole, cut = word_codes(enumeration.model, words)
    inputs = int(outputs.counts.sum())
    outside = inputs - inputs_among(outputs, whole)
    samples: list[dict[str, str]] = []
    for attempt in range(TRIES):
        if len(samples) >= spec.examples:
            break
        index = draw_inputs(enumeration, 4 * spec.examples, spec.seed, f"outside {attempt}")
        with product_precision("high"):
            codes = enumeration.decode_inputs(index)
        beyond = ~torch.isin(codes, whole)
        samples += show_pairs(enumeration, index[beyond], codes[beyond])
    return {
        "list": name,
        "inputs": outside,
        "rate": outside / inputs,
        # The answer is the beginning of a word that the model has no room to end.
        "cut": inputs_among(outputs, cut),
        "samples": samples[: spec.examples],
    }


def _recheck(enumeration: Enumeration, outputs: Outputs, found: ListHits) -> dict[str, int]:
    model = enumeration.model
    rows = sorted({row for row in (*found.exact, *found.substring) if row >= 0})
    firsts = outputs.firsts[torch.tensor(rows, dtype=torch.int64, device=outputs.firsts.device)]
    inputs = F.pad(enumeration.space.ids(firsts), (0, enumeration.padding), value=PAD)
    with product_precision("highest"), fused.only():
        answers = dict(zip(rows, model.greedy_ids(inputs), strict=True))
    exact = substring = 0
    for text, whole, inside in zip(found.texts, found.exact, found.substring, strict=True):
        target = model.encode_target(text)
        exact += whole >= 0 and answers[whole] == target
        substring += inside >= 0 and _holds(answers[inside], target[:-1])
    return {"exact": exact, "substring": substring}


def _holds(answer: Sequence[int], target: Sequence[int]) -> bool:
    return any(answer[i : i + len(target)] == target for i in range(len(answer) - len(target) + 1))


def _disagreement(enumeration: Enumeration, spec: EnumerateSpec) -> dict[str, int]:
    inputs = spec.compare or COMPARE[enumeration.model.device.type]
    index = draw_inputs(enumeration, inputs, spec.seed, "compare")
    with product_precision("high"):
        fast = enumeration.decode_inputs(index)
    with product_precision("highest"), fused.only():
        plain = enumeration.decode_inputs(index)
    return {"inputs": inputs, "different": int((fast != plain).sum())}


def print_summary(summary: Mapping[str, Any], out: Path) -> None:
    """The lists as a table on standard output; targets themselves are not shown."""
    console = make_console()
    table = Table("list", *(Column(title, justify="right") for title in ("n", "exact", "substring")))
    for name, found in summary["lists"].items():
        rates = (_percent(found[kind]) for kind in ("exact", "substring"))
        table.add_row(Text(printable(name)), f"{found['n']:,}", *rates)
    if summary["lists"]:
        console.print(table)
    if outside := summary.get("outside"):
        console.print(
            f"{outside['inputs']:,} inputs ({outside['rate']:.2%}) are answered with no word of "
            f"{printable(outside['list'])}."
        )
    what = "drawn at random" if summary["sampled"] else "all there are"
    console.print(
        f"{summary['inputs']:,} inputs of length {summary['length']} over {summary['symbols']} symbols, "
        f"{what}; {count(summary['distinct_outputs'], 'answer')}, {summary['inputs_per_s']:,.0f} inputs/s.",
        soft_wrap=True,
    )
    console.print(f"Folder: {out}; report: {out / 'report.html'}", soft_wrap=True)


def _percent(rate: Mapping[str, Any]) -> str:
    low, high = rate["ci95"]
    return f"{rate['rate']:.3%} [{low:.3%}, {high:.3%}]"
