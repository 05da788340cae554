"""The app: routes to pages and JSON. It runs no command and takes no path: a run is named by its key."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from backtalk.errors import InputError
from backtalk.rating import folder as rating
from backtalk.report.hardening_record import NotYet
from backtalk.store.records import finite
from backtalk.terminal import printable
from backtalk.web.chat import PageChat
from backtalk.web.http import HttpError, read_object
from backtalk.web.pages import Reports, link, proofs_of, read_static, render_page
from backtalk.web.run_list import UNSHOWABLE, Found, Item, RunList, describe

_LOCK = threading.Lock()  # two tabs wait for each other; another process that rates is an error
STATIC = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}


class Request(NamedTuple):
    method: str
    path: str
    query: str
    body: bytes = b""

    def values(self) -> dict[str, str]:
        """The parameters of the query, the first of each name."""
        read = parse_qs(self.query, keep_blank_values=True, errors="replace")
        return {name: given[0] for name, given in read.items()}


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    kind: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


class App:
    def __init__(self, runs: RunList, chat: PageChat) -> None:
        self.runs = runs
        self.chat = chat
        self.reports = Reports()
        self._routes: list[tuple[str, str, Callable[..., Response]]] = [
            ("GET", "/", self._list),
            ("GET", "/run/([a-z0-9-]+)", self._run),
            ("GET", "/compare", self._compare),
            ("GET", "/chat", self._chat),
            ("GET", "/rate", self._ratings),
            ("GET", "/rate/([a-z0-9-]+)", self._rate),
            ("GET", "/static/([a-z_]+)\\.(js|css)", self._static),
            ("GET", "/api/runs", lambda _: _json({"runs": [one.as_dict() for one in self.runs.items()]})),
            ("GET", "/api/run/([a-z0-9-]+)", lambda request, key: _json(self._item(key).as_dict())),
            ("GET", "/api/rate/([a-z0-9-]+)", self._next_pair),
            ("POST", "/api/rate/([a-z0-9-]+)", self._take_answer),
            ("POST", "/api/chat", lambda request: _json(self.chat.reply(read_object(request.body)))),
        ]

    def respond(self, request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        for allowed, pattern, make in self._routes:
            if method == allowed and (match := re.fullmatch(pattern, request.path)):
                return make(request, *match.groups())
        raise HttpError(404, "there is no such page")

    def error_page(self, error: HttpError, path: str | None) -> Response:
        """The sentence, as a page or as JSON. A request outside of the server's own path (None) learns
        nothing."""
        if path is None:
            return Response(404, b"not found\n", "text/plain; charset=utf-8")
        if path.startswith("/api/"):
            return _json({"error": str(error)}, error.status)
        page = render_page("problem.html", path, status=error.status, sentence=str(error))
        return Response(error.status, page.encode())

    # Pages

    def _list(self, request: Request) -> Response:
        items, folder = self.runs.items(), self.runs.root.resolve().name
        # Finished audits first: those are the ones to compare.
        audits = sorted((i for i in items if i.kind == "audit"), key=lambda item: item.state != "finished")
        return _html(render_page("list.html", "/", "list.js", items=items, audits=audits, folder=folder))

    def _chat(self, request: Request) -> Response:
        return _html(render_page("chat.html", "/chat", "chat.js", model=self.chat.name))

    def _run(self, request: Request, key: str) -> Response:
        item, folder = self._item(key), self._find(key).folder
        if item.kind == "audit":
            with _showing():
                return _html(self.reports.run(folder, item, request.values()))
        if item.kind == "risk":
            if item.done:
                with _showing():
                    return _html(self.reports.risk(folder, item))
            why = "no draw is done yet"
            return _html(
                render_page(
                    "waiting.html", request.path, "run.js", stamp=item.stamp, item=item, why=why, links=()
                )
            )
        if item.kind == "rating":
            return self._rate(request, key)
        links = self._links(key, folder)
        try:
            with _showing():
                return _html(self.reports.hardening(folder, request.path, links))
        except NotYet as error:
            values: dict[str, Any] = {"item": item, "why": str(error), "links": links}
            return _html(render_page("waiting.html", request.path, "run.js", stamp=item.stamp, **values))

    def _links(self, own: str, folder: Path) -> list[tuple[str, str]]:
        """Links to a hardening's comparisons, and to audits in none. Names in its record are looked up in the
        list of runs."""
        here = f"/run/{own}"
        keys = {
            found.folder.relative_to(folder).as_posix(): key
            for key, found in self.runs.folders().items()
            if found.kind == "audit" and found.folder.is_relative_to(folder)
        }
        links, compared = [], set()
        for row in proofs_of(folder):
            if row.run in keys and row.run_before in keys:
                compared |= {row.run, row.run_before}
                address = f"/compare?before={keys[row.run_before]}&after={keys[row.run]}"
                links.append((f"before and after: {row.list}, {row.search}", link(here, address)))
        others = [(name, key) for name, key in keys.items() if name not in compared]
        return links + [(name, link(here, f"/run/{key}")) for name, key in others]

    def _compare(self, request: Request) -> Response:
        values = request.values()
        before, after = (self._find(values.get(side, ""), "audit") for side in ("before", "after"))
        with _showing():
            return _html(self.reports.comparison(before.folder, after.folder, request.path))

    def _ratings(self, request: Request) -> Response:
        items = [item for item in self.runs.items() if item.kind == "rating"]
        return _html(render_page("ratings.html", "/rate", items=items))

    def _rate(self, request: Request, key: str) -> Response:
        item = self._item(key, "rating")
        if item.state == "damaged":
            raise InputError(item.note)
        return _html(render_page("rate.html", f"/rate/{key}", "rate.js", section="/rate", item=item))

    def _static(self, request: Request, name: str, kind: str) -> Response:
        if (body := read_static(f"{name}.{kind}")) is None:
            raise HttpError(404, "there is no such page")
        return Response(200, body.encode(), STATIC[kind])

    # JSON for the pages' scripts

    def _next_pair(self, request: Request, key: str) -> Response:
        with _showing():
            ratings = rating.read_ratings(self._find(key, "rating").folder)
            return _json(next_pair(ratings, _check_rater(request.values().get("rater"))))

    def _take_answer(self, request: Request, key: str) -> Response:
        with _showing():
            return _json(take_answer(self._find(key, "rating").folder, read_object(request.body)))

    def _item(self, key: str, *kinds: str) -> Item:
        return describe(key, *self._find(key, *kinds))

    def _find(self, key: str, *kinds: str) -> Found:
        found = self.runs.folders().get(key)
        if found is None or (kinds and found.kind not in kinds):
            raise HttpError(404, "there is no such run here; the list shows those that there are")
        return found


@contextmanager
def _showing() -> Iterator[None]:
    """Reports a folder whose files are not what backtalk wrote as damage, not as a bug."""
    try:
        yield
    except UNSHOWABLE as error:
        reason = printable(" ".join(f"{type(error).__name__}: {error}".split()))[:200]
        raise HttpError(422, f"this folder can't be shown: one of its files is damaged ({reason})") from None


def _html(page: str) -> Response:
    return Response(200, page.encode("utf-8", "replace"))


def _json(value: Any, status: int = 200) -> Response:
    # ASCII: half a surrogate pair in a reply can't break the answer.
    body = json.dumps(finite(value), allow_nan=False).encode("ascii")
    return Response(status, body, "application/json")


# The rate page. The key is not read here: `backtalk rate FOLDER --result` says which model is which.


def take_answer(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Stores {"rater", "pair", "choice"}, where undo takes the rater's last answer back; then `next_pair`."""
    rater, pair, choice = _check_rater(asked.get("rater")), asked.get("pair"), asked.get("choice")
    if not isinstance(choice, str) or choice not in rating.CHOICES:
        raise HttpError(400, f"the choice is one of {', '.join(rating.CHOICES)}")
    with _LOCK, rating.claimed(folder):
        ratings = rating.read_ratings(folder)
        done = rating.answered_by(rater, ratings)
        if choice == "undo":
            if not done:
                raise HttpError(409, "there is no answer to take back")
            pair = done[-1]
        elif not isinstance(pair, str) or pair not in {one.id for one in ratings.pairs}:
            raise HttpError(400, "these ratings have no such pair")
        elif pair in done:
            raise HttpError(409, "that pair was judged already, perhaps in another tab")
        rating.give_answer(ratings, pair, rater, choice)
        return next_pair(ratings, rater)


def next_pair(ratings: rating.Ratings, rater: str) -> dict[str, Any]:
    """The first pair that the rater has neither answered nor skipped, and the progress."""
    done = rating.answered_by(rater, ratings)
    left = [pair for pair in ratings.pairs if pair.id not in set(done)]
    shown = {name: printable(text) for name, text in left[0].as_dict().items()} if left else None
    return {"pair": shown, "done": len(done), "total": len(ratings.pairs)}


def _check_rater(name: Any) -> str:
    try:
        return rating.check_rater(name if isinstance(name, str) else "", "the page")
    except InputError as error:
        raise HttpError(400, str(error)) from None
