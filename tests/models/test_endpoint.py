"""A model behind an endpoint, against a real server that misbehaves: nothing crashes, a failed question is
never a reply, the key is seen nowhere, and the budget holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.errors import InputError
from backtalk.models.service.budget import BudgetedQueries, MemoryAnswers
from backtalk.models.service.endpoint import EndpointModel, retry_after
from backtalk.models.service.http_client import HttpClient, Limits, Response
from backtalk.models.service.retry import RetryPolicy
from backtalk.registry import load_model
from backtalk.store import Run
from backtalk.store.answers import StoredAnswers
from backtalk.types import Turn
from tests.models.misbehaving import Misbehaving, misbehaving
from tests.store.test_store import create
from tests.web.served import Recorder, served, served_safely

KEY = "sk-very-secret-0123456789"
HASTE = RetryPolicy(pause_s=0.005, longest_s=0.02)
SHORT = Limits(silence_s=0.3, total_s=0.5)
"""For those who answer too slowly; others have all the time they need on a busy machine."""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with misbehaving() as one:
        yield one


def endpoint(
    server: Misbehaving, settings: str = "", policy: RetryPolicy = HASTE, limits: Limits | None = None
) -> EndpointModel:
    model = load_model(f"http://127.0.0.1:{server.port}/v1#m{settings}")
    assert isinstance(model, EndpointModel)
    return replace(model, limits=limits or Limits(), policy=policy)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKTALK_API_KEY", KEY)


class ShortFor(HttpClient):
    """The short limits for one question; the others have theirs, however busy the machine is."""

    def __init__(self, text: str, client: HttpClient) -> None:
        super().__init__(client.host, client.port, False, SHORT)
        self._text, self._usual = f'"{text}"'.encode(), client

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Response:
        if self._text in body:
            return super().post(path, body, headers)
        return self._usual.post(path, body, headers)


BAD_ANSWERS = (
    "400", "truncated", "empty", "blank", "null", "number", "no-body", "no-choices", "no-object", "html",
    "deep", "big", "long", "endless", "latin-1", "utf-16", "surrogate", "packed", "echo",
    "close-in-header",
)  # fmt: skip
FAILURES = ("500", "502", "echo-500", "close", "close-midway", "close-in-chunk", "no-http")
TOO_SLOW = ("hang", "drip", "drip-header")


@pytest.mark.parametrize(
    ("how", "requests"),
    [(how, 1) for how in BAD_ANSWERS]
    + [(how, HASTE.tries) for how in FAILURES]
    + [(how, HASTE.timeout_tries) for how in TOO_SLOW],
)
def test_a_failed_question_is_no_reply_and_the_others_go_on(
    server: Misbehaving, tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str, requests: int
) -> None:
    model = endpoint(server)
    if how in TOO_SLOW:
        model._client = ShortFor(how, model._client)
    with create(tmp_path / "run") as stored:
        answers = StoredAnswers(stored)
        asker = BudgetedQueries(model, answers, most=50)
        began = time.monotonic()
        assert asker.ask(["fine a", how, "fine b"], "pairs") == ["ok fine a", None, "ok fine b"]
        assert time.monotonic() - began < Limits().silence_s / 2
        assert answers.get(["fine a", how, "fine b"]) == {"fine a": "ok fine a", "fine b": "ok fine b"}
        assert server.times(how) == requests
        assert answers.spent() == {"pairs": server.count} == {"pairs": 2 + requests}
    assert_key_is_nowhere(tmp_path, capfd, repr(asker.model))


@pytest.mark.parametrize("how", ["echo", "echo-500", "latin-1", "close-midway"])
def test_alone_as_in_a_chat_it_is_one_sentence(
    server: Misbehaving, tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    with pytest.raises(InputError, match="gave no usable reply") as caught:
        endpoint(server).reply([(Turn("user", how),)])
    assert "\n" not in str(caught.value)
    with create(tmp_path / "run") as stored:
        stored.append_log(str(caught.value))
    assert_key_is_nowhere(tmp_path, capfd, str(caught.value), repr(caught.value))


def assert_key_is_nowhere(folder: Path, capfd: pytest.CaptureFixture[str], *texts: str) -> None:
    printed = capfd.readouterr()
    for text in (*texts, printed.out, printed.err):
        assert KEY not in text
        assert "Traceback" not in text
    for path in folder.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("how", "facts"),
    [
        ("401", ["401: bad key [key]", "BACKTALK_API_KEY"]),
        ("403", ["403: who is [key]?", "BACKTALK_API_KEY"]),
        ("404", ["404: no such model", "name after #"]),
        ("redirect", ["302", "not followed"]),
        ("redirect-post", ["307", "not followed"]),
    ],
)
def test_what_asking_again_can_not_mend_ends_at_once(
    server: Misbehaving, tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str, facts: list[str]
) -> None:
    with misbehaving() as other, create(tmp_path / "run") as stored:
        server.elsewhere = f"http://127.0.0.1:{other.port}/v1/chat/completions"
        asker = BudgetedQueries(endpoint(server), StoredAnswers(stored))
        with pytest.raises(InputError) as caught:
            asker.ask([how], "pairs")
        assert all(fact in str(caught.value) for fact in facts)
        assert server.count == 1 == asker.answers.spent()["pairs"]
        assert other.count == 0
        assert asker.answers.get([how]) == {}
    assert_key_is_nowhere(tmp_path, capfd, str(caught.value))


def test_a_server_that_says_our_key_in_a_reply_does_not_get_it_stored(
    server: Misbehaving, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with create(tmp_path / "run") as stored:
        asker = BudgetedQueries(endpoint(server), StoredAnswers(stored))
        assert asker.ask(["echo-reply"], "pairs") == ["your key is [key] ok"]
    assert_key_is_nowhere(tmp_path, capfd)
    assert f"Authorization: Bearer {KEY}\r\n" in server.headers[0]


def test_a_word_for_a_key_is_no_secret(server: Misbehaving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKTALK_API_KEY", "fine")
    assert endpoint(server).reply([(Turn("user", "fine"),)]) == ["ok fine"]


@pytest.mark.parametrize(
    ("ours", "theirs", "sent"),
    [
        ("a-first", "b-second", "a-first"),
        ("", "b-second", "b-second"),
        (" a-first\n", "", "a-first"),
        ("", "", None),
    ],
)
def test_which_key_is_sent(
    server: Misbehaving, monkeypatch: pytest.MonkeyPatch, ours: str, theirs: str, sent: str | None
) -> None:
    monkeypatch.setenv("BACKTALK_API_KEY", ours)
    monkeypatch.setenv("OPENAI_API_KEY", theirs)
    endpoint(server).reply([(Turn("user", "fine"),)])
    assert ("Authorization" in server.headers[0]) == (sent is not None)
    assert sent is None or f"Bearer {sent}\r\n" in server.headers[0]


@pytest.mark.parametrize("key", ["two words", "a\nX-Header: b", "ключ-на-русском"])
def test_a_key_that_is_none_is_refused_unseen(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("BACKTALK_API_KEY", key)
    with pytest.raises(InputError, match="BACKTALK_API_KEY") as caught:
        load_model("http://127.0.0.1:1/v1#m")
    assert key not in str(caught.value)


def test_no_proxy_is_asked(server: Misbehaving, monkeypatch: pytest.MonkeyPatch) -> None:
    with misbehaving() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert endpoint(server).reply([(Turn("user", "fine"),)]) == ["ok fine"]
        assert (server.count, proxy.count) == (1, 0)


def test_a_certificate_that_nobody_vouches_for_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    with served_safely(recorder) as server:
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(InputError, match=r"\(self.signed certificate\)"):
            load_model(f"https://127.0.0.1:{server.server_port}/v1#m").reply([(Turn("user", "a"),)])
    with (
        served(recorder) as server,
        pytest.raises(InputError, match=r"\(wrong version number\); check scheme"),
    ):
        load_model(f"https://127.0.0.1:{server.server_port}/v1#m").reply([(Turn("user", "a"),)])
    assert recorder.batches == []


# RetryPolicy


def test_what_passes_is_asked_again(server: Misbehaving) -> None:
    asker = BudgetedQueries(endpoint(server), MemoryAnswers(), most=9)
    assert asker.ask(["500-once", "429-once", "fine"], "rl") == ["ok 500-once", "ok 429-once", "ok fine"]
    assert asker.answers.spent() == {"rl": 5} == {"rl": server.count}


def test_retry_after_is_honoured_up_to_our_own_limit(server: Misbehaving) -> None:
    # The server asks for a second.
    model = endpoint(server, policy=RetryPolicy(pause_s=0.001, longest_s=0.3))
    began = time.monotonic()
    assert BudgetedQueries(model, MemoryAnswers()).ask(["429-once"], "rl") == ["ok 429-once"]
    assert time.monotonic() - began >= 0.3
    runner = model._runner  # how much longer it took is the machine's: what was chosen is compared
    assert runner._paused_until - runner._paused_at < 0.9


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("0", 0), ("-3", 0), ("", 0), ("soon", 0), ("1e999", 0), ("9" * 400, 0), ("Wed, 99 Foo", 0)],
)
def test_retry_after_in_seconds(header: str, seconds: float) -> None:
    assert retry_after(header) == seconds


@pytest.mark.parametrize("how", ["500", "429", "close", "hang"])
def test_a_service_that_does_nothing_else_is_gone(server: Misbehaving, how: str) -> None:
    asker = BudgetedQueries(
        endpoint(server, limits=SHORT if how == "hang" else None), MemoryAnswers(), most=500
    )
    with pytest.raises(InputError, match=r"/v1 does not answer \("):
        asker.ask([f"{how} {i}" for i in range(100)], "pairs")
    assert server.count <= asker.answers.spent()["pairs"] < 110  # the last ones may still be on their way


def test_a_service_that_says_nothing_of_use_is_left(server: Misbehaving) -> None:
    asker = BudgetedQueries(endpoint(server), MemoryAnswers(), most=500)
    with pytest.raises(InputError, match=r" 50 answers .*not JSON"):
        asker.ask([f"html {i}" for i in range(200)], "pairs")
    assert server.count < 70


def test_where_nobody_listens_nothing_is_counted(server: Misbehaving) -> None:
    model = endpoint(server)
    server.shutdown()
    server.server_close()
    asker = BudgetedQueries(model, MemoryAnswers(), most=10)
    with pytest.raises(InputError, match=r"does not answer .*refused"):
        asker.ask(["fine"], "pairs")
    assert asker.answers.spent().get("pairs", 0) == 0
    assert asker.left == 10


def test_a_service_that_comes_back_in_time_is_waited_for() -> None:
    with misbehaving() as first:
        model = endpoint(first, policy=RetryPolicy(pause_s=0.1))
        port = first.port
        assert model.reply([(Turn("user", "fine 1"),)]) == ["ok fine 1"]
    back = threading.Event()

    def come_back() -> None:
        with misbehaving(port):
            back.wait(10)

    thread = threading.Timer(0.3, come_back)
    thread.start()
    try:
        assert model.reply([(Turn("user", "fine 2"),)]) == ["ok fine 2"]
    finally:
        back.set()
        thread.join()


# The budget, and answers that outlive a kill


def test_the_budget_holds_while_many_ask_and_some_fail(server: Misbehaving) -> None:
    ways = ("fine", "500-once", "close", "empty", "429-once", "500")
    texts = [f"{ways[i % len(ways)]} {i}" for i in range(300)]
    asker = BudgetedQueries(endpoint(server, "?concurrency=16"), MemoryAnswers(), most=100)
    replies = asker.ask(texts, "rl")
    assert server.count == 100 == asker.answers.spent()["rl"]
    assert asker.left == 0
    assert all(
        reply in (None, f"ok {text}")
        and (reply is None or text.split(" ")[0] not in ("close", "empty", "500"))
        for text, reply in zip(texts, replies, strict=True)
    )
    assert 0 < sum(reply is not None for reply in replies) < 100


def test_no_more_requests_at_once_than_the_limit(server: Misbehaving) -> None:
    lock, now, most = threading.Lock(), 0, 0
    gate = threading.Barrier(4)

    def enter(_: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        gate.wait(5)  # four must be here at once, or this breaks
        with lock:
            now -= 1

    server.on_request = enter
    model = endpoint(server, "?concurrency=4")
    texts = [f"fine {i}" for i in range(16)]
    assert model.reply([(Turn("user", text),) for text in texts]) == [f"ok {text}" for text in texts]
    assert most == 4


CHILD = """
import sys
from pathlib import Path
from backtalk.models.service.budget import BudgetedQueries
from backtalk.registry import load_model
from backtalk.store.answers import StoredAnswers
from tests.store.test_store import create

with create(Path(sys.argv[1])) as run:
    asker = BudgetedQueries(load_model(sys.argv[2]), StoredAnswers(run), most=600)
    asker.ask([f"fine {i}" for i in range(500)], "pairs")
"""


def test_after_a_kill_nothing_that_was_stored_is_asked_again(server: Misbehaving, tmp_path: Path) -> None:
    children: list[subprocess.Popen[bytes]] = []
    server.on_request = lambda count: children[0].send_signal(signal.SIGKILL) if count == 137 else None
    name = f"http://127.0.0.1:{server.port}/v1#m"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path])
    children.append(
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "run"), name], env={**os.environ, "PYTHONPATH": path}
        )
    )
    assert children[0].wait(60) == -signal.SIGKILL
    texts = [f"fine {i}" for i in range(500)]
    with Run.open(tmp_path / "run", write=True) as stored:
        answers = StoredAnswers(stored)
        kept = answers.get(texts)
        before = server.count
        # At most a batch and what was on its way is lost; some may have come between signal and end.
        assert 137 - 40 < len(kept) <= before
        assert answers.spent()["pairs"] >= before  # what was sent was counted before
        asker = BudgetedQueries(endpoint(server), answers, most=600)
        assert asker.ask(texts, "pairs") == [f"ok {text}" for text in texts]
        assert (
            set(server.heard[before:]) == set(texts) - kept.keys()
        )  # twice what the dead one had on its way
        assert server.count <= answers.spent()["pairs"] <= 600


# Through the command


def test_chat_talks_with_an_endpoint(server: Misbehaving, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"http://127.0.0.1:{server.port}/v1#m"
    assert run(["chat", "--model", name, "--say", "fine one", "--say", "fine two"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "you> fine one", f"{name}> ok fine one", "you> fine two", f"{name}> ok fine two",
    ]  # fmt: skip
    assert run(["chat", "--model", name, "--say", "401"]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert KEY not in printed.out + printed.err


@pytest.mark.parametrize(("how", "connections"), [("fine", 1), ("chunked", 1), ("old", 5)])
def test_every_way_to_send_a_body_is_read_and_connections_are_kept(
    server: Misbehaving, how: str, connections: int
) -> None:
    model = endpoint(server)
    for i in range(5):
        assert model.reply([(Turn("user", f"{how} {i}"),)]) == [f"ok {how} {i}"]
    assert (server.count, server.connections) == (5, connections)


def test_a_connection_that_was_closed_meanwhile_costs_no_reply(server: Misbehaving) -> None:
    asker = BudgetedQueries(endpoint(server, "?concurrency=2"), MemoryAnswers())
    texts = [f"leave {i}" for i in range(10)]
    assert asker.ask(texts, "pairs") == [f"ok {text}" for text in texts]


def test_the_whole_conversation_is_sent(server: Misbehaving) -> None:
    model = endpoint(server)
    dialogue = (Turn("user", "a"), Turn("model", "b"), Turn("user", "fine"))
    assert model.reply([dialogue]) == ["ok fine"]
    assert b'"assistant", "content": "b"' in model._request(dialogue)
    assert b'"temperature": 0' in model._request(dialogue)
