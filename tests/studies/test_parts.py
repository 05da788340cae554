"""The runner of parts: what is skipped, rerun, left out, and what a kill costs."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backtalk.errors import InputError
from backtalk.studies.parts import (
    Outcome,
    Part,
    Result,
    Workplace,
    choose,
    claim_folder,
    keys_of,
    read_record,
    run_parts,
    take_records,
)


class Bench:
    """Parts a <- b <- c that say when they ran."""

    def __init__(self, folder: Path, **settings: int) -> None:
        self.folder, self.ran = folder, list[str]()
        self.settings = {"a": 0, "b": 0, "c": 0, **settings}
        self.files: dict[str, tuple[Path, ...]] = {}
        self.breaks: dict[str, Exception] = {}

    def parts(self) -> list[Part]:
        return [self.part("a"), self.part("b", "a"), self.part("c", "b"), self.part("apart")]

    def part(self, name: str, *needs: str) -> Part:
        def run(place: Workplace) -> Result:
            self.ran.append(name)
            if name in self.breaks:
                raise self.breaks[name]
            return {"found": [place.result(need)["found"] for need in needs]}

        settings = {"value": self.settings.get(name, 0)}
        return Part(name, needs, run, settings, self.files.get(name, ()), (f"own/{name}",))

    def run(self, *patterns: str, max_s: float = 0.0) -> Outcome:
        self.ran.clear()
        chosen, asked = choose(self.parts(), patterns or ["*"])
        return run_parts(chosen, Workplace(self.folder, "cpu"), lambda line: None, max_s, asked)


def test_done_parts_are_skipped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.run().done == ["a", "b", "c", "apart"]
    assert bench.ran == ["a", "b", "c", "apart"]
    assert bench.run().kept == ["a", "b", "c", "apart"]
    assert bench.ran == []
    record = read_record(tmp_path, "c")
    assert record is not None
    assert record["result"] == {"found": [[[]]]}
    assert {"seconds", "device", "versions", "settings", "key"} <= record.keys()


def test_a_changed_setting_reruns_the_part_and_what_builds_on_it_without_its_old_files(
    tmp_path: Path,
) -> None:
    Bench(tmp_path).run()
    for name in ("a", "b", "c"):
        (tmp_path / "own" / name).mkdir(parents=True)
    bench = Bench(tmp_path, b=1)
    bench.run()
    assert bench.ran == ["b", "c"]
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == ["a"]


def test_what_is_only_needed_is_taken_with_the_settings_it_has(tmp_path: Path) -> None:
    Bench(tmp_path).run("b")
    bench = Bench(tmp_path, a=1, b=1)
    bench.run("c")
    assert bench.ran == ["c"]
    bench.run("b")
    assert bench.ran == ["b"]  # asked for by name, it is run anew; a still is not
    bench.run("c")
    assert bench.ran == ["c"]  # what it was built on has changed
    bench.run()
    assert bench.ran == ["a", "b", "c", "apart"]


def test_names_and_globs_bring_what_they_need_in_order(tmp_path: Path) -> None:
    parts = Bench(tmp_path).parts()
    assert [part.name for part in choose(parts[::-1], ["c"])[0]] == ["a", "b", "c"]
    assert [part.name for part in choose(parts, ["a*"])[0]] == ["a", "apart"]
    with pytest.raises(InputError, match="did you mean 'apart'"):
        choose(parts, ["apartt"])


def test_a_missing_file_leaves_out_what_needs_it_and_runs_the_rest(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "study")
    bench.files["b"] = (tmp_path / "corpus.txt",)
    outcome = bench.run()
    assert outcome.missing == {str(tmp_path / "corpus.txt"): ["b"]}
    assert outcome.waiting == ["c"]
    assert bench.ran == ["a", "apart"]
    (tmp_path / "corpus.txt").write_text("here")
    bench.run()
    assert bench.ran == ["b", "c"]


def test_a_crash_leaves_the_parts_that_do_not_build_on_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.breaks["b"] = ZeroDivisionError("oops")
    outcome = bench.run()
    assert outcome.failed == {"b": "ZeroDivisionError: oops"}
    assert (outcome.done, outcome.waiting) == (["a", "apart"], ["c"])
    bench.breaks.clear()
    assert bench.run().done == ["b", "c"]


def test_bad_input_ends_the_command(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.breaks["a"] = InputError("the corpus is empty")
    with pytest.raises(InputError, match="the corpus is empty"):
        bench.run()
    assert bench.ran == ["a"]


def test_no_part_begins_after_the_time_is_over(tmp_path: Path) -> None:
    outcome = Bench(tmp_path).run(max_s=1e-9)
    assert (outcome.done, outcome.waiting) == ([], ["a", "b", "c", "apart"])


def test_a_part_at_work_elsewhere_is_left_alone_and_a_dead_ones_lock_is_taken_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run("apart")
    lock = tmp_path / "locks" / "b.lock"
    lock.write_text("4242")
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        outcome = bench.run()
        assert outcome.busy == {"b": 4242}
        assert (outcome.done, outcome.waiting) == (["a"], ["c"])
    bench.run()
    assert bench.ran == ["b", "c"]
    assert lock.read_text() == str(os.getpid())


KILLED = """
import os, signal, sys
from pathlib import Path
from backtalk.studies.parts import Part, Workplace, run_parts

def count(place, name):
    file = place.path("counts", name)
    file.write_text(file.read_text() + "x" if file.exists() else "x")
    return {"name": name}

def die(place):
    first = count(place, "first")
    if not place.path("counts", "spared").exists():
        place.path("counts", "spared").write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return {"first": first}

parts = [Part("a", (), lambda place: count(place, "a")), Part("b", ("a",), die)]
outcome = run_parts(parts, Workplace(Path(sys.argv[1]), "cpu"), lambda line: None)
print(",".join(outcome.done))
"""


def test_a_kill_costs_the_part_in_flight_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "study")]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout.strip() == "b"
    assert (tmp_path / "study/counts/a").read_text() == "x"
    assert (tmp_path / "study/counts/first").read_text() == "xx"
    assert json.loads((tmp_path / "study/results/b.json").read_text())["result"] == {
        "first": {"name": "first"}
    }


def test_a_study_goes_on_from_the_results_beside_a_page(tmp_path: Path) -> None:
    first = Bench(tmp_path / "first")
    first.run("b")
    kept = {name: read_record(tmp_path / "first", name) for name in ("a", "b")}
    page = tmp_path / "page.json"
    page.write_text(json.dumps({"study": "test", "parts": kept}))
    claim_folder(tmp_path / "second")
    take_records(tmp_path / "second", page)
    second = Bench(tmp_path / "second", b=1)
    assert second.run().kept == ["a"]  # b has other settings now
    assert second.ran == ["b", "c", "apart"]
    take_records(tmp_path / "second", page)
    record = read_record(tmp_path / "second", "b")
    assert record is not None
    assert record["settings"] == {"value": 1}, "what is there stays"


@pytest.mark.parametrize("text", ["", "[1]", '{"parts": {"a": 1}}', '{"spec": {"size": "mini"}}'])
def test_other_files_are_no_results(tmp_path: Path, text: str) -> None:
    (tmp_path / "page.json").write_text(text)
    with pytest.raises(InputError, match="beside a study's page"):
        take_records(tmp_path / "study", tmp_path / "page.json")
    assert not (tmp_path / "study").exists()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="holds other files and no study"):
        Bench(tmp_path).run()


def test_a_key_depends_on_settings_and_needs_alone(tmp_path: Path) -> None:
    here, there = Bench(tmp_path / "here").parts(), Bench(tmp_path / "there").parts()
    assert keys_of(here) == keys_of(there)
    changed = keys_of(Bench(tmp_path, a=1).parts())
    assert [name for name, key in keys_of(here).items() if changed[name] != key] == ["a", "b", "c"]
