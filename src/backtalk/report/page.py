"""The frame and the filters that all page templates share. A page is one self-contained file or a page of the
app, from the same templates.

Every value is escaped. Style and script are allowed by their hashes and nothing else is.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from backtalk import wording
from backtalk.report import charts
from backtalk.report.build import MOST_WORDS
from backtalk.report.record import END, CaseRow
from backtalk.report.stored_findings import FindingsPage
from backtalk.terminal import printable
from backtalk.wording import chance, mask_toxic, percent_range, sampled, shorten

LONGEST = 20_000  # characters of a text that a page shows; `backtalk export` has all of it
MOST_CATEGORIES = 200  # rows of the table by category


@dataclass(frozen=True)
class App:
    """The addresses and findings of a page of the app; a file has them in itself."""

    nav: Sequence[tuple[str, str]]  # (label, address) of the app's other pages
    here: str  # the address of this page, without its query
    shown: FindingsPage | None = None
    cases: int = 0  # all findings that there are
    stamp: str = ""  # of the run when the page was made; a script checks whether it has changed
    style: str = "/static/page.css"
    scripts: Sequence[str] = ("/static/page.js",)
    root: str = "./"  # the address of the app's first page; all others lie below it

    @property
    def alone(self) -> bool:
        """Whether the page is of a single finding."""
        return self.shown is not None and bool(self.shown.query.finding)


def render(environment: Environment, name: str, app: App | None, **values: Any) -> str:
    style, script = style_sheet(), read_part("page.js")
    frame = {"style": Markup(style), "script": Markup(script), "policy": policy_for(style, script)}
    return environment.get_template(name).render(app=app, **frame, **values)


def style_sheet() -> str:
    return "".join(map(read_part, ("page.css", "comparison.css", "conversations.css")))


@cache
def page_environment() -> Environment:
    """Templates in which every value is escaped, and what they share."""
    environment = Environment(
        loader=FunctionLoader(read_part),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_inert,
    )
    environment.filters |= {
        "chance": lambda log_prob: _raise(chance(log_prob)),
        "clip": lambda text, limit: shorten(printable(text), limit),
        "count": wording.count,
        "duration": wording.duration,
        "hides": lambda text: len(printable(text)) < len(text),
        "mask": wording.mask,
        "percent": wording.percent,
        "sampled": lambda log_prob: _raise(sampled(log_prob)),
        "veiled": _veiled,
        "veiled_part": _veiled_part,
    }
    environment.globals |= {
        "END": END,
        "LONGEST": LONGEST,
        "MOST_CATEGORIES": MOST_CATEGORIES,
        "MOST_WORDS": MOST_WORDS,
        "charts": charts,
        "percent_range": percent_range,
        "plain_chance": chance,
    }
    return environment


def _inert(value: Any) -> Any:
    """Every {{ }} passes through it: characters that could turn or hide text are dropped."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _veiled(text: str, limit: int = 0, toxicity: float | None = 1.0) -> Markup:
    """A text; one that is toxic twice, masked, and whole but hidden until the reader asks."""
    text = text[: _seen(limit)]
    return _both(mask_toxic(text, toxicity, text), text, limit)


def _veiled_part(case: CaseRow, part: str, limit: int = 0) -> Markup:
    """A text of a case (see `CaseRow.shown`), twice where masking changes it."""
    return _both(case.shown(part, False, _seen(limit)), case.shown(part, True, _seen(limit)), limit)


def _seen(limit: int) -> int | None:
    """Characters to mask for a text that is cut at `limit`: masking a long text is slow."""
    return 4 * limit + 400 if limit else None


def _both(hidden: str, whole: str, limit: int) -> Markup:
    hidden, whole = (shorten(printable(one), limit or len(one)) for one in (hidden, whole))
    if hidden == whole:
        return Markup("<bdi>{}</bdi>").format(whole)
    return Markup('<bdi class="masked">{}</bdi><bdi class="whole">{}</bdi>').format(hidden, whole)


def _raise(words: str) -> Markup:
    """10^27 as superscript."""
    before, power, exponent = words.partition("10^")
    digits, space, after = exponent.partition(" ")
    return Markup("{}10<sup>{}</sup>{}{}").format(before, digits, space, after) if power else escape(words)


def policy_for(style: str, script: str) -> str:
    """The Content-Security-Policy: nothing but this style sheet and this script, by their hashes."""
    digests = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


def read_part(name: str, package: str = "backtalk.report") -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")
