"""`backtalk list`: what there is to choose from, a line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from rich.table import Table

from backtalk.data.corpora import FORMATS
from backtalk.data.targets import load_mal, widen
from backtalk.data.tokenise import RECIPES
from backtalk.errors import InputError
from backtalk.hits import STANDARD, TEXT_STANDARD, TOXIC_STANDARD
from backtalk.registry import (
    FOLDER,
    FORMS,
    METHODS,
    MODELS,
    SCORER_FOLDER,
    SCORER_FORMS,
    SCORERS,
    SEARCHES,
    first_sentence,
    load_plugin,
    package_of,
    plugins,
)
from backtalk.report.explain import meaning
from backtalk.terminal import make_console


class Row(NamedTuple):
    name: str
    text: str
    origin: str = ""
    """The package that brings it, of what packages may bring."""


OURS = "backtalk"


def show(subject: str) -> None:
    rows = {
        "models": _models,
        "searches": _searches,
        "scorers": _scorers,
        "methods": _methods,
        "hits": _hits,
        "targets": _targets,
        "formats": _formats,
        "recipes": _recipes,
    }[subject]()
    table = Table(title=subject, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    table.add_column(no_wrap=True, style="dim")
    for row in rows:
        table.add_row(*row)
    make_console().print(table)


def _models() -> list[Row]:
    entries = {**MODELS, "FOLDER": FOLDER, **FORMS}
    ours = [Row(name, f"{entry.help} ({entry.access.name})", OURS) for name, entry in entries.items()]
    return ours + _brought("models", lambda entry: f"{entry.help} ({entry.access.name})")


def _searches() -> list[Row]:
    ours = [Row(name, f"{entry.help} (needs {entry.needs.name})", OURS) for name, entry in SEARCHES.items()]
    return ours + _brought("searches", lambda kind: f"{first_sentence(kind)} (needs {kind.needs.name})")


def _scorers() -> list[Row]:
    entries = {**SCORERS, **SCORER_FORMS, "FOLDER": SCORER_FOLDER}
    ours = [Row(name, entry.help, OURS) for name, entry in entries.items()]
    return ours + _brought("scorers", lambda entry: str(entry.help))


def _methods() -> list[Row]:
    return [Row(name, entry.help, OURS) for name, entry in METHODS.items()] + _brought(
        "methods", first_sentence
    )


def _brought(group: str, told: Callable[[Any], str]) -> list[Row]:
    """What installed plugins bring; one that can't be loaded is named with the reason."""
    rows = []
    for name, point in plugins(group).items():
        try:
            text = told(load_plugin(point))
        except (InputError, AttributeError) as error:
            text = str(error)
        rows.append(Row(name, text, package_of(point)))
    return rows


def _hits() -> list[Row]:
    return [
        Row(criterion.name, meaning(criterion.name))
        for criterion in (*STANDARD, *TEXT_STANDARD, *TOXIC_STANDARD)
    ]


def _formats() -> list[Row]:
    return [Row(name, format.help) for name, format in FORMATS.items()]


def _recipes() -> list[Row]:
    return [Row(name, recipe.help) for name, recipe in RECIPES.items()]


def _targets() -> list[Row]:
    mal = load_mal()
    by_category = Counter(target.category for target in mal)
    spread = ", ".join(f"{count} {category}" for category, count in sorted(by_category.items()))
    return [
        Row("mal", f"{len(mal)} mild sentences: {spread}"),
        Row(
            "mal-wide",
            f"the same widened to {len(widen(mal, final_period=True)):,}: well ..., oh ..., i think ...",
        ),
        Row("normal", "what a model says anyway: checks that a search can find what is there"),
        Row("random", "random frequent words: checks that a search does not find what is not there"),
        Row("FILE", "one target a line, or JSONL with text, category and severity"),
    ]
