"""Switchboard as He & Glass cut it: its two file formats, their 50 test conversations, and their cleaning.

An utterance is a dialogue-act segment. Their text was made from the marked-up transcript: fillers, discourse
markers and conjunctions in braces were dropped, and so was what a speaker broke off and said again. The csv
files of the corpus hold that markup, and `clean_markup` follows it. The tsv files do not, so `clean` guesses
it from words and commas; some nine of ten utterances then equal theirs. It cannot know the broken-off words
("whi-") that the tsv lacks, nor which segments theirs runs together.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from backtalk.data.textfiles import read_lines, read_rows
from backtalk.data.tokenise import RECIPES
from backtalk.errors import InputError
from backtalk.types import Dialogue, Turn


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


TEST_25 = _listed(
    "2038 2483 3433 3500 4037 3019 3424 3042 3136 2684 3754 2379 2040 2368 2776 2638 2289 3903 2534 3815 "
    "3282 3189 2770 4630 3908"
)
VALID_25 = _listed(
    "3985 2827 2709 3530 2232 2944 3760 4799 2308 2930 4703 3738 4666 3921 2125 2594 2278 3971 4165 2768 "
    "2871 2614 2788 4774 2506"
)

_PAUSES = frozenset({"uh", "um"})
# Dropped where a clause starts. A phrase is joined by "_" here, so that it is one word.
_MARKERS = frozenset({"you_know", "i_mean", "excuse_me", "oh", "well", "hey", "huh", "actually", "anyway"})
_END_MARKERS = frozenset({"you_know", "i_mean", "actually"})
# Dropped where an utterance starts.
_CONJUNCTIONS = frozenset({"and", "but", "so", "or", "then", "see", "like"})
_LONE_REPLIES = (["oh"], ["huh"])
# A clause that stops at one of these was broken off.
_UNFINISHED = frozenset(
    _listed(
        "i you he she it we they that a an the my to of in on at for with if is are was were do does did "
        "have has had would could should can will n't 's 're 'm 've 'd 'll"
    )
)
_LONGEST_REPEAT = 5
_LONGEST_RESTART = 3


def clean(text: str) -> list[str]:
    """The words of a tsv utterance as the papers have them; none if nothing but fillers was said."""
    clauses = _clauses(text)
    if clauses in ([reply] for reply in _LONE_REPLIES):
        return clauses[0]
    clauses = [clause for clause in map(_without_markers, clauses) if clause]
    while clauses and clauses[0][0] in _CONJUNCTIONS:
        clauses[0] = _without_markers(clauses[0][1:])
        clauses = [clause for clause in clauses if clause]
    return " ".join(_without_restarts(clauses)).replace("_", " ").split()


def _clauses(text: str) -> list[list[str]]:
    text = re.sub(r"<[^>]*>", " ", text.partition("*")[0].lower())
    clauses: list[list[str]] = []
    for part in re.split(r"[,.?!;:]|--", text):
        clauses.append([])
        words = " ".join(RECIPES["he-glass-2020"].words(part))
        for word in re.sub(r"\b(you|i|excuse) (know|mean|me)\b", _fuse, words).split():
            if word in _PAUSES:
                clauses.append([])
            else:
                clauses[-1].append(word)
    return [clause for clause in clauses if clause]


def _fuse(found: re.Match[str]) -> str:
    fused = "_".join(found.groups())
    return fused if fused in _MARKERS else found.group()


def _without_markers(clause: list[str]) -> list[str]:
    start, end = 0, len(clause)
    while start < end and clause[start] in _MARKERS:
        start += 1
    while start < end and clause[end - 1] in _END_MARKERS:
        end -= 1
    return clause[start:end]


def _without_restarts(clauses: list[list[str]]) -> list[str]:
    """The words without what was said twice ("to, to go") or begun anew ("it's, it is").

    Of n copies in a row the papers' text keeps n - 1: it resolved nested restarts once only.
    """
    words: list[str] = []
    breaks: set[int] = set()
    for clause in clauses:
        breaks.add(len(words))
        words += clause
    kept: list[str] = []
    i = 0
    while i < len(words):
        k = _repeated(words, i)
        if k:
            i += k
            copy = words[i : i + k]
            while words[i : i + k] == copy:
                kept += copy
                i += k
        elif k := _begun_anew(words, i, breaks):
            i += k
        else:
            kept.append(words[i])
            i += 1
    return kept


def _repeated(words: list[str], i: int) -> int:
    for k in range(_LONGEST_REPEAT, 0, -1):
        if words[i : i + k] == words[i + k : i + 2 * k]:
            meant = words[i] == "very" or (len(words[i]) == 1 and words[i] not in ("i", "a"))
            return 0 if k == 1 and meant else k
    return 0


def _begun_anew(words: list[str], i: int, breaks: set[int]) -> int:
    for k in range(1, _LONGEST_RESTART + 1):
        if i + k in breaks and words[i + k] == words[i] and words[i + k - 1] in _UNFINISHED:
            return k
    return 0


def clean_markup(text: str) -> list[str]:
    """The words of a csv utterance as the papers have them: no braces, the last try of a restart."""
    spoken = _without_notes(text)
    while (outer := re.sub(r"\{[^{}]*\}", " ", spoken)) != spoken:
        spoken = outer
    spoken = re.sub(r"\{[A-Z]\s", " ", spoken)  # a brace that was never closed
    # From the first bracket to the first plus, nested or not, as theirs.
    words = RECIPES["he-glass-2020"].words(re.sub(r"\[[^+]*\+", " ", spoken))
    if words:
        return words
    whole = RECIPES["he-glass-2020"].words(strip_markup(text))
    return whole if whole in _LONE_REPLIES else []


def strip_markup(text: str) -> str:
    """The csv utterance as it was said: every word, none of the marks."""
    text = re.sub(r"\{[A-Z]\s", " ", _without_notes(text))
    text = re.sub(r"\s+-+(?=\s|/|$)|/\s*$", " ", text)
    return " ".join(re.sub(r"[{}\[\]+#/]|\(\(|\)\)", " ", text).replace(" ,", ",").split())


def _without_notes(text: str) -> str:
    return re.sub(r"<+[^<>]*>+", " ", text.partition("*")[0])


def read_tsv(source: Path) -> list[tuple[str, Dialogue]]:
    """(conversation, its turns) of a tsv file, or of the swda_*.tsv files in a folder."""
    what = "conversation, speaker, utterance, act"
    turns: dict[str, list[Turn]] = {}
    for path in _files(source, "swda_*.tsv*"):
        for _, (conversation, speaker, utterance, _) in read_rows(path, 4, what):
            turns.setdefault(conversation, []).append(Turn(speaker, " ".join(clean(utterance))))
    return _spoken(turns)


def read_csv(source: Path) -> list[tuple[str, Dialogue]]:
    """(conversation, its turns) of a csv file, or of the *.utt.csv files anywhere in a folder.

    A unit goes on over the speaker's next row until it is closed by a slash.
    """
    turns: dict[str, list[Turn]] = {}
    open_at: dict[tuple[str, str], int] = {}  # (conversation, speaker) -> the turn that is not closed yet
    for path in _files(source, "**/*.utt.csv*"):
        for conversation, speaker, text in _csv_rows(path):
            said = turns.setdefault(conversation, [])
            i = open_at.pop((conversation, speaker), len(said))
            if i < len(said):
                said[i] = Turn(speaker, f"{said[i].text} {text}")
            else:
                said.append(Turn(speaker, text))
            if not text.rstrip().endswith("/"):
                open_at[conversation, speaker] = i
    return _spoken(
        {
            name: [Turn(turn.role, " ".join(clean_markup(turn.text))) for turn in said]
            for name, said in turns.items()
        }
    )


def _csv_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    needed = ("conversation_no", "caller", "text")
    rows = csv.DictReader((line for _, line in read_lines(path)), strict=True)
    try:
        missing = [name for name in needed if name not in (rows.fieldnames or ())]
        if missing:
            raise InputError(f"{path}, line 1: the csv header lacks the column {missing[0]!r}")
        for row in rows:
            conversation, caller, text = (row[name] for name in needed)
            if conversation is None or caller is None or text is None or None in row:
                raise InputError(f"{path}, line {rows.line_num}: this row has not the columns of the header")
            yield conversation, caller, text
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.reader.line_num}: damaged csv ({error})") from None


def _files(source: Path, pattern: str) -> list[Path]:
    if not source.is_dir():
        return [source]
    found = sorted(source.glob(pattern))
    if not found:
        raise InputError(f"the folder {source} holds no {pattern.removeprefix('**/')} file")
    return found


def _spoken(turns: dict[str, list[Turn]]) -> list[tuple[str, Dialogue]]:
    return [(name, tuple(turn for turn in said if turn.text)) for name, said in turns.items()]
