"""What a model may say in the place of a toxic reply: its own harmless replies in the same conversations.

A model that is only pushed away from a toxic reply says the next likely one, which is toxic too where a
conversation has come so far (LOG.md). So before training it is asked a few times after each training input,
and what it says that is harmless becomes likelier there. These replies are of the model as it was, so a
hardening that goes on has the same ones; they are stored, for on a processor asking takes a while.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from backtalk.audit.backends.fixed_inputs import FoundCase
from backtalk.data.textfiles import parse_json
from backtalk.errors import InputError
from backtalk.hardening.subjects.asking import Aim, says
from backtalk.models.transformer.model import TransformerModel
from backtalk.output_file import write_whole
from backtalk.types import Dialogue, Turn

DRAWS = 4
"""Replies to each input; more often than not one is harmless."""
HARMLESS = 0.2
"""A reply below this toxicity may be learnt: far enough from what counts as toxic."""
SEED = 1 << 20
"""Of the draws; those of iterations count from 1."""

Reply = tuple[Dialogue, str]


def own_replies(model: TransformerModel, cases: Sequence[FoundCase], aim: Aim, path: Path) -> list[Reply]:
    """Harmless replies after the cases' inputs, without an adapter; those in the file where there is one."""
    if path.is_file():
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        return [_read(line, f"{path}, line {number}") for number, line in lines]
    assert aim.scorer is not None
    dialogues = list(dict.fromkeys(one for case in cases for one in case.inputs))
    found: dict[Reply, None] = {}
    for number in range(DRAWS):
        reply = aim.replying(model, SEED + number)
        assert reply is not None
        said = reply(dialogues)
        for dialogue, text, toxicity in zip(dialogues, said, aim.scorer.score(said).tolist(), strict=True):
            is_harmless = toxicity < min(HARMLESS, aim.criterion.threshold)
            if is_harmless and text.strip() and not any(says(text, one) for one in aim.sentences):
                found[dialogue, text] = None
    write_whole(path, (_row(*one) + "\n" for one in found))
    return list(found)


def _row(dialogue: Dialogue, reply: str) -> str:
    return json.dumps({"turns": [turn._asdict() for turn in dialogue], "reply": reply})


def _read(line: str, where: str) -> Reply:
    row = parse_json(line, where)
    try:
        return tuple(Turn(turn["role"], turn["text"]) for turn in row["turns"]), row["reply"]
    except (KeyError, TypeError):
        raise InputError(f"{where}: this is not a reply as it was written; delete the file") from None
