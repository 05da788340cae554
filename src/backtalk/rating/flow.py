"""`backtalk rate`: which of two models people prefer, judged without knowing which is which.

The way: two models and inputs -> blind pairs in a ratings folder, once -> answers from this terminal or from
files, any number of raters -> the result. Only the first step needs models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from backtalk.errors import InputError
from backtalk.models.folder import sha256
from backtalk.output_file import write_whole
from backtalk.rating.answers import append_answers, check_rater, merge, own_answers, read_answers
from backtalk.rating.asking import ask
from backtalk.rating.contenders import find_contenders, held_out_inputs, read_inputs, replies
from backtalk.rating.folder import (
    PAIRS,
    RESULT,
    Ratings,
    claimed,
    export_pairs,
    is_ratings,
    read_pairs_file,
    read_ratings,
    refuse_what_is_not_ours,
    write_pairs,
    write_ratings,
)
from backtalk.rating.pairs import Pair, blind, draw
from backtalk.rating.result import tally
from backtalk.rating.table import print_result
from backtalk.specs.rate import RateSpec
from backtalk.store.errors import writing
from backtalk.terminal import make_console
from backtalk.wording import count

ROOT = Path("ratings")
FROM_A_CORPUS = 100
"""Inputs that are drawn from a corpus unless --pairs says how many."""


def rate(runs: Sequence[str], spec: RateSpec, answers: Sequence[str], export: str, result: bool) -> None:
    """Takes answers in, writes the pairs out, shows the result; asks where nothing of that is wanted."""
    rater = check_rater(spec.rater, "--rater")
    console = make_console()
    asks = not (answers or export or result)
    ratings = _ratings(runs, spec, bool(asks or export), console)
    with claimed(ratings.folder):
        if answers:
            _take(ratings, [Path(name) for name in answers], console)
        if export:
            with writing(Path(export).parent, "choose another place"):
                export_pairs(Path(export), ratings.pairs)
            console.print(
                f"{count(len(ratings.pairs), 'blind pair')} in {export}; raters fill in rater and choice."
            )
        if asks and ratings.pairs:
            ask(ratings, rater, console)
        if result:
            _show(ratings, console)
        elif not export:
            _say_how_to_go_on(ratings, console)


def _ratings(runs: Sequence[str], spec: RateSpec, make: bool, console: Console) -> Ratings:
    """The ratings of a folder or, with `make`, new ones; those that are there must then fit the spec."""
    if len(runs) == 1 and is_ratings(Path(runs[0])):
        return read_ratings(Path(runs[0]))
    folder = Path(spec.out or ROOT / "-".join(_safe(Path(run).name.removesuffix(".jsonl")) for run in runs))
    if len(runs) == 1 and Path(runs[0]).is_file():
        pairs = read_pairs_file(Path(runs[0]))
        if not pairs:
            raise InputError(f"{runs[0]} holds no pair to judge; name a file that --export wrote")
        return _handed_over(pairs, folder, runs[0])
    settings = _settings(runs, spec)
    if not is_ratings(folder):
        if not make:
            raise InputError(f"there are no ratings in {folder} yet; leave out --result and --answers to ask")
        return _make(runs, spec, folder, settings, console)
    ratings = read_ratings(folder)
    changed = [key for key in settings if _plain(settings[key]) != _plain(ratings.settings.get(key))]
    if "runs" in changed or (make and changed):
        raise InputError(
            f"{folder} holds ratings with other settings ({', '.join(changed)}); "
            "name another folder with --out"
        )
    return ratings


def _plain(setting: Any) -> Any:
    """A setting without what makes no difference: a slash at the end of a run's name."""
    return [str(Path(run)) for run in setting] if isinstance(setting, list) else setting


def _settings(runs: Sequence[str], spec: RateSpec) -> dict[str, Any]:
    """What the pairs depend on."""
    path = Path(spec.inputs)
    digest = sha256(path) if spec.inputs and path.is_file() else ""
    return {
        "runs": list(runs),
        "inputs": digest or spec.inputs,
        "pairs": spec.pairs,
        "identical_ties": spec.identical_ties,
        "seed": spec.seed,
    }


def _make(
    runs: Sequence[str], spec: RateSpec, folder: Path, settings: dict[str, Any], console: Console
) -> Ratings:
    refuse_what_is_not_ours(folder)
    contenders = find_contenders(runs)
    first, second = (contender.load(spec.device) for contender in contenders)
    if spec.inputs:
        inputs, source = read_inputs(Path(spec.inputs)), spec.inputs
        inputs = draw(inputs, spec.pairs, spec.seed) if spec.pairs else list(dict.fromkeys(inputs))
    else:
        inputs, source = held_out_inputs(contenders[0], first)
        inputs = draw(inputs, spec.pairs or FROM_A_CORPUS, spec.seed)
    said = (replies(first, inputs), replies(second, inputs))
    blinded = blind(inputs, *said, spec.seed, spec.identical_ties)
    models = {
        side: {"name": contender.model, "fingerprint": model.fingerprint}
        for side, contender, model in zip(("first", "second"), contenders, (first, second), strict=True)
    }
    with claimed(folder):
        ratings = write_ratings(folder, blinded, models, source, settings)
    same = len(ratings.identical)
    console.print(
        f"{count(len(inputs), 'input')} ({source}): {count(len(ratings.pairs), 'pair')} to judge, "
        f"{same} with identical replies. Folder: {folder}"
    )
    return ratings


def _handed_over(pairs: list[Pair], folder: Path, source: str) -> Ratings:
    """Exported pairs, without a key: answers are collected, and go back as a file."""
    if is_ratings(folder):
        ratings = read_ratings(folder)
        if ratings.pairs != pairs:
            raise InputError(f"{folder} holds ratings of other pairs than {source}; name another with --out")
        return ratings
    with claimed(folder), writing(folder, "choose another folder with --out"):
        write_pairs(folder / PAIRS, pairs)
    return read_ratings(folder)


def _take(ratings: Ratings, files: Sequence[Path], console: Console) -> None:
    """All files are checked before the first answer is kept; what is known already is passed over."""
    new = merge(own_answers(ratings), [read_answers(path, ratings.pairs) for path in files])
    append_answers(ratings.answers, new)
    console.print(f"{count(len(new), 'new answer')} from {count(len(files), 'file')}.")


def _show(ratings: Ratings, console: Console) -> None:
    if not ratings.has_key:
        raise InputError(
            f"{ratings.folder} has no key; send {ratings.answers} back to who exported the pairs"
        )
    result = tally(ratings, own_answers(ratings))
    record = {**result.as_dict(), "inputs": ratings.source, "seed": ratings.settings.get("seed")}
    with writing(ratings.folder, "make room"):
        write_whole(ratings.folder / RESULT, json.dumps(record, indent=2) + "\n")
    print_result(result, console)
    console.print(f"Result: {ratings.folder / RESULT}")


def _say_how_to_go_on(ratings: Ratings, console: Console) -> None:
    if ratings.has_key:
        console.print(f"What they come to: backtalk rate {ratings.folder} --result")
    else:
        console.print(f"Send back {ratings.answers}")


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)[:60].strip("-.") or "unnamed"
