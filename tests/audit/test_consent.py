"""Beyond this machine nothing is sent before somebody agreed, and never in the clear without a word."""

from __future__ import annotations

import io
import re

import pytest

from backtalk.audit.consent import Consent, agree
from backtalk.cli import run
from backtalk.cli.config import consent_from
from backtalk.cli.parser import CONSENT, Parser
from backtalk.errors import InputError
from backtalk.models.service.endpoint import EndpointModel
from backtalk.registry import load_model
from backtalk.types import Name, Origin, Turn

KEY = "sk-very-secret-0123456789"
REMOTE = "https://api.example.org/v1#m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKTALK_API_KEY", KEY)


def load(name: str) -> EndpointModel:
    model = load_model(name)
    assert isinstance(model, EndpointModel)
    return model


def test_without_a_word_nothing_is_sent() -> None:
    with pytest.raises(InputError, match=r"agreed .*https://api\.example\.org:443"):
        load(REMOTE).reply([(Turn("user", "a"),)])


def test_this_machine_and_our_own_models_need_nobodys_word() -> None:
    agree(load("http://127.0.0.1:1/v1#m"), "9 requests", Consent())
    agree(load_model(Name("py:tests.talkers:shout", Origin.TYPED)), "9 requests", Consent())


def test_yes_agrees_but_not_to_plain_http() -> None:
    model = load(REMOTE)
    agree(model, "9 requests", Consent(yes=True))
    assert model.agreed
    plain = load("http://10.0.0.9/v1#m")
    with pytest.raises(InputError, match=r"plain http .*--insecure"):
        agree(plain, "9 requests", Consent(yes=True))
    assert not plain.agreed
    agree(plain, "9 requests", Consent(yes=True, insecure=True))
    assert plain.agreed


def typed_consent(*flags: str) -> Consent:
    """What a command with these flags says, at the present standard input."""
    parser = Parser()
    for add in CONSENT:
        add(parser)
    return consent_from(parser.parse_args(flags))


@pytest.mark.parametrize("typed", [io.StringIO("y\n"), None])
def test_where_nobody_can_be_asked_the_flag_is_needed(
    monkeypatch: pytest.MonkeyPatch, typed: io.StringIO | None
) -> None:
    monkeypatch.setattr("sys.stdin", typed)
    for consent in (Consent(), typed_consent()):
        with pytest.raises(InputError, match=r"9 requests .*--yes"):
            agree(load(REMOTE), "9 requests", consent)
    model = load(REMOTE)
    agree(model, "9 requests", typed_consent("--yes"))
    assert model.agreed


@pytest.mark.parametrize(
    ("typed", "agreed"), [("y\n", True), ("YES\n", True), ("\n", False), ("", False), ("n", False)]
)
def test_the_question_says_how_many_and_where_and_whose_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, agreed: bool
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    model, consent = load(REMOTE), typed_consent()
    if agreed:
        agree(model, "at most 20,000 requests", consent)
        agree(model, "at most 20,000 requests", consent)  # asks once
    else:
        with pytest.raises(InputError, match="nothing was sent"):
            agree(model, "at most 20,000 requests", consent)
    assert model.agreed is agreed
    assert re.search(
        r"20,000 .* https://api\.example\.org:443, .*BACKTALK_API_KEY\..*\[y/N\] $", capsys.readouterr().err
    )


def test_chat_asks_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run(["chat", "--model", REMOTE, "--say", "a"]) == 2
    assert run(["chat", "--model", "http://api.example.org/v1#m", "--say", "a", "--yes"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert "add --yes" in said[0]
    assert "add --insecure" in said[1]


def test_an_endpoint_is_not_sealed() -> None:
    with pytest.raises(InputError, match="leave out sealed:"):
        load_model(f"sealed:{REMOTE}")
