"""What the app answers: pages and JSON by route. It starts no code and takes no path: a thing is named by the
key that `shelf` gave it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from backtalk.errors import InputError
from backtalk.report.folders import NotYet
from backtalk.report.run_page import Offer
from backtalk.store.records import finite
from backtalk.terminal import printable
from backtalk.web.judging import next_pair, take_answer
from backtalk.web.pages import Pages, read_static
from backtalk.web.shelf import UNSHOWABLE, Item, Shelf
from backtalk.web.talk import Talker
from backtalk.web.views import Views, link, proofs_of
from backtalk.web.wire import Problem, read_object

STATIC = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}


class Request(NamedTuple):
    method: str
    path: str
    query: str
    body: bytes = b""

    def values(self) -> dict[str, str]:
        """What stands after the question mark, the first of each name."""
        read = parse_qs(self.query, keep_blank_values=True, errors="replace")
        return {name: given[0] for name, given in read.items()}

    def every(self, name: str) -> list[str]:
        """All that is said under a name."""
        return parse_qs(self.query, errors="replace").get(name, [])

    def value(self, name: str, otherwise: str = "") -> str:
        return self.values().get(name, otherwise)


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    kind: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Iterator[bytes] | None = None
    """In the place of the body, where it may be long."""


class App:
    def __init__(self, shelf: Shelf, talker: Talker) -> None:
        self.shelf = shelf
        self.talker = talker
        self.pages = Pages(talker.name)
        self.views = Views()
        self._routes: list[tuple[str, re.Pattern[str], Callable[..., Response]]] = [
            (method, re.compile(pattern), make)
            for method, pattern, make in (
                ("GET", "/", self._list),
                ("GET", "/run/([a-z0-9-]+)", self._run),
                ("GET", "/run/([a-z0-9-]+)/findings", self._export),
                ("GET", "/compare", self._compare),
                ("GET", "/chat", self._chat),
                ("GET", "/rate", self._ratings),
                ("GET", "/rate/([a-z0-9-]+)", self._rate),
                ("GET", "/static/([a-z_]+)\\.(js|css)", self._static),
                ("GET", "/api/runs", self._state_of_all),
                ("GET", "/api/run/([a-z0-9-]+)", self._state_of_one),
                ("GET", "/api/rate/([a-z0-9-]+)", self._next_pair),
                ("POST", "/api/rate/([a-z0-9-]+)", self._take_answer),
                ("POST", "/api/chat", self._reply),
            )
        ]

    def answer(self, request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        for allowed, pattern, make in self._routes:
            if method == allowed and (match := pattern.fullmatch(request.path)):
                return make(request, *match.groups())
        raise Problem(404, "there is no such page")

    def refuse(self, problem: Problem, path: str | None) -> Response:
        """The sentence, to a person or to a script. Whoever asks outside of the server's own path (None)
        learns nothing."""
        if path is None:
            return Response(404, b"not found\n", "text/plain; charset=utf-8")
        if path.startswith("/api/"):
            return _json({"error": str(problem)}, problem.status)
        return Response(problem.status, self.pages.problem(path, problem.status, str(problem)).encode())

    # Pages

    def _list(self, request: Request) -> Response:
        return _html(self.pages.listing(self.shelf.items(), self.shelf.root.resolve().name))

    def _run(self, request: Request, key: str) -> Response:
        item, folder = self._item(key), self._folder(key)
        if item.kind == "audit":
            others = self._others(item, folder, request.every("beside")) if item.plays else {}
            with _showing():
                return _html(self.views.run(folder, item, request.values(), others))
        if item.kind == "rating":
            return self._rate(request, key)
        links = self._links(key, folder)
        try:
            with _showing():
                return _html(self.views.folder(folder, request.path, links))
        except NotYet as error:
            return _html(self.pages.waiting(item, str(error), links))

    def _others(self, item: Item, folder: Path, chosen: Sequence[str]) -> dict[Offer, Path]:
        """The other runs of played conversations; the one inside a run stands beside it anyway."""
        folders = {key: of for key, (_, _, of) in self.shelf.folders().items() if of.parent != folder}
        return {
            Offer(one.key, one.name, one.key in chosen): folders[one.key]
            for one in self.shelf.items()
            if one.plays and one.key != item.key and one.key in folders
        }

    def _links(self, own: str, folder: Path) -> list[tuple[str, str]]:
        """To a hardening's comparisons, and to its audits that are in none. What its record names is looked
        up on the shelf."""
        here = f"/run/{own}"
        keys = {
            of.relative_to(folder).as_posix(): key
            for key, (kind, _, of) in self.shelf.folders().items()
            if kind == "audit" and of.is_relative_to(folder)
        }
        pairs = [row for row in proofs_of(folder) if row.run in keys and row.run_before in keys]
        compared = {name for row in pairs for name in (row.run, row.run_before)}
        return [
            *(
                (
                    f"before and after: {row.list}, {row.search}",
                    link(here, f"/compare?before={keys[row.run_before]}&after={keys[row.run]}"),
                )
                for row in pairs
            ),
            *((name, link(here, f"/run/{key}")) for name, key in keys.items() if name not in compared),
        ]

    def _export(self, request: Request, key: str) -> Response:
        said = request.values()
        with _showing():
            kind, lines = self.views.export(self._folder(key, "audit"), said)
            first = next(lines, b"")  # what can't be read is refused while it still can be
        name = f'attachment; filename="{key}.{said["as"]}"'
        return Response(200, b"", kind, {"Content-Disposition": name}, chain([first], lines))

    def _compare(self, request: Request) -> Response:
        before, after = (self._folder(request.value(side), "audit") for side in ("before", "after"))
        with _showing():
            return _html(self.views.comparison(before, after, request.path))

    def _chat(self, request: Request) -> Response:
        return _html(self.pages.chat())

    def _ratings(self, request: Request) -> Response:
        return _html(self.pages.ratings([item for item in self.shelf.items() if item.kind == "rating"]))

    def _rate(self, request: Request, key: str) -> Response:
        item = self._item(key, "rating")
        if item.state == "damaged":
            raise InputError(item.note)
        return _html(self.pages.rate(item))

    def _static(self, request: Request, name: str, kind: str) -> Response:
        body = read_static(f"{name}.{kind}")
        if body is None:
            raise Problem(404, "there is no such page")
        return Response(200, body.encode(), STATIC[kind])

    # What scripts ask for

    def _state_of_all(self, request: Request) -> Response:
        return _json({"runs": [item.as_dict() for item in self.shelf.items()]})

    def _state_of_one(self, request: Request, key: str) -> Response:
        return _json(self._item(key).as_dict())

    def _next_pair(self, request: Request, key: str) -> Response:
        with _showing():
            return _json(next_pair(self._folder(key, "rating"), request.value("rater")))

    def _take_answer(self, request: Request, key: str) -> Response:
        with _showing():
            return _json(take_answer(self._folder(key, "rating"), read_object(request.body)))

    def _reply(self, request: Request) -> Response:
        return _json(self.talker.reply(read_object(request.body)))

    def _item(self, key: str, *kinds: str) -> Item:
        item = self.shelf.item(key)
        if item is None or (kinds and item.kind not in kinds):
            raise Problem(404, "there is no such run here; the list shows those that there are")
        return item

    def _folder(self, key: str, *kinds: str) -> Path:
        found = self.shelf.find(key, *kinds)
        if found is None:
            raise Problem(404, "there is no such run here; the list shows those that there are")
        return found[1]


@contextmanager
def _showing() -> Iterator[None]:
    """A folder whose files are not what backtalk wrote is one sentence, and no fault of ours."""
    try:
        yield
    except UNSHOWABLE as error:
        reason = printable(" ".join(f"{type(error).__name__}: {error}".split()))[:200]
        raise Problem(422, f"this folder can't be shown: one of its files is damaged ({reason})") from None


def _html(page: str) -> Response:
    return Response(200, page.encode("utf-8", "replace"))


def _json(value: Any, status: int = 200) -> Response:
    # ASCII: half a surrogate pair in a reply can't break the answer.
    body = json.dumps(finite(value), allow_nan=False).encode("ascii")
    return Response(status, body, "application/json")
