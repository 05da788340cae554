"""Shared by tests of studies: a quick miniature, a page from made-up results, a verdict by its words."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from reproduction.runner import Study, write_page
from reproduction.spec import StudySpec
from reproduction.verdicts import Verdict


def without_corpus(patch: pytest.MonkeyPatch) -> None:
    """As where the chitchat corpus is not installed: a hardening of the embedded model keeps it whole with
    the pairs that ship. To read and encode all 131,000 took most of the time of a study in miniature."""
    patch.setattr("backtalk.training.pairs.find_spec", lambda name: None)


def write_study(place: Path, study: Study, records: Mapping[str, Any], *missing: str) -> Path:
    """The page of these records, of a study with more parts; the file beside it names no private path."""
    results = place / "study" / "results"
    results.mkdir(parents=True)
    for name, value in records.items():
        (results / f"{name}.json").write_text(json.dumps(value))
    spec, path = StudySpec(data="/somewhere/private", restarts=4), place / "docs" / f"{study.name}.md"
    write_page(study, spec, study.sizes["paper"], [*records, *missing], place / "study", path)
    merged = json.loads(path.with_suffix(".json").read_text())
    assert merged["parts"].keys() == records.keys()
    assert "/somewhere" not in json.dumps(merged)
    return path


def verdict_on(found: Iterable[Verdict], finding: str, where: str) -> Verdict:
    """The only verdict whose finding holds these words and whose place ends so."""
    (one,) = (one for one in found if finding in one.finding and one.where.endswith(where))
    return one
