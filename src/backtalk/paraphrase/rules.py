"""Paraphrases by hand-written rules, which keep the meaning, the person and the grammar.

Each rule makes variants of one kind: contractions and their expansion, synonyms, intensifiers, order. A
paraphrase applies one or two rules of different kinds, or one rule and a new opener or closer. Rules work on
Treebank words; two sentences are the same if they are so in the words of the given model, since some models
ignore punctuation or case.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

from backtalk.data.tokenise import Recipe, detokenise, get_recipe
from backtalk.paraphrase.phrases import Words, forms, phrases, rows, word_set

Item = TypeVar("Item")
DEPTH = 2  # most rules in one paraphrase: with more, sentences sound unnatural
FRAME = 0.1  # distance of another opener or closer: less than that of any change between them
SIGNS = (".", "!", "?", "...", ",")
INTENSIFIERS = ("so", "really", "very")


class Variant(NamedTuple):
    """A sentence in three parts; the opener or the closer, or both, are empty."""

    opener: Words
    said: Words
    closer: Words


@dataclass(frozen=True)
class RuleParaphraser:
    """`recipe` is the one of the model; the seed decides among equally different paraphrases."""

    recipe: Recipe
    seed: int = 1

    def paraphrase(self, texts: Sequence[str], n: int) -> list[list[str]]:
        """At most n of each, the most different first; never the sentence itself, and none twice."""
        return [self._paraphrase(text, n) for text in texts]

    def _paraphrase(self, text: str, n: int) -> list[str]:
        source, signs = _read(text)
        if not source.said:
            return []
        texts = {one: detokenise((*chain(*one), *signs)).lower() for one in variants(source)}
        distinct = {tuple(self.recipe.words(text)): one for one, text in reversed(texts.items())}
        for nothing in (tuple(self.recipe.words(text)), ()):
            distinct.pop(nothing, None)
        found = [distinct[words] for words in sorted(distinct)]
        random.Random(f"{self.seed} {text}").shuffle(found)
        return [texts[one] for one in most_different(source, found, n, _distance)]


def variants(source: Variant) -> Iterator[Variant]:
    """The sentence by up to two rules of different kinds, or by one rule in another frame; itself first."""
    reached: dict[Words, frozenset[str]] = {source.said: frozenset()}
    edge = [source.said]
    for _ in range(DEPTH):
        following: list[Words] = []
        for said in edge:
            for kind, rule in RULES.items():
                for variant in () if kind in reached[said] else rule(said):
                    if variant not in reached:
                        reached[variant] = reached[said] | {kind}
                        following.append(variant)
        edge = following
    for said, kinds in reached.items():
        yield source._replace(said=said)
        yield Variant((), said, ())
        if len(kinds) < DEPTH:
            openers, closers = frames_of(said)
            yield from (Variant(opener, said, ()) for opener in openers if opener[-1] not in said)
            yield from (Variant((), said, closer) for closer in closers if closer[-1] not in said)


def _read(text: str) -> tuple[Variant, Words]:
    """(the sentence in its parts, the punctuation at its end)"""
    words = tuple(get_recipe("he-glass-2019").words(text))
    end = len(words)
    while end and words[end - 1] in SIGNS:
        end -= 1
    words, signs = words[:end], words[end:]
    for opener in (*phrases("openers_of_statements"), *phrases("openers")):
        said = words[len(opener) :]
        if len(said) > 1 and words[: len(opener)] == opener:
            is_statement = said[0] in word_set("subjects", "pronouns") and said[0] != "it"
            if is_statement or opener not in phrases("openers_of_statements"):
                return Variant(opener, said, ()), signs
    for closer in phrases("closers"):
        if len(words) > len(closer) + 1 and words[-len(closer) :] == closer:
            return Variant((), words[: -len(closer)], closer), signs
    return Variant((), words, ()), signs


def _distance(first: Variant, second: Variant) -> float:
    framed = (first.opener != second.opener) + (first.closer != second.closer)
    return edit_distance(first.said, second.said) + FRAME * framed


def edit_distance(first: Sequence[str], second: Sequence[str]) -> float:
    """Words to insert, drop or replace, as a share of the longer sentence: 0 for equal ones, at most 1."""
    row = list(range(len(second) + 1))
    for i, word in enumerate(first, start=1):
        corner, row[0] = row[0], i
        for j, other in enumerate(second, start=1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (word != other))
    return row[-1] / max(len(first), len(second), 1)


def most_different(
    source: Item, candidates: Sequence[Item], n: int, distance: Callable[[Item, Item], float]
) -> list[Item]:
    """At most n candidates, each the farthest from the source and those before it; of equals the first."""
    left = [(distance(source, one), one) for one in candidates]  # (distance to the nearest, candidate)
    taken: list[Item] = []
    while left and len(taken) < n:
        _, best = left.pop(max(range(len(left)), key=lambda i: left[i][0]))
        taken.append(best)
        left = [(min(nearest, distance(best, one)), one) for nearest, one in left]
    return taken


def contractions(words: Words) -> Iterator[Words]:
    """you are / you 're, do not / do n't; not at the end, nor in the inverted order of a question."""
    for i in range(len(words) - 1):
        first, second = words[i], words[i + 1]
        after = words[i + 2] if i + 2 < len(words) else ""
        if second == "not" and first in forms("negated") and after not in word_set("pronouns"):
            yield (*words[:i], forms("negated")[first], "n't", *words[i + 2 :])
        if second == "n't" and after not in word_set("pronouns"):
            verbs = [verb for verb, stem in forms("negated").items() if stem == first]
            yield from ((*words[:i], verb, "not", *words[i + 2 :]) for verb in verbs)
        if i and words[i - 1] in forms("negated"):  # "will you", "are you": a question, nothing is contracted
            continue
        for verb, short in forms("contracted").items():
            if first in forms("bearers")[short].split():
                is_participle, is_would = after in word_set("participles"), after in word_set("after_would")
                # "have" shrinks only as an auxiliary, and "will not" only to "won't".
                shrinks = is_participle if verb == "have" else (verb, after) != ("will", "not")
                if second == verb and after and shrinks:
                    yield (*words[: i + 1], short, *words[i + 2 :])
                # "'s" may be "has", and "'d" may be "had".
                if second == short and (is_would if short == "'d" else short != "'s" or not is_participle):
                    yield (*words[: i + 1], verb, *words[i + 2 :])


def synonyms(words: Words) -> Iterator[Words]:
    """Phrases of the table for each other; "a" and "an" follow what comes after them."""
    for row in (*rows("synonyms"), *rows("closing_synonyms")):
        for old in row:
            for i in range(len(words) - len(old) + 1):
                for new in row if words[i : i + len(old)] == old else ():
                    if new != old and _fits(words, i, old, new):
                        yield _with_article((*words[:i], *new, *words[i + len(old) :]))


def _fits(words: Words, i: int, old: Words, new: Words) -> bool:
    before, after = words[i - 1] if i else "", words[i + len(old)] if i + len(old) < len(words) else ""
    if any(old in row for row in rows("closing_synonyms")):
        return (not after or after in word_set("after_closing")) and before not in word_set("negations")
    if ("n't" in old + new or new[0] == "do") and (old[0] != "do" or new[0] == "could"):
        return before in word_set("plain")  # a negation needs its subject before it, and the verb no ending
    if new[0] == "a" and old[0] != "a":
        return before in word_set("links")
    return not (new[0] in word_set("strong") and before == "very")


def _with_article(words: Words) -> Words:
    fixed = list(words)
    for i in range(len(fixed) - 1):
        if fixed[i] in ("a", "an"):
            vowel = fixed[i + 1].startswith(("a", "e", "i", "o", "u", "hour", "hones"))
            fixed[i] = "an" if vowel and not fixed[i + 1].startswith(("us", "uni", "one")) else "a"
    return tuple(fixed)


def intensifiers(words: Words) -> Iterator[Words]:
    """so / really / very before what can be more or less; put in, taken out, or one for another."""
    denied = not word_set("negations").isdisjoint(words)
    gradable, links, felt = word_set("gradable", "strong"), word_set("links"), word_set("felt")
    for i, word in enumerate(words):
        before = words[i - 1] if i else ""
        if word in gradable and before in INTENSIFIERS and i > 1 and words[i - 2] != "being":
            yield _with_article((*words[: i - 1], *words[i:]))
            for other in INTENSIFIERS:
                odd = word in word_set("strong") if other == "very" else other == "so" and words[i - 2] == "a"
                if other != before and not odd:
                    yield _with_article((*words[: i - 1], other, *words[i:]))
        elif word in gradable and before in links and not denied:
            yield (*words[:i], "so", *words[i:])
            yield (*words[:i], "really", *words[i:])
        elif before == "i" and (word in felt or words[i : i + 2] in (("do", "n't"), ("ca", "n't"))):
            yield (*words[:i], "really", *words[i:])


def frames_of(words: Words) -> tuple[Sequence[Words], Sequence[Words]]:
    """(openers, closers) that fit the kind of sentence."""
    first, second = words[0], words[1] if len(words) > 1 else ""
    if (first == "do" and second in ("n't", "not")) or first == "never":
        return phrases("to_negative_imperative"), ()
    if first in word_set("imperatives") and second not in word_set("pronouns") - {"it"}:
        simple = word_set("subordinate").isdisjoint(words)
        return phrases("to_imperative"), phrases("after_imperative") if simple else ()
    if first in word_set("subjects", "pronouns") and second and second not in word_set("names"):
        return phrases("to_statement"), phrases("after_statement")
    return (phrases("to_question") if first in word_set("questions") else phrases("to_other")), ()


def orders(words: Words) -> Iterator[Words]:
    """ "shut up you idiot" / "you idiot shut up"; "ugly and sad" / "sad and ugly"."""
    last, first, names, imperatives = words[-2:], words[:2], word_set("names"), word_set("imperatives")
    if len(words) > 2 and last[0] == "you" and last[1] in names and words[0] in imperatives:
        yield (*last, *words[:-2])
    if len(words) > 2 and first[0] == "you" and first[1] in names and words[2] in imperatives:
        yield (*words[2:], *first)
    for i in range(1, len(words) - 1):
        left, right = words[i - 1], words[i + 1]
        if words[i] == "and" and {left, right} <= word_set("gradable", "strong"):
            yield _with_article((*words[: i - 1], right, "and", left, *words[i + 2 :]))


RULES: dict[str, Callable[[Words], Iterator[Words]]] = {
    "synonym": synonyms,
    "order": orders,
    "contraction": contractions,
    "intensifier": intensifiers,
}
