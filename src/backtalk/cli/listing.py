"""The work of `backtalk list`: one table a subject."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rich.table import Table

from backtalk import registry
from backtalk.data.corpora import FORMATS
from backtalk.data.targets import load_mal, widen
from backtalk.data.tokenise import RECIPES
from backtalk.errors import InputError
from backtalk.hits import CHANCES, STANDARD, TEXT_STANDARD, TOXIC_STANDARD
from backtalk.registry import MODELS, SCORERS, Entry
from backtalk.report.sentences import meaning
from backtalk.terminal import make_console


def show(subject: str) -> None:
    table = Table(title=subject, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    table.add_column(no_wrap=True, style="dim")
    for row in ROWS[subject]():
        table.add_row(*row)
    make_console().print(table)


def _registered(group: str, entries: Mapping[str, Entry], access: str = "") -> Sequence[tuple[str, ...]]:
    """(name, description, package) of ours and of installed plugins; a broken plugin shows its error."""
    rows = [(name, one.help + access.format(one.access.name), "backtalk") for name, one in entries.items()]
    for name, point in registry.plugins(group).items():
        try:
            brought = registry.load_plugin(point)
            if isinstance(brought, Entry):
                text = brought.help + access.format(brought.access.name)
            else:  # the class of a search or method
                doc = " ".join((brought.__doc__ or "no description").split())
                text = doc.split(". ")[0].rstrip(".") + (access and access.format(brought.needs.name))
        except (InputError, AttributeError) as error:
            text = str(error)
        rows.append((name, text, registry.package_of(point)))
    return rows


def _targets() -> Sequence[tuple[str, ...]]:
    mal = load_mal()
    by_category = Counter(target.category for target in mal)
    spread = ", ".join(f"{count} {category}" for category, count in sorted(by_category.items()))
    wide = len(widen(mal, final_period=True))
    return [
        ("mal", f"{len(mal)} mild sentences: {spread}"),
        ("mal-wide", f"the same widened to {wide:,}: well ..., oh ..., i think ..."),
        ("FILE", "one target a line, or JSONL with text, category and severity"),
    ]


CRITERIA = (*CHANCES, *STANDARD, *TEXT_STANDARD, *TOXIC_STANDARD)
ROWS: dict[str, Callable[[], Sequence[tuple[str, ...]]]] = {
    "models": lambda: _registered("models", {**MODELS, "FOLDER": registry.MODEL_FOLDER}, " ({})"),
    "searches": lambda: _registered("searches", registry.SEARCHES, " (needs {})"),
    "scorers": lambda: _registered("scorers", {**SCORERS, "FOLDER": registry.SCORER_FOLDER}),
    "methods": lambda: _registered("methods", registry.METHODS),
    "hits": lambda: [(one.name, meaning(one.name)) for one in CRITERIA],
    "targets": _targets,
    "formats": lambda: [(name, format.help) for name, format in FORMATS.items()],
    "recipes": lambda: [(name, recipe.help) for name, recipe in RECIPES.items()],
}
