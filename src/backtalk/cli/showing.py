"""Shows a run or a hardening, and judges a run by its gates."""

from pathlib import Path

from backtalk.hardening.flow import write_report
from backtalk.hardening.folder import read_record
from backtalk.report.comparison_console import print_hardening
from backtalk.report.console import print_report
from backtalk.runs.export import write_file
from backtalk.runs.gates import Gates, judge, junit_xml
from backtalk.runs.summary import PAGE, Results, read_results, refuse_unscored, stamp_of, write_pages
from backtalk.store import Run
from backtalk.terminal import make_console

FAILED = 3  # the exit status of a gate that failed


def show_run(run: Run, gates: Gates) -> int:
    """Writes the page, shows the table, and judges. Returns the exit status."""
    while True:
        results = read_results(run, gates.beside)
        told = _write(results)
        # A run that ended meanwhile wrote its last page, and this one may have replaced it; one that is still
        # at work will write it.
        if results.stamp == stamp_of(run.folder) or run.state == "running":
            return _show(run, results, gates, told)


def show_finished(results: Results, gates: Gates) -> int:
    """The same for a run that this command has finished: its page was just written."""
    there = (results.folder / PAGE).exists()
    told = f"Report: {results.folder / PAGE}" if there else _write(results)
    with Run.open(results.folder, write=True) as run:
        return _show(run, results, gates, told)


def show_hardening(out: Path, unmask: bool) -> int:
    """Shows a finished hardening and writes its page again, if its proof is about the weights in it."""
    record = read_record(out)
    print_hardening(record, make_console(), pages=write_report(out, record), unmask=unmask)
    return 0


def _write(results: Results) -> str:
    """A line that says where the page is, or why there is none."""
    try:
        return f"Report: {write_pages(results)}"
    except OSError as error:
        return f"No page was written: {results.folder / PAGE} can't be written ({error.strerror})."


def _show(run: Run, results: Results, gates: Gates, told: str) -> int:
    console = make_console()
    print_report(results.shown, console, unmask=gates.unmask)
    console.print(told)
    refuse_unscored(results)
    judged = judge(results.summary, results.findings, run.thresholds, gates)
    for one in judged:
        console.print(one.line)
        if run.is_held:
            run.append_log(one.line)
    if gates.junit:
        write_file(Path(gates.junit), junit_xml(results.report, judged, gates.unmask))
    return FAILED if any(one.failed for one in judged) else 0
