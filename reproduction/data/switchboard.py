"""Switchboard as He & Glass cut it: their 50 test conversations, and their cleaning.

An utterance is a dialogue-act segment. Their text was made from the marked-up transcript: fillers, discourse
markers and conjunctions in braces were dropped, and so was what a speaker broke off and said again. The tsv
files lack that markup, so `clean` guesses it from words and commas; some nine of ten utterances then equal
theirs. It cannot know the broken-off words ("whi-") that the tsv lacks, nor which segments theirs runs
together.
"""

import re
from pathlib import Path

from backtalk.data.textfiles import read_rows
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


def read_tsv(source: Path) -> list[tuple[str, Dialogue]]:
    """(conversation, its turns) of a tsv file, or of the swda_*.tsv files in a folder."""
    what = "conversation, speaker, utterance, act"
    turns: dict[str, list[Turn]] = {}
    for path in _files(source, "swda_*.tsv*"):
        for _, (conversation, speaker, utterance, _) in read_rows(path, 4, what):
            turns.setdefault(conversation, []).append(Turn(speaker, " ".join(clean(utterance))))
    return _spoken(turns)


def _files(source: Path, pattern: str) -> list[Path]:
    if not source.is_dir():
        return [source]
    found = sorted(source.glob(pattern))
    if not found:
        raise InputError(f"the folder {source} holds no {pattern} file")
    return found


def _spoken(turns: dict[str, list[Turn]]) -> list[tuple[str, Dialogue]]:
    return [(name, tuple(turn for turn in said if turn.text)) for name, said in turns.items()]
