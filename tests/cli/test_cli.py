"""Every way to misuse the command that we could think of is one line on standard error and exit status 2."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
import torch

import backtalk
from backtalk.cli import COMMANDS as ALL
from backtalk.cli import build_parser, run
from backtalk.cli.models import Subject
from tests.models.test_contract import small_folder

COMMANDS = [one.name for one in ALL]
SHOUT = "py:tests.talkers:shout"
SOURCE = str(Path(backtalk.__file__).parent.parent)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bad files of all kinds, and a good model beside spoilt copies."""
    place = tmp_path_factory.mktemp("cli")
    for name, content in {
        "empty.tsv": b"",
        "binary.tsv": b"a\tb\n\x00\x01\x02\tc\n",
        "latin.tsv": "hé\tlà\n".encode("latin-1"),
        "columns.tsv": b"a\tb\na\tb\tc\n",
        "few.tsv": b"a\tb\nc\td\n",
        "signs.tsv": b"".join(b"...\t%d\n" % i for i in range(20)),
        "good.tsv": b"".join(b"word %d\treply %d\n" % (i, i % 3) for i in range(40)),
        "file": b"in the way",
        "unknown.yaml": b"hiden: 5\n",
        "type.yaml": b"epochs: many\n",
        "list.yaml": b"- data\n- out\n",
        "broken.yaml": b"data: [1\n",
    }.items():
        (place / name).write_bytes(content)
    for name in ("model", "flipped", "short", "cardless", "format", "escapes"):
        small_folder(place / name)
    weights = place / "flipped" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    config = place / "short" / "config.json"
    config.write_bytes(config.read_bytes()[:50])
    (place / "cardless" / "card.json").unlink()
    (place / "format" / "config.json").write_text('{"format": "other"}')
    record = json.loads((place / "escapes" / "config.json").read_text())
    record["sizes"] = {"\x1b[2Jevil\u202e": 1}
    (place / "escapes" / "config.json").write_text(json.dumps(record))
    return place


TRAIN = "train --device cpu --epochs 1 --hidden 4 --embedding 4 --out {place}/new"
BAD = {
    "unknown command": ("trian", "unknown command 'trian'; did you mean 'train'?"),
    "unknown command, nothing near": ("zzzzz", "unknown command 'zzzzz'; known: "),
    "unknown flag": ("train --hiden 5", "unknown flag --hiden; did you mean --hidden?"),
    "unknown flag with =": ("train --epoch=5", "unknown flag --epoch=5; did you mean --epochs?"),
    "unknown flag, nothing near": ("chat --zzzzz", "unknown flag --zzzzz; see backtalk chat --help"),
    "unknown flag before the command": ("--versoin", "unknown flag --versoin; did you mean --version?"),
    "shortened flag": ("chat --probab --say x", "unknown flag --probab; did you mean --probabilities?"),
    "stray word": ("chat hello", "hello"),
    "flag without a value": ("train --epochs", "argument --epochs: expected one argument"),
    "unknown choice": (
        f"{TRAIN} --arch atention",
        "arch: unknown value 'atention'; did you mean 'attention'?",
    ),
    "not a whole number": (f"{TRAIN} --epochs 2.5", "backtalk: --epochs should be a whole number, not '2.5'"),
    "not a number": (f"{TRAIN} --lr fast", "lr should be a number, not 'fast'"),
    "negative": (f"{TRAIN} --batch -1", "batch"),
    "nan": (f"{TRAIN} --lr nan", "lr should not be nan"),
    "zero": (f"{TRAIN} --hidden 0", "--hidden should not be 0; the range is 1 to "),
    "dropout of all": (f"{TRAIN} --dropout 1", "--dropout should not be 1.0; the range is 0 to 0.999"),
    "momentum of adamw": (f"{TRAIN} --momentum 0.9", "--momentum is for --optimizer sgd"),
    "seed too large": (
        f"{TRAIN} --seed 99999999999999",
        "--seed should not be 99999999999999; the range is 0 to 4,294,967,295",
    ),
    "no data file": (f"{TRAIN} --data {{place}}/none.tsv", "there is no file {place}/none.tsv"),
    "empty data": (f"{TRAIN} --data {{place}}/empty.tsv", "empty.tsv is empty"),
    "binary data": (f"{TRAIN} --data {{place}}/binary.tsv", "binary.tsv, line 2: this is a binary file"),
    "data not UTF-8": (f"{TRAIN} --data {{place}}/latin.tsv", "latin.tsv, line 1: not UTF-8"),
    "data of ragged columns": (f"{TRAIN} --data {{place}}/columns.tsv", "columns.tsv, line 2: 3 columns"),
    "data too small": (f"{TRAIN} --data {{place}}/few.tsv", "too few"),
    "a folder as data": (f"{TRAIN} --data {{place}}", "is a folder"),
    "data without words": (
        f"{TRAIN} --data {{place}}/signs.tsv --recipe he-glass-2020",
        "gives no training pairs",
    ),
    "unknown format": (f"{TRAIN} --data {{place}}/good.tsv --format pairs-tvs", "did you mean 'pairs-tsv'?"),
    "unknown recipe": (
        f"{TRAIN} --data {{place}}/good.tsv --recipe he-glass-2018",
        "unknown recipe 'he-glass-2018'; did you mean",
    ),
    "no test file": (f"{TRAIN} --data {{place}}/good.tsv --test {{place}}/none.tsv", "there is no file"),
    "out is a file": (f"{TRAIN} --data {{place}}/good.tsv --out {{place}}/file", "is a file; name a folder"),
    "out below a file": (
        f"{TRAIN} --data {{place}}/good.tsv --out {{place}}/file/m",
        "can't write into --out {place}/file/m (Not a directory)",
    ),
    "out holds other files": (f"{TRAIN} --data {{place}}/good.tsv --out {{place}}", "holds other files"),
    "a spec with an unknown key": (
        "train --config {place}/unknown.yaml",
        "unknown.yaml: unknown key 'hiden'; did you mean 'hidden'?",
    ),
    "a spec with a wrong type": (
        "train --config {place}/type.yaml",
        "type.yaml: epochs should be a whole number, not 'many'",
    ),
    "a spec that is a list": ("train --config {place}/list.yaml", "should hold `key: value` lines"),
    "a spec that is broken": ("train --config {place}/broken.yaml", "broken.yaml is not valid YAML"),
    "no spec": ("train --config {place}/none.yaml", "no spec file at {place}/none.yaml"),
    "unknown model": ("chat --model chitcaht --say x", "unknown model 'chitcaht'; did you mean 'chitchat'?"),
    "no model to chat with": ("chat --model= --say x", "name a model"),
    "no model to audit": ("audit --model=", "name a model"),
    "no model behind the seal": ("chat --model sealed: --say x", "name a model"),
    "no model folder": ("chat --model {place}/none --say x", "no model folder at '{place}/none'"),
    "a folder without a model": ("chat --model {place} --say x", "config.json is missing; is {place} the"),
    "a flipped bit": (
        "chat --model {place}/flipped --say x --device cpu",
        "flipped/model.safetensors does not match the sha256 in card.json",
    ),
    "a config cut short": ("chat --model {place}/short --say x --device cpu", "config.json can't be read"),
    "no card": ("chat --model {place}/cardless --say x --device cpu", "card.json is missing"),
    "another format": ("chat --model {place}/format --say x --device cpu", "is not a model of ours"),
    "a language model": (
        "chat --model {place}/model/lm --say x --device cpu",
        "is a language model and can't reply",
    ),
    "a file that steers the terminal": (
        "chat --model {place}/escapes --say x --device cpu",
        "can't be read as a model",
    ),
    "unknown device": ("chat --model {place}/model --say x --device gpu", "unknown device 'gpu'; use auto,"),
    "unsupported device": ("chat --model {place}/model --say x --device meta", "unknown device 'meta'; use"),
    "py: without a module": ("chat --model py:nosuchmodule:f --say x", "can't import 'nosuchmodule'"),
    "py: without a function": (
        "chat --model py:tests.talkers:shuot --say x",
        "unknown function in tests.talkers 'shuot'; did you mean 'shout'?",
    ),
    "py: malformed": ("chat --model py:json --say x", "py:json should read py:module:function"),
    "py: relative": ("chat --model py:.json:f --say x", "py:.json:f should read py:module:function"),
    "sealed: nothing": ("chat --model sealed:nothing --say x", "unknown model 'nothing'"),
    "probabilities of text": (f"chat --model {SHOUT} --say x --probabilities", "shows replies only"),
    "beam of text": (f"chat --model {SHOUT} --say x --beam 2", "shows replies only"),
    "sample of a sealed model": (
        "chat --model sealed:{place}/model --say x --sample --device cpu",
        "shows replies only",
    ),
    "beam of none": ("chat --say x --beam 0", "--beam should not be 0; the range is 1 to 1,000"),
    "negative seed": ("chat --say x --sample --seed=-1", "--seed should not be -1"),
    "unknown subject": ("list modles", "'modles'; did you mean 'models'?"),
}


@pytest.mark.parametrize(("line", "phrase"), BAD.values(), ids=BAD.keys())
def test_bad_usage_and_input_is_one_line(
    place: Path, line: str, phrase: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [word.format(place=place) for word in line.split()]
    assert run(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (message,) = printed.err.splitlines()
    assert message.startswith("backtalk: ")
    assert phrase.format(place=place) in message
    assert message.isprintable()
    assert not (place / "new" / "card.json").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("command", [TRAIN, "chat --model {place}/model --say x"])
def test_a_gpu_that_is_not_there(place: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [word.format(place=place) for word in f"{command} --device cuda".split()]
    assert run(argv) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert "use --device cpu" in message


def start(*argv: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
        timeout=60,
        check=False,
    )


def test_the_exit_status_of_the_process() -> None:
    done = start("-m", "backtalk", "trian")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("backtalk: ")
    assert line.endswith("did you mean 'train'?")
    assert done.stdout == ""


@pytest.mark.parametrize(
    "line",
    ["list", "list models", f"chat --model {SHOUT} --say x", "", "--help", "train --help", "--version"],
)
def test_a_reader_that_went_away_is_no_error(line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = start("-m", "backtalk", *line.split(), stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_help_names_every_command() -> None:
    help_text = build_parser().format_help()
    assert {"train", "chat", "list"} <= set(COMMANDS)
    assert all(f"\n    {command} " in help_text for command in COMMANDS)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run([*command.split(), "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert (f"example: backtalk {command}" in text) if command else "has its own --help" in text


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_there_at_once_and_loads_nothing_heavy(command: str) -> None:
    """In processor time: by the clock it would be the machine's other work that is measured."""

    def measure() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = start("-X", "importtime", "-m", "backtalk", *command.split(), "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0
        loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
        assert "argparse" in loaded
        assert loaded.isdisjoint({"torch", "numpy", "rich", "yaml", "safetensors", "transformers"})
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert any(measure() < 0.5 for _ in range(3))  # once is enough


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "usage: backtalk" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["--version"])
    assert capsys.readouterr().out == f"backtalk {backtalk.__version__}\n"


def test_list_names_what_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"]) == 0
    whole = capsys.readouterr().out
    for name in ("chitchat", "FOLDER", "py:", "sealed:", "pairs-tsv", "he-glass-2020", "mal", "FILE"):
        assert name in whole
    parts = []
    for subject in get_args(Subject):
        assert run(["list", subject]) == 0
        parts.append(capsys.readouterr().out)
    assert "".join(parts) == whole


@pytest.mark.parametrize(
    ("command", "work", "said"),
    [
        (["audit"], "audit.flow.audit", "is saved, and the same command resumes"),
        (["audit", "--fresh"], "audit.flow.audit", "the same command without --fresh resumes"),
        (["verify", "run"], "audit.verify.verify", "saves nothing"),
        (["score", "-"], "cli.score.score_file", "saves nothing"),
    ],
)
def test_ctrl_c_says_what_is_kept(
    command: list[str],
    work: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*arguments: object, **named: object) -> int:
        raise KeyboardInterrupt

    module, _, verb = work.rpartition(".")
    monkeypatch.setattr(import_module(f"backtalk.{module}"), verb, interrupt)
    assert run(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("backtalk: stopped; ")
    assert said in line


def test_two_budgets_make_one_run_and_another_length_another(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("targets.txt").write_text("you go\n")
    audit = ["audit", "--model", str(place / "model"), "--targets", "targets.txt", "--hit", "o-greedy"]
    audit += ["--device", "cpu", "--top", "2", "--sweeps", "1", "--restarts", "1"]
    for more in (["--max-time", "1h"], ["--max-time", "2h"], ["--max-candidates", "9"]):
        assert run([*audit, "--length", "2", *more]) == 0
        assert len(list(Path("runs").iterdir())) == 1
    assert run([*audit, "--length", "3"]) == 0
    assert len(list(Path("runs").iterdir())) == 2
