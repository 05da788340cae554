"""The app's own pages: the list, chat and rate. They are made as the report is: jinja2 that escapes every
value, in the report's frame, with styles and scripts as files of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, FunctionLoader

from backtalk.report.page import page_environment, read_part, render, style_sheet
from backtalk.web.run_list import Item
from backtalk.web.views import frame

TEMPLATES = ("list.html", "chat.html", "ratings.html", "rate.html", "waiting.html", "problem.html")
FIRST = ("frame.html", "list.html", "page.html", "finding.html", "seek.html", "about.html")
SCRIPTS = ("app.js", "list.js", "chat.js", "rate.js", "run.js")


def read_static(name: str) -> str | None:
    """What a browser may have under /static/; None for all else."""
    if name == "page.css":
        return style_sheet() + _read("app.css")
    if name == "page.js":
        return read_part(name)
    return _read(name) if name in SCRIPTS else None


class Pages:
    def __init__(self, model: str) -> None:
        self._environment = _environment()
        self._model = model

    def listing(self, items: Sequence[Item], folder: str) -> str:
        # Two that are over are what one would compare.
        audits = sorted((i for i in items if i.kind == "audit"), key=lambda item: item.state != "finished")
        return self._page("list.html", "/", "list.js", items=items, audits=audits, folder=folder)

    def chat(self) -> str:
        return self._page("chat.html", "/chat", "chat.js", model=self._model)

    def ratings(self, items: Sequence[Item]) -> str:
        return self._page("ratings.html", "/rate", "", items=items)

    def rate(self, item: Item) -> str:
        return self._page("rate.html", f"/rate/{item.key}", "rate.js", "/rate", item=item)

    def waiting(self, item: Item, why: str, links: Sequence[tuple[str, str]]) -> str:
        """What has no page of its own yet."""
        app = replace(frame(f"/run/{item.key}", "app.js", "run.js"), stamp=item.stamp)
        return render(self._environment, "waiting.html", app, item=item, why=why, links=links)

    def problem(self, path: str, status: int, sentence: str) -> str:
        return self._page("problem.html", path, "", status=status, sentence=sentence)

    def _page(self, template: str, path: str, script: str, section: str = "", **values: Any) -> str:
        scripts = ["app.js", *([script] if script else [])]
        return render(self._environment, template, frame(path, *scripts, section=section), **values)


@cache
def _environment() -> Environment:
    """The report's, with templates of the app. Those of the first pages are ready: nobody waits for them."""
    environment = page_environment()
    own = FunctionLoader(lambda name: _read(name) if name in TEMPLATES else None)
    environment.loader = ChoiceLoader([own, FunctionLoader(read_part)])
    for name in FIRST:
        environment.get_template(name)
    return environment


def _read(name: str) -> str:
    return files("backtalk.web").joinpath(name).read_text(encoding="utf-8")
