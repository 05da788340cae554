"""`backtalk rate`: which of two models people prefer, judged without knowing which is which.

Step 1 writes blind pairs of two models' replies to a ratings folder. Step 2 takes answers of any number of
raters, from this terminal or from files. Step 3 counts the result. Only step 1 needs the models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from backtalk.errors import InputError
from backtalk.models.folder import sha256
from backtalk.output_file import write_whole
from backtalk.rating import folder as files
from backtalk.rating.answers import append_answers, check_rater, merge, own_answers, read_answers
from backtalk.rating.folder import Key, Pair, Ratings, claimed, is_ratings, read_ratings, write_ratings
from backtalk.rating.models import find_models, held_out_inputs, read_inputs, replies
from backtalk.rating.result import print_result, tally
from backtalk.rating.terminal import ask
from backtalk.specs.rate import RateSpec
from backtalk.store.errors import writing
from backtalk.store.lookup import safe_name
from backtalk.terminal import make_console
from backtalk.wording import count

ROOT = Path("ratings")
FROM_A_CORPUS = 100
"""Inputs drawn from a corpus unless --pairs says how many."""


def rate(runs: Sequence[str], spec: RateSpec, answers: Sequence[str], export: str, result: bool) -> None:
    """Reads answers, exports pairs and shows the result, by flags; without any flag, asks the rater."""
    rater = check_rater(spec.rater, "--rater")
    console = make_console()
    asks = not (answers or export or result)
    ratings = _find_or_make(runs, spec, bool(asks or export), console)
    with claimed(ratings.folder):
        if answers:  # all files are checked before the first answer is stored
            new = merge(own_answers(ratings), [read_answers(Path(name), ratings.pairs) for name in answers])
            append_answers(ratings.answers, new)
            console.print(f"{count(len(new), 'new answer')} from {count(len(answers), 'file')}.")
        if export:
            files.export_pairs(Path(export), ratings.pairs)
            console.print(
                f"{count(len(ratings.pairs), 'blind pair')} in {export}; raters fill in rater and choice."
            )
        if asks and ratings.pairs:
            ask(ratings, rater, console)
        if result:
            _show_result(ratings, console)
        elif not export and ratings.key:
            console.print(f"The result: backtalk rate {ratings.folder} --result")
        elif not export:
            console.print(f"Send back {ratings.answers}")


def _find_or_make(runs: Sequence[str], spec: RateSpec, make: bool, console: Console) -> Ratings:
    """The ratings in a folder, whose settings must match, or, with `make`, new ones."""
    if len(runs) == 1 and is_ratings(Path(runs[0])):
        return read_ratings(Path(runs[0]))
    names = (safe_name(Path(run).name.removesuffix(".jsonl")) for run in runs)
    folder = Path(spec.out or ROOT / "-".join(names))
    if len(runs) == 1 and Path(runs[0]).is_file():
        pairs = files.read_pairs_file(Path(runs[0]))
        if not pairs:
            raise InputError(f"{runs[0]} holds no pair to judge; name a file that --export wrote")
        return _handed_over(pairs, folder, runs[0])
    settings = _settings(runs, spec)
    if not is_ratings(folder):
        if not make:
            raise InputError(f"there are no ratings in {folder} yet; leave out --result and --answers to ask")
        return _make(runs, spec, folder, settings, console)
    ratings = read_ratings(folder)
    known = ratings.key.settings if ratings.key else {}
    changed = [key for key in settings if _plain(settings[key]) != _plain(known.get(key))]
    if "runs" in changed or (make and changed):
        raise InputError(
            f"{folder} holds ratings with other settings ({', '.join(changed)}); "
            "name another folder with --out"
        )
    return ratings


def _plain(setting: Any) -> Any:
    """Run names without a slash at the end."""
    return [str(Path(run)) for run in setting] if isinstance(setting, list) else setting


def _settings(runs: Sequence[str], spec: RateSpec) -> dict[str, Any]:
    """The settings that the pairs depend on."""
    digest = sha256(Path(spec.inputs)) if spec.inputs and Path(spec.inputs).is_file() else ""
    return {
        "runs": list(runs),
        "inputs": digest or spec.inputs,
        **{name: getattr(spec, name) for name in ("pairs", "identical_ties", "seed")},
    }


def _make(
    runs: Sequence[str], spec: RateSpec, folder: Path, settings: dict[str, Any], console: Console
) -> Ratings:
    files.check_folder(folder)
    rated = find_models(runs)
    models = [one.load(spec.device) for one in rated]
    if spec.inputs:
        inputs, source = read_inputs(Path(spec.inputs)), spec.inputs
        inputs = files.draw(inputs, spec.pairs, spec.seed) if spec.pairs else list(dict.fromkeys(inputs))
    else:
        inputs, source = held_out_inputs(rated[0], models[0])
        inputs = files.draw(inputs, spec.pairs or FROM_A_CORPUS, spec.seed)
    first, second = (replies(model, inputs) for model in models)
    pairs, swapped, identical = files.blind(inputs, first, second, spec.seed, spec.identical_ties)
    one, two = (
        {"name": found.model, "fingerprint": model.fingerprint}
        for found, model in zip(rated, models, strict=True)
    )
    with claimed(folder):
        ratings = write_ratings(folder, pairs, Key(one, two, source, settings, swapped, identical))
    console.print(
        f"{count(len(inputs), 'input')} ({source}): {count(len(ratings.pairs), 'pair')} to judge, "
        f"{len(identical)} with identical replies. Folder: {folder}"
    )
    return ratings


def _handed_over(pairs: list[Pair], folder: Path, source: str) -> Ratings:
    """Exported pairs in a folder without a key. The answers go back as a file."""
    if is_ratings(folder):
        ratings = read_ratings(folder)
        if ratings.pairs != pairs:
            raise InputError(f"{folder} holds ratings of other pairs than {source}; name another with --out")
        return ratings
    with claimed(folder):
        return write_ratings(folder, pairs)


def _show_result(ratings: Ratings, console: Console) -> None:
    result, path = tally(ratings, own_answers(ratings)), ratings.folder / files.RESULT
    with writing(ratings.folder, "make room"):
        write_whole(path, json.dumps(result, indent=2) + "\n")
    print_result(result, console)
    console.print(f"Result: {path}")
