"""`backtalk paraphrase`: sentences and other ways to say them, and a target file of the latter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backtalk.audit.cases import read_cases
from backtalk.data.targets import write_targets
from backtalk.data.tokenise import Recipe
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.paraphrase.augment import augment
from backtalk.paraphrase.model import load_paraphraser
from backtalk.paraphrase.rules import RuleParaphraser
from backtalk.protocols import Paraphraser
from backtalk.registry import load_model
from backtalk.terminal import make_console, printable
from backtalk.types import Target
from backtalk.wording import mask


def find_paraphrasers(names: str, recipe: Recipe, seed: int, device: str) -> list[Paraphraser]:
    """rules, the folder of a trained one, or several by commas."""
    return [
        RuleParaphraser(recipe, seed) if name == "rules" else load_paraphraser(name, device)
        for name in dict.fromkeys(map(str.strip, names.split(",")))
    ]


def show_paraphrases(
    sentences: Sequence[str],
    targets: str,
    limit: int,
    n: int,
    model_name: str,
    paraphraser_names: str,
    seed: int,
    out: str,
    unmask: bool,
    device: str,
) -> None:
    """Prints each sentence with its paraphrases. What was typed is shown in full, a list is masked."""
    model = load_model(model_name, device)
    if not isinstance(model, LocalModel):
        raise InputError(f"{model_name} shows no words to compare; name a model of ours")
    paraphrasers = find_paraphrasers(paraphraser_names, model.recipe, seed, device)
    if targets:
        cases = read_cases(targets, model, limit, seed)
    else:
        cases = [
            Target(f"t-{number:03d}", " ".join(text.split()))
            for number, text in enumerate(sentences, start=1)
            if text.strip()
        ]
    new, result = augment(cases, paraphrasers, n, {}, model)
    if not new:
        raise InputError(
            f"{paraphraser_names} has no paraphrase that {model_name} could say; {result.told()}"
        )
    shown = printable if unmask or not targets else lambda text: mask(printable(text))
    console = make_console(soft_wrap=True)
    for case in cases:
        console.print(shown(case.text), style="bold")
        for one in new:
            if one.origin.startswith(f"{case.id} by "):
                console.print(f"    {shown(one.text)}")
    if out:
        write_targets(Path(out), new)
        console.print(f"Audit them: backtalk audit --model {model_name} --targets {out}")
    make_console(stderr=True).print(result.told())
