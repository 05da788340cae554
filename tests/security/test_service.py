"""Models that are asked over a service: the key leaves no trace, reads are bounded, a failed request leaves
its cause, and a kill loses no answer that was received."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count, product
from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.models.service.http_client import HttpClient, Limits, NoResponse
from backtalk.models.service.retry import Kind, RetryPolicy
from backtalk.store import Run
from backtalk.store.answers import StoredAnswers
from backtalk.terminal import printable
from tests.killing import finish, start
from tests.models.misbehaving import Misbehaving, answer, http, misbehaving
from tests.searches.reverse.worlds import WORDS, build_world

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flags of an audit by random questions, without model and budget."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("BACKTALK_API_KEY", KEY)
    return ["audit", *build_world(tmp_path)[2:], "--search", "utterances", "--out", "run"]


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with misbehaving() as one:
        yield one


def address(server: Misbehaving, concurrency: int = 1) -> list[str]:
    return ["--model", f"http://127.0.0.1:{server.port}/v1#m?concurrency={concurrency}"]


def write_targets(folder: Path, number: int) -> None:
    texts = [f"{a} {b}" for a, b in product(WORDS, WORDS) if a != b]
    (folder / "never.txt").write_text("\n".join(texts[:number]) + "\n")


def log_lines(folder: Path, phrase: str) -> list[str]:
    return [line for line in (folder / "log.txt").read_text().splitlines() if phrase in line]


# --- secrets -------------------------------------------------------------------------------------------

INSIDE = ("", "\u200b", "\x00", "\u202e", "\n", " \u2060\x07\r\n\t ")


def test_a_key_that_a_server_echoes_leaves_no_trace(
    world: list[str], server: Misbehaving, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_targets(tmp_path, 3 * len(INSIDE))
    turn = count()

    def respond(text: str, key: str) -> bytes:
        number = next(turn)
        echo = f"you like {INSIDE[number % len(INSIDE)].join(key)} and tea"
        return [
            http(200, answer(echo)),
            http(400, json.dumps({"error": {"message": echo}}).encode()),
            http(400, echo.encode()),
        ][number // len(INSIDE)]

    server.respond = respond
    audit = [*world, *address(server), "--max-queries", str(3 * len(INSIDE)), "--unmask"]
    assert run([*audit, "--junit", "junit.xml"]) == 0
    assert run(["report", "run", "--unmask"]) == 0
    assert run(["export", "run", "-o", "findings.csv"]) == 0
    assert run(["export", "run", "-o", "findings.jsonl"]) == 0
    assert server.count == 3 * len(INSIDE)
    assert all(f"Bearer {KEY}" in head for head in server.headers)
    printed = capfd.readouterr()
    assert "[key]" in printed.out
    with Run.open(tmp_path / "run") as opened:
        replies = [reply for _, reply in StoredAnswers(opened).pairs()]
        notes = [finding.note for finding in opened.findings() if finding.status == "failed"]
    assert (len(replies), len(notes)) == (len(INSIDE), 2 * len(INSIDE))
    assert all("you like [key] and tea" in text for text in (*replies, *notes))
    texts = [printed.out, printed.err, *replies, *notes]
    files = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    wanted = {"report.html", "run.sqlite", "log.txt", "summary.json", "junit.xml", "findings.csv"}
    assert wanted < files.keys()
    for text in (*texts, *(data.decode("utf-8", "replace") for data in files.values())):
        assert KEY not in text
        assert KEY not in printable(text)


# --- bounded reads -------------------------------------------------------------------------------------

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = 65_536
MOST = BODY + 262_144 + 8_000_000
"""The body, the allowance for headers and framing, and what the buffers of two sockets may hold."""


@contextmanager
def streaming(first: bytes, again: bytes) -> Iterator[tuple[int, list[int]]]:
    """A server that sends `first`, then `again` without end (or some 64 MB): its port, and the bytes sent."""
    sent = [0]

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(first)
            while sent[0] < 64_000_000:
                sent[0] += connection.send(again)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1]), sent
        thread.join(10)


@pytest.mark.parametrize(
    ("first", "again"),
    [
        pytest.param(CHUNKED + b"-1\r\n", b"x" * 65_536, id="chunk of -1 bytes"),
        pytest.param(CHUNKED + b"-5\r\n", b"x" * 65_536, id="chunk of -5 bytes"),
        pytest.param(CHUNKED + b"7" * 30 + b"\r\n", b"x" * 65_536, id="chunk of 10^36 bytes"),
        pytest.param(CHUNKED + b"zz\r\n", b"x" * 65_536, id="chunk of zz bytes"),
        pytest.param(CHUNKED, b"1;" + b"x" * 60_000 + b"\r\nx\r\n", id="long chunk extensions"),
        pytest.param(CHUNKED + b"0\r\n", b"X-Trailer: x\r\n" * 1000, id="endless trailers"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", b"X-Long: " + b"x" * 60_000 + b"\r\n", id="endless headers"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, id="endless 100 Continue"),
        pytest.param(b"", b"x" * 65_536, id="endless status line"),
    ],
)
def test_a_malformed_answer_ends_at_once_and_is_not_read_beyond_the_limit(first: bytes, again: bytes) -> None:
    with streaming(first, again) as (port, sent):
        client = HttpClient("127.0.0.1", port, False, Limits(silence_s=20, total_s=20, body=BODY))
        with pytest.raises(NoResponse) as caught:
            client.post("/v1/chat/completions", b"{}", {})
    assert caught.value.outcome.kind in (Kind.FAILED, Kind.UNUSABLE)
    assert not caught.value.outcome.timed_out
    assert sent[0] < MOST


# --- the cause of failed requests ----------------------------------------------------------------------


def failed_notes(folder: Path) -> list[str]:
    with Run.open(folder) as opened:
        return [finding.note for finding in opened.findings() if finding.status == "failed"]


def test_failed_requests_leave_their_cause_in_findings_and_log(
    world: list[str], server: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_targets(tmp_path, 30)
    quick = RetryPolicy(pause_s=0.0005, longest_s=0.001)
    monkeypatch.setattr(RetryPolicy.__init__, "__defaults__", tuple(vars(quick).values()))
    turn = count(1)

    def respond(text: str, key: str) -> bytes:  # 24 of 25 requests fail, so 4 of 5 questions do: 6 tries each
        down = http(500, b'{"error": {"message": "the backend\\n is down"}}')
        return http(200, answer("fine day")) if next(turn) % 25 == 0 else down

    server.respond = respond
    assert run([*world, *address(server), "--max-queries", "60"]) == 0
    assert server.count == 60
    notes = failed_notes(tmp_path / "run")
    down = [note for note in notes if "500: the backend is down" in note]
    over = [note for note in notes if "the queries had run out" in note]
    assert len(down) >= 2
    assert len(over) >= 20
    assert len(down) + len(over) == len(notes)
    (line,) = log_lines(tmp_path / "run", "500: the backend is down")
    assert " 9 inputs" in line  # of 60 requests two were answered, and 58 // 6 questions were given up
    assert len(log_lines(tmp_path / "run", "the queries had run out")) == 1


def test_a_function_that_raises_leaves_its_exception_in_findings_and_log(
    world: list[str], tmp_path: Path
) -> None:
    write_targets(tmp_path, 20)
    (tmp_path / "poor_talker.py").write_text(
        "calls = []\n\n\ndef reply(turns):\n    calls.append(turns)\n    if len(calls) % 5:\n"
        f"        raise ValueError('no quota left for {KEY}\\nsecond line')\n    return 'fine day'\n"
    )
    assert run([*world, "--model", "py:poor_talker:reply", "--max-queries", "40"]) == 0
    notes = failed_notes(tmp_path / "run")
    assert len(notes) >= 10
    assert all("2 inputs (ValueError: no quota left for [key])" in note for note in notes)
    (line,) = log_lines(tmp_path / "run", "no quota left")
    with Run.open(tmp_path / "run") as opened:
        answers = StoredAnswers(opened)
        missing = answers.spent()["rerank"] - len(answers.pairs())
    assert f" {missing} inputs" in line


def test_an_interrupted_session_logs_its_causes_too(world: list[str], tmp_path: Path) -> None:
    (tmp_path / "broke_talker.py").write_text("def reply(turns):\n    raise ValueError('no quota left')\n")
    assert run([*world, "--model", "py:broke_talker:reply", "--max-queries", "30"]) == 2
    assert any(" 9 inputs" in line for line in log_lines(tmp_path / "run", "no quota left"))


def test_where_nothing_was_answered_the_message_names_the_cause(
    world: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mute_talker.py").write_text("def reply(turns):\n    return ' '\n")
    audit = ["retrieval" if flag == "utterances" else flag for flag in world]
    assert run([*audit, "--model", "py:mute_talker:reply", "--max-queries", "30"]) == 2
    assert "the reply is empty" in capsys.readouterr().err.splitlines()[-1]


# --- kills ---------------------------------------------------------------------------------------------


def respond_to(server: Misbehaving, most: int) -> None:
    """Lets the server answer so many requests; the others wait until it is over."""
    permits = threading.Semaphore(most)

    def respond(text: str, key: str) -> bytes:
        while not permits.acquire(timeout=0.05):
            if server.over.is_set():
                raise ConnectionError
        return http(200, answer("fine day"))

    server.respond = respond


@pytest.mark.parametrize(("concurrency", "each"), [(2, 10), (64, 150)])
def test_a_kill_costs_only_what_is_in_flight(
    world: list[str], tmp_path: Path, concurrency: int, each: int
) -> None:
    kills, budget = 4, 1000
    utterances = [" ".join(words) for words in product(WORDS, repeat=3)]
    (tmp_path / "said.txt").write_text("\n".join(utterances) + "\n")
    write_targets(tmp_path, 5)
    finished, heard, port = 0, list[str](), 0
    for session in range(kills + 1):
        with misbehaving(port) as server:
            respond_to(server, each if session < kills else budget)
            port = server.port
            process = start([*world, *address(server, concurrency), "--max-queries", str(budget)])
            if session < kills:
                while server.finished < each:
                    assert process.is_alive()
                    time.sleep(0.001)
                process.kill()
            assert finish(process) == (-signal.SIGKILL if session < kills else 0)
            finished += server.finished
            heard += server.heard
            with Run.open(tmp_path / "run") as opened:
                answers = StoredAnswers(opened)
                stored, counted = len(answers.pairs()), answers.spent()["rerank"]
            lost = concurrency * min(session + 1, kills)
            assert finished - lost <= stored <= finished
            assert len(heard) <= counted <= min(budget, len(heard) + lost)
    assert stored == len(set(heard))
    assert len(heard) - stored <= kills * concurrency  # asked again: only what was in flight
