"""What lies in a folder, how far it is, and that nothing outside of it is seen."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from backtalk.store.folder import is_locked, lock_folder
from backtalk.web.run_list import RunList, key_of
from tests.report.test_folder_pages import HARDENING, PROOF
from tests.web.worlds import HARDENED, commit, finish, make_ratings, open_run


def test_a_run_at_work_is_running_and_one_that_was_killed_waits(tmp_path: Path) -> None:
    run = open_run(tmp_path / "now")
    runs = RunList(tmp_path)
    (item,) = runs.items()
    assert (item.state, item.done, item.total) == ("running", 0, 8)
    commit(run, 0)
    commit(run, 2)
    (item,) = runs.items()
    assert (item.state, item.done, item.total) == ("running", 4, 8)
    run.close()
    (item,) = runs.items()
    assert (item.state, item.done) == ("waiting", 4)


def test_looking_leaves_the_lock_free(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    lock = lock_folder(tmp_path)
    assert is_locked(tmp_path)
    os.close(lock)
    assert not is_locked(tmp_path)
    os.close(lock_folder(tmp_path))


def test_what_is_at_work_stands_on_top_then_the_newest(tmp_path: Path) -> None:
    with open_run(tmp_path / "a-running"):
        finish(tmp_path / "b")
        finish(tmp_path / "c")
        assert [item.name for item in RunList(tmp_path).items()] == ["a-running", "c", "b"]


def test_runs_inside_a_hardening_are_found_and_the_hardening_says_its_result(tmp_path: Path) -> None:
    folder = tmp_path / "hard"
    folder.mkdir()
    (folder / "hardening.json").write_text(
        json.dumps({"model": "chitchat", "hit": "o-greedy", "iterations": 3})
    )
    finish(tmp_path / HARDENED[0])
    runs = RunList(tmp_path)
    items = {item.name: item for item in runs.items()}
    assert items.keys() == {"hard", HARDENED[0]}
    assert items["hard"].state == "waiting"
    (folder / "summary.json").write_text(
        json.dumps({**HARDENING, "proof": [PROOF], "spec": {"iterations": 3}})
    )
    (item,) = (item for item in runs.items() if item.kind == "hardening")
    assert (item.state, item.result) == ("finished", "hit 20 before, 5 after, of 50")


def test_the_folder_itself_may_be_a_run(tmp_path: Path) -> None:
    (item,) = RunList(finish(tmp_path / "only")).items()
    assert (item.kind, item.name) == ("audit", "only")


def test_links_are_not_followed(tmp_path: Path) -> None:
    finish(tmp_path / "outside" / "run")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside" / "run")
    assert RunList(tmp_path / "inside").items() == []


def test_a_damaged_run_is_shown_as_one(tmp_path: Path) -> None:
    folder = finish(tmp_path / "spoilt")
    data = bytearray((folder / "run.sqlite").read_bytes())
    data[100:2000] = b"x" * 1900
    (folder / "run.sqlite").write_bytes(data)
    (item,) = RunList(tmp_path).items()
    assert item.state == "damaged"
    assert "damaged" in item.note


def test_ratings_elsewhere_are_found_too(tmp_path: Path) -> None:
    make_ratings(tmp_path / "ratings" / "pairs", 5)
    finish(tmp_path / "ratings" / "no-ratings")
    (item,) = RunList(tmp_path / "none", tmp_path / "ratings").items()
    assert (item.kind, item.result) == ("rating", "5 pairs to judge")


def test_ratings_with_the_name_of_a_run_stand_beside_it(tmp_path: Path) -> None:
    finish(tmp_path / "runs" / "one")
    make_ratings(tmp_path / "ratings" / "one")
    runs = RunList(tmp_path / "runs", tmp_path / "ratings")
    items = runs.items()
    assert {(item.kind, item.name) for item in items} == {("audit", "one"), ("rating", "one")}
    for item in items:
        assert runs.folders()[item.key].kind == item.kind
    assert key_of("one") in {item.key for item in items}  # the link to the run stays good


def test_ratings_below_the_served_folder_are_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ratings(tmp_path / "ratings" / "pairs")
    monkeypatch.chdir(tmp_path)
    (item,) = RunList(Path(), Path("ratings")).items()
    assert item.name == "ratings/pairs"


def test_keys_are_plain_and_differ_where_names_do() -> None:
    names = ["a b", "a-b", "a/b", "A b", "ü", "", "../../etc", "x" * 300]
    keys = [key_of(name) for name in names]
    assert len(set(keys)) == len(names)
    assert all(key.replace("-", "").isalnum() and key.isascii() and len(key) < 80 for key in keys)
    assert key_of("a b") == keys[0]
