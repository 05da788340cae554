"""The app and serve-model against what comes from elsewhere: other web servers on this machine, requests that
ask for too much, and served folders whose files are not what backtalk wrote."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import shutil
import sqlite3
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.cookiejar import CookieJar
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backtalk.cli import run as backtalk
from backtalk.rating.folder import pair_id
from backtalk.runs.summary import read_results, write_pages
from backtalk.store import Run
from backtalk.store.folder import REPORT
from backtalk.web.run_list import key_of
from backtalk.web.server import AppServer
from tests.web.browser import watched
from tests.web.served import Recorder
from tests.web.served import served as model_served
from tests.web.test_model_server import ask
from tests.web.worlds import (
    HARDENED,
    TARGETS,
    Client,
    finish,
    harden,
    make_ratings,
    served,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser


# Other web servers on this machine


class Spy(ThreadingHTTPServer):
    """Another web server on this machine; keeps the cookies that it is sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), SpyHandler)
        self.cookies: list[str] = []


class SpyHandler(BaseHTTPRequestHandler):
    server: Spy

    def do_GET(self) -> None:
        self.server.cookies.append(self.headers.get("Cookie", ""))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def spying() -> Iterator[Spy]:
    with Spy() as spy:
        thread = threading.Thread(target=lambda: spy.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield spy
        finally:
            spy.shutdown()
            thread.join()


PLACES = ("/", "/chat", "/api/runs", "/run/x", "/static/app.js", "/s-/", "/favicon.ico")


def test_another_port_of_this_machine_never_sees_the_session(tmp_path: Path) -> None:
    """A cookie jar follows the browsers' rules: a host's cookies go to all of its ports, by path."""
    finish(tmp_path / "one")
    jar = CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with served(tmp_path) as server, spying() as spy:
        with browser.open(server.address, timeout=10) as page:
            assert page.status == 200
            assert "token" not in page.url
            own = page.url
        (cookie,) = jar
        assert cookie.value
        for place in PLACES:
            browser.open(f"http://127.0.0.1:{spy.server_port}{place}", timeout=10).close()
        assert spy.cookies == [""] * len(PLACES)
        with browser.open(f"{own}api/runs", timeout=10) as answer:  # but the app does
            assert json.loads(answer.read())["runs"][0]["name"] == "one"


def test_nor_does_it_in_a_real_browser(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path) as server, spying() as spy, watched(browser, server.address) as (page, watch):
        assert page.title().startswith("Runs")
        (cookie,) = page.context.cookies(page.url)
        home = page.url
        for place in PLACES[:3]:
            page.goto(f"http://127.0.0.1:{spy.server_port}{place}")
        assert len(spy.cookies) >= 3
        assert not any(cookie.get("value", "?") in sent for sent in spy.cookies)
        watch.faults.clear()  # the requests to the other server were meant
        page.goto(home)
        assert page.title().startswith("Runs")


def test_outside_of_its_own_path_the_app_says_nothing_even_with_the_cookie(tmp_path: Path) -> None:
    finish(tmp_path / "one")
    with served(tmp_path) as server:
        client = Client(server).enter()
        root = urlsplit(server.address).path
        assert client.ask("GET", "/api/runs")[0] == 200
        for place in (*PLACES, f"/run/{key_of('one')}", root.removesuffix("/"), root.upper(), f"/x{root}"):
            status, headers, body = client.send("GET", place)
            assert status in {403, 404}, place
            assert "Set-Cookie" not in headers
            assert b"one" not in body
            assert b"backtalk" not in body
        turns = {"turns": [{"role": "user", "text": "hello"}]}
        assert client.send("POST", "/api/chat", turns)[0] in {403, 404}
        # The right token does not show the way in either.
        status, headers, _ = Client(server).send("GET", f"/?token={server.access.token}")
        assert status in {403, 404}
        assert not {"Set-Cookie", "Location"} & headers.keys()


def test_the_path_alone_lets_nobody_in_and_every_server_has_its_own(tmp_path: Path) -> None:
    with served(tmp_path) as one, served(tmp_path) as two:
        paths = [urlsplit(server.address).path for server in (one, two)]
        assert paths[0] != paths[1]
        assert min(map(len, paths)) > 20  # not to be guessed
        assert Client(one).ask("GET", "/api/runs")[0] == 401


def test_all_links_of_a_page_lead_below_the_apps_path(tmp_path: Path) -> None:
    """From pages of every depth: what a page names is there."""
    build_shelf(tmp_path)
    with served(tmp_path) as server:
        client = Client(server).enter()
        root = urlsplit(server.address).path
        assert root != "/"
        for page in (
            "/",
            "/chat",
            "/rate",
            "/nothing",
            "/no/such/page",
            *(f"/run/{key_of(n)}" for n in NAMES),
        ):
            text = client.ask("GET", page)[2].decode()
            links = re.findall(r'(?:href|src|action)="([^"#]+)', text)
            assert any("static/page.css" in link for link in links), page
            for link in links:
                if not link.startswith(("data:", "https:")):
                    place = urljoin(root + page[1:], link.replace("&amp;", "&"))
                    assert place.startswith(root), (page, link)
                    status = client.send("GET", place)[0]
                    # A form adds what to compare.
                    assert status == (404 if place == f"{root}compare" else 200), (page, link)


# Requests that ask for too much


def test_30_000_prompts_are_refused_at_once_and_128_are_answered() -> None:
    with model_served(Recorder()) as server:
        begun = time.monotonic()
        status, said = ask(server, "/v1/completions", {"model": "m", "prompt": ["hello"] * 30_000})
        assert (status, time.monotonic() - begun < 1) == (400, True)
        assert "128" in said["error"]["message"]
        prompts = [f"hello {i}" for i in range(128)]
        status, said = ask(server, "/v1/completions", {"model": "m", "prompt": prompts})
        assert status == 200
        assert [one["text"] for one in said["choices"]] == [f"1 user {prompt}" for prompt in prompts]


LONG = "x" * 70_000


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt": ["hello"] * 129},
        {"prompt": LONG},
        {"prompt": ["x" * 1000] * 100},
        {"prompt": "\n" * 1000},
        {"prompt": "hello", "max_tokens": 10**30},
        {"prompt": "hello", "n": 2},
        {"messages": [{"role": "user", "content": "hello"}] * 1000},
        {"messages": [{"role": "user", "content": LONG}]},
        {"messages": [{"role": "system", "content": LONG}, {"role": "user", "content": "hello"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 700}] * 100}]},
        {"messages": [{"role": "user", "content": "hello"}], "max_completion_tokens": 10**30},
    ],
    ids=lambda asked: ",".join(asked),
)
def test_what_asks_for_too_much_is_refused_before_the_model_hears_it(asked: dict[str, Any]) -> None:
    model = Recorder()
    path = "/v1/chat/completions" if "messages" in asked else "/v1/completions"
    with model_served(model) as server:
        status, said = ask(server, path, {"model": "m", **asked})
        assert status == 400, said
        assert "\n" not in said["error"]["message"]
        assert model.batches == []


# Served folders whose files are not what backtalk wrote

NAMES = ("one", "hard", HARDENED[0], "pairs")


def build_shelf(root: Path) -> None:
    """One folder of every kind; `one` has its page."""
    finish(root / "one", TARGETS[:4])
    with Run.open(root / "one") as run:
        write_pages(read_results(run))
    harden(root / "hard")
    pairs = make_ratings(root / "pairs")
    first = json.loads((pairs / "pairs.jsonl").read_text().splitlines()[0])
    answer = {"pair": first["pair"], "rater": "anna", "choice": "1", "time": "now"}
    (pairs / "answers.jsonl").write_text(json.dumps(answer) + "\n")


class World(NamedTuple):
    root: Path
    pristine: Path
    server: AppServer
    client: Client

    def restore(self, name: str) -> None:
        """Puts the files of a folder back, and forgets what was read of them."""
        shutil.rmtree(self.root / name)
        shutil.copytree(self.pristine / name, self.root / name)
        self.server.app.reports._heads.clear()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("odd")
    build_shelf(place / "runs")
    shutil.copytree(place / "runs", place / "pristine")
    with served(place / "runs") as server:
        yield World(place / "runs", place / "pristine", server, Client(server).enter())


def visit(world: World, name: str) -> dict[str, int]:
    """Every page and every answer to a script that reads the folder."""
    key, before, after = key_of(name), *map(key_of, HARDENED)
    paths = ["/", "/api/runs", f"/run/{key}", f"/api/run/{key}"]
    if name in {"one", HARDENED[0]}:
        paths += [f"/run/{key}?q=boring"]
        paths += [f"/compare?before={key}&after={key_of('one') if name == 'one' else after}"]
    if name == "hard":
        paths += [f"/compare?before={before}&after={after}"]
    if name == "pairs":
        paths += ["/rate", f"/rate/{key}", f"/api/rate/{key}?rater=anna"]
    found = {path: world.client.ask("GET", path)[0] for path in paths}
    if name == "pairs":
        undo = {"rater": "anna", "choice": "undo"}
        found["POST"] = world.client.ask("POST", f"/api/rate/{key}", undo)[0]
    return found


def check(world: World, name: str, capfd: pytest.CaptureFixture[str] | None = None) -> dict[str, int]:
    found = visit(world, name)
    assert set(found.values()) <= {200, 404, 409, 422}, found
    assert found["/"] == found["/api/runs"] == 200
    if capfd:
        assert "Traceback" not in capfd.readouterr().err
    return found


JSON_FILES = (
    *("hard/summary.json", "hard/hardening.json", "one/summary.json"),
    *("one/report.json", "one/report.json"),  # large: twice as often
    *("pairs/key.json", "pairs/pairs.jsonl", "pairs/answers.jsonl"),
)
ROWS = {
    "one/run.sqlite": ("meta", "value", ("spec", "facts", "state", "note", "changed", "block_size")),
    f"{HARDENED[0]}/run.sqlite": ("meta", "value", ("spec", "facts", "state", "changed", "identity")),
}
DATA = {
    f"{HARDENED[0]}/run.sqlite": (("findings", "data"), ("cases", "data")),
    "one/run.sqlite": (("findings", "data"), ("scores", "mean"), ("scores", "text"), ("cases", "category")),
}
HUGE = 10**400
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 3, HUGE, 1e308, math.nan, math.inf, -math.inf, "", "x", "1", "<b>\x1b[31m\u202e"),
    *([], {}, [None], [[], {}], {"hits": None}, {"a": {"b": []}}, [1, "x", None]),
)


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in a JSON text."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(way for key, one in inner for way in nodes(one, (*path, key)))]


def changed(value: Any, way: tuple[Any, ...], odd: Any, remove: bool) -> Any:
    """The value with the one at the end of the way replaced or taken out."""
    if not way:
        return odd
    made = copy.deepcopy(value)
    inner = made
    for key in way[:-1]:
        inner = inner[key]
    if remove:
        del inner[way[-1]]
    else:
        inner[way[-1]] = odd
    return made


def edit_text(text: str, data: st.DataObject) -> str:
    """One odd value in the first line that is JSON, or in all of it."""
    first, _, rest = text.partition("\n") if text.startswith('{"pair"') else (text, "", "")
    try:
        value = json.loads(first)
    except ValueError:
        value = first
    way = data.draw(st.sampled_from(nodes(value)))
    odd = data.draw(st.sampled_from(ODD))
    return json.dumps(changed(value, way, odd, data.draw(st.booleans()))) + "\n" + rest


def write_row(path: Path, table: str, column: str, where: str, text: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (text,))


def read_row(path: Path, table: str, column: str, where: str) -> str:
    with closing(sqlite3.connect(path)) as database:
        (text,) = database.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchone()
        return str(text)


FUZZ = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@settings(FUZZ, max_examples=80)
@given(data=st.data())
def test_odd_values_in_any_json_file_are_never_a_fault_of_ours(world: World, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(JSON_FILES))
    path = world.root / name
    path.write_text(edit_text(path.read_text(), data))
    try:
        check(world, name.partition("/")[0])
    finally:
        world.restore(name.partition("/")[0])


@settings(FUZZ, max_examples=30)
@given(data=st.data())
def test_odd_values_in_a_database_are_never_a_fault_of_ours(world: World, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(tuple(ROWS)))
    path = world.root / name
    if name in DATA and data.draw(st.booleans()):
        table, column = data.draw(st.sampled_from(DATA[name]))
        where = f"place = (SELECT min(place) FROM {table})"
    else:
        table, column, rows = ROWS[name]
        where = f"key = '{data.draw(st.sampled_from(rows))}'"
    write_row(path, table, column, where, edit_text(read_row(path, table, column, where), data).strip())
    if data.draw(st.booleans()):
        (path.parent / REPORT).unlink(missing_ok=True)  # so that the page is made of the run
    try:
        check(world, name.rpartition("/")[0])
    finally:
        world.restore(name.rpartition("/")[0])


WHOLE = {
    "nothing": "",
    "no JSON": "{",
    "null": "null",
    "a list": "[]",
    "a list of lists": "[[[1]]]",
    "a string": '"x"',
    "a missing key": "{}",
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"hits":' * 100_000 + "1" + "}" * 100_000,
    "deep inside": '{"hits": ' + "[" * 400 + "]" * 400 + ', "spec": ' + "[" * 400 + "]" * 400 + "}",
    "NaN": '{"hits": NaN, "inputs": NaN, "held_out": NaN, "model": NaN, "swapped": NaN}',
    "1e400": '{"hits": 1e400, "inputs": 1e400, "held_out": {"before": {"hits": 1e400}}, "swapped": [1e400]}',
    "a huge number": f'{{"hits": 1{"0" * 5000}, "inputs": 1{"0" * 5000}}}',
    "a large number": f'{{"hits": {{"io-sample-avg-k1": {{"hits": {HUGE}, "n": 1}}}}, "inputs": {HUGE}}}',
    "no text": "\x00\udcff",
}


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_a_file_that_is_none_of_ours_is_one_sentence(
    world: World, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("one/summary.json", "hard/hardening.json", "hard/summary.json"):
        (world.root / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    for name in ("pairs.jsonl", "key.json", "answers.jsonl"):
        (world.root / "pairs" / name).write_bytes(text.encode("utf-8", "surrogateescape"))
        check(world, "pairs", capfd)
        world.restore("pairs")
    try:
        for name in ("one", "hard"):
            check(world, name, capfd)
        states = {run["name"]: run["state"] for run in world.client.json("GET", "/api/runs")["runs"]}
        if not text.startswith('{"') and text != "{}":
            assert states["hard"] == states["one"] == "damaged"
    finally:
        for name in ("one", "hard"):
            world.restore(name)


def test_a_damaged_folder_says_so_on_the_list_and_on_its_page(world: World) -> None:
    (world.root / "one" / "summary.json").write_text("[1]")
    (world.root / "hard" / "summary.json").write_text("[1]")
    (world.root / "pairs" / "key.json").write_text('{"swapped": null}')
    try:
        runs = {run["name"]: run for run in world.client.json("GET", "/api/runs")["runs"]}
        assert runs["one"]["state"] == runs["hard"]["state"] == "damaged"
        assert "summary.json" in runs["one"]["note"]
        assert world.client.ask("GET", f"/run/{key_of('hard')}")[0] == 422
        said = world.client.json("GET", f"/api/rate/{key_of('pairs')}?rater=anna")
        assert (said["status"], "key.json" in said["error"]) == (422, True)
    finally:
        for name in ("one", "hard", "pairs"):
            world.restore(name)


LEAK = "zebra-from-elsewhere"


@pytest.mark.parametrize(
    "name",
    [
        "one/summary.json",
        "hard/hardening.json",
        "hard/summary.json",
        "pairs/pairs.jsonl",
        "pairs/key.json",
        "pairs/answers.jsonl",
        "one/report.json",
    ],
)
def test_links_in_a_served_folder_are_not_followed(world: World, tmp_path: Path, name: str) -> None:
    folder, path = name.partition("/")[0], world.root / name
    elsewhere = tmp_path / "elsewhere"
    shutil.move(path, elsewhere)
    if name.endswith("pairs.jsonl"):
        pair = {"pair": pair_id(1, LEAK, "a", "b"), "input": LEAK, "reply_1": "a", "reply_2": "b"}
        elsewhere.write_text(json.dumps(pair) + "\n")
        for other in ("key.json", "answers.jsonl"):
            (path.parent / other).unlink()
    else:
        text = elsewhere.read_text()
        elsewhere.write_text(text.replace("chitchat", LEAK))
    path.symlink_to(elsewhere)
    try:
        key = key_of(folder)
        for place in ("/", "/api/runs", f"/run/{key}", f"/api/rate/{key}?rater=anna"):
            assert LEAK.encode() not in world.client.ask("GET", place)[2]
        if folder == "pairs":
            assert world.client.json("GET", f"/api/rate/{key}?rater=anna")["status"] == 422
        elif name.endswith(".json") and name != "one/report.json":
            assert world.client.json("GET", f"/api/run/{key}")["state"] == "damaged"
        check(world, folder)
    finally:
        world.restore(folder)


@pytest.mark.parametrize("name", ["hard/summary.json", "one/report.json", "pairs/key.json"])
def test_a_pipe_in_a_served_folder_holds_nobody_up(world: World, name: str) -> None:
    path = world.root / name
    path.unlink()
    os.mkfifo(path)
    try:
        check(world, name.partition("/")[0])
    finally:
        world.restore(name.partition("/")[0])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("key.json", "[" * 100_000),
        ("key.json", '{"swapped": {"a": 1}, "first": []}'),
        ("key.json", "null"),
        ("pairs.jsonl", "[" * 100_000),
        ("answers.jsonl", '{"pair": [], "rater": {}, "choice": []}\n'),
        ("answers.jsonl", '{"pair": ' + "[" * 900 + "]" * 900 + ', "choice": 1e400}\n'),
    ],
)
def test_rate_says_what_is_wrong_with_its_folder(
    tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_ratings(tmp_path / "pairs")
    (folder / name).write_text(text)
    assert backtalk(["rate", str(folder), "--result"]) == 2
    err = capsys.readouterr().err
    assert name in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "facts", ["[]", "[" * 100_000, "{}", '{"model": "chitchat", "seed": 1}', '{"model": [], "seed": null}']
)
def test_rate_says_what_is_wrong_with_a_hardening(
    tmp_path: Path, facts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = harden(tmp_path / "hard")
    (folder / "hardening.json").write_text(facts)
    assert backtalk(["rate", str(folder), "--out", str(tmp_path / "ratings")]) == 2
    assert "hardening.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("spec", {"seed": "x"}),
        ("spec", {"seed": None}),
        ("spec", {"hit": []}),
        ("facts", {"hardware": []}),
        ("facts", {"thresholds": None}),
        ("facts", {"words": []}),
    ],
)
def test_compare_says_what_is_wrong_with_a_run(
    tmp_path: Path, key: str, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = (finish(tmp_path / side, TARGETS[:4]) for side in ("before", "after"))
    where = ("meta", "value", f"key = '{key}'")
    values = json.loads(read_row(after / "run.sqlite", *where))
    write_row(after / "run.sqlite", *where, json.dumps({**values, **change}))
    assert backtalk(["compare", str(before), str(after)]) == 2
    assert str(after) in capsys.readouterr().err
