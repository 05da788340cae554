"""`backtalk rate`, through its command: pairs, answers from a pipe, a kill, raters elsewhere, the result."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import backtalk
from backtalk.cli import run
from backtalk.models.folder import TextSettings, load_folder, save_folder, write_card
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
    """Runs the command with something typed; keeps what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, argv: list[str], typed: str = "", status: int = 0, keyboard: bool = False) -> str:
        stdin = io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8")
        if keyboard:
            self.monkeypatch.setattr(stdin, "isatty", lambda: True, raising=False)
        self.monkeypatch.setattr("sys.stdin", stdin)
        self.capsys.readouterr()
        assert run(argv) == status
        printed = self.capsys.readouterr()
        return printed.err if status else printed.out


@pytest.fixture
def rate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


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
    said = rate([*RATE, "--out", "r"], "1\n1\n1\n1\n")
    pairs, key = rows(Path("r/pairs.jsonl")), json.loads(Path("r/key.json").read_text())
    assert [pair["input"] for pair in pairs] == [text for text in INPUTS if text != "WHO ARE YOU"]
    for pair in pairs:
        shown = [pair["reply_1"], pair["reply_2"]]
        assert shown[:: -1 if pair["pair"] in key["swapped"] else 1] == [pair["input"].upper(), pair["input"]]
    assert len(key["swapped"]) == 2
    assert key["identical"] == [{"input": "WHO ARE YOU", "reply": "WHO ARE YOU"}]
    assert (key["first"]["name"], key["second"]["name"], key["settings"]["seed"]) == (SHOUT, ECHO, 1)
    for seen in (said, Path("r/pairs.jsonl").read_text(encoding="utf-8")):
        assert "zwölf [bold]" in seen
        assert "shout" not in seen
        assert "echo" not in seen
        assert "swapped" not in seen
    assert (Path("r").stat().st_mode & 0o777) == 0o700


def test_answers_of_a_pipe_undo_and_resume(rate: Terminal) -> None:
    said = rate([*RATE, "--rater", "anna"], "1\n\nTIE\nu\n2\nq\n1\n")
    assert "2 of 4 pairs done by anna" in said
    assert answers() == [(0, "anna", "1"), (1, "anna", "tie"), (1, "anna", "undo"), (1, "anna", "2")]
    said = rate([*RATE, "--rater", "anna"], "s\nt\n")
    assert "Pair 3 of 4" in said
    assert "Pair 1 of 4" not in said
    assert answers()[4:] == [(2, "anna", "skip"), (3, "anna", "tie")]
    said = rate([*RATE, "--rater", "anna"], "u\nu\n1\n")
    assert answers()[6:] == [(3, "anna", "undo"), (2, "anna", "undo"), (2, "anna", "1")], "undo reaches back"
    said = rate([*RATE, "--rater", "bob"], "u\n1\n")
    assert "Nothing to take back." in said
    assert answers()[-1] == (0, "bob", "1"), "each rater has a way of his own"


def test_at_a_keyboard_a_slip_is_asked_again_and_the_last_answer_can_be_taken_back(rate: Terminal) -> None:
    said = rate(RATE, "x\n\n12\n1\n1\n1\n1\n2\nu\n2\n", keyboard=True)
    assert said.count("s(kip), u(ndo), q(uit)") == 8
    assert said.count(": u(ndo), q(uit)") == 3
    assert [choice for _, _, choice in answers()] == ["1", "1", "1", "1", "undo", "2"]


def test_a_bad_line_of_a_pipe_is_named_and_what_came_before_is_kept(rate: Terminal) -> None:
    said = rate(RATE, "1\nmaybe\n2\n", status=2)
    assert "line 2: 'maybe'" in said
    assert answers() == [(0, "rater", "1")]
    assert "line 5: no pair is left" in rate(RATE, "1\n1\n1\n\n1\n", status=2)


def test_cut_off_anywhere_it_ends_with_the_same_answers(rate: Terminal) -> None:
    typed = ["1", "t", "2", "s"]
    rate(RATE, "\n".join(typed))
    unbroken, path = answers(), FOLDER / "answers.jsonl"
    whole = path.read_bytes()
    for cut in range(0, len(whole), 23):
        path.write_bytes(whole[:cut])
        done = whole[:cut].count(b"\n") + whole[:cut].endswith(b"}")
        rate(RATE, "\n".join(typed[done:]))
        assert answers() == unbroken
        assert path.read_bytes().endswith(b"\n")


def test_a_real_kill_keeps_every_answer_that_was_given(rate: Terminal) -> None:
    roots = [Path(backtalk.__file__).parent.parent, Path(__file__).parents[2]]
    process = subprocess.Popen(
        [sys.executable, "-m", "backtalk", *RATE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("1\n2\n")
    process.stdin.flush()
    while "Pair 3" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert [choice for _, _, choice in answers()] == ["1", "2"]
    rate(RATE, "t\nt\n")
    assert [choice for _, _, choice in answers()] == ["1", "2", "tie", "tie"]


def test_raters_elsewhere_and_the_result(rate: Terminal) -> None:
    rate([*RATE, "--export", "blind.jsonl"])
    exported = rows(Path("blind.jsonl"))
    assert all(row["choice"] == row["rater"] == "" for row in exported)
    swapped = json.loads((FOLDER / "key.json").read_text())["swapped"]
    for name, wanted in (("bob", "1112"), ("cy", "1122")):  # 1 is SHOUT here, whatever the side
        lines = [
            {**row, "rater": name, "choice": choice if row["pair"] not in swapped else "21"[int(choice) - 1]}
            for row, choice in zip(exported, wanted, strict=True)
        ]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = rate([*RATE, "--answers", "bob.jsonl", "cy.jsonl"])
    assert "8 new answers from 2 files." in said
    assert "SHOUT" not in said
    assert "0 new answers" in rate([*RATE, "--answers", "bob.jsonl"])
    said = rate([*RATE[:3], "--result"])
    found = result()
    assert {name: share["hits"] for name, share in found["shares"].items()} == {
        "tie": 2, "first": 2, "second": 1,
    }  # fmt: skip
    assert found["identical"] == {"pairs": 1, "counted_as_ties": True}
    # Of 4 pairs 3 alike; first/second 3/1 and 2/2: pe = (6 + 2) / 16; kappa = (3/4 - 1/2) / (1/2).
    assert found["agreement"]["cohen_kappa"] == pytest.approx(0.5)
    assert found["sign_test_p"] == 1.0
    assert f"first:  {SHOUT}" in said
    assert rate(["rate", str(FOLDER), "--result"]) == said


def test_a_rater_elsewhere_has_no_key(rate: Terminal) -> None:
    rate([*RATE, "--export", "blind.jsonl"])
    said = rate(["rate", "blind.jsonl", "--rater", "dan", "--out", "dans"], "1\n2\n")
    assert "2 of 4 pairs done by dan" in said
    assert "Send back dans/answers.jsonl" in said
    assert "has no key" in rate(["rate", "blind.jsonl", "--out", "dans", "--result"], status=2)
    assert not Path("dans/key.json").exists()
    rate([*RATE, "--answers", "dans/answers.jsonl", "--result"])
    assert result()["raters"].keys() == {"dan"}
    Path("fewer.jsonl").write_text(Path("blind.jsonl").read_text(encoding="utf-8").partition("\n")[0])
    assert "of other pairs" in rate(["rate", "fewer.jsonl", "--out", "dans"], status=2)


def test_bad_answers_of_a_file_change_nothing(rate: Terminal) -> None:
    rate(RATE, "1\n")
    before = (FOLDER / "answers.jsonl").read_bytes()
    good = {"pair": rows(FOLDER / "pairs.jsonl")[0]["pair"], "rater": "eve", "choice": "1"}
    Path("eve.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps({**good, 'choice': 'both'})}\n")
    assert "eve.jsonl, line 2" in rate([*RATE, "--answers", "eve.jsonl"], status=2)
    assert (FOLDER / "answers.jsonl").read_bytes() == before


def test_identical_replies_can_be_asked(rate: Terminal) -> None:
    rate([*RATE, "--no-identical-ties", "--out", "asked"], "t\nt\nt\nt\nt\n")
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
    "a rater without a name": ([*RATE, "--rater", " "], "--rater"),
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
    rate([*RATE, "--export", str(FOLDER / "for-ben.jsonl")])
    (FOLDER / ".DS_Store").touch()
    rate([*RATE, "--rater", "anna"], "1\nq\n")
    assert answers() == [(0, "anna", "1")]
    rate(["rate", str(FOLDER), "--result"])


def test_other_settings_and_changed_files_are_noticed(rate: Terminal) -> None:
    rate(RATE, "1\n")
    assert "settings (seed)" in rate([*RATE, "--seed", "2"], status=2)
    Path("in.txt").write_text("something else\n")
    assert "settings (inputs)" in rate(RATE, status=2)
    assert "1 of 4 pairs done" in rate(["rate", str(FOLDER)])
    pairs = FOLDER / "pairs.jsonl"
    pairs.write_text(pairs.read_text().replace("HELLO THERE", "HELLO"))
    assert "pairs.jsonl, line 1" in rate(["rate", str(FOLDER)], status=2)


def test_the_embedded_model_answers_held_out_inputs_at_44_columns(
    rate: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    said = rate(["rate", "chitchat", ECHO, "--pairs", "6", "--out", "r", "--device", "cpu"], "1\n2\nt\n")
    assert max(map(len, said.splitlines())) <= 44
    assert "Pair 4 of 6" in said
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
