"""The runner of parts: what is skipped, rerun, left out, and what a kill costs."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from backtalk import __version__
from backtalk.errors import InputError
from reproduction.ast.data import open_texts
from reproduction.parts import (
    Outcome,
    Part,
    Result,
    Workplace,
    choose,
    claim_folder,
    keys_of,
    read_record,
    read_records,
    run_parts,
    take_records,
)
from reproduction.stamps import read_stamp, stamp_path


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
from reproduction.parts import Part, Workplace, run_parts

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


def _claim_together(folders: list[Path], together: Barrier) -> None:
    for folder in folders:
        together.wait(30)
        claim_folder(folder)
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
    claim_folder(tmp_path / "begun")
    assert json.loads((tmp_path / "begun" / "study.json").read_text()) == {"backtalk": __version__}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    with pytest.raises(InputError, match="holds other files and no study"):
        claim_folder(tmp_path / "other")
    with pytest.raises(InputError, match="is a file; name a folder"):
        claim_folder(tmp_path / "other" / "thesis.txt")


def test_a_study_goes_on_from_the_results_beside_a_page(tmp_path: Path) -> None:
    first = Bench(tmp_path / "first")
    first.run("b")
    kept = {name: read_record(tmp_path / "first", name) for name in ("a", "b")}
    page = tmp_path / "page.json"
    page.write_text(json.dumps({"study": "test", "parts": kept}))
    claim_folder(tmp_path / "second")
    take_records(tmp_path / "second", page)
    (tmp_path / "second" / "own" / "a").mkdir(parents=True)  # what it leaves behind came too
    second = Bench(tmp_path / "second", b=1)
    assert second.run().kept == ["a"]  # b has other settings now
    assert second.ran == ["b", "c", "apart"]
    take_records(tmp_path / "second", page)
    record = read_record(tmp_path / "second", "b")
    assert record is not None
    assert record["settings"] == {"value": 1}, "what is there stays"


class Builders:
    """Parts base <- tuned <- (one, two): each leaves a file that those that need it read."""

    def __init__(self, folder: Path, **settings: int) -> None:
        self.folder, self.settings, self.ran = folder, settings, list[str]()
        self.said: list[str] = []

    def parts(self) -> list[Part]:
        return [
            self.part("base"),
            self.part("tuned", "base"),
            self.part("one", "tuned"),
            self.part("two", "tuned"),
        ]

    def part(self, name: str, *needs: str) -> Part:
        value = self.settings.get(name, 1)

        def run(place: Workplace) -> Result:
            self.ran.append(name)
            made = value + sum(int(place.path("made", need).read_text()) for need in needs)
            place.path("made", name).write_text(str(made))
            return {"made": made, "here": place.folder.name}

        return Part(name, needs, run, {"value": value}, owns=(f"made/{name}",))

    def run(self, *patterns: str) -> Outcome:
        self.ran.clear()
        self.said.clear()
        chosen, asked = choose(self.parts(), patterns or ["*"])
        return run_parts(chosen, Workplace(self.folder, "cpu"), self.said.append, asked=asked)

    def take(self, page: Path) -> None:
        claim_folder(self.folder)
        take_records(self.folder, page)

    def made(self) -> dict[str, tuple[int, str]]:
        """What each part's result says, and where it was made."""
        records = read_records(self.folder, [part.name for part in self.parts()])
        return {name: (one["result"]["made"], one["result"]["here"]) for name, one in records.items()}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """All results of a study, beside its page."""
    first = Builders(tmp_path / "first")
    assert first.run().done == ["base", "tuned", "one", "two"]
    path = tmp_path / "page.json"
    path.write_text(json.dumps({"parts": read_records(tmp_path / "first", ["base", "tuned", "one", "two"])}))
    return path


def test_what_was_taken_is_made_again_only_where_its_files_are_needed(tmp_path: Path, page: Path) -> None:
    study = Builders(tmp_path / "second", two=5)
    study.take(page)
    keys = {name: record["key"] for name, record in read_records(study.folder, study.made()).items()}
    assert study.run("one").kept == ["base", "tuned", "one"], "nothing is to be run: nothing is missed"
    outcome = study.run("two")
    assert (outcome.kept, outcome.done) == ([], ["base", "tuned", "two"])
    assert [line for line in study.said if "files that are needed are not" in line] == [
        "[1/3] base (its result is here, files that are needed are not) ...",
        "[2/3] tuned (its result is here, files that are needed are not) ...",
    ]
    assert study.made() == {
        "base": (1, "second"),
        "tuned": (2, "second"),
        "one": (3, "first"),
        "two": (7, "second"),
    }
    now = {name: record["key"] for name, record in read_records(study.folder, study.made()).items()}
    assert [name for name in keys if keys[name] != now[name]] == ["two"]
    assert now == keys_of(study.parts())
    assert study.run().kept == ["base", "tuned", "one", "two"]


def test_what_is_made_again_has_the_key_of_its_settings_now(tmp_path: Path, page: Path) -> None:
    study = Builders(tmp_path / "second", tuned=10, two=5)
    study.take(page)
    study.run("two")  # tuned would do with the settings it had, but it is to be made
    assert study.ran == ["base", "tuned", "two"]
    assert study.made()["two"] == (16, "second")
    records = read_records(study.folder, ["base", "tuned", "two"])
    keys = keys_of(study.parts())
    assert all(record["key"] == keys[name] for name, record in records.items())
    assert records["tuned"]["settings"] == {"value": 10}
    study.run("one", "two")
    assert study.ran == ["one"], "what it was built on has changed"


def test_asked_parts_whose_needs_get_another_key_are_run_with_them(tmp_path: Path, page: Path) -> None:
    study = Builders(tmp_path / "second", tuned=10, two=5)
    study.take(page)
    study.run("one", "two")
    assert study.ran == ["base", "tuned", "one", "two"]


def test_files_that_were_brought_by_hand_are_used(tmp_path: Path, page: Path) -> None:
    study = Builders(tmp_path / "second", two=5)
    study.take(page)
    study.folder.joinpath("made").mkdir()
    study.folder.joinpath("made", "tuned").write_text("20")
    study.run("two")
    assert study.ran == ["two"]
    assert study.made()["two"] == (25, "second")


def test_half_made_files_are_not_taken_for_those_of_a_result(tmp_path: Path, page: Path) -> None:
    study = Builders(tmp_path / "second", tuned=10)
    study.take(page)
    for name in ("base", "tuned"):
        study.folder.joinpath("results", f"{name}.json").unlink()
    breaks = Builders(study.folder, tuned=10)
    breaks.part = lambda name, *needs: _breaking(Builders.part(breaks, name, *needs))  # type: ignore[method-assign]
    assert list(breaks.run("tuned").failed) == ["tuned"]
    assert study.folder.joinpath("made", "tuned").exists()
    study.take(page)
    study.settings = {"two": 5}
    study.run("two")
    assert study.ran == ["tuned", "two"]
    assert study.made()["two"] == (7, "second")


def _breaking(part: Part) -> Part:
    def run(place: Workplace) -> Result:
        found = part.run(place)
        if part.name == "tuned":
            raise ZeroDivisionError("oops")
        return found

    return replace(part, run=run)


def test_a_part_that_is_made_again_and_stopped_is_gone_on_with_while_its_result_stays_on_the_page(
    tmp_path: Path, page: Path
) -> None:
    study = Builders(tmp_path / "second", two=5)
    study.take(page)
    stopped = Builders(study.folder, two=5)
    stopped.part = lambda name, *needs: _breaking(Builders.part(stopped, name, *needs))  # type: ignore[method-assign]
    outcome = stopped.run("two")
    assert (list(outcome.failed), outcome.waiting) == (["tuned"], ["two"])
    assert study.made()["tuned"] == (2, "first")
    study.run("two")
    assert study.ran == ["tuned", "two"]
    assert study.made()["tuned"] == (2, "second")


def test_missing_data_leaves_the_result_that_was_taken(tmp_path: Path, page: Path) -> None:
    study = Builders(tmp_path / "second", two=5)
    study.take(page)
    data = tmp_path / "corpus.txt"
    plain = study.part
    study.part = lambda name, *needs: replace(plain(name, *needs), files=(data,) if name == "base" else ())  # type: ignore[method-assign]
    outcome = study.run("two")
    assert outcome.missing == {str(data): ["base"]}
    assert outcome.waiting == ["tuned", "two"]
    assert study.made()["base"] == (1, "first")
    assert "two" in study.made()


# --- seconds -------------------------------------------------------------------------------------------


def test_the_seconds_of_a_part_are_those_of_all_its_legs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("reproduction.stamps.time.perf_counter", lambda: now[0])
    legs = [(100.0, ZeroDivisionError()), (20.0, KeyboardInterrupt()), (3.0, None), (4.0, None)]

    def run(place: Workplace) -> Result:
        seconds, error = legs.pop(0)
        now[0] += seconds
        if error is not None:
            raise error
        return {}

    def once(value: int) -> None:
        part = Part("long", (), run, {"value": value})
        run_parts([part], Workplace(tmp_path, "cpu"), lambda line: None)

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


CLOCKED = """
import os, signal, sys
from pathlib import Path
from reproduction import stamps
from reproduction.parts import Part, Workplace, read_record, run_parts

now = [0.0]
stamps.time.perf_counter = lambda: now[0]
stamps.TICK_S = 0.01
folder, leg = Path(sys.argv[1]), float(sys.argv[2])

def run(place):
    now[0] += leg
    if leg == 100:
        path = stamps.stamp_path(folder, "long")
        while stamps.read_stamp(path).seconds < leg:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return {}

run_parts([Part("long", (), run)], Workplace(folder, "cpu"), lambda line: None)
print(read_record(folder, "long")["seconds"])
"""


def test_a_kill_leaves_the_seconds_so_far(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLOCKED, str(tmp_path / "study")]
    assert subprocess.run([*command, "100"], capture_output=True).returncode == -signal.SIGKILL
    again = subprocess.run([*command, "20"], capture_output=True, text=True, check=True)
    assert float(again.stdout) == 120


def test_a_stamp_that_is_a_key_alone_is_understood(tmp_path: Path) -> None:
    """As it was before seconds stood in it: what a part left behind stays."""
    bench = Bench(tmp_path)
    claim_folder(tmp_path)
    key = keys_of(bench.parts())["a"]
    path = stamp_path(tmp_path, "a")
    path.parent.mkdir()
    path.write_text(key)
    (tmp_path / "own" / "a").mkdir(parents=True)
    bench.run("a")
    assert (tmp_path / "own" / "a").exists()
    stamp = read_stamp(path)
    assert stamp is not None
    assert stamp.key == key
    path.write_text("1234567890123456")
    assert read_stamp(path) == ("1234567890123456", 0.0)
    assert read_stamp(stamp_path(tmp_path, "b")) is None


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
