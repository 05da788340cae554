"""Random argument lists for every command: an answer, one sentence, or a verdict; never a traceback.

The lists are built from the parser itself, so a new command or flag is covered without a change here. All of
them run in one child process, so that its peak memory is theirs alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from backtalk.cli import build_parser, run
from backtalk.cli.parser import Parser
from backtalk.registry import METHODS, SEARCHES

EXAMPLES = 25
"""Of each command."""
EXAMPLES_OF_A_CHOICE = 6
LONGEST_S = 60
MOST_BYTES = 2 << 30

# fmt: off
NUMBERS = [
    "0", "-1", "99999999999", "9" * 5000, "nan", "-inf", "1e400", "1", "2", "3", "0.5", "1_0", "0x10", "٣",
]
TEXTS = [
    "", " ", "-", "--", "\x1b[2J\u202e", "\n", "\x00", "\udcff", "a" * 3000, "'; drop", "%s{0}", "cpu",
]
NAMES = [
    "tiny", "chitchat", "py:os:getcwd", "py:", "hf/", "hf/missing/model", "http://", "http://127.0.0.1:1/v1",
    "sealed:tiny",
]
PATHS = [
    "missing", "missing/below", "folder", "empty.txt", "file.json", "deep.json", "twice.jsonl", "targets.txt",
    "pairs.tsv", "spec.yaml", "laughs.yaml", "deep.yaml", "/dev/null", "run", "run/missing", "ratings", "new",
    "none,run",
]
# fmt: on
GOOD_NUMBERS = ["1", "2", "3", "0", "0.5"]
OTHERS = ["mal", "2s", "toxic-0.5", "exact", "rules", "toxicity", "gibbs", "utterances", "reverse"]
EVERYTHING = [*NUMBERS, *TEXTS, *NAMES, *PATHS, *OTHERS]

SMALL = "--length=2 --top=2 --sweeps=1 --restarts=1"
BEFORE = {
    # Sizes at which a valid list takes seconds; a random flag behind them wins.
    "audit": f"--model=tiny --targets=targets.txt --device=cpu {SMALL}",
    "train": "--data=pairs.tsv --hidden=8 --embedding=8 --epochs=1 --batch=8",
    "harden": "--model=tiny --targets=targets.txt --data=pairs.tsv --measure=4 --rounds=1 --batch=4 "
    f"--limit=3 {SMALL}",
    "chat": "--model=tiny --say=hello",
    "risk": "--model=tiny --targets=targets.txt --device=cpu --draws=4",
    "serve-model": "--device=cpu",
    "rate": "--inputs=targets.txt",
}
SEARCHING = {
    # The same of the searches, whose flags are the parser's once they are chosen.
    "relax": "--length=2 --restarts=1 --steps=2",
    "reverse": "--max-queries=40 --beam=2",
    "retrieval": "--max-queries=4",
    "utterances": "--max-queries=4",
    "ast": "--model=hf/missing/model --targets=mal",
}
BEHIND = {
    # What bounds the time of a valid list goes last, so that it wins: no random flag may ask for hours.
    "audit": "--max-time=2s --limit=1",
    "train": "--limit=5",
    "harden": "--max-time=2s --iterations=1",
    "risk": "--max-time=2s",
    # A server that starts would not end; its port is taken.
    "serve": "--port={port}",
    "serve-model": "--port={port}",
}


def test_no_argument_list_ends_in_a_traceback(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import fuzz; fuzz()"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "80",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert child.returncode == 0, child.stdout[-3000:] + child.stderr[-3000:]
    result = json.loads(child.stdout.splitlines()[-1])
    assert not result["faults"], "\n\n".join(result["faults"])
    assert result["peak_bytes"] < MOST_BYTES
    assert result["commands"] == len(_commands())
    assert {0, 2} <= set(result["statuses"])  # the lists are neither all refused nor all taken


def fuzz() -> None:
    """What the child does: in its working directory, all commands; a line of JSON at the end."""
    _make_files()
    taken = socket.create_server(("127.0.0.1", 0))
    faults: list[str] = []
    statuses: set[int] = set()
    port = taken.getsockname()[1]
    for name, parser in _commands().items():
        try:
            _fuzz_command(name, BEFORE.get(name, ""), parser, port, statuses, EXAMPLES)
        except BaseException:
            faults.append(f"{name}: {traceback.format_exc()[-3000:]}")
    for name, before in _choices():
        try:
            _fuzz_command(name, before, _with_flags(name, before), port, statuses, EXAMPLES_OF_A_CHOICE)
        except BaseException:
            faults.append(f"{name} {before}: {traceback.format_exc()[-3000:]}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    said = {"faults": faults, "peak_bytes": peak, "statuses": sorted(statuses), "commands": len(_commands())}
    print(json.dumps(said))


def _choices() -> list[tuple[str, str]]:
    """Every search and every method: what is chosen adds flags."""
    audit = "--model=tiny --targets=targets.txt --device=cpu"
    found = [("audit", f"{audit} --search={name} {SEARCHING.get(name, SMALL)}") for name in SEARCHES]
    found += [("harden", f"{BEFORE['harden']} --method={name}") for name in METHODS]
    frequent = "--model=tiny --data=pairs.tsv --measure=4 --batch=4 --against=frequent --method"
    found += [("harden", f"{frequent}={name}") for name in METHODS]
    return [*found, ("harden", "--model=hf/missing/model --findings=twice.jsonl")]


def _with_flags(command: str, before: str) -> argparse.ArgumentParser:
    """The parser with the flags that these arguments add to it."""
    parser = _commands()[command]
    assert isinstance(parser, Parser)
    assert parser.late is not None
    parser.late.add_to(parser, before.split())
    return parser


def _fuzz_command(
    name: str, sizes: str, parser: argparse.ArgumentParser, port: int, statuses: set[int], examples: int
) -> None:
    before, behind = sizes.split(), BEHIND.get(name, "").format(port=port).split()
    least = [_usual(action)[0] for action in parser._actions if not action.option_strings]
    for action in filter(_is_number, parser._actions):  # each once: random lists miss most of them
        for value in ("-1", "99999999999"):
            statuses.add(_checked([name, *least, *before, f"{action.option_strings[-1]}={value}", *behind]))

    @settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=examples,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_words(parser))
    def check(words: list[str]) -> None:
        statuses.add(_checked([name, *before, *words, *behind]))

    check()


def _checked(argv: list[str]) -> int:
    """The status, after seeing that it is one of ours and was reached in time with one sentence at most."""
    out, err = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run(list(argv))
    except SystemExit as left:  # --help
        status = left.code if isinstance(left.code, int) else -1
        assert status == 0, argv
    except BaseException as error:
        raise AssertionError(f"{argv} raised {error!r}") from error
    finally:
        signal.alarm(0)
    assert status in (0, 2, 3), (argv, status)
    sentences = [line for line in err.getvalue().splitlines() if line.startswith("backtalk: ")]
    assert len(sentences) == (status == 2), (argv, status, err.getvalue()[-2000:])
    assert all(line.isprintable() for line in sentences), (argv, sentences)
    return status


class TooLong(BaseException):
    """Not an Exception: nothing in between may take it for an error of its own."""


def _too_long(number: int, frame: Any) -> None:
    raise TooLong(f"over {LONGEST_S} s")


# Argument lists, from the parser


def _commands() -> dict[str, argparse.ArgumentParser]:
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise AssertionError("no commands")


def _words(parser: argparse.ArgumentParser) -> st.SearchStrategy[list[str]]:
    flags = [_flag(action) for action in parser._actions if action.option_strings]
    positionals = [_positional(action) for action in parser._actions if not action.option_strings]
    some = st.lists(st.one_of(flags), max_size=4)  # repeated and contradicting ones too
    return st.tuples(st.tuples(*positionals), some).map(
        lambda drawn: [word for part in (*drawn[0], *drawn[1]) for word in part]
    )


def _flag(action: argparse.Action) -> st.SearchStrategy[list[str]]:
    name = st.sampled_from(action.option_strings)
    if action.nargs == 0:
        return name.map(lambda flag: [flag])
    if action.nargs is None:  # as --flag=value: a value may begin with a stroke
        return st.tuples(name, _value(action)).map(lambda pair: [f"{pair[0]}={pair[1]}"])
    return st.tuples(name, st.lists(_value(action), max_size=2)).map(lambda pair: [pair[0], *pair[1]])


def _positional(action: argparse.Action) -> st.SearchStrategy[list[str]]:
    least, most = {"?": (0, 1), "*": (0, 2), "+": (1, 2)}.get(str(action.nargs), (1, 1))
    return st.lists(_value(action), min_size=least, max_size=most)


def _is_number(action: argparse.Action) -> bool:
    return bool(action.option_strings) and (action.type is not None or action.metavar in ("N", "X"))


def _usual(action: argparse.Action) -> list[str]:
    """Values that suit a flag or a place: the choices that its metavar shows, its default, or any name."""
    shown = action.metavar if isinstance(action.metavar, str) else ""
    known = [*shown.split("|"), str(action.default)]
    usual = [one for one in known if one and not one.isupper() and one not in (argparse.SUPPRESS, "None")]
    return usual or ["run", "tiny", *NAMES, *PATHS]


def _value(action: argparse.Action) -> st.SearchStrategy[str]:
    fitting = GOOD_NUMBERS if _is_number(action) else _usual(action)
    # Half of the values suit the flag, so that some lists get as far as the work.
    return st.one_of(st.sampled_from(fitting), st.sampled_from(EVERYTHING))


def _make_files() -> None:
    """What the values name, in the working directory: a run among them."""
    from tests.models.test_contract import small_folder

    small_folder(Path("tiny"))
    Path("folder").mkdir()
    word = json.loads(Path("tiny/vocab.json").read_text(encoding="utf-8"))
    words = [one for one in (word if isinstance(word, list) else word["words"]) if one.isalpha()][:3]
    laughs = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}]\n" for i in range(1, 12))
    for name, text in {
        "empty.txt": "",
        "file.json": '{"a": [1, null]}',
        "deep.json": "[" * 100_000,
        "twice.jsonl": '{"text": "a", "text": "b"}\n',
        "targets.txt": f"{' '.join(words)}\n{words[0]} {words[1]}\n{words[2]}\n{words[1]}\n",
        "pairs.tsv": "".join(f"{words[i % 3]} {i}\t{words[i % 2]} {i % 5}\n" for i in range(40)),
        "spec.yaml": "seed: 2\n",
        "laughs.yaml": laughs,
        "deep.yaml": "a: " + "[" * 5000,
    }.items():
        Path(name).write_text(text, encoding="utf-8")
    small = BEFORE["audit"].split()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert run(["audit", *small, "--out=run"]) == 0
        assert run(["rate", "tiny", "chitchat", "--inputs=targets.txt", "--out=ratings"]) == 0
    shutil.copytree("run", "runs/2026-01-31-tiny-gibbs")
