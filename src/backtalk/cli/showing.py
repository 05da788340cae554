"""Shows a run or a hardening, and judges a run by its gates."""

from __future__ import annotations

from pathlib import Path

from backtalk.hardening.flow import write_report
from backtalk.hardening.folder import read_record
from backtalk.hits import parse_criterion
from backtalk.report.console import print_report
from backtalk.report.hardening_console import print_hardening
from backtalk.runs.export import write_file
from backtalk.runs.gates import Gates, judge, judge_scored
from backtalk.runs.junit import junit_xml
from backtalk.runs.summary import PAGE, Faces, look, refuse_unscored, stamp_of, thresholds_of, write_faces
from backtalk.store import Run
from backtalk.terminal import make_console

FAILED = 3  # the exit status of a gate that failed


def show_run(run: Run, gates: Gates) -> int:
    """Writes the page, shows the table, and judges. Returns the exit status."""
    while True:
        faces = look(run, gates.beside)
        told = _write(faces)
        # A run that ended meanwhile wrote its last page, and this one may have replaced it; one that is still
        # at work will write it.
        if faces.stamp == stamp_of(run.folder) or run.state == "running":
            return _show(run, faces, gates, told)


def show_finished(faces: Faces, gates: Gates) -> int:
    """The same for a run that this command has finished: its page was just written."""
    there = (faces.folder / PAGE).exists()
    told = f"Report: {faces.folder / PAGE}" if there else _write(faces)
    with Run.open(faces.folder, write=True) as run:
        return _show(run, faces, gates, told)


def show_hardening(out: Path, unmask: bool) -> int:
    """Shows a finished hardening and writes its page again, if its proof is about the weights in it."""
    record = read_record(out)
    print_hardening(record, make_console(), pages=write_report(out, record), unmask=unmask)
    return 0


def _write(faces: Faces) -> str:
    """A line that says where the page is, or why there is none."""
    try:
        return f"Report: {write_faces(faces)}"
    except OSError as error:
        return f"No page was written: {faces.folder / PAGE} can't be written ({error.strerror})."


def _show(run: Run, faces: Faces, gates: Gates, told: str) -> int:
    summary = faces.summary
    console = make_console()
    print_report(faces.shown, console, unmask=gates.unmask)
    console.print(told)
    refuse_unscored(faces)
    asked = parse_criterion(run.spec["hit"])
    judged = judge_scored(summary, gates)
    judged += judge(run.folder, asked, summary["hits"], faces.findings, thresholds_of(run), gates)
    for one in judged:
        console.print(one.line)
        if run.is_held:
            run.append_log(one.line)
    if gates.junit:
        write_file(Path(gates.junit), junit_xml(faces.report, judged, gates.unmask))
    return FAILED if any(one.failed for one in judged) else 0
