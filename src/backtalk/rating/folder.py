"""A ratings folder: pairs.jsonl, blind; key.json, which model gave which reply; answers.jsonl; result.json.

A pair is an input and the replies of two models, shown as 1 and 2 in random order. Exactly half of the pairs
(one less, if odd) show the second model's reply as 1, so that a rater who always says 1 favours neither. A
pair's id holds a hash of its texts, so that answers to other pairs do not fit it.

Where people label the replies of one run, a "pair" has one reply and an id that begins with r, and the choice
is 1 (bad), 2 (fine) or tie (unsure).

The pairs are written last: a folder without them is made again. A rater elsewhere gets a copy without
the key, and the lines of its answers.jsonl are appended to ours.

An answer is a line, `{"pair", "rater", "choice", "time"}`, on disk before the next pair is shown. The
choice is 1, 2, tie, skip or undo, which removes the rater's answer to that pair. The last line of a rater on
a pair counts.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backtalk.data.textfiles import NotJson, parse_json
from backtalk.errors import InputError
from backtalk.output_file import PARTIAL, sync_folder, write_whole
from backtalk.store.folder import LOCK, lock_folder, writing
from backtalk.store.typed import read_file, read_stored
from backtalk.terminal import printable

PAIRS, KEY, ANSWERS, RESULT = "pairs.jsonl", "key.json", "answers.jsonl", "result.json"
_OURS = {LOCK, PAIRS, KEY, ANSWERS, RESULT} | {name + PARTIAL for name in (PAIRS, KEY, RESULT)}
CHOICES = ("1", "2", "tie", "skip", "undo")
LONGEST_NAME = 60  # of a rater
MOST_BYTES = 200_000_000  # the largest file of pairs or answers that is read
_MEND = "make room, or choose another folder with --out"


class Pair(NamedTuple):
    """What a rater sees."""

    id: str
    input: str
    reply_1: str
    reply_2: str

    def as_dict(self) -> dict[str, str]:
        return {"pair": self.id, "input": self.input, "reply_1": self.reply_1, "reply_2": self.reply_2}


@dataclass(frozen=True)
class Key:
    """key.json: which model is which, and how the pairs were made."""

    first: dict[str, str]  # name and fingerprint of the first model
    second: dict[str, str]
    source: str  # where the inputs are from, in a few words
    settings: dict[str, Any]
    """The settings that the pairs depend on; a command with the same settings resumes."""
    swapped: list[str]  # the ids of pairs that show the second model's reply as 1
    identical: list[dict[str, str]]
    """Inputs with the reply that both models give: ties that nobody is asked about."""


@dataclass(frozen=True)
class LabelKey:
    """key.json of one run's replies: which ones its scorer rated bad, and how many there are of each kind."""

    run: str
    scorer: str
    settings: dict[str, Any]
    flagged: list[str]  # the ids of those that were rated bad
    rated_bad: int  # replies of the run
    rated_fine: int
    said: int  # replies that are the target itself; nobody is asked about them


@dataclass(frozen=True)
class Ratings:
    folder: Path
    pairs: list[Pair]
    key: Key | LabelKey | None = None

    @property
    def answers(self) -> Path:
        return self.folder / ANSWERS


class Blinded(NamedTuple):
    pairs: list[Pair]
    swapped: list[str]
    identical: list[dict[str, str]]


def blind(
    inputs: Sequence[str], first: Sequence[str], second: Sequence[str], seed: int, identical_ties: bool = True
) -> Blinded:
    """Pairs of both models' replies to each input, with shuffled sides."""
    rows = list(zip(inputs, first, second, strict=True))
    same = [{"input": text, "reply": one} for text, one, two in rows if identical_ties and one == two]
    asked = [row for row in rows if not identical_ties or row[1] != row[2]]
    # `draw` uses the stream [seed, 0].
    order = np.random.default_rng([seed, 1]).permutation(len(asked))
    turned = {int(place) for place in order[: len(asked) // 2]}
    pairs = []
    for place, (text, one, two) in enumerate(asked):
        shown = (text, two, one) if place in turned else (text, one, two)
        pairs.append(Pair(pair_id(place + 1, *shown), *shown))
    return Blinded(pairs, sorted(pairs[place].id for place in turned), same)


def draw(inputs: Sequence[str], count: int, seed: int) -> list[str]:
    """At most `count` different inputs, drawn without replacement, in the order drawn."""
    different = list(dict.fromkeys(inputs))
    order = np.random.default_rng([seed, 0]).permutation(len(different))
    return [different[place] for place in order[:count]]


def pair_id(number: int, text: str, reply_1: str, reply_2: str, kind: str = "p") -> str:
    said = json.dumps([text, reply_1, reply_2]).encode("ascii")
    return f"{kind}{number:04d}-{hashlib.sha256(said).hexdigest()[:8]}"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Makes and locks the folder. Other files may lie beside ratings that are there: an export, or files of a
    file manager."""
    if not is_ratings(folder):
        check_folder(folder)
    with writing(folder, _MEND):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = lock_folder(folder)
    with os.fdopen(lock):  # closes it at the end
        yield


def check_folder(folder: Path) -> None:
    """Refuses a folder with files that are not ours."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder with --out")
    if folder.exists() and (others := {path.name for path in folder.iterdir()} - _OURS):
        raise InputError(f"{folder} holds other files ({min(others)}); name a new folder with --out")


def is_ratings(folder: Path) -> bool:
    return (folder / PAIRS).is_file()


def write_ratings(folder: Path, pairs: Sequence[Pair], key: Key | LabelKey) -> Ratings:
    with writing(folder, _MEND):
        write_whole(folder / KEY, json.dumps(asdict(key), indent=1) + "\n")
        lines = (json.dumps(pair.as_dict(), ensure_ascii=False) + "\n" for pair in pairs)
        # Half a surrogate pair is not UTF-8, so it is escaped as in JSON.
        write_whole(folder / PAIRS, (line.encode("utf-8", "backslashreplace") for line in lines))
    return read_ratings(folder)


def read_ratings(folder: Path) -> Ratings:
    try:
        lines = read_file(folder / PAIRS, MOST_BYTES).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except FileNotFoundError:
        raise InputError(f"there are no ratings in {folder}: it has no {PAIRS}") from None
    pairs: dict[str, Pair] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where, sentence = f"{folder / PAIRS}, line {number}", "no pair as it was written; restore a copy"
            pair = _read_pair(parse_json(line, where, sentence))
            if pair is None or pair.id in pairs:
                raise InputError(f"{where}: {sentence}")
            pairs[pair.id] = pair
    try:
        labels = any(pair.startswith("r") for pair in pairs)
        key = read_stored(LabelKey, folder / KEY) if labels else read_stored(Key, folder / KEY)
    except FileNotFoundError:
        return Ratings(folder, list(pairs.values()))
    if not set(key.swapped if isinstance(key, Key) else key.flagged) <= pairs.keys():
        raise InputError(f"{folder / KEY} does not belong to {PAIRS}; restore a copy")
    return Ratings(folder, list(pairs.values()), key)


def _read_pair(row: Any) -> Pair | None:
    """The pair in a JSON object; None if there is none, or if its texts do not fit its id."""
    keys = ("pair", "input", "reply_1", "reply_2")
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in keys):
        return None
    pair = Pair(*(row[key] for key in keys))
    kind, number = pair.id[:1], pair.id[1:].partition("-")[0]
    known = kind in ("p", "r") and number.isdigit()
    return pair if known and pair.id == pair_id(int(number), *pair[1:], kind) else None


# Answers


class Answer(NamedTuple):
    pair: str
    rater: str
    choice: str
    time: str = ""


def check_rater(name: str, where: str) -> str:
    """The name, stripped; refused if it can't be printed in a table."""
    name = name.strip()
    if not name or printable(name) != name or len(name) > LONGEST_NAME:
        plain = f"a rater's name has 1 to {LONGEST_NAME} plain characters"
        raise InputError(f"{where}: {plain}, not {name[:80]!r}")
    return name


def own_answers(ratings: Ratings) -> list[Answer]:
    """All answers of a ratings folder, checked. Half a line at the end, which a kill leaves, is dropped."""
    if not os.path.lexists(path := ratings.answers):
        return []
    data = _whole_lines(read_file(path, MOST_BYTES))
    known = {pair.id for pair in ratings.pairs}
    lines = enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1)
    return [_read_answer(line, f"{path}, line {number}", known) for number, line in lines if line.strip()]


def answered_by(rater: str, ratings: Ratings) -> list[str]:
    """The ids of pairs that the rater answered or skipped, in that order."""
    return [pair for name, pair in standing(own_answers(ratings)) if name == rater]


def standing(answers: Iterable[Answer]) -> dict[tuple[str, str], Answer]:
    """The answers that count by (rater, pair id), in the order in which they were last given."""
    found: dict[tuple[str, str], Answer] = {}
    for answer in answers:
        key = (answer.rater, answer.pair)
        found.pop(key, None)
        if answer.choice != "undo":
            found[key] = answer
    return found


def give_answer(ratings: Ratings, pair: str, rater: str, choice: str) -> None:
    """Stores an answer given now, and syncs it to disk. Half a line that a kill left is cut off first."""
    time = datetime.now(UTC).isoformat(timespec="seconds")
    line = json.dumps({"pair": pair, "rater": rater, "choice": choice, "time": time}) + "\n"
    with writing(ratings.folder, "every answer before this one is kept; make room and answer again"):
        file = os.open(ratings.answers, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "rb+") as stream:
            end = _whole_lines(stream.read())
            stream.seek(len(end))
            stream.truncate()
            if end and not end.endswith(b"\n"):
                stream.write(b"\n")
            stream.write(line.encode("ascii"))
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(ratings.folder)


def _whole_lines(data: bytes) -> bytes:
    """The data without its last line if that is not a whole JSON object."""
    before, end, last = data.rpartition(b"\n")
    try:
        if last:
            _read_object(last, "the last line")
        return data
    except NotJson:
        return before + end


def _read_object(line: bytes, where: str) -> dict[str, Any]:
    sentence = "this is not a JSON object; write one answer a line"
    row = parse_json(line, where, sentence)
    if not isinstance(row, dict):
        raise NotJson(f"{where}: {sentence}")
    return row


def _read_answer(line: bytes, where: str, known: Collection[str]) -> Answer:
    row = _read_object(line, where)
    choice, pair, rater, time = (row.get(name) for name in ("choice", "pair", "rater", "time"))
    if choice not in CHOICES:
        raise InputError(f"{where}: the choice {str(choice)[:40]!r} is not one of {', '.join(CHOICES)}")
    if not isinstance(pair, str) or pair not in known:
        raise InputError(f"{where}: {str(pair)[:60]!r} is no pair of these ratings")
    if not isinstance(rater, str):
        raise InputError(f'{where}: the answer has no "rater"; give each rater a name')
    return Answer(pair, check_rater(rater, where), choice, time if isinstance(time, str) else "")
