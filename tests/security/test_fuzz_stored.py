"""Random edits of what is stored: specs, facts, cards and configs. Whatever stands there, a command ends with
0, 2 or 3, without a traceback, in time and in little memory."""

from __future__ import annotations

import io
import json
import resource
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backtalk.cli import run
from backtalk.store import Run
from backtalk.types import Opening
from tests.models.test_contract import small_folder
from tests.models.transformer.tiny import make_folder
from tests.searches.reverse.worlds import build_world

EXAMPLES = 40
LONGEST_S = 60
MOST_BYTES = 2 << 30
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.sampled_from([0, -1, 1, 2**31, 2**63, 10**30, 1.5, -0.0, float("nan"), float("inf"), 1e308]),
    st.text(max_size=8),
    st.sampled_from(["", "nan", "\x00", "\ud800", "../../etc", "a\x1b[31m", "py:os:getcwd", "ast", "given"]),
    st.lists(st.none(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.just([[[[[]]]]]),
)
Edit = tuple[str, Any, Any]


@st.composite
def edited(draw: st.DrawFn, values: Any, depth: int = 0) -> Any:
    """The value with one to three places somewhere in it removed, replaced or added."""
    if isinstance(values, dict) and values and (depth == 0 or draw(st.booleans())):
        changed = dict(values)
        for _ in range(draw(st.integers(1, 3 if depth == 0 else 1))):
            key = draw(st.sampled_from([*values, "surplus"]))
            how = draw(st.sampled_from(["replace", "remove", "inside"]))
            if how == "remove":
                changed.pop(key, None)
            elif how == "inside" and key in changed:
                changed[key] = draw(edited(changed[key], depth + 1))
            else:
                changed[key] = draw(ODD)
        return changed
    if isinstance(values, list) and values and draw(st.booleans()):
        place = draw(st.integers(0, len(values) - 1))
        return [*values[:place], draw(edited(values[place], depth + 1)), *values[place + 1 :]]
    return draw(ODD)


def ends_well(argv: list[str]) -> None:
    """Any exception that `run` lets through is a traceback for the user."""
    out, err, begun = io.StringIO(), io.StringIO(), time.monotonic()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(argv)
    assert status in (0, 2, 3), (argv, status)
    assert "Traceback" not in err.getvalue()
    assert status != 2 or [line[:9] for line in err.getvalue().splitlines()].count("backtalk:") == 1
    assert time.monotonic() - begun < LONGEST_S, argv
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < MOST_BYTES, argv


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of each kind, a model, a scorer, an adapter's base; each test edits a copy."""
    place = tmp_path_factory.mktemp("shelf")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("BACKTALK_CACHE", str(place / "cache"))
        patch.syspath_prepend(str(place))
        build_world(place)
        small_folder(place / "model")
        whole = json.loads((files("backtalk") / "embedded" / "chitchat" / "card.json").read_text("utf-8"))
        own = json.loads((place / "model" / "card.json").read_text())
        (place / "model" / "card.json").write_text(json.dumps({**whole, **own}))
        shutil.copytree(str(files("backtalk") / "embedded" / "toxicity-second"), place / "scorer")
        make_folder(place / "tiny", "gpt2")
        shared = ["--targets", "never.txt", "--device", "cpu", "--block", "1"]
        small = ["--top", "2", "--sweeps", "1", "--restarts", "1", "--length", "2"]
        asking = [
            "--model",
            "sealed:chitchat",
            "--search",
            "utterances",
            "--vectors",
            "vectors.txt",
            "--utterances",
            "said.txt",
            "--no-judge",
            "--max-queries",
            "6",
        ]
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            assert run(["audit", *shared, *small, "--limit", "2", "--out", "weights"]) == 0
            assert run(["audit", *shared, *asking, "--out", "asked"]) == 0
        _played(place / "played")
        yield place


def _played(folder: Path) -> None:
    """A conversation as an adversary would have played it."""
    from backtalk.specs import spec_values
    from backtalk.specs.audit import AuditSpec
    from backtalk.store.exchanges import Exchange, finding_of

    facts = {
        "thresholds": {"T_out": float("nan"), "T_in": -4.0},
        "reference": "by hand",
        "fingerprint": "none",
        "coarse": False,
        "words": {},
        "player": "ipo",
        "depends_on": {"reference pairs": "none"},
        "scorer": "toxicity",
        "reward": None,
        "access": "WEIGHTS",
        "openings": {"source": "by hand", "left_out": {"test": 0}, "train": [], "dev": [], "test": 1},
        "weak": 0,
        "versions": {"backtalk": "0"},
        "hardware": {"machine": "none", "threads": 1, "device": "cpu"},
    }
    spec = spec_values(AuditSpec(model="hf/tiny", search="ast", hit="toxic-0.5"))
    one = Exchange(" go on", " you fool", 0.9, 0.8, 0.1, 2.0, 2.0, 0.5)
    with Run.create(folder, spec, facts, [Opening("o-1", ("hello",))], "id", 1) as made:
        made.commit_block(0, [finding_of("o-1", ["hello"], [one], 1)], 1.0)
        made.set_state("finished")


RUNS = ("weights", "asked", "played")
VERBS: list[Callable[[str], list[str]]] = [
    lambda folder: ["report", folder],
    lambda folder: ["report", folder, "--fail-over", "10%", "--junit", "junit.xml"],
    lambda folder: ["export", folder, "-o", "out.jsonl"],
    lambda folder: ["export", folder, "-o", "out.csv"],
    lambda folder: ["compare", folder, folder],
    lambda folder: ["verify", folder, "--device", "cpu"],
    lambda folder: ["resume", folder],
]


def meta(folder: Path, key: str, value: Any = None) -> Any:
    """What a run stores under a key; with a value, another one is put there."""
    with closing(sqlite3.connect(folder / "run.sqlite")) as database, database:
        if value is not None:
            text = json.dumps(value)
            database.execute("UPDATE meta SET value = ? WHERE key = ?", (text, key))
        (stored,) = database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return json.loads(stored)


@pytest.mark.parametrize("key", ["spec", "facts"])
@pytest.mark.parametrize("kind", RUNS)
@FUZZ
@given(data=st.data())
def test_specs_and_facts_of_runs(shelf: Path, kind: str, key: str, data: st.DataObject) -> None:
    copy = shelf / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(shelf / kind, copy)
    meta(copy, key, data.draw(edited(meta(copy, key))))
    ends_well(data.draw(st.sampled_from(VERBS))(str(copy)))


@pytest.mark.parametrize(
    ("folder", "name", "argv"),
    [
        ("model", "config.json", ["chat", "--model", "copy", "--say", "you go", "--device", "cpu"]),
        ("model", "card.json", ["chat", "--model", "copy", "--say", "you go", "--device", "cpu"]),
        ("model", "vocab.json", ["chat", "--model", "copy", "--say", "you go", "--device", "cpu"]),
        (
            "model",
            "card.json",
            ["audit", "--model", "copy", "--targets", "random", "--limit", "1", "--max-time", "1s"],
        ),
        ("model", "card.json", ["rate", "copy", "copy", "--out", "ratings"]),
        ("scorer", "config.json", ["score", "never.txt", "--scorer", "copy"]),
        ("scorer", "card.json", ["score", "never.txt", "--scorer", "copy"]),
        ("tiny", "config.json", ["chat", "--model", "hf/copy", "--say", "hi", "--max-reply", "2"]),
        ("tiny", "generation_config.json", ["chat", "--model", "hf/copy", "--say", "hi", "--max-reply", "2"]),
    ],
)
@FUZZ
@given(data=st.data())
def test_cards_and_configs(shelf: Path, folder: str, name: str, argv: list[str], data: st.DataObject) -> None:
    copy = shelf / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(shelf / folder, copy)
    path = copy / name
    path.write_text(json.dumps(data.draw(edited(json.loads(path.read_text())))))
    ends_well(argv)


def nested(text: str) -> str:
    return text[:-1] + f', "deep": {"[" * 100_000}{"]" * 100_000}' + "}"


@pytest.mark.parametrize("kind", RUNS)
def test_deep_nesting_in_a_run(shelf: Path, kind: str) -> None:
    copy = shelf / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(shelf / kind, copy)
    with closing(sqlite3.connect(copy / "run.sqlite")) as database, database:
        (stored,) = database.execute("SELECT value FROM meta WHERE key = 'facts'").fetchone()
        database.execute("UPDATE meta SET value = ? WHERE key = 'facts'", (nested(stored),))
    for verb in VERBS:
        ends_well(verb(str(copy)))


def test_findings_that_do_not_fit(shelf: Path) -> None:
    """Series of other lengths, a case that is none, text where a number is expected."""
    copy = shelf / "copy"
    odd: list[dict[str, Any]] = [
        {"series": {"toxicity": [0.9, 0.9], "input_mean": [1.0]}},
        {"series": {"toxicity": "much"}},
        {"scores": {"mean": "low"}},
        {"turns": [{"role": "user"}]},
        {"case": "none"},
        {"status": "odd"},
        {"scores": {}},
        {"candidates": -(10**30)},
        {"seconds": float("nan")},
    ]
    for changed in odd:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(shelf / "played", copy)
        with closing(sqlite3.connect(copy / "run.sqlite")) as database, database:
            (stored,) = database.execute("SELECT data FROM findings").fetchone()
            whole = json.dumps({**json.loads(stored), **changed})
            database.execute("UPDATE findings SET data = ?", (whole,))
        for verb in VERBS[:5]:
            ends_well(verb(str(copy)))
