"""Findings as training cases: a sentence that the model should not say, and the inputs after which it does.

They come from a run of any search, from the output of `backtalk export`, or from pairs of your own (JSONL
with "input" or "turns", and "reply"; or two tab-separated columns).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from backtalk.audit.backends.fixed_inputs import FoundCase
from backtalk.data.textfiles import parse_json, read_lines, read_rows
from backtalk.errors import InputError
from backtalk.hits import parse_criterion
from backtalk.models.transformer.generation import SamplingConfig
from backtalk.output_file import write_whole
from backtalk.registry import reward_name
from backtalk.searches.ast.players import Conversation, messages_of
from backtalk.store import Run
from backtalk.store.exchanges import exchanges_of
from backtalk.store.folder import DATABASE
from backtalk.types import Dialogue, Target, Turn


class Played(NamedTuple):
    hit: str  # the criterion of a reply, toxic-T without +likely
    scorer: str  # the judge
    reward: str
    chat: bool  # whether the model was read by its chat template or as running text
    sampling: SamplingConfig  # how replies were sampled


class PlayedTurn(NamedTuple):
    case: str
    opening: str
    number: int
    dialogue: Dialogue  # the conversation before the reply
    reply: str
    toxicity: float
    is_hit: bool


class TooFewError(InputError):
    """There are too few findings to train on or to split."""


def read_found(name: str, limit: int = 0) -> list[FoundCase]:
    """The cases of a run folder or a file, at most `limit`."""
    path = Path(name)
    rows = _run_rows(path) if path.is_dir() else _file_rows(path)
    cases: dict[str, FoundCase] = {}
    for target, dialogue in rows:
        if (known := cases.get(target.id)) is None:
            cases[target.id] = FoundCase(target, (dialogue,))
        elif known.target.text != target.text:
            raise InputError(f"{name}: two sentences have the id {target.id!r}; give each its own")
        elif dialogue not in known.inputs:
            cases[target.id] = replace(known, inputs=(*known.inputs, dialogue))
    if not cases:
        raise TooFewError(f"{name} holds no finding with an input and a sentence to train on")
    return list(cases.values())[: limit or None]


def write_found(path: Path, cases: Iterable[FoundCase]) -> None:
    """Writes JSONL in the format of `export`, which `read_found` reads."""
    rows = (
        {"case": case.target.id, "restart": restart, "status": "found", "target": case.target.text}
        | {name: getattr(case.target, name) for name in ("category", "severity", "prototype")}
        | {"turns": [turn._asdict() for turn in dialogue]}
        for case in cases
        for restart, dialogue in enumerate(case.inputs)
    )
    write_whole(path, (json.dumps(row) + "\n" for row in rows))


def input_key(dialogue: Dialogue) -> str:
    """A key that ignores case, spaces and final punctuation."""
    return " / ".join(" ".join(turn.text.casefold().split()).rstrip(".!? ") for turn in dialogue)


def _run_rows(folder: Path) -> Iterator[tuple[Target, Dialogue]]:
    with Run.open(folder) as run:
        if run.plays:  # each reply that is a hit, after the conversation before it
            for turn in played_turns(run):
                if turn.is_hit and turn.reply.strip():
                    name = f"{turn.case}-{turn.number}"  # all turns of a conversation stay in one list
                    yield Target(name, turn.reply, "toxic", prototype=turn.case), turn.dialogue
            return
        targets = {case.id: case for case in run.cases if isinstance(case, Target)}
        for finding in run.findings():
            text = finding.target or finding.reply
            if finding.status == "found" and finding.turns and text.strip():
                dialogue = tuple(Turn(turn.role, turn.text) for turn in finding.turns)
                yield replace(targets[finding.case], text=text), dialogue


def played_turns(run: Run) -> Iterator[PlayedTurn]:
    """Every turn of every conversation, hit or not."""
    criterion, chat = parse_criterion(str(run.spec["hit"])), run.facts.get("template") == "chat"
    for finding in run.findings():
        so_far: Conversation = (finding.target,)
        hits = criterion.turns_hit(finding, run.thresholds)
        for number, (one, is_hit) in enumerate(zip(exchanges_of(finding), hits, strict=True), 1):
            asked = (*so_far, one.adversary)
            # As running text: the opening, then alternating turns, each with its own spaces.
            roles = ("user", *("user", "assistant") * len(asked))
            dialogue = messages_of(asked) if chat else tuple(map(Turn, roles, asked))
            yield PlayedTurn(
                finding.case, finding.target, number, dialogue, one.defender, one.toxicity, is_hit
            )
            so_far = (*asked, one.defender)


def run_of(findings: str) -> Path | None:
    """The folder of the run that gave findings; None for a file of them."""
    return Path(findings) if findings and (Path(findings) / DATABASE).is_file() else None


def played_by(findings: str) -> Played | None:
    """How the findings were played; None if they are not a run of ast."""
    if (folder := run_of(findings)) is None:
        return None
    with Run.open(folder) as run:
        if not run.plays:
            return None
        criterion = replace(parse_criterion(str(run.spec["hit"])), likely=False)
        own, chat = run.spec["search"], run.facts.get("template") == "chat"
        sampling = SamplingConfig(most=int(own["turn_tokens"]))
        scorers = str(run.spec["scorer"]), str(own["reward"] or reward_name(run.spec["scorer"]))
        return Played(criterion.name, *scorers, chat, sampling)


def _file_rows(path: Path) -> Iterator[tuple[Target, Dialogue]]:
    lines = [(number, line) for number, line in read_lines(path) if line.strip()]
    if lines and not lines[0][1].lstrip().startswith("{"):
        for number, (said, reply) in read_rows(path, 2, "input, reply"):
            yield Target(f"p-{number:04d}", reply.strip()), (Turn("user", said.strip()),)
        return
    for number, line in lines:
        where = f"{path}, line {number}"
        row = parse_json(line, where)
        if not isinstance(row, dict):
            raise InputError(f"{where}: not an object")
        if row.get("status", "found") != "found":
            continue
        yield _target(row, number, where), _dialogue(row, where)


def _target(row: Mapping[str, Any], number: int, where: str) -> Target:
    text = row.get("target") or row.get("reply")
    if not isinstance(text, str) or not text.strip():
        raise InputError(f'{where}: no text under "reply" or "target", which is what should not be said')
    severity = row.get("severity", 1)
    if severity not in (1, 2, 3):
        raise InputError(f"{where}: the severity should be 1, 2 or 3, not {severity!r}")
    return Target(
        str(row.get("case") or row.get("id") or f"p-{number:04d}"),
        text.strip(),
        str(row.get("category", "unspecified")),
        severity,
        str(row.get("prototype", "")),
    )


def _dialogue(row: Mapping[str, Any], where: str) -> Dialogue:
    """From "turns" (objects with role and text, or texts of which the last is the user's) or "input"."""
    turns = row.get("turns") or [row.get("input") or row.get("trigger")]
    found: list[Turn] = []
    for place, turn in enumerate(reversed(turns) if isinstance(turns, list) else []):
        if isinstance(turn, str):
            turn = {"role": ("user", "assistant")[place % 2], "text": turn}
        if not isinstance(turn, dict) or not isinstance(turn.get("text"), str):
            found = []
            break
        found.append(Turn(str(turn.get("role", "user")), turn["text"].strip()))
    if not found or not found[0].text:
        raise InputError(f'{where}: no text under "input", nor "turns" with texts')
    return tuple(reversed(found))
