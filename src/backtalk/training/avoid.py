"""Frequent-word avoiding (He & Glass 2020, section 4.2): which words of the targets get no negative gradient.

Without it the words that many targets share become unlikely everywhere, in harmless replies too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from backtalk.data.vocabulary import EOS, SPECIALS, Vocabulary
from backtalk.models.transformer.model import TransformerModel

PAPER_AVOID = (SPECIALS[EOS], "you", "i", "me", "are", "to", "do")
"""The paper's set: the most frequent words of its training list, and the end of a reply."""


def avoided(
    which: str, goals: Sequence[Sequence[int]], ids_of: Callable[[Sequence[str]], frozenset[int]]
) -> frozenset[int]:
    """The avoided ids: of the paper's words, which `ids_of` looks up, or the targets' most frequent ones."""
    if which == "frequent":
        return frequent_ids(goals, len(PAPER_AVOID))
    return ids_of(PAPER_AVOID) if which == "paper" else frozenset()


def avoid_ids(words: Sequence[str], vocabulary: Vocabulary) -> frozenset[int]:
    """The ids of words; "<eos>" is the end of a reply, and words that the model lacks are left out."""
    own = [word for word in words if word in vocabulary]
    return frozenset(vocabulary.ids(own)) | {EOS for word in words if word == SPECIALS[EOS]}


def avoid_tokens(words: Sequence[str], model: TransformerModel) -> frozenset[int]:
    """Words that are single tokens, alone or within a sentence; the first is the end of a reply."""
    found = set(model.reply_ids("a")[-1:])
    for word in words[1:]:
        for form in (word, f" {word}", word.capitalize(), f" {word.capitalize()}"):
            ids = model.tokenizer(form, add_special_tokens=False)["input_ids"]
            found |= set(ids) if len(ids) == 1 else set()
    return frozenset(found)


def frequent_ids(targets: Iterable[Sequence[int]], count: int) -> frozenset[int]:
    """The `count` tokens that stand in most targets; of equally frequent ones, the smaller ids."""
    found = Counter(token for target in targets for token in set(target))
    return frozenset(sorted(found, key=lambda token: (-found[token], token))[:count])
