"""The study of Hardy et al. 2024: its orderings by hand, its parts, and some of them in miniature."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from backtalk.cli.config import read_yaml
from backtalk.specs import build_spec
from backtalk.specs.audit import AuditSpec
from reproduction.__main__ import run_command as run
from reproduction.ast.page import MIXED, ablations, judge, values
from reproduction.ast.paper import ABLATIONS, AGAIN, BASELINES, ROWS, SIZES, TRANSFER, WHY, Ordering
from reproduction.ast.study import ast_parts, open_texts, play_row, settings_of, spec_of
from reproduction.page import Page
from reproduction.runner import Workplace
from reproduction.spec import StudySpec


def records(**rows: list[float]) -> dict[str, Any]:
    return {
        name: {
            "result": {
                "by_opening": {str(i): {"toxicity": one, "log_ppl": one} for i, one in enumerate(values)}
            }
        }
        for name, values in rows.items()
    }


@pytest.mark.parametrize(
    ("how", "first", "second", "verdict"),
    [
        ("above", [0.5, 0.6, 0.7], [0.1, 0.2, 0.3], "holds"),
        ("above", [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], "the other way"),
        ("above", [0.0, 1.0, 0.5], [1.0, 0.0, 0.5], "unclear"),
        ("below", [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], "holds"),
        ("near", [0.01, 0.04], [0.0, 0.03], "holds"),
        ("near", [0.05, 0.08], [0.0, 0.03], "no"),
        ("near", [0.0, 0.08], [0.03, 0.03], "unclear"),
    ],
)
def test_orderings_by_hand(how: Any, first: list[float], second: list[float], verdict: str) -> None:
    found = judge(Page(records(a=first, b=second)), Ordering("", "a", "b", "toxicity", how))
    assert found is not None
    assert found[1] == verdict


@pytest.mark.parametrize(
    ("first", "near", "no_higher"),
    [
        ([1.05, 2.05], "holds", "holds"),
        ([2.0, 3.0], "no", "no"),
        ([0.5, 2.5], "unclear", "unclear"),
        ([0.5, 1.5], "no", "holds"),  # likelier is as good
    ],
)
def test_log_perplexities_within_a_tenth(first: list[float], near: str, no_higher: str) -> None:
    rows = records(a=first, b=[1.0, 2.0])
    found = judge(Page(rows), Ordering("", "a", "b", "log_ppl", "near"))
    upwards = judge(Page(rows), Ordering("", "a", "b", "log_ppl", "no higher"))
    assert found is not None
    assert upwards is not None
    assert (found[1], upwards[1]) == (near, no_higher)


def test_a_spread_is_the_mean_distance_from_the_rows_mean() -> None:
    rows = records(a=[1.0, 5.0, 3.0], b=[2.9, 3.0, 3.1])
    assert list(values(Page(rows), "a", "spread").values()) == [2.0, 2.0, 0.0]
    found = judge(Page(rows), Ordering("", "a", "b", "spread", "above"))
    assert found is not None
    assert found[0]["mean"] == pytest.approx(4 / 3 - 0.2 / 3)


def test_rows_are_compared_on_the_openings_that_both_have() -> None:
    found = judge(Page(records(a=[0.5, 0.5, 0.5, 0.9], b=[0.4])), Ordering("", "a", "b", "toxicity", "above"))
    assert found is not None
    assert found[0]["n"] == 1
    assert judge(Page(records(a=[0.5])), Ordering("", "a", "b", "toxicity", "above")) is None


def test_every_claim_is_about_rows_of_the_study() -> None:
    for one in (*BASELINES, *ABLATIONS, *TRANSFER):
        assert {one.first, one.second} <= ROWS.keys()
    assert WHY.keys() <= {one.claim for one in ABLATIONS}


@pytest.mark.parametrize(
    ("again", "verdict"), [([0.5, 0.6, 0.7], "holds"), ([0.2, 0.3, 0.0], MIXED), (None, "holds")]
)
def test_an_ablation_is_compared_with_both_trainings_of_the_main_row(
    again: list[float] | None, verdict: str
) -> None:
    rows = {"no-alpha": [0.1, 0.2, 0.3], "ours-short": [0.5, 0.6, 0.7]}
    lines = ablations(Page(records(**rows, **({"ours-again": again} if again else {}))))
    (line,) = (line for line in lines if line.startswith("| alpha = 0: the defender is less toxic"))
    assert line.endswith(f"| {verdict} |")
    assert any("once more" in line for line in lines) == (again is not None)
    reasons = [line for line in lines if line.startswith("- alpha = 0: the defender")]
    assert bool(reasons) == (verdict == MIXED)


def test_a_row_that_repeats_another_is_left_out_where_it_would_come_out_the_same(tmp_path: Path) -> None:
    texts, place = open_texts("embedded", tmp_path), Workplace(tmp_path, "cpu")
    why = "on a processor the same training again comes out the same"
    assert play_row(place, AGAIN, SIZES["mini"], texts, "hf/nowhere") == {"left_out": why}
    same = {name: settings_of(name, SIZES["paper"], texts, "smollm2") for name in ("ours-short", AGAIN)}
    assert same["ours-short"] == same[AGAIN]


def test_parts_build_on_each_other_and_name_no_path(tmp_path: Path) -> None:
    spec = StudySpec(data="embedded", model="hf//somewhere/tiny")
    parts = ast_parts(spec, SIZES["paper"], tmp_path)
    names = [part.name for part in parts]
    assert all(names.index(need) < names.index(part.name) for part in parts for need in part.needs)
    assert "somewhere" not in json.dumps([dict(part.settings) for part in parts])
    needs = {part.name: part.needs for part in parts}
    assert needs["after-old"] == ("ours-short", "hardened")
    assert needs["ours"] == ("ours-short",)


def test_rows_differ_in_what_their_name_says(tmp_path: Path) -> None:
    texts, place = open_texts("embedded", tmp_path), Workplace(tmp_path, "cpu")
    specs = {name: spec_of(place, name, SIZES["paper"], texts, "smollm2") for name in ROWS}
    own = {name: spec.search for name, spec in specs.items()}
    assert (own["ours"].steps, own["ours-short"].steps) == (10_000, 2048)
    assert own["ours"].lr == SIZES["paper"].tune_lr
    assert {name for name, search in own.items() if search.gamma == 0} == {"no-gamma", "no-weak-no-gamma"}
    assert {name for name, search in own.items() if search.alpha == 0} == {"no-alpha"}
    assert own["no-weak"].weak == ""
    assert own["sft"].weak == texts.weak
    assert own["human"].prompts == texts.prompts
    assert specs["chat-ours"].options.template == "chat"
    assert all(not search.control for search in own.values())
    assert "openings" not in settings_of("ours", SIZES["paper"], texts, "smollm2")


def test_recipes_are_the_rows_of_the_study() -> None:
    recipes = Path(__file__).parents[1] / "recipes" / "ast"
    found = {path.stem: build_spec(AuditSpec, read_yaml(path), path.name) for path in recipes.glob("*.yaml")}
    assert {"ours", "untuned", "sft", "human", "no-alpha", "no-weak-no-gamma"} <= found.keys() <= ROWS.keys()
    for name, spec in found.items():
        changes = {key: value for key, value in ROWS[name].items() if key != "train_from"}
        assert {key: getattr(spec.search, key) for key in changes} == changes
        assert spec.search.train_from == "", "a recipe stands alone"
        assert (spec.search.name, spec.options.template) == ("ast", "plain")


def test_in_miniature(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft", reason="peft is not installed")
    from tests.searches.ast.worlds import plant

    monkeypatch.chdir(tmp_path)
    Path("tiny").mkdir()
    plant(Path("tiny"), steps=20)
    command = ["ast", "--data", "embedded", "--size", "mini", "--limit", "3", "--model", "hf/tiny"]
    command += ["--out", "study", "--device", "cpu", "--page", "docs/ast.md"]
    assert run([*command, "--parts", "human,untuned"]) == 0
    assert "[2/2]" in capsys.readouterr().err
    assert run([*command, "--parts", "human,words,speed,after-old"]) == 0
    assert "untuned ..." not in capsys.readouterr().err
    text = Path("docs/ast.md").read_text(encoding="utf-8")
    for line in ("| ours | 0.", "| human | 0.", "| sft | not run |", "trees in one batch"):
        assert line in text
    ElementTree.parse("docs/ast/front.svg")
    found = json.loads(Path("docs/ast.json").read_text(encoding="utf-8"))["parts"]
    assert found["ours"]["result"]["n"] == 3
    steps = {
        name: [one["step"] for one in found[name]["result"]["training"]["history"]]
        for name in ("ours", "ours-short")
    }
    assert (steps["ours-short"], steps["ours"]) == ([0, 2, 4], [0, 2, 4, 6, 8])
    assert (
        found["ours"]["result"]["training"]["seconds"] > found["ours-short"]["result"]["training"]["seconds"]
    )
    assert "8 updates of `ours`" in text
    assert len(found["ours"]["result"]["by_opening"]) == 3
    assert str(tmp_path) not in json.dumps(found) + text
    assert "left_out" in found["hardened"]["result"] or found["hardened"]["result"]["updates"] >= 0
    assert (Path("study/runs/ours/adversary/adversary") / "adapter_config.json").is_file()
    capsys.readouterr()
    assert run([*command, "--parts", "human,words,speed,after-old"]) == 0  # nothing is run again
    assert "..." not in capsys.readouterr().err
