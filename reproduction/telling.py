"""How a study runs what was asked for, writes its page, and says what is not done."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from backtalk import terminal
from backtalk.errors import InputError
from backtalk.output_file import write_whole
from backtalk.specs import parse_duration, spec_values
from reproduction.html_page import render_study
from reproduction.jobs import command_of, run_jobs
from reproduction.parts import Outcome, Part, Workplace, choose, run_parts, take_records
from reproduction.spec import StudySpec

PAGE_ALONE = "page"
"""As --parts: builds the page from what is there and runs nothing."""
NO_PAGE = "none"
"""As --page."""


def run_and_tell(
    parts: Sequence[Part], spec: StudySpec, name: str, write_page: Callable[[Path, Sequence[str], Path], Path]
) -> int:
    """`write_page` gets the study's folder, the names of its parts and the page's path."""
    folder, max_s = Path(spec.out), parse_duration(spec.max_time)
    names = [one.strip() for one in spec.parts.split(",") if one.strip()]
    chosen, asked = ([], set()) if names == [PAGE_ALONE] else choose(parts, names or ["*"])
    if spec.records:
        take_records(folder, Path(spec.records))
    place = Workplace(folder, spec.device)
    if spec.jobs > 1 and chosen:
        flags = folder / "jobs.json"
        write_whole(flags, json.dumps(spec_values(spec)))
        outcome = run_jobs(chosen, place, say, max_s, asked, spec.jobs, command_of(name, flags))
    else:
        outcome = run_parts(chosen, place, say, max_s, asked)
    if spec.page == NO_PAGE:
        return conclude(outcome)
    page = write_page(folder, [part.name for part in parts], Path(spec.page or folder / f"{name}.md"))
    if not spec.page:
        write_whole(page.with_suffix(".html"), render_study(page))
        page = page.with_suffix(".html")
    terminal.say(f"Page: {page}")
    return conclude(outcome)


def conclude(outcome: Outcome) -> int:
    """Says what is not done. A crash is exit status 1; a missing file is an error of the command's input."""
    for part, process in outcome.busy.items():
        say(f"{part} is at work in process {process}.")
    if outcome.waiting:
        say(f"Not begun: {', '.join(outcome.waiting)}. The same command again goes on.")
    if outcome.failed:
        for part, error in outcome.failed.items():
            say(f"Failed: {part}: {error}")
        return 1
    if outcome.missing:
        lacks = [f"{path} (for {', '.join(names)})" for path, names in outcome.missing.items()]
        raise InputError(f"the study needs files that are not there: {'; '.join(lacks)}; the rest was run")
    return 0


def say(line: str) -> None:
    terminal.say(line, file=sys.stderr)
