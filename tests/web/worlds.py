"""Folders and servers for the tests of the app: made-up runs, a model that says known things."""

from __future__ import annotations

import http.client
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from backtalk.protocols import TextModel
from backtalk.rating.folder import Blinded, Key, blind, claimed, write_ratings
from backtalk.specs import chosen, flat_spec, spec_values
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run
from backtalk.store.exchanges import Exchange, finding_of
from backtalk.types import Access, Case, Dialogue, Finding, Opening, Target
from backtalk.web.app import App
from backtalk.web.chat import PageChat
from backtalk.web.run_list import RunList, key_of
from backtalk.web.server import AppServer
from tests.report.samples import THRESHOLDS, finding
from tests.report.test_folder_pages import AFTER, BEFORE, HARDENING
from tests.web.served import serving

BLOCK = 2
TARGETS = [
    Target(f"t-{i}", f"you are boring {i}", "rude" if i % 2 else "refusing", 1 + i % 3) for i in range(8)
]


class Parrot:
    """Says what it heard, in words of known chances: 1/2, 1/4, 1/8 ... and fails at "fail"."""

    name = fingerprint = "parrot"
    access = Access.LOGPROBS

    def __init__(self) -> None:
        self.heard: list[Dialogue] = []

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        self.heard += dialogues
        if any("fail" in dialogue[-1].text for dialogue in dialogues):
            raise RuntimeError("it broke at /secret/place")
        return [dialogue[-1].text for dialogue in dialogues]

    def sample(self, dialogues: Sequence[Dialogue], seeds: Sequence[int]) -> list[str]:
        return [f"{text} {seed}" for text, seed in zip(self.reply(dialogues), seeds, strict=True)]

    def log_prob(self, dialogues: Sequence[Dialogue], replies: Sequence[str]) -> list[list[float]]:
        return [[-(i + 1) * math.log(2) for i in range(len(reply.split()) + 1)] for reply in replies]

    def tokens(self, reply: str) -> list[str]:
        return reply.split()


def open_run(
    folder: Path, cases: Sequence[Case] = TARGETS, added: Mapping[str, Any] | None = None, **spec: Any
) -> Run:
    """An audit that has begun; whoever asks holds it."""
    facts = {
        "thresholds": {"T_out": THRESHOLDS.out, "T_in": THRESHOLDS.into},
        "reference": "T_out and T_in come from the model's card.",
        "fingerprint": "f00d",
        "versions": {"backtalk": "0.1.0"},
        "hardware": {"device": "cpu"},
        "words": {},
        "access": "WEIGHTS",
        "depends_on": {},
        **(added or {}),
    }
    asked = flat_spec(AuditSpec, {"hit": "io-sample-avg-k1", **spec})
    return Run.create(folder, spec_values(asked), facts, cases, "identity", BLOCK, chosen=chosen(asked))


def commit(run: Run, block: int, findings: Sequence[Finding] | None = None) -> None:
    cases = run.cases[block * BLOCK : (block + 1) * BLOCK]
    ids = {case.id for case in cases}
    rows = [f for f in findings if f.case in ids] if findings else [finding(case) for case in cases]
    run.commit_block(block, rows, 1.0)


def finish(
    folder: Path, targets: Sequence[Target] = TARGETS, findings: Sequence[Finding] | None = None, **spec: Any
) -> Path:
    """A finished audit."""
    from backtalk.runs.summary import summarise

    with open_run(folder, targets, **spec) as run:
        for block in range(run.blocks):
            commit(run, block, findings)
        run.set_state("finished")
        run.write_summary(summarise(run))
    return folder


OPENINGS = [f"we went to the lake {i}" for i in range(8)]


def play(folder: Path, rude: Sequence[int] = (1, 4), openings: Sequence[str] = OPENINGS, **spec: Any) -> Path:
    """A finished run of played conversations of two turns each; those named end rudely, by a rude prompt."""
    from backtalk.runs.summary import summarise

    cases = [Opening(f"o-{i}", (text,)) for i, text in enumerate(openings)]
    findings = [
        finding_of(
            case.id,
            case.turns,
            [
                Exchange(" and the weather", " it was sunny", 0.1, 0.1, 0.0, 2.0, 4, 0.0),
                Exchange(" you silly goose", " you utter fool", 0.9, 0.9, 0.8, 3.0, 4, 0.0)
                if i in rude
                else Exchange(" and the food", " it was fine, thanks", 0.2, 0.2, 0.0, 2.0 + i / 10, 4, 0.0),
            ],
            seed=i,
        )
        for i, case in enumerate(cases)
    ]
    facts: dict[str, Any] = {
        "player": "ipo",
        "scorer": "toxicity",
        "reward": None,
        "openings": {"source": "made up"},
    }
    facts["thresholds"] = {"T_out": math.nan, "T_in": -2.6}
    spec = {"search": "ast", "hit": "toxic-0.5", **spec}
    with open_run(folder, cases, facts, **spec) as run:
        for block in range(run.blocks):
            commit(run, block, findings)
        run.set_state("finished")
        run.write_summary(summarise(run))
    return folder


HARDENED = tuple(f"hard/{side}/held-out-gibbs" for side in (BEFORE, AFTER))
"""The audits of a hardening in the folder `hard`."""
COMPARED = "/compare?before={}&after={}".format(*map(key_of, HARDENED))
"""Their comparison."""


def harden(folder: Path) -> Path:
    """A finished hardening, with its audits of the held-out list, before and after."""
    folder.mkdir(parents=True)
    (folder / "hardening.json").write_text(json.dumps({"model": "chitchat", "hit": "io-sample-avg-k1"}))
    (folder / "summary.json").write_text(json.dumps(HARDENING))
    finish(folder / BEFORE / "held-out-gibbs")
    unlikely = [finding(target, tokens=[-9.0] * 5) for target in TARGETS[:6]]
    finish(
        folder / AFTER / "held-out-gibbs", findings=[*unlikely, *(finding(target) for target in TARGETS[6:])]
    )
    return folder


def make_ratings(folder: Path, pairs: int = 4) -> Path:
    inputs = [f"input {i}" for i in range(pairs)]
    first, second = ([f"{side} {i}" for i in range(pairs)] for side in ("first", "second"))
    return write_blinded(folder, blind(inputs, first, second, seed=1))


def write_blinded(folder: Path, blinded: Blinded) -> Path:
    first, second = {"name": "first"}, {"name": "second"}
    with claimed(folder):
        write_ratings(folder, blinded.pairs, Key(first, second, "made up", {"seed": 1}, *blinded[1:]))
    return folder


def served(
    root: Path, model: TextModel | None = None, ratings: Path | None = None
) -> AbstractContextManager[AppServer]:
    chosen = model or Parrot()
    app = App(RunList(root, ratings), PageChat(chosen.name, lambda: chosen))
    return serving(AppServer(app, 0))


def home(server: AppServer) -> str:
    """The path that the app's own paths are added to."""
    return urlsplit(server.address).path.removesuffix("/")


class Client:
    """A browser without eyes: keeps its cookie, says where it comes from."""

    def __init__(self, server: AppServer) -> None:
        self.server = server
        self.host = f"127.0.0.1:{server.server_port}"
        self.cookie = ""

    def enter(self) -> Client:
        parts = urlsplit(self.server.address)
        status, headers, _ = self.ask("GET", f"/?{parts.query}")
        assert (status, headers["Location"]) == (303, parts.path)
        self.cookie = headers["Set-Cookie"].partition(";")[0]
        return self

    def ask(
        self, method: str, path: str, body: Any = None, **changes: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        """The path begins where the app does."""
        return self.send(method, home(self.server) + path if path.startswith("/") else path, body, **changes)

    def send(
        self, method: str, path: str, body: Any = None, **changes: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        """The path is sent as it stands."""
        headers: dict[str, str | None] = {"Host": self.host, "Cookie": self.cookie}
        data = b""
        if method == "POST":
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers |= {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        headers |= {name.replace("_", "-"): value for name, value in changes.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=20)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if value is not None:
                    connection.putheader(name, value)
            if method == "POST":
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data or None)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def json(self, method: str, path: str, body: Any = None) -> Any:
        status, _, data = self.ask(method, path, body)
        return {"status": status, **json.loads(data)}
