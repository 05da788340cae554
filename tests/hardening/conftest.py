"""A tiny model with a planted habit, and its hardening, for all files here."""

from __future__ import annotations

from pathlib import Path

import pytest
import reproduction  # noqa: F401  # registers the method gan
import torch

from backtalk.cli import run
from tests.hardening.commands import command
from tests.planted import greeting_pairs, plant, polite_pairs, write_pairs


@pytest.fixture
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session", autouse=True)
def _short_proofs(short_proofs: None) -> None: ...


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Findings, and pairs to keep and to measure."""
    place = tmp_path_factory.mktemp("planted")
    write_pairs(place / "found.jsonl", greeting_pairs())
    write_pairs(place / "keep.jsonl", polite_pairs()[::2])
    write_pairs(place / "reference.jsonl", polite_pairs()[1::2])
    return place


@pytest.fixture(scope="session")
def planted(place: Path) -> Path:
    torch.set_num_threads(1)
    return plant(place / "gpt2", "gpt2")


@pytest.fixture(scope="session")
def hardened(place: Path, planted: Path) -> Path:
    assert run(command(place, str(place / "hardened"))) == 0
    return place / "hardened"
