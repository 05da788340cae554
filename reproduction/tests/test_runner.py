"""The runner of parts: what is skipped, rerun, left out, and what a kill costs."""

import fcntl
import json
import multiprocessing
import signal
import subprocess
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from backtalk import __version__
from backtalk.errors import InputError
from reproduction.ast.study import open_texts
from reproduction.page import Result
from reproduction.runner import (
    Outcome,
    Part,
    Workplace,
    choose,
    claim_folder,
    keys_of,
    read_record,
    run_parts,
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
        return run_parts(choose(self.parts(), patterns or ["*"]), Workplace(self.folder, "cpu"), max_s)


def test_done_parts_are_skipped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.run().done == ["a", "b", "c", "apart"]
    assert bench.ran == ["a", "b", "c", "apart"]
    assert bench.run().done == ["a", "b", "c", "apart"]
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


def test_names_and_globs_bring_what_they_need_in_order(tmp_path: Path) -> None:
    parts = Bench(tmp_path).parts()
    assert [part.name for part in choose(parts, ["c"])] == ["a", "b", "c"]
    assert [part.name for part in choose(parts, ["a*"])] == ["a", "apart"]
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
    bench.run()
    assert bench.ran == ["b", "c"]


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
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        outcome = bench.run()
        assert (outcome.done, outcome.waiting) == (["a", "apart"], ["b", "c"])
    bench.run()
    assert bench.ran == ["b", "c"]


KILLED = """
import os, signal, sys
from pathlib import Path
from reproduction.runner import Part, Workplace, run_parts

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
outcome = run_parts(parts, Workplace(Path(sys.argv[1]), "cpu"))
print(",".join(outcome.done))
"""


def test_a_kill_costs_the_part_in_flight_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "study")]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout.strip() == "a,b"
    assert (tmp_path / "study/counts/a").read_text() == "x"
    assert (tmp_path / "study/counts/first").read_text() == "xx"
    assert json.loads((tmp_path / "study/results/b.json").read_text())["result"] == {
        "first": {"name": "first"}
    }


def _claim_together(folders: list[Path], together: Barrier) -> None:
    for folder in folders:
        together.wait(30)
        claim_folder(folder, "ast")
        open_texts("embedded", folder)


def test_processes_that_claim_a_folder_at_once_all_get_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    folders, together = [tmp_path / str(i) for i in range(20)], context.Barrier(4)
    workers = [context.Process(target=_claim_together, args=(folders, together)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert {path.name for folder in folders for path in folder.iterdir()} == {"study.json", "data"}


def test_a_folder_is_a_study_or_refused(tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "study.json.77.partial").touch()  # another process is at it, or was killed
    claim_folder(tmp_path / "begun", "ast")
    assert json.loads((tmp_path / "begun" / "study.json").read_text()) == {
        "backtalk": __version__,
        "study": "ast",
    }
    with pytest.raises(InputError, match="holds the study ast"):
        claim_folder(tmp_path / "begun", "lora")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    with pytest.raises(InputError, match="other files"):
        claim_folder(tmp_path / "other", "ast")
    with pytest.raises(InputError, match="is a file; name a folder"):
        claim_folder(tmp_path / "other" / "thesis.txt", "ast")


def test_the_seconds_of_a_part_are_those_of_all_its_legs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("reproduction.runner.time.perf_counter", lambda: now[0])
    legs = [(100.0, ZeroDivisionError()), (20.0, KeyboardInterrupt()), (3.0, None), (4.0, None)]

    def run(place: Workplace) -> Result:
        seconds, error = legs.pop(0)
        now[0] += seconds
        if error is not None:
            raise error
        return {}

    def once(value: int) -> None:
        part = Part("long", (), run, {"value": value})
        run_parts([part], Workplace(tmp_path, "cpu"))

    once(1)
    with pytest.raises(KeyboardInterrupt):
        once(1)
    now[0] += 5000.0  # nothing was at work
    once(1)
    record = read_record(tmp_path, "long")
    assert record is not None
    assert record["seconds"] == 123.0
    once(2)
    record = read_record(tmp_path, "long")
    assert record is not None
    assert record["seconds"] == 4.0, "of its own settings alone"


def test_a_key_depends_on_settings_and_needs_alone(tmp_path: Path) -> None:
    here, there = Bench(tmp_path / "here").parts(), Bench(tmp_path / "there").parts()
    assert keys_of(here) == keys_of(there)
    changed = keys_of(Bench(tmp_path, a=1).parts())
    assert [name for name, key in keys_of(here).items() if changed[name] != key] == ["a", "b", "c"]
