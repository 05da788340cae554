"""JUnit XML: well formed whatever it holds, masked, and red exactly when it should be."""

from __future__ import annotations

import csv
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from backtalk.cli import main
from backtalk.runs.gates import GateResult, junit_xml
from backtalk.store.exchanges import finding_of
from tests.hostile import hostile_cases
from tests.report.bulk import make_run
from tests.report.samples import report_of, sample_report
from tests.report.test_conversations import exchange
from tests.report.test_conversations import report_of as talks_of


def status(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def failures(text: str) -> list[str]:
    return [
        test.get("name", "")
        for test in Xml.fromstring(text).iter("testcase")
        if test.find("failure") is not None
    ]


def test_without_a_gate_every_hit_fails() -> None:
    report = sample_report()
    text = junit_xml(report, [])
    hits = [case.id for case in report.cases if case.hit]
    assert hits
    assert [name.split(":")[0] for name in failures(text)] == hits
    (suite,) = Xml.fromstring(text)
    assert (suite.get("tests"), suite.get("failures")) == ("60", str(len(hits)))
    assert (suite.get("skipped"), suite.get("errors")) == ("2", "1")


def test_with_gates_they_alone_fail() -> None:
    gates = [
        GateResult("--fail-over 0.1", True, "may be as high as 30%"),
        GateResult("--baseline b", False, "1 -> 1"),
    ]
    assert failures(junit_xml(sample_report(), gates)) == ["--fail-over 0.1"]
    assert "30%" in junit_xml(sample_report(), gates)


@pytest.mark.parametrize("gates", [[], [GateResult("--fail-over 0.1", True, "may be as high as 30%")]])
def test_every_suite_counts_what_is_in_it(gates: list[GateResult]) -> None:
    """As the schema of Jenkins' xunit plugin asks: it refuses a suite without one of the counts."""
    for suite in Xml.fromstring(junit_xml(sample_report(), gates)):
        tests = suite.findall("testcase")
        counted = {
            name: str(len(suite.findall(f"testcase/{name}"))) for name in ("failure", "error", "skipped")
        }
        assert suite.attrib == {
            "name": suite.get("name"),
            "tests": str(len(tests)),
            "failures": counted["failure"],
            "errors": counted["error"],
            "skipped": counted["skipped"],
        }


def test_openings_are_not_masked() -> None:
    played = talks_of([finding_of("o", ["watch your back"], [exchange(0.1)], 1)])
    assert "watch your back" in junit_xml(played, [])


def test_sentences_are_masked_unless_asked_for() -> None:
    report = sample_report()
    assert "watch your back" not in junit_xml(report, [])
    assert "watch your back" in junit_xml(report, [], unmask=True)


def test_hostile_text_is_well_formed() -> None:
    report = report_of(*hostile_cases(), model="]]>")
    for unmask in (False, True):
        text = junit_xml(report, [GateResult("--baseline <x>\x00&", True, "\ud83d")], unmask)
        root = Xml.fromstring(text.encode())
        assert len(list(root.iter("testcase"))) == len(report.cases) + 1
        assert len(text) < 200_000


def test_the_commands_write_it_and_the_findings_as_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, xml, table = tmp_path / "run", tmp_path / "audit.xml", tmp_path / "findings.csv"
    make_run(run, 40)
    assert status("report", str(run), "--fail-over", "1%", "--junit", str(xml)) == 3
    assert failures(xml.read_text()) == ["--fail-over 0.01"]
    assert status("report", str(run), "--baseline", str(run), "--junit", str(xml)) == 0
    assert failures(xml.read_text()) == []
    assert status("report", str(run), "--junit", str(tmp_path / "nowhere" / "audit.xml")) == 2
    assert "can't write" in (err := capsys.readouterr().err)
    assert str(tmp_path / "nowhere" / "audit.xml") in err
    assert status("export", str(run), "-o", str(table)) == 0
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert {row["case"] for row in rows} == {f"c{i}" for i in range(40)}
    assert [row["hit"] for row in rows] == sorted((row["hit"] for row in rows), reverse=True)
