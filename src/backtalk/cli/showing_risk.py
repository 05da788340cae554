"""Shows a risk estimate, and judges it by its gates."""

from pathlib import Path

from backtalk.report.risk_console import print_risk
from backtalk.risk.flow import PAGE, Estimated, read_estimate, write_page
from backtalk.risk.gates import RiskGates, judge_risk, risk_junit
from backtalk.runs.export import write_file
from backtalk.store import Run
from backtalk.terminal import make_console

FAILED = 3  # the exit status of a gate that failed


def show_stored(folder: Path, gates: RiskGates) -> int:
    """Shows an estimate as it is now and writes its page again; needs no model."""
    with Run.open(folder, verb="risk") as run:
        read = read_estimate(run)
    write_page(read)
    return show_estimated(read, gates)


def show_estimated(read: Estimated, gates: RiskGates) -> int:
    """Returns the exit status."""
    console = make_console()
    print_risk(read.found, console, gates.unmask)
    console.print(f"Report: {read.folder / PAGE}")
    judged = judge_risk(read.found, gates)
    for one in judged:
        console.print(one.line)
    if gates.junit:
        write_file(Path(gates.junit), risk_junit(read.found, judged))
    return FAILED if any(one.failed for one in judged) else 0
