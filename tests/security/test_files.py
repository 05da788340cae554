"""Files and folders from elsewhere: gzip bombs, devices, links, foreign folders, and names that steer a
terminal."""

from __future__ import annotations

import ast
import fcntl
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path

import pytest

import backtalk
from backtalk.cli import run
from backtalk.errors import InputError
from backtalk.store import Run
from tests.cli.test_train import OPENERS, SMALL, everything, write_corpus
from tests.models.test_contract import small_folder
from tests.rating.test_answers import PAIRS, line
from tests.runs.test_compare import found, make_run

SOURCE = Path(backtalk.__file__).parent
GIB = 1 << 30
STEERING = "x\x1b]0;owned\x07\u202ey"
"""Sets a terminal's title, rings its bell, and turns the writing round."""

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# --- what is read ---------------------------------------------------------------------------------------

READERS = """
import json, os, resource, signal, sys
from pathlib import Path

from backtalk.searches.reverse.training import read_utterances
from backtalk.data.corpora import reference_pairs
from backtalk.cli import run
from backtalk.data import corpora, labelled, openings, textfiles
from backtalk.data.targets import read_targets
from backtalk.errors import InputError
from backtalk.audit.findings import read_found
from backtalk.rating.flow import read_inputs
from backtalk.cli.score import read_texts
from backtalk.scorers.similarity import TextVectors

def drain(lines):
    for _ in lines:
        pass

WHOLE = {
    "lines": lambda path: drain(textfiles.read_lines(path)),
    "targets": read_targets,
    "reference": lambda path: reference_pairs(str(path)),
    "utterances": lambda path: read_utterances(str(path), 1),
    "vectors": TextVectors,
    "openings": openings.read_opening_file,
    "weak prompts": lambda path: openings.read_weak(str(path)),
    "corpus": lambda path: corpora.read_corpus(str(path)),
    "labelled text": labelled.read_labelled,
    "findings": lambda path: read_found(str(path)),
    "inputs of a rating": read_inputs,
}
STREAMED = {"texts": lambda path: drain(read_texts(path))}
COMMANDS = {
    "audit": ["audit", "--device", "cpu", "--targets", "{}"],
    "score": ["score", "{}", "--scorer", "toxicity-second"],
    "train": ["train", "--device", "cpu", "--out", "new", "--data", "{}"],
}

def outcome(reader, *arguments):
    signal.alarm(20)
    try:
        return f"read: {reader(*arguments)!r:.60}"
    except InputError:
        return "refused"
    except BaseException as error:
        return type(error).__name__
    finally:
        signal.alarm(0)

def too_late(*_):
    raise TimeoutError

signal.signal(signal.SIGALRM, too_late)
pages = int(Path("/proc/self/statm").read_text().split()[0])
room = pages * os.sysconf("SC_PAGE_SIZE") + (3 << 29)  # 1.5 GiB more than the libraries take
resource.setrlimit(resource.RLIMIT_AS, (room, room))
found = {}
for asked in sys.argv[1:]:
    name, path = asked.split("=")
    if name in COMMANDS:
        found[asked] = outcome(run, [word.replace("{}", path) for word in COMMANDS[name]])
        continue
    for one in WHOLE if name == "all" else [name]:
        found[f"{one}={path}"] = outcome((WHOLE | STREAMED)[one], Path(path))
found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps(found))
"""


def readers(*asked: str) -> tuple[dict[str, str], int, list[str]]:
    """What each READER=FILE came to, in a process with 1.5 GiB of room; its peak; its complaints."""
    process = subprocess.run(
        [sys.executable, "-c", READERS, *asked],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": f"{SOURCE.parent}:{Path(__file__).parents[2]}"},
    )
    assert process.returncode == 0, process.stderr
    results: dict[str, str] = json.loads(process.stdout.splitlines()[-1])
    peak = int(results.pop("peak"))
    return results, peak, process.stderr.splitlines()


def bomb(path: Path, piece: bytes) -> Path:
    """Unpacks to 1 GiB: sixteen times the same 64 MiB."""
    member = gzip.compress((piece * ((64 << 20) // len(piece) + 1))[: 64 << 20])
    path.write_bytes(member * 16)
    assert path.stat().st_size < 4 << 20
    return path


def test_a_gzip_bomb_is_refused_by_every_reader() -> None:
    """Zeros are no text; lines are refused when there are too many, and one line when it is too long."""
    bomb(Path("zeros.gz"), b"\0")
    bomb(Path("lines.gz"), b"well " * 200 + b"\tyou\n")
    bomb(Path("line.gz"), b"a")
    asked = ["all=zeros.gz", "lines=lines.gz", "vectors=lines.gz"]
    commands = ["audit=lines.gz", "train=lines.gz", "score=line.gz"]
    results, peak, said = readers(*asked, "texts=line.gz", *commands)
    assert [results.pop(command) for command in commands] == ["read: 2"] * 3
    assert {name: made for name, made in results.items() if made != "refused"} == {}
    assert len(results) == 14
    assert len([one for one in said if one.startswith("backtalk: ") and ".gz" in one]) == 3
    assert peak < 2 * GIB


def test_devices_and_pipes_are_no_files() -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDWR)  # so that opening it to read would not wait, only reading
    results, peak, _ = readers("all=/dev/zero", "all=pipe")
    os.close(reader)
    assert {name: made for name, made in results.items() if made != "refused"} == {}
    assert len(results) == 22
    assert peak < 2 * GIB


@pytest.mark.parametrize(("lines", "status", "shown"), [([b"hello\n", b"you there\n"], 0, 2), (None, 2, 0)])
def test_a_pipe_is_scored_and_one_without_line_ends_is_refused(
    lines: list[bytes] | None, status: int, shown: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a shell gives it by <(command); where there are no lines, what comes never ends."""
    reader, writer = os.pipe()

    def fill() -> None:
        with suppress(BrokenPipeError), os.fdopen(writer, "wb", buffering=0) as pipe:
            for piece in lines or repeat(b"x" * 60_000, 1000):
                pipe.write(piece)

    filling = threading.Thread(target=fill)
    filling.start()
    try:
        assert run(["score", f"/dev/fd/{reader}", "--scorer", "toxicity-second"]) == status
    finally:
        os.close(reader)
        filling.join()
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == shown
    assert ("line 1: longer than" in said.err) == (lines is None)


def test_a_large_plain_file_and_an_ordinary_gzip_file_are_read(tmp_path: Path) -> None:
    from backtalk.data.textfiles import read_lines, stream_lines

    text = b"\xef\xbb\xbfone\r\ntwo\n\nlast"
    for name, content in (("plain", text), ("packed", gzip.compress(text[:7]) + gzip.compress(text[7:]))):
        (tmp_path / name).write_bytes(content)
        expected = [(1, "one"), (2, "two"), (3, ""), (4, "last")]
        assert list(read_lines(tmp_path / name)) == list(stream_lines(tmp_path / name)) == expected


# --- folders --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a list, a model and a run of it, and a model that writes letters."""
    place = tmp_path_factory.mktemp("files")
    write_corpus(place / "pairs.tsv", 60)
    (place / "words.txt").write_text("hi there\nbecause\nof course\nwell what\nmaybe so\n")
    model = ["--out", str(place / "model"), "--epochs", "1", *SMALL]
    assert run(["train", "--data", str(place / "pairs.tsv"), *model]) == 0
    assert run([*audit(place), "--out", str(place / "run")]) == 0
    return place


def audit(place: Path, verb: str = "audit") -> list[str]:
    return [
        verb, "--model", str(place / "model"), "--targets", str(place / "words.txt"), "--length", "2",
        "--hit", "o-sample-avg-k1", "--sweeps", "1", "--top", "4", "--device", "cpu",
    ]  # fmt: skip


def harden(place: Path, out: Path) -> list[str]:
    return [*audit(place, "harden"), "--data", str(place / "pairs.tsv"), "--no-audits", "--out", str(out)]


def train(out: Path, *more: str) -> list[str]:
    data = write_corpus(Path("pairs.tsv"), 60)
    return ["train", "--data", str(data), "--out", str(out), "--epochs", "1", *SMALL, *more]


def last_line(captured: pytest.CaptureFixture[str]) -> str:
    *_, said = captured.readouterr().err.splitlines()
    assert said.startswith("backtalk: ")
    return str(said)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("train", "card.json"),
        ("train", "lm/notes.txt"),
        ("train", "checkpoint.safetensors"),
        ("train-scorer", "card.json"),
        ("train-scorer", "config.json"),
        ("harden", "hardening.json"),
    ],
)
def test_a_foreign_folder_is_left_alone(
    command: str, name: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("{}")
    before = everything(tmp_path / "mine")
    asked = {
        "train": train(tmp_path / "mine"),
        "train-scorer": ["train-scorer", "--data", str(tmp_path), "--out", "mine"],
        "harden": harden(place, tmp_path / "mine"),
    }[command]
    assert run([*asked, "--fresh"]) == 2
    assert "holds other files" in last_line(capsys)
    assert everything(tmp_path / "mine") == before


def test_fresh_removes_nothing_where_a_file_is_not_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    assert run(train(out)) == 0
    (out / "lm" / "notes.txt").write_text("mine")
    before = everything(out)
    assert run(train(out, "--fresh")) == 2
    assert "lm/notes.txt" in last_line(capsys)
    assert everything(out) == before
    (out / "lm" / "notes.txt").unlink()
    assert run(train(out, "--fresh", "--no-language-model")) == 0
    assert not (out / "lm" / "card.json").exists()


@pytest.mark.parametrize("command", ["train", "train-scorer"])
def test_two_at_once_are_not_let_into_one_folder(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    out.mkdir()
    (out / ".backtalk").write_text(f"{command}\n")
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        asked = ["train-scorer", "--data", ".", "--out", str(out)]
        assert run(train(out) if command == "train" else asked) == 2
        assert "another process" in last_line(capsys)
    assert {path.name for path in out.iterdir()} == {".backtalk", ".lock"}


# --- links ----------------------------------------------------------------------------------------------

LINKED = ["summary.json.partial", "generator", "adversary", "untuned", "log.txt"]


@pytest.mark.parametrize("name", LINKED)
def test_resume_refuses_a_run_with_a_link_that_leads_out(
    name: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = elsewhere(tmp_path, is_folder="." not in name)
    folder = shutil.copytree(place / "run", tmp_path / "run")
    with Run.open(folder, write=True) as opened:
        opened.set_state("running")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(victim)
    assert run(["resume", str(folder)]) == 2
    assert "leads out" in last_line(capsys)
    assert everything(tmp_path / "elsewhere") == {"victim": b"mine"}


def elsewhere(place: Path, is_folder: bool) -> Path:
    """What nobody may write to."""
    place = place / "elsewhere"
    place.mkdir()
    (place / "victim").write_text("mine")
    return place if is_folder else place / "victim"


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint.safetensors.partial",
        "model.safetensors.partial",
        "config.json.partial",
        "vocab.json",
        "card.json.partial",
        "lm",
    ],
)
def test_train_writes_through_no_link(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim = elsewhere(tmp_path, is_folder=name == "lm")
    out = tmp_path / "model"
    out.mkdir()
    for mark, text in ((".backtalk", "train\n"), ("checkpoint.safetensors.partial", "")):
        (out / mark).write_text(text)  # of a training that was killed, by the mark of before and of now
    (out / name).unlink(missing_ok=True)
    (out / name).symlink_to(victim)
    assert run(train(out)) == 2
    assert "leads out" in last_line(capsys)
    assert everything(tmp_path / "elsewhere") == {"victim": b"mine"}


@pytest.mark.parametrize("name", ["model", "summary.json.partial"])
def test_harden_writes_through_no_link(
    name: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = elsewhere(tmp_path, is_folder="." not in name)
    out = tmp_path / "hardened"
    out.mkdir()
    (out / ".backtalk").write_text("harden\n")
    (out / name).symlink_to(victim)
    assert run(harden(place, out)) == 2
    assert "leads out" in last_line(capsys)
    assert everything(tmp_path / "elsewhere") == {"victim": b"mine"}


def test_writers_replace_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    """Also where no lock was taken: by the functions that write files."""
    import torch

    from backtalk.data.vocabulary import Vocabulary
    from backtalk.models.folder import write_json
    from backtalk.scorers.toxicity.folder import write_scorer
    from backtalk.training.resumable import save_checkpoint

    names = ["config.json", "model.safetensors", "checkpoint.safetensors", "vocab.json"]
    victim = elsewhere(tmp_path, is_folder=False)
    for name in names:
        (tmp_path / name).symlink_to(victim)
        (tmp_path / f"{name}.partial").symlink_to(victim)
    write_scorer(tmp_path, "letters", {}, [], {"weights": torch.zeros(2)})
    save_checkpoint(tmp_path / "checkpoint.safetensors", {}, {})
    Vocabulary(("a",)).save(tmp_path / "vocab.json")
    write_json(tmp_path / "config.json", {"a": 1})
    assert victim.read_text() == "mine"
    assert [name for name in names if (tmp_path / name).is_symlink()] == []


def test_a_link_that_stays_inside_is_fine_and_a_pipe_is_not(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", found({1}))
    (folder / "kept").symlink_to("spec.yaml")
    Run.open(folder, write=True).close()
    os.mkfifo(folder / "log.txt")
    with pytest.raises(InputError, match=r"log\.txt is neither a file"):
        Run.open(folder, write=True)


@pytest.mark.parametrize("name", ["run.sqlite", "run.sqlite-wal"])
def test_a_database_that_is_a_link_is_not_opened(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = make_run(tmp_path / "theirs", found({1, 2}))
    folder = make_run(tmp_path / "run", found({1}))
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(theirs / "run.sqlite")
    for command in ("report", "export", "verify"):
        assert run([command, str(folder)]) == 2
        assert "is a link" in last_line(capsys)


# --- a folder that can't be written ----------------------------------------------------------------------


@pytest.mark.parametrize(("gate", "status"), [([], 0), (["--fail-over", "0.1%"], 3)])
def test_report_shows_its_table_where_no_page_can_be_written(
    gate: Sequence[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path / "run", found({1, 2}))
    assert run(["report", str(folder), *gate]) == status
    table = capsys.readouterr().out.split("Report: ")[0]
    (folder / "report.html").unlink()
    (folder / "report.html.partial" / "full").mkdir(parents=True)  # root may write in any folder
    assert run(["report", str(folder), *gate]) == status
    shown, complaint = capsys.readouterr()
    assert table in shown
    assert len(table.splitlines()) > 10
    assert "report.html" in "".join(shown.removeprefix(table).split())
    assert "Report: " not in shown
    assert complaint == ""


# --- names that steer a terminal ---------------------------------------------------------------------------


def steering(text: str) -> list[str]:
    return re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text)


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A folder with such a name, with a run, a model and ratings in it that have one too."""
    place = tmp_path / STEERING
    make_run(place / STEERING, found({1, 2}), model=str(place / f"model {STEERING}"))
    make_run(place / f"second {STEERING}", found({1}))
    small_folder(place / f"model {STEERING}")
    ratings = place / f"ratings {STEERING}"
    ratings.mkdir()
    pairs = [json.dumps(pair.as_dict()) for pair in PAIRS]
    (ratings / "pairs.jsonl").write_text("\n".join(pairs) + "\n")
    (ratings / "answers.jsonl").write_text(line() + "\n")
    (place / f"lines {STEERING}").write_text("hello there\nyou fool\n")
    return place


SAYING: dict[str, tuple[int, list[str]]] = {
    "report": (0, ["report", "{}/NAME"]),
    "verify": (3, ["verify", "{}/NAME", "--device", "cpu"]),
    "export": (0, ["export", "{}/NAME"]),
    "compare": (0, ["compare", "{}/NAME", "{}/second NAME", "--html", "{}/page NAME"]),
    "resume": (2, ["resume", "{}/NAME"]),
    "no run": (2, ["report", "{}"]),
    "chat": (0, ["chat", "--model", "{}/model NAME", "--device", "cpu"]),
    "rate": (2, ["rate", "{}/ratings NAME", "--result"]),
    "rate, to judge": (0, ["rate", "{}/ratings NAME"]),
    "score": (0, ["score", "{}/lines NAME", "--scorer", "toxicity-second"]),
    "score, elsewhere": (2, ["score", "{}/lines NAME", "--scorer", "{}/model NAME"]),
    "train": (0, ["train", "--data", "pairs.tsv", "--out", "{}/new NAME", "--epochs", "1", *SMALL]),
    "audit": (
        0,
        ["audit", "--model", "{}/model NAME", "--targets", "words.txt", "--out", "{}/new NAME",
         "--length", "2", "--sweeps", "1", "--top", "4", "--device", "cpu", "--reference", "pairs.tsv"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAYING)
def test_a_name_does_not_steer_the_terminal(
    name: str, named: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(Path("pairs.tsv"), 60)
    Path("words.txt").write_text("\n".join(OPENERS) + "\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n" if name == "chat" else ""))
    status, command = SAYING[name]
    words = [word.replace("{}", str(named)).replace("NAME", STEERING) for word in command]
    assert run(words) == status
    shown = capsys.readouterr()
    assert shown.out + shown.err
    assert steering(shown.out + shown.err) == []


def test_nothing_is_printed_but_by_the_cleaning_border() -> None:
    """A call of print or a console of rich's own would be a way around it."""
    around = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        if path.name != "terminal.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("print", "Console")
    ]
    assert around == []


def test_a_console_cleans_what_is_nested_and_styled(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from backtalk.terminal import make_console

    table = Table(title=STEERING)
    table.add_row(STEERING, Text(f"a{STEERING}\nb", style="bold"))
    for console in (make_console(), make_console(stderr=True)):
        console.print(table, STEERING)
    shown = capsys.readouterr()
    assert steering(shown.out + shown.err) == []
    assert "]0;ownedy" in shown.out
