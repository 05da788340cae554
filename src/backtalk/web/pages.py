"""The app's own pages: the list, chat and rate. They are made as the report is: jinja2 that escapes every
value, with styles and scripts as files of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import FunctionLoader

from backtalk.report.page import page_environment
from backtalk.web.shelf import Item

FILES = {
    "page.css": "backtalk.report",
    "app.css": "backtalk.web",
    "app.js": "backtalk.web",
    "list.js": "backtalk.web",
    "chat.js": "backtalk.web",
    "rate.js": "backtalk.web",
}
"""What a browser may have under /static/, and the package it lies in."""
TABS = (("/", "Runs"), ("/chat", "Chat"), ("/rate", "Rate"))


def read_file(name: str) -> str | None:
    if name not in FILES:
        return None
    return files(FILES[name]).joinpath(name).read_text(encoding="utf-8")


def read_template(name: str) -> str:
    return files("backtalk.web").joinpath(name).read_text(encoding="utf-8")


class Pages:
    def __init__(self, model: str) -> None:
        self._environment = page_environment()
        self._environment.loader = FunctionLoader(read_template)
        self._environment.globals |= {"tabs": TABS, "model": model}

    def listing(self, items: Sequence[Item], folder: str) -> str:
        audits = [item for item in items if item.kind == "audit"]
        return self._page("list.html", "/", items=items, audits=audits, folder=folder)

    def chat(self) -> str:
        return self._page("chat.html", "/chat")

    def ratings(self, items: Sequence[Item]) -> str:
        return self._page("ratings.html", "/rate", items=items)

    def rate(self, item: Item) -> str:
        return self._page("rate.html", "/rate", item=item)

    def problem(self, status: int, sentence: str) -> str:
        return self._page("problem.html", "", status=status, sentence=sentence)

    def _page(self, template: str, tab: str, **values: Any) -> str:
        return self._environment.get_template(template).render(tab=tab, **values)
