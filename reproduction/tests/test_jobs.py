"""Parts beside each other: what runs when, what a crash and a signal cost."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from backtalk.models.device import pick_device
from backtalk.models.gpu.memory import SHARE, gpu_share
from reproduction.__main__ import run_command as command
from reproduction.parts import Result, claim_folder, keys_of, take_records
from reproduction.tests.jobs_world import PARENT, parts, run


def result(folder: Path, part: str) -> Result:
    found: Result = json.loads((folder / "results" / f"{part}.json").read_text())["result"]
    return found


def test_parts_run_beside_each_other_in_the_order_of_their_needs(tmp_path: Path) -> None:
    outcome = run(tmp_path, "left", "right", "top", "timed")
    assert outcome.done[0] == "timed"
    assert sorted(outcome.done[1:3]) == ["left", "right"]  # each waited for the other: both were at work
    assert outcome.done[3] == "top"
    assert result(tmp_path, "timed") == {"share": "1.0", "order": 0, "priority": "0", "at_work": []}
    assert result(tmp_path, "top")["share"] == "0.475", "half of what is shared out"
    of_each = [result(tmp_path, name)["priority"] for name in ("left", "right")]
    assert of_each == ["0", "1"], "the first goes before the others"
    assert result(tmp_path, "top")["priority"] == "0", "it is the first of those at work"
    again = run(tmp_path, "left", "right", "top", "timed")
    assert (again.done, sorted(again.kept)) == ([], ["left", "right", "timed", "top"])
    assert keys_of(parts())["top"] == json.loads((tmp_path / "results/top.json").read_text())["key"]


def test_a_crash_is_told_and_leaves_the_rest(tmp_path: Path) -> None:
    outcome = run(tmp_path, "broken", "on-broken", "timed")
    assert list(outcome.failed) == ["broken"]
    assert "oops" in (tmp_path / "log" / "broken.job.txt").read_text()
    assert (outcome.done, outcome.waiting) == (["timed"], ["on-broken"])


def test_a_result_without_its_files_is_made_again_in_a_process_of_its_own(tmp_path: Path) -> None:
    claim_folder(tmp_path)
    taken = {"key": keys_of(parts())["model"], "seconds": 1.0, "result": {"made": "elsewhere"}}
    page = tmp_path / "page.json"
    page.write_text(json.dumps({"parts": {"model": taken}}))
    take_records(tmp_path, page)
    assert run(tmp_path, "model").kept == ["model"]
    assert run(tmp_path, "on-model").done == ["model", "on-model"]
    assert result(tmp_path, "on-model") == {"read": "weights"}
    assert result(tmp_path, "model") == {"made": "here"}


def test_a_part_at_work_in_another_command_is_left_alone(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "timed.lock"
    tmp_path.joinpath("study.json").write_text("{}")
    lock.parent.mkdir()
    lock.write_text("4242")
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        outcome = run(tmp_path, "timed")
    assert (outcome.done, outcome.failed, outcome.waiting) == ([], {}, ["timed"])
    assert "4242" in (tmp_path / "log" / "timed.job.txt").read_text()


def test_no_part_begins_after_the_time_is_over(tmp_path: Path) -> None:
    outcome = run(tmp_path, "timed", "broken", max_s=1e-9)
    assert (outcome.done, sorted(outcome.waiting)) == ([], ["broken", "timed"])


@pytest.mark.parametrize(
    ("stop", "sigint"),
    [
        (signal.SIGINT, "heard"),
        (signal.SIGTERM, "heard"),
        (signal.SIGHUP, "heard"),
        (signal.SIGTERM, "ignored"),
    ],
)
def test_a_stopped_study_leaves_no_process_behind(tmp_path: Path, stop: signal.Signals, sigint: str) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path), sigint]
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    pid = tmp_path / "here" / "slow"
    until = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < until
        time.sleep(0.05)
    parent.send_signal(stop)
    assert parent.wait(60) != 0
    assert not tmp_path.joinpath("results", "slow.json").exists(), "it was stopped, not waited for"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_process_may_take_its_share_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, share in (("0.25", 0.25), ("1", 1.0), ("0", 1.0), ("half", 1.0), ("", 1.0)):
        monkeypatch.setenv(SHARE, text)
        assert gpu_share() == share


@pytest.mark.parametrize(("name", "number"), [("auto", 0), ("cuda", 0), ("cuda:1", 1)])
def test_the_share_is_set_for_a_device_by_its_number(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """torch takes no device without one."""
    given: list[tuple[float, object]] = []
    monkeypatch.setenv(SHARE, "0.25")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *both: given.append(both))
    assert pick_device(name).type == "cuda"
    assert given == [(0.25, number)]


def test_less_than_one_job_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["ast", "--data", "embedded", "--jobs", "0"]) == 2
    assert "--jobs should not be 0; the range is 1 to " in capsys.readouterr().err
