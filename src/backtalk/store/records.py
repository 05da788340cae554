"""Findings and cases as JSON and back; a spec as YAML."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from backtalk.hits import parse_criterion
from backtalk.store.typed import read_record
from backtalk.terminal import printable
from backtalk.types import Case, Finding, Opening, Target, Thresholds

SCORES = ("loss", "log_prob", "mean", "min", "greedy", "input_mean", "similarity", "toxicity")
"""The scores that have a column of their own."""
LONGEST = 4000
"""Characters of a text that can be searched."""
STATUSES = ("found", "nothing", "failed", "skipped")
KINDS: dict[str, type[Target] | type[Opening]] = {kind.kind: kind for kind in (Target, Opening)}


def as_yaml(spec: Mapping[str, Any]) -> str:
    import yaml

    plain = json.loads(as_json(spec))  # `Name` texts become plain ones
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def as_json(value: Any) -> str:
    """ASCII, so that half a surrogate pair in a reply survives. Floats come back bit for bit; infinities and
    NaN are written as Python reads them."""
    return json.dumps(dict(value) if isinstance(value, Mapping) else value)


def read_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("a record is not an object")
    return value


def read_names(text: str) -> list[str]:
    """The names of settings, such as search.sweeps."""
    value = json.loads(text)
    if not isinstance(value, list) or not all(
        isinstance(one, str) and all(part.isidentifier() for part in one.split(".")) for one in value
    ):
        raise ValueError("a list of settings holds something else")
    return value


def finding_values(finding: Finding) -> dict[str, Any]:
    """A finding as plain values. NumPy's numbers become Python's."""
    return {
        **vars(finding),
        "restart": int(finding.restart),
        "turns": [{**vars(turn), "ids": [int(i) for i in turn.ids]} for turn in finding.turns],
        "scores": {name: float(value) for name, value in finding.scores.items()},
        "series": {name: [float(v) for v in values] for name, values in finding.series.items()},
        "seed": int(finding.seed),
        "candidates": int(finding.candidates),
        "queries": int(finding.queries),
        "seconds": float(finding.seconds),
    }


def write_finding(finding: Finding) -> str:
    return as_json(finding_values(finding))


def read_finding(text: str) -> Finding:
    finding: Finding = _read_whole(Finding, text)
    if finding.status not in STATUSES or finding.kind not in KINDS:
        raise ValueError(f"a finding has the status {finding.status!r} and the kind {finding.kind!r}")
    if len({len(finding.series[name]) for name in ("toxicity", "input_mean") if name in finding.series}) > 1:
        raise ValueError("a conversation has series of different lengths")
    return finding


def read_case(kind: str, text: str) -> Case:
    if kind not in KINDS:
        raise ValueError(f"a case is {' or '.join(KINDS)}")
    case: Case = _read_whole(KINDS[kind], text)
    return case


def _read_whole(kind: Any, text: str) -> Any:
    """A record with every field of the class."""
    row = read_object(text)
    if row.keys() != {field.name for field in fields(kind)}:
        raise ValueError(f"a {kind.__name__} has other fields")
    return read_record(kind, row)


def score_columns(finding: Finding) -> tuple[str | float | bool | None, ...]:
    """A row of the table `scores` after its key. A score that is absent or not finite is NULL."""
    texts = (finding.target, *(turn.text for turn in finding.turns), finding.reply, finding.case)
    return (
        finding.status,
        *(finite(finding.scores.get(name)) for name in SCORES),
        *(parse_criterion(name).holds(finding, Thresholds(math.nan)) for name in ("exact", "contains")),
        searchable(" \n ".join(text[:LONGEST] for text in texts)),
    )


def searchable(text: str) -> str:
    """A text as it is searched: lower case, without invisible characters."""
    return printable(text).casefold()


def finite(value: Any) -> Any:
    """The value with NaN and infinities replaced by None: JSON has no such numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value
