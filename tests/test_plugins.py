"""A package beside backtalk brings a search: it is listed, run, reported, resumed and verified."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from backtalk import registry
from backtalk.errors import InputError
from backtalk.registry import find_model, load_model, load_scorer, search_config
from backtalk.testing import check_model, check_scorer
from backtalk.types import Access

EXAMPLE = Path(__file__).parent.parent / "examples" / "backtalk-hillclimb"
FLAGS = ["--search", "hillclimb", "--steps", "6", "--length", "3", "--limit", "4", "--hit", "o-greedy"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, as pip leaves it."""
    pytest.importorskip("setuptools")
    source, folder = tmp_path_factory.mktemp("source") / "plugin", tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLE, source)
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--quiet", "--target", str(folder), str(source)], check=True)
    return folder


DRIVER = """
import contextlib, io, json, sys
from backtalk.cli import run
for command in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = run(command)
        except SystemExit as left:  # --help
            status = left.code
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""
"""Commands one after the other in one process: most of a command's time is the import of PyTorch."""


def backtalk(installed: Path, folder: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """The status, output and errors of commands where the package is installed."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(commands)],
        cwd=folder,
        env=environment(installed),
        capture_output=True,
        text=True,
        check=True,
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def environment(installed: Path) -> dict[str, str]:
    paths = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def test_the_example_is_short() -> None:
    assert len((EXAMPLE / "hillclimb.py").read_text().splitlines()) <= 60


def test_a_search_of_another_package(installed: Path, tmp_path: Path) -> None:
    audit = ["audit", *FLAGS, "--device", "cpu", "--block", "1"]
    commands = {
        "list": ["list", "searches"],
        "help": ["audit", "--help"],
        "flags": ["audit", "--search", "hillclimb", "--help"],
        "whole": [*audit, "--out", "whole"],
        "part": [*audit, "--out", "part", "--max-candidates", "1"],
        "begun": ["export", "part", "-o", "begun.jsonl"],
        "resume": ["resume", "part"],
        "export": ["export", "whole", "-o", "whole.jsonl"],
        "resumed": ["export", "part", "-o", "part.jsonl"],
        "report": ["report", "whole"],
        "verify": ["verify", "part"],
        "refused": [*audit, "--top", "3"],
    }
    results = dict(zip(commands, backtalk(installed, tmp_path, *commands.values()), strict=True))
    statuses = {name: status for name, (status, _, _) in results.items()}
    assert statuses == {**dict.fromkeys(commands, 0), "refused": 2}, results

    listed = " ".join(results["list"][1].split())
    assert "hillclimb Random words" in listed
    assert "backtalk-hillclimb 0.1" in listed
    assert "hillclimb" in results["help"][1]
    assert "--steps N" in results["flags"][1]
    begun, whole, resumed = (
        [{**json.loads(line), "seconds": 0} for line in (tmp_path / f"{name}.jsonl").open()]
        for name in ("begun", "whole", "part")
    )
    assert (len(begun), len(whole)) == (2, 4 * 2)
    assert resumed == whole
    assert all(row["candidates"] == 6 for row in whole)
    assert "hillclimb" in (tmp_path / "whole/report.html").read_text()
    assert "verified" in results["verify"][1]
    assert "--top belongs to --search gibbs" in results["refused"][2]
    # Where the package is gone the run is still shown, but not resumed.
    shown, gone = backtalk(tmp_path / "nowhere", tmp_path, ["report", "whole"], ["resume", "part"])
    assert shown[0] == 0
    assert gone[0] == 2
    assert "unknown search 'hillclimb'" in gone[2]


def test_its_author_can_run_the_contract_checks(installed: Path, tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\n"
        "from backtalk.testing import check_search\n"
        "from hillclimb import HillClimb\n"
        "cases = ['go away', 'you are so boring', 'i do not like you']\n"
        "check_search(HillClimb(length=3, steps=5), 'chitchat', cases, Path('checked'), hit='o-greedy')\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment(installed), check=True)


# Models and scorers, and what is broken


def brings(monkeypatch: pytest.MonkeyPatch, group: str, **points: str) -> None:
    """As if an installed package had these entry points."""
    found = {name: EntryPoint(name, value, f"backtalk.{group}") for name, value in points.items()}
    monkeypatch.setattr(registry, "plugins", lambda asked: found if asked == group else {})


def test_a_model_and_a_scorer_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    brings(monkeypatch, "models", **{"loud:": "tests.brought:LOUD"})
    assert find_model("loud:shout")[0].access is Access.TEXT
    model = load_model("loud:shout")
    assert model.name == "loud:shout"
    check_model(model)
    brings(monkeypatch, "scorers", shouts="tests.brought:SHOUTS")
    check_scorer(load_scorer("shouts"))


def test_a_plugin_that_can_not_be_loaded_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    brings(monkeypatch, "searches", broken="no_such_module:Search")
    with pytest.raises(InputError, match=r"plugin broken of .*no_such_module"):
        search_config("broken")
    brings(monkeypatch, "searches", other="backtalk.searches.gibbs:Gibbs")
    with pytest.raises(InputError, match="calls itself 'gibbs'"):
        search_config("other")
