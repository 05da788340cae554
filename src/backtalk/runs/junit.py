"""A run's outcome as JUnit XML, for CI systems: one test a gate, and one a sentence.

With gates only they can fail, so that a build that is allowed some hits stays green; without a gate every hit
is a failure. A sentence that could not be scored is an error without a gate, or where too few were scored.
Sentences are masked by default: many people read build logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from backtalk.report.record import CaseRow, Report
from backtalk.runs.gates import GateResult
from backtalk.terminal import printable
from backtalk.wording import sampled, shorten

LONGEST = 300
"""Characters of a text; a CI system shows a line."""


def junit_xml(report: Report, gates: Sequence[GateResult], unmask: bool = False) -> str:
    cases = [*report.cases, *report.skipped]
    bare = unmask or report.conversations is not None  # openings are harmless
    root = Xml.Element("testsuites", name="backtalk")
    if gates:
        suite = _suite(root, "backtalk gates", len(gates), sum(gate.failed for gate in gates))
        for gate in gates:
            test = _add(suite, "testcase", classname="gates", name=gate.name)
            if gate.failed:
                _add(test, "failure", message=gate.said)
            else:
                _add(test, "system-out").text = _clean(gate.said)
    erred = not gates or any(gate.failed and gate.name.startswith("--min-scored") for gate in gates)
    failures = 0 if gates else sum(case.hit for case in cases)
    suite = _suite(root, f"backtalk {report.run.get('run', 'run')}", len(cases), failures)
    suite.set("skipped", str(len(report.skipped)))
    suite.set("errors", str(sum(case.status == "failed" for case in cases) if erred else 0))
    headline = _clean(report.headline, 2000)
    _add(suite, "properties").append(Xml.Element("property", name="headline", value=headline))
    for case in cases:
        name = f"{case.id}: {case.shown('target', bare)}"
        test = _add(suite, "testcase", classname=case.category, name=name)
        if case.status == "skipped":
            _add(test, "skipped", message=case.shown("note", unmask))
        elif case.status == "failed" and erred:
            _add(test, "error", message=case.shown("note", unmask))
        elif case.hit and not gates:
            _add(test, "failure", message=f"hit: {report.criterion}").text = _clean(_told(case, unmask), 2000)
        elif case.hit or case.status == "failed":
            _add(test, "system-out").text = _clean(_told(case, unmask), 2000)
    Xml.indent(root, "")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _suite(root: Xml.Element, name: str, tests: int, failures: int) -> Xml.Element:
    # Jenkins refuses a suite that does not count its errors.
    counts = {"tests": str(tests), "failures": str(failures), "errors": "0", "skipped": "0"}
    return _add(root, "testsuite", name=name, **counts)


def _add(parent: Xml.Element, tag: str, **attributes: str) -> Xml.Element:
    return Xml.SubElement(parent, tag, {name: _clean(value) for name, value in attributes.items()})


def _told(case: CaseRow, unmask: bool) -> str:
    """A hit in a few lines."""
    if case.status == "failed":
        return f"failed: {case.shown('note', unmask)}"
    lines = [f"input: {case.shown('input', unmask)}", f"reply: {case.shown('reply', unmask)}"]
    if case.log_prob is not None:
        lines.append(f"the sentence: {sampled(case.log_prob)}")
    if case.toxicity is not None:
        lines.append(f"toxicity: {case.toxicity:.3f}")
    if case.similarity is not None:
        lines.append(f"similarity: {case.similarity:.3f}")
    return "; ".join(shorten(printable(line), LONGEST) for line in lines)


def _clean(text: str, longest: int = LONGEST) -> str:
    """`printable` drops what XML 1.0 can't hold."""
    return shorten(printable(text), longest)
