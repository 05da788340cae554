"""`serve-model`: the endpoint says what the model says, in batches, and refuses what it can't do in one
sentence."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backtalk.cli import run
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.models.service.budget import BudgetedQueries, MemoryAnswers
from backtalk.registry import load_model
from backtalk.types import Turn
from backtalk.web.http import LONGEST_REQUEST
from backtalk.web.model_server import Batcher, ModelServer
from tests.models.test_contract import SENTENCES, WORDS, small_folder
from tests.web.served import Recorder, served

COUNTING = "py:tests.models.test_function:count_turns"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with served(Recorder()) as one:
        yield one


def ask(
    server: ModelServer, path: str, body: object, method: str = "POST", **headers: str
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(
            method, path, text, {key.replace("_", "-"): value for key, value in headers.items()}
        )
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize("interface", ["", "?completions"])
@pytest.mark.usefixtures("one_thread")
def test_the_endpoint_says_what_the_model_says(tmp_path: Path, interface: str) -> None:
    model: LocalModel = small_folder(tmp_path)
    texts = [f"{a} {b}" for a in WORDS for b in WORDS[:6] if "'" not in a + b] + list(SENTENCES)
    replies = model.reply([(Turn("user", text),) for text in texts])
    assert len(set(replies)) > 10
    with served(model) as server:
        asker = BudgetedQueries(
            load_model(f"{server.address}#m{interface}"), MemoryAnswers(), most=len(texts)
        )
        assert asker.ask(texts, "pairs") == [reply.strip() or None for reply in replies]
        assert asker.left == 0


def test_turns_keep_their_roles(server: ModelServer) -> None:
    messages = [
        {"role": "system", "content": "be nice"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]},
    ]
    status, said = ask(server, "/v1/chat/completions", {"model": "m", "messages": messages, "temperature": 1})
    assert status == 200
    assert said["object"] == "chat.completion"
    assert said["choices"] == [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "3 user cd"}}
    ]
    status, said = ask(server, "/v1/completions", {"model": "m", "prompt": ["a\nb\nc\n", "d"]})
    assert [choice["text"] for choice in said["choices"]] == ["3 user c", "1 user d"]
    status, said = ask(server, "/v1/models", b"", "GET")
    assert [one["id"] for one in said["data"]] == ["m"]


HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("path", "body", "status", "phrase"),
    [
        ("/v1/chat/completions", b"{", 400, "not JSON"),
        ("/v1/chat/completions", b"\xff", 400, "not JSON in UTF-8"),
        ("/v1/chat/completions", b"[" * 100_000, 400, "not JSON"),
        ("/v1/chat/completions", b"[]", 400, "not an object"),
        ("/v1/chat/completions", {"messages": HELLO}, 404, "the model here is 'm'"),
        ("/v1/chat/completions", {"model": "other", "messages": HELLO}, 404, "the model here is 'm'"),
        ("/v1/chat/completions", {"model": "m"}, 400, "at least one from the user"),
        ("/v1/chat/completions", {"model": "m", "messages": "hello"}, 400, "at least one from the user"),
        ("/v1/chat/completions", {"model": "m", "messages": ["hello"]}, 400, "a message has a role"),
        ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user"}]}, 400, "a message has a role"),
        ("/v1/chat/completions", {"model": "m", "messages": HELLO, "stream": True}, 400, "not streamed"),
        ("/v1/chat/completions", {"model": "m", "messages": HELLO, "n": 3}, 400, "one greedy reply"),
        ("/v1/completions", {"model": "m", "prompt": 5}, 400, "a list of texts, as prompt"),
        ("/v1/completions", {"model": "m", "prompt": []}, 400, "a list of texts, as prompt"),
        (
            "/v1/completions",
            {"model": "m", "prompt": "fail"},
            500,
            "the model failed: RuntimeError: it broke",
        ),
        ("/v1/completions", b" " * (LONGEST_REQUEST + 1), 413, "1,048,576 bytes"),
        ("/elsewhere", {}, 404, "/v1/chat/completions"),
    ],
)
def test_what_can_not_be_done_is_one_sentence(
    server: ModelServer, path: str, body: object, status: int, phrase: str
) -> None:
    got, said = ask(server, path, body)
    assert got == status
    assert phrase in said["error"]["message"]
    assert ask(server, "/v1/completions", {"model": "m", "prompt": "still there"})[0] == 200


def test_only_this_machine_by_its_own_name_is_served(server: ModelServer) -> None:
    asked = {"model": "m", "prompt": "a"}
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert ask(server, "/v1/completions", asked, Host="evil.example.org")[0] == 403
    assert ask(server, "/v1/completions", asked, Host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example.org", "http://127.0.0.1:1", "null"])
def test_a_page_of_elsewhere_is_not_served(server: ModelServer, origin: str) -> None:
    asked = {"model": "m", "prompt": "a"}
    status, said = ask(server, "/v1/completions", asked, Origin=origin)
    assert status == 403
    assert "other pages" in said["error"]["message"]
    own = f"http://127.0.0.1:{server.server_port}"
    assert ask(server, "/v1/completions", asked, Origin=own)[0] == 200


def test_a_token_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(Recorder(), token="tok-12345") as server:
        asked = {"model": "m", "prompt": "a"}
        assert ask(server, "/v1/completions", asked)[0] == 401
        assert ask(server, "/v1/completions", asked, Authorization="Bearer tok-1234")[0] == 401
        assert ask(server, "/v1/completions", asked, Authorization="Bearer tok-12345")[0] == 200
        monkeypatch.setenv("BACKTALK_API_KEY", "tok-12345")
        assert load_model(f"{server.address}#m").reply([(Turn("user", "hey"),)]) == ["1 user hey"]
        monkeypatch.setenv("BACKTALK_API_KEY", "wrong-one")
        with pytest.raises(InputError, match="BACKTALK_API_KEY"):
            load_model(f"{server.address}#m").reply([(Turn("user", "hey"),)])


def test_what_arrives_together_is_answered_together() -> None:
    gate = threading.Event()
    model = Recorder(gate)
    batcher = Batcher(model)
    first = batcher.submit((Turn("user", "first"),))
    assert model.asked.wait(10)  # the first is with the model, which waits
    others = [batcher.submit((Turn("user", str(i)),)) for i in range(100)]
    gate.set()
    assert first.result(10) == "1 user first"
    assert [future.result(10) for future in others] == [f"1 user {i}" for i in range(100)]
    batcher.close()
    assert [len(batch) for batch in model.batches] == [1, 64, 36]


def test_one_that_fails_does_not_spoil_the_others() -> None:
    gate = threading.Event()
    batcher = Batcher(Recorder(gate))
    futures = [batcher.submit((Turn("user", text),)) for text in ("a", "fail", "b")]
    gate.set()
    assert (futures[0].result(10), futures[2].result(10)) == ("1 user a", "1 user b")
    with pytest.raises(RuntimeError, match="it broke"):
        futures[1].result(10)
    assert batcher.submit((Turn("user", "c"),)).result(10) == "1 user c"
    batcher.close()


def test_a_port_that_is_taken_and_a_model_that_is_served_already(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert run(["serve-model", COUNTING, "--port", port]) == 2
    assert f"can't listen on port {port}" in capsys.readouterr().err
    assert run(["serve-model", COUNTING, "--port", "99999"]) == 2
    assert "--port should not be 99999; the range is 0 to 65,535" in capsys.readouterr().err
    assert run(["serve-model", "http://127.0.0.1:1/v1#m"]) == 2
    assert "endpoint already" in capsys.readouterr().err


def test_the_command_serves_until_ctrl_c() -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path])
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "backtalk",
            "serve-model",
            COUNTING,
            "--port",
            "0",
        ],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    name = line.split("--model ")[1].split()[0]
    assert f"at {name.split('#')[0]} until Ctrl-C" in line
    assert load_model(name).reply([(Turn("user", "hey"),)]) == ["1 turns, last by user: hey"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "stopped\n", "")
