"""What a run stores, as text and back: findings and cases as JSON, a spec as YAML."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from backtalk.types import Case, Finding, Opening, SpokenTurn, Target

STATUSES = ("found", "nothing", "failed", "skipped")
KINDS = (Target.kind, Opening.kind)


def as_yaml(spec: Mapping[str, Any]) -> str:
    import yaml

    plain = json.loads(as_json(spec))  # texts that know where they come from become plain ones
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def as_json(value: Any) -> str:
    # ASCII, so that half a surrogate pair in a model's reply survives; infinities and NaN are Python's own
    # words, which `json.loads` takes back. Floats are written so that they come back bit for bit.
    return json.dumps(dict(value) if isinstance(value, Mapping) else value)


def read_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("a record is not an object")
    return value


def read_names(text: str) -> list[str]:
    """A list of settings by name."""
    value = json.loads(text)
    if not isinstance(value, list) or not all(
        isinstance(one, str) and all(part.isidentifier() for part in one.split(".")) for one in value
    ):
        raise ValueError("a list of settings holds something else")
    return value


def write_finding(finding: Finding) -> str:
    return as_json(finding_values(finding))


def read_finding(text: str) -> Finding:
    row = read_object(text)
    if row["status"] not in STATUSES:
        raise ValueError(f"a finding is {', '.join(STATUSES)}")
    if row["kind"] not in KINDS:
        raise ValueError(f"a case is {' or '.join(KINDS)}")
    if len({len(row["series"][name]) for name in ("toxicity", "input_mean") if name in row["series"]}) > 1:
        raise ValueError("a conversation has series of different lengths")
    return Finding(
        case=str(row["case"]),
        restart=int(row["restart"]),
        status=str(row["status"]),
        target=str(row["target"]),
        turns=tuple(
            SpokenTurn(str(turn["role"]), str(turn["text"]), tuple(int(i) for i in turn["ids"]))
            for turn in row["turns"]
        ),
        reply=str(row["reply"]),
        scores={str(name): float(value) for name, value in row["scores"].items()},
        series={str(name): [float(v) for v in values] for name, values in row["series"].items()},
        seed=int(row["seed"]),
        candidates=int(row["candidates"]),
        queries=int(row["queries"]),
        seconds=float(row["seconds"]),
        note=str(row["note"]),
        kind=str(row["kind"]),
    )


def read_case(kind: str, text: str) -> Case:
    row = read_object(text)
    head, rated = str(row["id"]), (str(row["category"]), int(row["severity"]))
    if kind == Opening.kind:
        return Opening(head, tuple(str(turn) for turn in row["turns"]), *rated)
    if kind != Target.kind:
        raise ValueError(f"a case is {' or '.join(KINDS)}")
    return Target(head, str(row["text"]), *rated, prototype=str(row["prototype"]))


def finding_values(finding: Finding) -> dict[str, Any]:
    """A finding as plain values; numpy's numbers become Python's without loss."""
    return {
        "case": finding.case,
        "restart": int(finding.restart),
        "status": finding.status,
        "target": finding.target,
        "turns": [
            {"role": turn.role, "text": turn.text, "ids": [int(i) for i in turn.ids]}
            for turn in finding.turns
        ],
        "reply": finding.reply,
        "scores": {name: float(value) for name, value in finding.scores.items()},
        "series": {name: [float(v) for v in values] for name, values in finding.series.items()},
        "seed": int(finding.seed),
        "candidates": int(finding.candidates),
        "queries": int(finding.queries),
        "seconds": float(finding.seconds),
        "note": finding.note,
        "kind": finding.kind,
    }


def finite(value: Any) -> Any:
    """The value with every number that JSON does not have made null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value
