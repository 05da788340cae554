"""`backtalk rate`, through its command: pairs, a rater elsewhere, the result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from backtalk.cli import run
from backtalk.models.folder import TextSettings, load_folder, save_folder, write_card
from backtalk.rating.folder import answered_by, give_answer, read_ratings
from backtalk.specs import spec_values
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run
from backtalk.types import Target, Turn
from tests.models.test_contract import small_folder

SHOUT = "py:tests.talkers:shout"
ECHO = "py:tests.talkers:echo"
INPUTS = ("hello there", "WHO ARE YOU", "do you like pizza?", "zwölf [bold]", "what now")
FOLDER = Path("ratings/py-tests.talkers-shout-py-tests.talkers-echo")
RATE = ["rate", SHOUT, ECHO, "--inputs", "in.txt"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("\n".join(INPUTS) + "\n", encoding="utf-8")


class Terminal:
    """Runs the command; keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, argv: list[str], status: int = 0) -> str:
        self.capsys.readouterr()
        assert run(argv) == status
        printed = self.capsys.readouterr()
        return printed.err if status else printed.out


@pytest.fixture
def rate(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


def judge(*choices: str, folder: Path = FOLDER, rater: str = "anna") -> None:
    """Answers the first pairs that the rater has not answered, as the app does."""
    ratings = read_ratings(folder)
    done = answered_by(rater, ratings)
    left = [pair.id for pair in ratings.pairs if pair.id not in done]
    for pair, choice in zip(left, choices, strict=False):
        give_answer(ratings, pair, rater, choice)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def answers() -> list[tuple[int, str, str]]:
    """(place of the pair, rater, choice) of every line."""
    places = {row["pair"]: place for place, row in enumerate(rows(FOLDER / "pairs.jsonl"))}
    found = rows(FOLDER / "answers.jsonl")
    return [(places[row["pair"]], row["rater"], row["choice"]) for row in found]


def result(folder: Path = FOLDER) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return found


def test_pairs_are_blind_and_the_key_is_apart(rate: Terminal) -> None:
    said = rate([*RATE, "--out", "r"])
    pairs, key = rows(Path("r/pairs.jsonl")), json.loads(Path("r/key.json").read_text())
    assert [pair["input"] for pair in pairs] == [text for text in INPUTS if text != "WHO ARE YOU"]
    for pair in pairs:
        shown = [pair["reply_1"], pair["reply_2"]]
        assert shown[:: -1 if pair["pair"] in key["swapped"] else 1] == [pair["input"].upper(), pair["input"]]
    assert len(key["swapped"]) == 2
    assert key["identical"] == [{"input": "WHO ARE YOU", "reply": "WHO ARE YOU"}]
    assert (key["first"]["name"], key["second"]["name"], key["settings"]["seed"]) == (SHOUT, ECHO, 1)
    seen = Path("r/pairs.jsonl").read_text(encoding="utf-8")
    assert "zwölf [bold]" in seen
    assert not {"shout", "echo", "swapped"} & set(seen.split())
    assert "4 pairs to judge, 1 with identical replies" in " ".join(said.split())
    assert "backtalk serve --ratings r" in said
    assert "backtalk rate r --result" in said
    assert (Path("r").stat().st_mode & 0o777) == 0o700


def test_cut_off_anywhere_it_ends_with_the_same_answers(rate: Terminal) -> None:
    typed = ["1", "tie", "2", "skip"]
    rate(RATE)
    judge(*typed)
    unbroken, path = answers(), FOLDER / "answers.jsonl"
    whole = path.read_bytes()
    for cut in range(0, len(whole), 23):
        path.write_bytes(whole[:cut])
        done = whole[:cut].count(b"\n") + whole[:cut].endswith(b"}")
        judge(*typed[done:])
        assert answers() == unbroken
        assert path.read_bytes().endswith(b"\n")


def test_a_rater_elsewhere_has_no_key(rate: Terminal) -> None:
    rate(RATE)
    shutil.copytree(FOLDER, "dans", ignore=shutil.ignore_patterns("key.json"))
    judge("1", "2", folder=Path("dans"), rater="dan")
    assert "has no key" in rate(["rate", "dans", "--result"], status=2)
    with (FOLDER / "answers.jsonl").open("a") as file:
        file.write(Path("dans/answers.jsonl").read_text())
    rate([*RATE, "--result"])
    assert result()["raters"].keys() == {"dan"}


def test_two_raters_and_the_result(rate: Terminal) -> None:
    rate(RATE)
    swapped = json.loads((FOLDER / "key.json").read_text())["swapped"]
    ids = [row["pair"] for row in rows(FOLDER / "pairs.jsonl")]
    for name, wanted in (("bob", "1112"), ("cy", "1122")):  # 1 is SHOUT here, whatever the side
        sides = [wanted[i] if ids[i] not in swapped else "21"[int(wanted[i]) - 1] for i in range(4)]
        judge(*sides, rater=name)
    said = rate([*RATE[:3], "--result"])
    found = result()
    assert {name: share["hits"] for name, share in found["shares"].items()} == {
        "tie": 2, "first": 2, "second": 1,
    }  # fmt: skip
    assert found["identical"] == {"pairs": 1, "counted_as_ties": True}
    # Of 4 pairs 3 alike: 2 unequal ordered pairs; 5 answers are first, 3 second: 64 - 25 - 9 = 30.
    assert found["agreement"]["krippendorff_alpha"] == pytest.approx(1 - 7 * 2 / 30)
    assert found["sign_test_p"] == 1.0
    assert f"first:  {SHOUT}" in said
    assert rate(["rate", str(FOLDER), "--result"]) == said


def test_identical_replies_can_be_asked(rate: Terminal) -> None:
    rate([*RATE, "--no-identical-ties", "--out", "asked"])
    judge(*["tie"] * 5, folder=Path("asked"))
    rate(["rate", "asked", "--result"])
    found = result(Path("asked"))
    assert found["shares"]["tie"]["hits"] == found["asked"] == 5
    assert found["identical"]["pairs"] == 0


def test_all_identical_leaves_nothing_to_ask(rate: Terminal) -> None:
    Path("in.txt").write_text("LOUD\n")
    assert "0 pairs to judge, 1 with identical replies" in " ".join(rate(RATE).split())
    rate([*RATE, "--result"])
    assert result()["shares"]["tie"]["hits"] == 1


REFUSED = {
    "one model": (["rate", SHOUT], "name two"),
    "three": (["rate", SHOUT, ECHO, ECHO], "name two"),
    "no corpus": (["rate", SHOUT, ECHO], "--inputs FILE"),
    "unknown": (["rate", "chitcaht", ECHO], "did you mean 'chitchat'"),
    "no inputs": (["rate", SHOUT, ECHO, "--inputs", "none.txt"], "there is no file none.txt"),
    "other files": ([*RATE, "--out", "."], "holds other files (bad.jsonl)"),
    "no ratings yet": ([*RATE, "--result"], "there are no ratings in"),
    "JSONL without inputs": ([*RATE[:4], "bad.jsonl"], "bad.jsonl, line 1"),
}


@pytest.mark.parametrize(("argv", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_one_line(rate: Terminal, argv: list[str], said: str) -> None:
    Path("bad.jsonl").write_text('{"reply": "x"}\n')
    message = rate(argv, status=2)
    assert said in message
    assert message.count("\n") == 1
    assert not Path("ratings").exists()


def test_other_files_beside_ratings_lock_nobody_out(rate: Terminal) -> None:
    rate(RATE)
    (FOLDER / ".DS_Store").touch()
    rate(RATE)
    judge("1")
    assert answers() == [(0, "anna", "1")]
    rate(["rate", str(FOLDER), "--result"])


def test_other_settings_and_changed_files_are_noticed(rate: Terminal) -> None:
    rate(RATE)
    assert "settings (seed)" in rate([*RATE, "--seed", "2"], status=2)
    Path("in.txt").write_text("something else\n")
    assert "settings (inputs)" in rate(RATE, status=2)
    assert "--result" in rate(["rate", str(FOLDER)])
    pairs = FOLDER / "pairs.jsonl"
    pairs.write_text(pairs.read_text().replace("HELLO THERE", "HELLO"))
    assert "pairs.jsonl, line 1" in rate(["rate", str(FOLDER)], status=2)


def test_the_embedded_model_answers_held_out_inputs_at_44_columns(
    rate: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    said = rate(["rate", "chitchat", ECHO, "--pairs", "6", "--out", "r", "--device", "cpu"])
    assert max(map(len, said.splitlines())) <= 44
    judge("1", "2", "tie", folder=Path("r"))
    said = rate(["rate", "r", "--result"])
    assert max(map(len, said.splitlines())) <= 44
    assert result(Path("r"))["inputs"].endswith("pairs of chitchat")
    assert (result(Path("r"))["judged"], result(Path("r"))["unseen"]) == (3, 3)


# --- what RUN may be -------------------------------------------------------------------------------------


def a_hardening(folder: Path) -> tuple[str, str]:
    """A folder as `backtalk harden` leaves it: two models and the facts. The second has other weights."""
    parent = small_folder(folder / "parent")
    bias = parent.network.output.bias.data
    bias += 3 * (bias > 0.4)
    digest = save_folder(folder / "out" / "model", parent.network, parent.vocabulary, TextSettings())
    write_card(folder / "out" / "model", {"sha256": digest})
    lines = [f"you go {a}\tyes {b}" for a in ("i", "we", "you", "the dog") for b in ("no", "so", "maybe")]
    (folder / "pairs.tsv").write_text("\n\n".join(lines) + "\n")
    facts = {
        "model": str(folder / "parent"),
        "fingerprint": load_folder(str(folder / "parent"), "cpu").fingerprint,
        "data": str(folder / "pairs.tsv"),
        "format": "auto",
        "seed": 1,
    }
    (folder / "out" / "hardening.json").write_text(json.dumps(facts))
    return str(folder / "parent"), str(folder / "out")


def test_a_hardening_is_its_parent_against_its_model(rate: Terminal, tmp_path: Path) -> None:
    parent, out = a_hardening(tmp_path / "h")
    rate(["rate", out, "--no-identical-ties", "--device", "cpu", "--out", "r"])
    key, pairs = json.loads(Path("r/key.json").read_text()), rows(Path("r/pairs.jsonl"))
    assert (key["first"]["name"], key["second"]["name"]) == (parent, f"{out}/model")
    assert pairs
    before, after = load_folder(parent, "cpu"), load_folder(f"{out}/model", "cpu")
    for pair in pairs:
        assert pair["input"].startswith("you go")
        said = [model.reply([(Turn("user", pair["input"]),)])[0] for model in (before, after)]
        assert [pair["reply_1"], pair["reply_2"]] == said[:: -1 if pair["pair"] in key["swapped"] else 1]
    again = ["rate", f"{out}/", "--no-identical-ties", "--device", "cpu", "--out", "r"]
    assert "Folder: r" not in rate(again), "a slash at the end asks on"
    rate(["rate", parent, out, "--inputs", "in.txt", "--device", "cpu", "--out", "two"])
    named = json.loads(Path("two/key.json").read_text())
    assert (named["first"], named["second"]) == (key["first"], key["second"])


def test_a_hardening_that_is_not_done_or_whose_parent_changed(rate: Terminal, tmp_path: Path) -> None:
    parent, out = a_hardening(tmp_path / "h")
    (Path(out) / "hardening.json").rename(Path(out) / "kept.json")
    facts = json.loads((Path(out) / "kept.json").read_text())
    (Path(out) / "hardening.json").write_text(json.dumps({**facts, "fingerprint": "other"}))
    assert f"{parent} has changed since that run" in rate(["rate", out, "--device", "cpu"], status=2)
    (Path(out) / "model" / "card.json").unlink()
    assert "is not finished" in rate(["rate", out], status=2)
    (Path(out) / "hardening.json").write_text("{")
    assert "hardening.json is damaged" in rate(["rate", out], status=2)


def test_an_audit_is_the_model_it_audited(rate: Terminal, tmp_path: Path) -> None:
    model = small_folder(tmp_path / "m")
    name, targets = str(tmp_path / "m"), [Target("t", "go away")]
    for folder, audited, fingerprint in (("run", name, model.fingerprint), ("code", SHOUT, "")):
        spec = spec_values(AuditSpec(model=audited))
        Run.create(tmp_path / folder, spec, {"fingerprint": fingerprint}, targets, "0", 1).close()
    rate(["rate", str(tmp_path / "run"), ECHO, "--inputs", "in.txt", "--out", "r", "--device", "cpu"])
    assert json.loads(Path("r/key.json").read_text())["first"]["name"] == name
    refused = rate(["rate", str(tmp_path / "code"), ECHO, "--inputs", "in.txt"], status=2)
    assert "names a Python function" in refused
