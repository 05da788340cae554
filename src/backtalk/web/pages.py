"""The app's own pages. They are made as reports are: jinja2 escapes every value, and styles and scripts are
files of ours."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, FunctionLoader

from backtalk.report.page import App as Frame
from backtalk.report.page import page_environment, read_part, render, style_sheet

NAV = (("Runs", "/"), ("Chat", "/chat"), ("Rate", "/rate"))
TEMPLATES = ("list.html", "chat.html", "ratings.html", "rate.html", "waiting.html", "problem.html")
FIRST = ("frame.html", "list.html", "page.html", "finding.html", "seek.html", "about.html")
"""Templates that are compiled at the start, so that the first pages are quick."""
SCRIPTS = ("app.js", "list.js", "chat.js", "rate.js", "run.js")


def render_page(
    template: str, path: str, *scripts: str, section: str = "", stamp: str = "", **values: Any
) -> str:
    """The page at `path` in the frame of the app; `section` is its menu entry, if that is another page."""
    app = frame(path, "app.js", *scripts, section=section, stamp=stamp)
    return render(_environment(), template, app, **values)


def frame(path: str, *scripts: str, section: str = "", **values: Any) -> Frame:
    """The frame of a page: menu, style and scripts."""
    return Frame(
        nav=[(label, link(path, to)) for label, to in NAV],
        here=link(path, section or path),
        root=link(path, "/"),
        style=link(path, "/static/page.css"),
        scripts=[link(path, f"/static/{name}") for name in scripts],
        **values,
    )


def link(path: str, to: str) -> str:
    """A relative link from one page to another: pages do not know the secret path that they lie below."""
    up = "../" * (path.count("/") - 1) or "./"
    return up + to.removeprefix("/")


def read_static(name: str) -> str | None:
    """A file under /static/; None if there is none."""
    if name == "page.css":
        return style_sheet() + _read("app.css")
    if name == "page.js":
        return read_part(name)
    return _read(name) if name in SCRIPTS else None


@cache
def _environment() -> Environment:
    environment = page_environment()
    own = FunctionLoader(lambda name: _read(name) if name in TEMPLATES else None)
    environment.loader = ChoiceLoader([own, FunctionLoader(read_part)])
    for name in FIRST:
        environment.get_template(name)
    return environment


def _read(name: str) -> str:
    return files("backtalk.web").joinpath(name).read_text(encoding="utf-8")
