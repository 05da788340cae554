"""The study as a whole: its list of parts, missing data, and all of it in miniature on the embedded pairs."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from backtalk.data.tokenise import get_recipe
from reproduction.__main__ import run_command as run
from reproduction.egregious.data import own_sentences
from reproduction.egregious.paper import SIZES
from reproduction.egregious.relax import RUNS
from reproduction.egregious.study import egregious_parts
from reproduction.runner import keys_of
from reproduction.spec import StudySpec

FIGURES = ["figure-2.svg", "figure-3.svg", "figure-4a.svg", "figure-5.svg"]
FIGURES += ["figure-4b-ubuntu.svg", "figure-4b-switchboard.svg"]


def test_the_parts_have_their_names_and_stand_after_what_they_need(tmp_path: Path) -> None:
    parts = egregious_parts(StudySpec(data="embedded"), SIZES["paper"], tmp_path)
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    for place, part in enumerate(parts):
        assert set(part.needs) <= set(names[:place])
    assert {
        "train-switchboard-lm",
        "train-characters-attention",
        "relax-mal-one-hot",
        "enumerate-last-h",
        "sample-attention",
        "search-ubuntu-last-h-normal-o-greedy",
        "search-opensubtitles-attention-normal-o-sample-min-k1",
        "search-switchboard-attention-random-io-sample-min-k1",
        "footnote-8",
        "curves",
        "tries",
        "words",
        "precision",
        "speed",
    } <= set(names)
    assert sum(name.startswith("search-") for name in names) == 3 * 2 * 7


def test_no_part_depends_on_where_the_data_lies(tmp_path: Path) -> None:
    found = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        parts = egregious_parts(StudySpec(data=str(tmp_path / name)), SIZES["paper"], tmp_path)
        found.append(keys_of(parts))
    assert found[0] == found[1]


def test_a_missing_corpus_is_named_and_the_rest_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    out = str(tmp_path / "study")
    flags = ["--data", str(tmp_path / "data"), "--size", "mini", "--out", out, "--device", "cpu"]
    assert run(["egregious", *flags, "--parts", "train-ubuntu-lm,speed"]) == 2
    shown = capsys.readouterr()
    assert "ubuntu_irc_train_reply_pairs.tsv.gz (for train-ubuntu-lm)" in shown.err
    assert (tmp_path / "study" / "results" / "speed.json").exists()
    assert (tmp_path / "study" / "egregious.md").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "name the data"),
        (["--data", "nowhere-at-all"], "is no folder"),
        (["--data", "embedded", "--parts", "tarin-*"], "unknown part"),
        (["--data", "embedded", "--size", "tiny"], "unknown value 'tiny'"),
        (["--data", "embedded", "--max-time", "soon"], "should read like"),
    ],
)
def test_bad_usage_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    assert run(["egregious", "--out", str(tmp_path / "study"), *flags]) == 2
    assert said in capsys.readouterr().err
    assert run(["egregius", "--data", "embedded"]) == 2
    assert "did you mean 'egregious'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "study"
    flags = ["--data", "embedded", "--size", "mini", "--device", "cpu"]
    assert run(["egregious", *flags, "--out", str(folder)]) == 0
    return folder


def test_the_miniature_fills_every_table_and_figure(study: Path) -> None:
    page = (study / "egregious.md").read_text()
    assert "Not run" not in page
    for part in json.loads((study / "egregious.json").read_text())["parts"].values():
        assert part["result"]
    for name in FIGURES:
        assert f"(egregious/{name})" in page
        assert ElementTree.parse(study / "egregious" / name).getroot().tag.endswith("svg")
    for title in ("Table 1", "Table 2", "Table 3", "Table 4", "Tables 5 and 6", "Table 7", "Table 11"):
        assert f"## {title}" in page


def test_the_miniature_has_the_controls_of_every_relaxation(study: Path) -> None:
    for name in RUNS:
        found = json.loads((study / "results" / f"relax-{name}.json").read_text())["result"]
        assert found["chance"]["hits"] == found["projected"]["hits"]
        assert 0 <= found["chance"]["expected"] <= found["projected"]["n"] == found["start"]["n"]
        assert 0 < found["chance"]["p"] <= 1
    page = (study / "egregious.md").read_text()
    table = page.split("## Table 1")[1].split("\n## ")[0]
    assert "| hits after it, by chance | start, projected |" in table
    assert table.count(" (p = ") == len(RUNS)
    assert "| – |" not in table.split("Every run of it")[1]


def test_the_miniature_shows_no_target_but_our_own(study: Path) -> None:
    parts = json.loads((study / "egregious.json").read_text())["parts"]
    own, words = own_sentences(), get_recipe("he-glass-2020").words
    shown = [one["target"] for part in parts.values() for one in part["result"].get("own", [])]
    assert shown
    assert all(tuple(words(text)) in own for text in shown)
    normal = [name for name in parts if "-normal-" in name]
    listed = [
        json.loads(line)["text"]
        for name in normal
        if (file := study / "lists" / f"{name}.jsonl").exists()
        for line in file.read_text().splitlines()
    ]
    text = json.dumps([parts[name] for name in normal])
    assert not [one for one in listed if len(one) > 8 and one in text]


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_command_again_does_nothing_and_builds_the_same_page(study: Path) -> None:
    before = files_of(study)
    flags = ["--data", "embedded", "--size", "mini", "--device", "cpu", "--out", str(study)]
    assert run(["egregious", *flags]) == 0
    assert files_of(study) == before
    assert run(["egregious", *flags, "--parts", "page"]) == 0
    assert files_of(study) == before
