"""chat and serve-model with a model read by a chat template: roles, system prompts, lengths, batches."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from backtalk.cli import run
from backtalk.models.service.budget import BudgetedQueries, MemoryAnswers
from backtalk.registry import load_model
from backtalk.specs import ModelOptions
from backtalk.types import Dialogue, Turn
from backtalk.web.model_server import Batcher, ModelServer, Options
from tests.chatterbox import PLANTED, plain_log_probs, plain_reply, prompt
from tests.searches.reverse.worlds import UTTERANCES
from tests.web.served import Recorder, served
from tests.web.test_model_server import ask

pytestmark = pytest.mark.usefixtures("one_thread")
SYSTEM = "we like the sun and trees"


def says(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def chatted(capsys: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    capsys.readouterr()
    assert run(["chat", "--device", "cpu", *argv]) == 0
    return capsys.readouterr().out.splitlines()


# --- chat ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["", SYSTEM])
def test_a_chat_keeps_its_turns_with_their_roles(
    chatterbox: Path, capsys: pytest.CaptureFixture[str], system: str
) -> None:
    told = ["tea and you", "we see you", "rain and go"]
    say = [part for text in told for part in ("--say", text)]
    lines = chatted(capsys, "--model", f"hf/{chatterbox}", *say, "--max-reply", "9", "--system", system)
    messages = [says("system", system)] if system else []
    expected = []
    for text in told:
        messages.append(says("user", text))
        reply = plain_reply(chatterbox, messages, most=9)
        messages.append(says("assistant", reply))
        expected += [f"you> {text}", f"hf/{chatterbox}> {reply}"]
    assert lines == expected


def test_chances_and_samples_of_a_template_model(
    chatterbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = ["--model", f"hf/{chatterbox}", "--say", "rain and go"]
    reply, line = chatted(capsys, *chat, "--probabilities")[1:]
    assert reply.endswith("> go away")
    chances = [f"{2.718281828459045**p:.1%}" for p in _log_probs(chatterbox)]
    assert line.split("   (whole")[0].split() == ["go", chances[0], "away", chances[1], "(end)", chances[2]]
    first = chatted(capsys, *chat, "--sample", "--seed", "5")
    model: Any = load_model(f"hf/{chatterbox}", "cpu")
    assert first[1] == f"hf/{chatterbox}> {model.sample([(Turn('user', 'rain and go'),)], [5])[0]}"
    assert run(["chat", *chat, "--beam", "3"]) == 2
    assert "--beam is for local LSTM models" in capsys.readouterr().err
    assert run(["chat", *chat, "--sample", "--top-k", "3"]) == 2
    assert "--top-k" in capsys.readouterr().err


def _log_probs(chatterbox: Path) -> list[float]:
    return plain_log_probs(chatterbox, prompt("rain and go"), "go away <|end|>")


def test_options_are_refused_where_they_mean_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, value in (
        ("--template", "plain"),
        ("--system", "hi"),
        ("--dtype", "float32"),
        ("--max-reply", "3"),
    ):
        assert run(["chat", "--say", "hi", "--device", "cpu", flag, value]) == 2
        assert f"{flag} is for Hugging Face models; leave it out with chitchat" in capsys.readouterr().err
    assert run(["serve-model", "chitchat", "--system", "hi"]) == 2
    assert "--system is for Hugging Face models" in capsys.readouterr().err
    assert run(["chat", "--say", "hi", "--trust-remote-code"]) == 2
    assert "--trust-remote-code is for Hugging Face models" in capsys.readouterr().err


# --- serve-model ---------------------------------------------------------------------------------------


def test_the_endpoint_says_what_the_model_says(chatterbox: Path) -> None:
    model = load_model(f"hf/{chatterbox}", "cpu")
    replies = model.reply([(Turn("user", text),) for text in UTTERANCES])
    assert {text: replies[UTTERANCES.index(text)] for text in PLANTED} == PLANTED
    with served(model) as server:
        asker = BudgetedQueries(load_model(f"{server.address}#m"), MemoryAnswers(), most=len(UTTERANCES))
        assert asker.ask(UTTERANCES, "pairs") == replies


def test_system_messages_roles_and_lengths_of_requests(chatterbox: Path) -> None:
    given = "go away now"
    model = load_model(f"hf/{chatterbox}", "cpu", ModelOptions(system=given, max_reply=12))
    talk = [says("user", "tea and you"), says("assistant", "we see tea"), says("user", "rain and go")]
    requests: list[tuple[list[dict[str, str]], int | None]] = [
        (talk, None),
        ([says("system", SYSTEM), *talk], None),
        ([says("system", ""), *talk], None),
        (talk, 1),
        ([says("system", SYSTEM), *talk], 2),
        (talk, 10_000),
    ]
    with served(model) as server, ThreadPoolExecutor(len(requests)) as pool:
        said = list(pool.map(lambda one: _said(server, *one), requests))
    for (messages, limit), reply in zip(requests, said, strict=True):
        own = messages if messages[0]["role"] == "system" else [says("system", given), *messages]
        own = [one for one in own if one["content"]]
        assert reply == plain_reply(chatterbox, own, min(limit or 12, 12))


def _said(server: ModelServer, messages: list[dict[str, str]], limit: int | None) -> str:
    body = {"model": "m", "messages": messages, **({"max_tokens": limit} if limit else {})}
    status, answer = ask(server, "/v1/chat/completions", body)
    assert status == 200, answer
    text: str = answer["choices"][0]["message"]["content"]
    return text


@pytest.mark.parametrize("limit", [0, -1, 1.5, "ten", True])
def test_a_length_that_is_none_is_one_sentence(limit: object) -> None:
    with served(Recorder()) as server:
        body = {"model": "m", "messages": [says("user", "a")], "max_tokens": limit}
        status, answer = ask(server, "/v1/chat/completions", body)
    assert status == 400
    assert "max_tokens is a whole number" in answer["error"]["message"]


class Adjusted(Recorder):
    """Says with what it was adjusted."""

    def __init__(self, gate: threading.Event, mark: str = "") -> None:
        super().__init__(gate)
        self.mark = mark
        self.read_as: dict[str, str] = {}
        self.made: list[Adjusted] = []

    def adjusted(self, system: str | None = None, max_reply: int | None = None) -> Adjusted:
        assert self.gate is not None
        self.made.append(Adjusted(self.gate, f"{system} {max_reply}"))
        return self.made[-1]

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        return [f"{said} {self.mark}".strip() for said in super().reply(dialogues)]


def test_those_who_wish_the_same_are_answered_together() -> None:
    gate = threading.Event()
    model = Adjusted(gate)
    batcher = Batcher(model)
    first = batcher.submit((Turn("user", "first"),))
    while not batcher._queue.empty():  # the first is on its way to the model, which waits
        pass
    wishes = [Options(), Options("a"), Options("a", 3)]
    futures = [batcher.submit((Turn("user", str(i)),), wishes[i % 3]) for i in range(30)]
    gate.set()
    marks = ["", " a None", " a 3"]
    assert first.result(10) == "1 user first"
    assert [future.result(10) for future in futures] == [f"1 user {i}{marks[i % 3]}" for i in range(30)]
    batcher.close()
    assert [len(batch) for one in model.made for batch in one.batches] == [10, 10]
