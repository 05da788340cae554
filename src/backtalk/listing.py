"""`backtalk list`: what there is to choose from, a line each."""

from __future__ import annotations

from collections import Counter

from rich.table import Table

from backtalk.data.corpora import FORMATS
from backtalk.data.targets import load_mal, widen
from backtalk.data.tokenise import RECIPES
from backtalk.hits import STANDARD, TEXT_STANDARD, TOXIC_STANDARD
from backtalk.registry import FOLDER, FORMS, MODELS, SCORER_FOLDER, SCORER_FORMS, SCORERS, SEARCHES
from backtalk.report.explain import meaning
from backtalk.terminal import make_console
from backtalk.types import Access


def show(subject: str) -> None:
    rows = {
        "models": _models,
        "searches": _searches,
        "scorers": _scorers,
        "hits": _hits,
        "targets": _targets,
        "formats": _formats,
        "recipes": _recipes,
    }[subject]()
    table = Table(title=subject, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, text in rows:
        table.add_row(name, text)
    make_console().print(table)


def _models() -> list[tuple[str, str]]:
    named = [(name, f"{entry.help} ({entry.access.name})") for name, entry in MODELS.items()]
    named.append(("FOLDER", f"{FOLDER.help} ({FOLDER.access.name})"))
    return named + [(prefix, f"{entry.help} ({entry.access.name})") for prefix, entry in FORMS.items()]


def _searches() -> list[tuple[str, str]]:
    rows = []
    for name, entry in SEARCHES.items():
        either = entry.text and entry.needs > Access.TEXT
        least = f"{Access.TEXT.name} or {entry.needs.name}" if either else entry.needs.name
        rows.append((name, f"{entry.help} (needs {least})"))
    return rows


def _scorers() -> list[tuple[str, str]]:
    rows = [(name, entry.help) for name, entry in (SCORERS | SCORER_FORMS).items()]
    return [*rows, ("FOLDER", SCORER_FOLDER.help)]


def _hits() -> list[tuple[str, str]]:
    return [
        (criterion.name, meaning(criterion.name))
        for criterion in (*STANDARD, *TEXT_STANDARD, *TOXIC_STANDARD)
    ]


def _formats() -> list[tuple[str, str]]:
    return [(name, format.help) for name, format in FORMATS.items()]


def _recipes() -> list[tuple[str, str]]:
    return [(name, recipe.help) for name, recipe in RECIPES.items()]


def _targets() -> list[tuple[str, str]]:
    mal = load_mal()
    by_category = Counter(target.category for target in mal)
    spread = ", ".join(f"{count} {category}" for category, count in sorted(by_category.items()))
    return [
        ("mal", f"{len(mal)} mild sentences: {spread}"),
        (
            "mal-wide",
            f"the same widened to {len(widen(mal, final_period=True)):,}: well ..., oh ..., i think ...",
        ),
        ("normal", "what a model says anyway: checks that a search can find what is there"),
        ("random", "random frequent words: checks that a search does not find what is not there"),
        ("FILE", "one target a line, or JSONL with text, category and severity"),
    ]
