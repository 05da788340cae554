"""The study of He & Glass 2020: its list of parts, adopted models, and all of it in miniature."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from backtalk.data.corpora import reference_pairs
from backtalk.data.targets import load_mal, read_targets
from backtalk.models.folder import load_embedded, load_folder
from backtalk.scorers.likelihood import pad_rows
from backtalk.specs import flat_spec, with_settings
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import HardenSpec, check_spec
from backtalk.store import Run
from backtalk.types import Target
from reproduction.__main__ import run_command as run
from reproduction.egregious.data import evenly, open_data
from reproduction.egregious.paper import SIZES as EGREGIOUS_SIZES
from reproduction.egregious.study import egregious_parts
from reproduction.hardenings import PAPER_SETTINGS
from reproduction.negative.data import open_negative_data
from reproduction.negative.malicious import DRAWS, hits_with_dropout
from reproduction.negative.paper import SIZES
from reproduction.negative.study import negative_parts
from reproduction.runner import Part, keys_of
from reproduction.spec import StudySpec
from reproduction.tests.miniature import without_corpus

FIGURES = ("figure-1.svg", "methods.svg")


pytestmark = pytest.mark.usefixtures("one_thread")


def parts_of(folder: Path, size: str = "paper") -> dict[str, Part]:
    return {part.name: part for part in negative_parts(StudySpec(data="embedded"), SIZES[size], folder)}


def test_the_parts_have_regular_names_and_stand_after_what_they_need(tmp_path: Path) -> None:
    parts = parts_of(tmp_path)
    names = list(parts)
    for place, part in enumerate(parts.values()):
        assert set(part.needs) <= set(names[:place])
    found = {
        start: sum(name.startswith(start) for name in names)
        for start in ("train-", "malicious-", "frequent-")
    }
    assert found == {"train-": 4, "malicious-": 4 * 4 + 14 + 1, "frequent-": 10 + 8 + 1}
    assert {
        "malicious-switchboard-o-sample-avg-k1-baseline",
        "malicious-switchboard-io-sample-avg-k1-2500",
        "malicious-ubuntu-o-sample-min-k1-1000",
        "malicious-switchboard-o-sample-avg-k1-500-no-fwa",
        "malicious-switchboard-o-sample-avg-k1-500-npo",
        "frequent-switchboard-negative-10",
        "frequent-switchboard-negative-1-eos-0",
        "frequent-ubuntu-negative-0.1",
        "frequent-ubuntu-gan-0.0001",
        "frequent-ubuntu-gan-0",
        "frequent-switchboard-mmi",
        "augment-embedded-0",
        "augment-embedded-4",
        "malicious-switchboard-o-sample-avg-k1-500-passes",
        "malicious-switchboard-io-sample-avg-k1-500-passes",
        "as-2019-baseline",
        "as-2019-2500",
        "as-2019-500-passes",
        "words",
        "samples",
    } <= set(names)


def test_switchboard_is_tested_on_the_25_dialogues_of_this_paper(tmp_path: Path) -> None:
    """Appendix B; that of 2019 has 50."""
    (tmp_path / "data").mkdir()
    name = str(tmp_path / "data")
    test = open_negative_data(name, tmp_path).sources["switchboard"].test
    assert test is not None
    assert (test.parent.name, test.name) == ("swda_heglass", "test_25.txt.gz")
    older = open_data(name, tmp_path).sources["switchboard"].test
    assert older is not None
    assert older.name == "test.txt.gz"


def test_hits_counted_with_dropout_by_hand() -> None:
    model = load_embedded("chitchat", "cpu")
    sentences = ["i am fine", "what do you like to do", "purple"]
    goals = [model.encode_target(text) for text in sentences]
    triggers = [model.encode_input("how are you doing today my friend")[:5]] * 3
    plain = model.score(pad_rows(triggers, model.pad), pad_rows(goals, model.pad)).log_probs
    means = [float(row[: len(goal)].mean()) for row, goal in zip(plain, goals, strict=True)]
    least = [float(row[: len(goal)].min()) for row, goal in zip(plain, goals, strict=True)]

    def count(rate: float, enough: float, by_least: bool = False) -> list[int]:
        network = deepcopy(model.network)
        network.config = replace(network.config, dropout=rate)
        for part in (network.encoder, network.decoder):
            part.dropout = rate
        found = hits_with_dropout(replace(model, network=network), triggers, goals, enough, by_least)
        assert not network.training, "as it was before"
        return found

    for values, by_least in ((means, False), (least, True)):
        for enough in (value - 1e-3 for value in values):
            assert count(0.0, enough, by_least) == [sum(value > enough for value in values)] * DRAWS
    drawn = count(0.5, sorted(means)[1], False)
    assert len(set(drawn)) > 1, "draws differ"
    assert drawn == count(0.5, sorted(means)[1], False), "and are the same each time"


def test_every_row_is_a_hardening_with_the_papers_settings(tmp_path: Path) -> None:
    parts = parts_of(tmp_path)
    for part in parts.values():
        if part.owns and "hardenings/" in part.owns[0]:
            named = PAPER_SETTINGS[part.settings.get("settings", "default")]
            check_spec(with_settings(HardenSpec(), {**named, **part.settings}))
    row = parts["malicious-ubuntu-io-sample-min-k1-2500"].settings
    asked = {
        "hit": "io-sample-min-k1",
        "settings": "ubuntu",
        "keep": "last",
        "batch": 100,
        "search_sweeps": 5,
    }
    assert asked.items() <= row.items()
    assert {"length": 14, "top": 100, "sweeps": 5, "restarts": 5}.items() <= row["audit"].items()
    flat_spec(AuditSpec, row["audit"])
    assert row["measure"] == SIZES["paper"].measure
    assert row["audit"]["seed"] != row["seed"]
    older = flat_spec(AuditSpec, parts["as-2019-500"].settings["audit"]).search
    assert (older.as_published, older.all_words, older.restarts) == (True, False, 5)
    assert parts["malicious-switchboard-o-sample-avg-k1-500-passes"].settings["iterations"] == 20
    assert parts["malicious-switchboard-o-sample-avg-k1-500-npo"].settings["method"] == "npo"
    frequent = parts["frequent-switchboard-negative-10"].settings
    assert {"r_thres": "10%", "eos_scale": 0.1, "window": 200, "keep": "last"}.items() <= frequent.items()
    steps = {parts[name].settings["steps_per_iteration"] for name in parts if name.startswith("frequent-s")
             and "steps_per_iteration" in parts[name].settings}  # fmt: skip
    assert len(steps) == 1  # the same for all rows


def test_keys_depend_on_sizes_and_restarts_but_not_on_places(tmp_path: Path) -> None:
    size, found = SIZES["paper"], []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        parts = negative_parts(StudySpec(data=str(tmp_path / name)), size, tmp_path)
        found.append(keys_of(parts))
    assert found[0] == found[1]
    fewer = negative_parts(StudySpec(data=str(tmp_path / "here")), size.limited(7, 2), tmp_path)
    changed = {name for name, key in keys_of(fewer).items() if key != found[0][name]}
    assert {name.split("-")[0] for name in changed} == {"malicious", "as", "words"}


def test_the_switchboard_models_are_those_of_the_egregious_study(tmp_path: Path) -> None:
    theirs = keys_of(egregious_parts(StudySpec(data="embedded"), EGREGIOUS_SIZES["mini"], tmp_path))
    ours = keys_of(negative_parts(StudySpec(data="embedded"), SIZES["mini"], tmp_path))
    for arch in ("lm", "attention"):
        assert ours[f"train-switchboard-{arch}"] == theirs[f"train-switchboard-{arch}"]
        assert ours[f"train-ubuntu-{arch}"] != theirs[f"train-ubuntu-{arch}"]  # without punctuation


def test_a_limited_size_has_no_more_targets_than_the_limit() -> None:
    size = replace(SIZES["paper"], targets=(("500", 3), ("test", 90))).limited(20, 0)
    assert dict(size.targets) == {"500": 3, "1000": 20, "2500": 20, "test": 20}
    assert size.followed == 20
    assert size.restarts == SIZES["paper"].restarts


def test_followed_targets_are_taken_evenly() -> None:
    targets = [Target(str(i), f"word {i}") for i in range(10)]
    assert [target.id for target in evenly(targets, 4)] == ["0", "2", "5", "7"]
    assert evenly(targets, 20) == targets


def test_embedded_lists_are_of_the_papers_kind(tmp_path: Path) -> None:
    lists = {
        name: read_targets(path) for name, path in open_negative_data("embedded", tmp_path).lists.items()
    }
    texts = {name: {target.text for target in own} for name, own in lists.items()}
    assert texts["500"] < texts["1000"] < texts["2500"]
    assert not texts["2500"] & texts["test"]
    assert texts["500"] | texts["test"] == {target.text for target in load_mal()}


START = "malicious-switchboard-o-sample-avg-k1"
FLAGS = ["--data", "embedded", "--size", "mini", "--device", "cpu"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "study"
    with pytest.MonkeyPatch.context() as patch:
        without_corpus(patch)
        assert run(["negative", *FLAGS, "--out", str(folder)]) == 0
    return folder


def results_of(study: Path) -> dict[str, dict[str, Any]]:
    parts = json.loads((study / "negative.json").read_text())["parts"]
    return {name: part["result"] for name, part in parts.items()}


def test_the_miniature_fills_every_table_and_figure(study: Path) -> None:
    page = (study / "negative.md").read_text()
    assert "Not run" not in page
    assert "not run" not in page
    for title in ("Findings", "Table 8", "Table 3", "Tables 4 and 9", "Figure 1", "Paraphrases", "Samples"):
        assert f"\n## {title}" in page
    for name in FIGURES:
        assert f"(negative/{name})" in page
        assert ElementTree.parse(study / "negative" / name).getroot().tag.endswith("svg")
    results = results_of(study)
    row = results["malicious-switchboard-o-sample-avg-k1-500"]
    stored, ours = (
        json.loads((study / "hardenings" / name / "summary.json").read_text())
        for name in (f"{START}-500", f"{START}-500-default")
    )
    assert "you" in stored["hardening"]["avoid"]
    assert not ours["hardening"]["avoid"]
    assert row["cost"]["perplexity"][1] == pytest.approx(stored["cost"]["perplexity"][1], rel=1e-4)
    assert row["iterations_kept"] == row["candidates"][-1]["iterations"] == 1
    longer = results["malicious-switchboard-o-sample-avg-k1-500-passes"]["candidates"]
    assert [one["iterations"] for one in longer] == [0, 1, 2]
    assert longer[1]["perplexity"] == row["candidates"][-1]["perplexity"], "the same way, further"
    for corpus in ("switchboard", "ubuntu"):
        found = results[f"frequent-{corpus}-negative-1"]
        said, cost = found["row"], found["cost"]
        assert said["max_ratio"]["hits"] == cost["commonest"][1] >= said["floor"]["hits"]
        assert (said["n"], said["length"]) == (cost["pairs"], pytest.approx(cost["length"][1], rel=1e-4))
        assert said["floor"] == results[f"frequent-{corpus}-baseline"]["rows"]["baseline"]["floor"]
    older = [results[f"as-2019-{row}"] for row in ("baseline", "500", "1000", "2500", "500-passes")]
    assert all(one["lists"][name]["n"] == 4 for one in older for name in ("train", "test"))
    folder = study / "hardenings" / "malicious-switchboard-o-sample-avg-k1-500" / "model"
    with Run.open(study / "runs" / "as-2019-500-test") as audited:
        assert audited.facts["fingerprint"] == load_folder(str(folder), "cpu").fingerprint
    assert results["augment-embedded-4"]["overlap"] == 0
    assert results["augment-embedded-4"]["lists"]["train"] > results["augment-embedded-1"]["lists"]["train"]


def test_the_miniature_shows_no_text_but_samples_and_our_own_words(study: Path) -> None:
    results = results_of(study)
    shown = json.dumps({name: part for name, part in results.items() if name != "samples"})
    pairs = {text for pair in reference_pairs("") for text in pair if len(text) > 12}
    assert not [text for text in pairs if text in shown]
    assert "most_said" not in shown
    assert "side_by_side" not in shown
    page = (study / "negative.md").read_text().split("\n## Samples")[0]
    listed = {json.loads(line)["text"] for file in (study / "lists").glob("*.jsonl") for line in file.open()}
    assert listed
    assert not [text for text in listed if len(text) > 12 and (text in page or text in shown)]
    assert str(study) not in shown


def test_the_same_command_again_does_nothing(study: Path) -> None:
    before = {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}
    assert run(["negative", *FLAGS, "--out", str(study)]) == 0
    assert {path: path.read_bytes() for path in study.rglob("*") if path.is_file()} == before


def test_a_page_made_of_its_own_records_is_the_same(study: Path, tmp_path: Path) -> None:
    asked = ["--out", str(tmp_path), "--records", str(study / "negative.json")]
    assert run(["negative", *FLAGS, *asked]) == 0
    assert (tmp_path / "negative.md").read_text() == (study / "negative.md").read_text()
    assert (tmp_path / "negative.json").read_text() == (study / "negative.json").read_text()


def test_every_hardening_is_owned_by_its_part(study: Path, tmp_path: Path) -> None:
    owned = [own for part in parts_of(tmp_path, "mini").values() for own in part.owns]
    hardenings = {name for name in owned if name.startswith("hardenings/")}
    assert {f"hardenings/{path.name}" for path in (study / "hardenings").iterdir()} == hardenings
    assert len(hardenings) == 45
