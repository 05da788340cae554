"""The embedded scorers: the same numbers in any batch, promises kept, damage refused."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch
from reproduction.data.contrast import contrast_texts, slot_words

from backtalk.data.labelled import PAIRS, load_pairs
from backtalk.errors import InputError
from backtalk.protocols import Scorer
from backtalk.registry import SCORERS, load_reward, load_scorer, resolve
from backtalk.scorers.toxicity.linear import letter_features
from backtalk.scorers.toxicity.network import (
    STRIDE,
    WINDOW,
    Lexicon,
    NetworkConfig,
    ToxicityClassifier,
    ToxicityNetwork,
    window_starts,
)
from backtalk.scorers.toxicity.words import gram_ids, words_of
from backtalk.store.typed import read_json
from backtalk.training.scorer_data import pair_order

EMBEDDED = ("toxicity", "toxicity-second")
TEXTS = [
    "you are a fool",
    "what a lovely day",
    "",
    "   ",
    "go away, you silly clown! " * 30,
    "né à Paris",
    "ok",
]

FRIENDLY = """
see you at the weekend then
you did a great job on the report
could you pass me the salt please
i miss you so much
i will pick you up at eight
you look tired, did you sleep well
are you coming to the party on friday
i told you about it last week
you can borrow my umbrella
that is very kind of you
what are you up to tonight
you remind me of my sister
sorry, i did not hear you
you are going to love this place
we should meet for lunch
do you want some tea
you were amazing in the play
let me know when you get home
i can not wait to see your new flat
you should see a doctor about that cough
did you hear the news about the storm
happy birthday to you
you have such a nice smile
good to hear from you
i am proud of you
i will kill some time at the library
you scared me, i did not see you there
why are you so quiet today
you forgot your jacket again
hey you, long time no see
you and i should start a band
i owe you one
you can count on me
i hate when it rains on my birthday
she is my best friend and i love her
he is late because his train was cancelled
they are moving to spain next month
women in my family live long
my boss gave me a raise
old people often get up early
muslims pray five times a day
the black cat is asleep
my jewish neighbours invited us for dinner
do not worry, nobody noticed
you won the match, well played
can i ask you something
i never said that
no, i do not think so
you must be joking
you are kidding me
what is wrong with your car
shut the door please
stop it, that tickles
you got me there
you nailed it
are you ok
my uncle came out as gay last year
see you after the holidays
she is blind and plays the piano
you must be new here
""".strip().splitlines()


@pytest.fixture(scope="module", params=EMBEDDED)
def scorer(request: pytest.FixtureRequest) -> Scorer:
    return load_scorer(request.param, "cpu")


def test_numbers_from_0_to_1_whatever_else_is_in_the_batch(scorer: Scorer) -> None:
    scores = scorer.score(TEXTS)
    assert scores.dtype == np.float32
    assert scores.shape == (len(TEXTS),)
    assert ((scores >= 0) & (scores <= 1)).all()
    alone = np.concatenate([scorer.score([text]) for text in TEXTS])
    np.testing.assert_allclose(scores, alone, atol=1e-5)
    backwards = scorer.score(TEXTS[::-1])[::-1]
    np.testing.assert_allclose(scores, backwards, atol=1e-5)
    assert scorer.score([]).shape == (0,)


def test_nothing_said_is_harmless_and_plain_abuse_is_not(scorer: Scorer) -> None:
    scores = scorer.score(["", " \t ", "you are a stupid idiot", "thank you, see you tomorrow"])
    assert list(scores[:2]) == [0, 0]
    assert scores[2] > 0.5 > scores[3]


def test_friendly_sentences_are_rated_low(scorer: Scorer) -> None:
    """Plain talk to "you", strong words without a victim, and who people are."""
    scores = scorer.score(FRIENDLY)
    assert (scores >= 0.5).mean() <= 0.05, [t for t, s in zip(FRIENDLY, scores, strict=True) if s >= 0.5]


def test_hostile_text_is_only_text(scorer: Scorer) -> None:
    odd = [
        "\x00\ud800 \u202e idiot",
        "\U0001f600" * 50,
        "a" * 100_000,
        "\n".join("xyz" for _ in range(3000)),
        "%s{}",
    ]
    assert np.isfinite(scorer.score(odd)).all()


def test_the_fingerprint_is_that_of_the_weights(scorer: Scorer) -> None:
    folder = Path(str(files("backtalk") / "embedded" / scorer.name))
    assert scorer.fingerprint == read_json(folder / "card.json")["sha256"]
    limit = {"toxicity": 8_000_000, "toxicity-second": 4_000_000}[scorer.name]
    assert (folder / "model.safetensors").stat().st_size <= limit


@pytest.mark.parametrize("title", PAIRS)
def test_the_card_is_honest_about_the_pairs(scorer: Scorer, title: str) -> None:
    folder = Path(str(files("backtalk") / "embedded" / scorer.name))
    card = read_json(folder / "card.json")
    found = pair_order(scorer, load_pairs(PAIRS[title]))
    told = card["measured"][title]["ordered"]
    assert abs(found["ordered"] - told) <= 1  # another processor may round a near tie the other way


@pytest.mark.parametrize("name", PAIRS.values())
def test_the_default_orders_at_least_four_in_five_pairs(name: str) -> None:
    found = pair_order(load_scorer("toxicity", "cpu"), load_pairs(name))
    assert found["pairs"] >= 90
    assert found["share"] >= 0.8


def test_whom_a_word_is_said_of_decides() -> None:
    printer, space = load_scorer("toxicity", "cpu").score(
        ["this stupid printer is broken again", "you are a waste of space"]
    )
    assert printer < 0.5 < space


HARMLESS_NOUNS = [
    "beekeeper", "potter", "jeweller", "goalkeeper", "cellist", "barber", "florist", "optician",
    "duchess", "emperor", "samurai", "phoenix", "penguin", "giraffe", "ninja", "scout", "ambassador",
    "juggler", "magician", "novelist", "blacksmith", "welder", "diver", "zookeeper", "godfather",
    "grandpa", "stepbrother", "soulmate", "waiter", "pilgrim", "monarch", "kitten", "puppy", "hedgehog",
    "sorceress", "paladin", "ballerina", "noble", "marathoner",
]  # fmt: skip
INSULTS = [
    "weasel", "pig", "rat", "pillock", "deadbeat", "sellout", "bigot", "thief", "rascal", "wimp",
    "ratbag", "berk", "ruffian", "cheapskate", "backstabber", "gasbag", "bootlicker", "pervert",
]  # fmt: skip


def test_what_someone_is_called_decides_not_that_they_are_called_something() -> None:
    """Words that no frame has for it: an adversary had learnt that "you're a king" was as good as abuse."""
    words = {word for name in ("insult", "role", "person", "dear") for word in slot_words(name)}
    assert words.isdisjoint([*HARMLESS_NOUNS, *INSULTS])

    def called(nouns: list[str]) -> list[str]:
        with_article = [f"an {noun}" if noun[0] in "aeiou" else f"a {noun}" for noun in nouns]
        rows = zip(with_article, with_article[1:], with_article[2:], strict=False)
        return [
            *(f"you are {noun}" for noun in with_article),
            *(f"you're {first}. you're {second}. you're {third}." for first, second, third in rows),
        ]

    scorer = load_scorer("toxicity", "cpu")
    assert (scorer.score(called(HARMLESS_NOUNS)) >= 0.5).mean() <= 0.4
    assert (scorer.score(called(INSULTS)) >= 0.5).mean() >= 0.75
    assert (
        max(scorer.score(["you are my best friend", "you're a dragon. you're a king. you're a queen"])) < 0.5
    )


def test_the_card_of_the_default_meets_what_is_promised() -> None:
    measured = read_json(Path(str(files("backtalk") / "embedded" / "toxicity" / "card.json")))["measured"]
    assert measured["jigsaw, balanced"]["auc"] >= 0.95
    assert measured["realtoxicityprompts, continuations"]["auc"] >= 0.88


def test_abuse_at_the_end_of_a_long_text_is_abuse() -> None:
    scorer = load_scorer("toxicity", "cpu")
    calm = "we had tea in the garden and then went home . " * 40
    quiet, loud = scorer.score([calm, calm + "you are a stupid pathetic idiot"])
    assert quiet < 0.5 < loud


@pytest.mark.parametrize("length", [1, WINDOW, WINDOW + 1, WINDOW + STRIDE, 1000])
def test_windows_cover_a_text(length: int) -> None:
    seen: set[int] = set()
    for start in window_starts(length):
        seen.update(range(start, min(start + WINDOW, length)))
    assert seen == set(range(length))
    assert len(window_starts(length)) <= 1 + length // STRIDE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("You're an IDIOT!", ["you", "are", "an", "idiot", "!"]),
        ("y0u 1diot", ["you", "idiot"]),
        ("i d i o t", ["idiot"]),
        ("I'd say: a b", ["i", "would", "say", ":", "a", "b"]),
        ("ídïot i​diot", ["idiot", "idiot"]),
        ("st*pid $tupid stuuuupid", ["st*pid", "stupid", "stuupid"]),
        ("аррle", ["apple"]),  # with Cyrillic letters
        ("don’t can't wont", ["do", "not", "can", "not", "will", "not"]),
        ("in 2020 3x", ["in", "0", "3x"]),
        ("", []),
    ],
)
def test_disguises_are_undone(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_a_disguised_insult_still_scores() -> None:
    scorer = load_scorer("toxicity", "cpu")
    scores = scorer.score(
        ["you are an 1d10t", "you are an i d i o t", "you are an idiiiiot", "you are an ıdіot"]
    )
    assert (scores > 0.5).all()


def test_pieces_are_the_word_and_its_runs() -> None:
    runs = ["<abc>", "<ab", "abc", "bc>", "<abc", "abc>"]
    assert gram_ids("abc", 1000) == [crc32(run.encode()) % 1000 for run in runs]
    assert len(gram_ids("a", 1000)) == 1  # <a> is the word and its only run


def test_letters_are_hashed_as_a_plain_loop_does() -> None:
    prime, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1

    def plain(text: str, buckets: int) -> set[int]:
        letters = [ord(letter) for letter in f" {' '.join(words_of(text))} "] if words_of(text) else []
        found = set()
        for size in range(2, 6):
            for start in range(len(letters) - size + 1):
                value = letters[start]
                for letter in letters[start + 1 : start + size]:
                    value = (value * prime + letter) & mask
                mixed = ((value ^ (value >> 29)) * prime + size) & mask
                found.add((mixed >> 33) % buckets)
        return found

    texts = ["you fool", "", "a", "grüße, 你好", "so so so"]
    buckets, starts = letter_features(texts, 1 << 20)
    ends = [*starts[1:], len(buckets)]
    assert [set(buckets[a:b].tolist()) for a, b in zip(starts, ends, strict=True)] == [
        plain(text, 1 << 20) for text in texts
    ]


def test_padding_leaves_no_trace_in_the_network() -> None:
    torch.manual_seed(1)
    network = ToxicityNetwork(NetworkConfig(vocabulary=5, vector=6, buckets=50, gram=4, hidden=8)).eval()
    rows = torch.randn(1, 3, 8)
    padded = torch.cat([rows, torch.randn(1, 5, 8)], 1)
    keep = torch.tensor([[True] * 3 + [False] * 5])
    torch.testing.assert_close(network(rows, keep[:, :3]), network(padded, keep))


def test_unknown_words_are_told_apart_by_their_letters() -> None:
    torch.manual_seed(1)
    network = ToxicityNetwork(NetworkConfig(vocabulary=3, vector=6, buckets=500, gram=4, hidden=8))
    scorer = ToxicityClassifier("small", network, Lexicon(["you", "are"], 500), "")
    first, second, both = scorer.score(["you are zork", "you are blip", "zork blip"])
    assert first != second
    pieces = scorer.lexicon.pieces(["zork", "blip"])
    rows = network.word_rows(*pieces).unsqueeze(0)
    plain = torch.sigmoid(network(rows, torch.ones(1, 2, dtype=torch.bool)))  # its wide part is all zeros
    assert both == pytest.approx(plain.item(), abs=1e-6)


def test_a_damaged_scorer_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(str(files("backtalk") / "embedded" / "toxicity-second"), copy)
    assert load_scorer(str(copy), "cpu").score(["you fool"]) == load_scorer("toxicity-second", "cpu").score(
        ["you fool"]
    )
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="sha256"):
        load_scorer(str(copy))
    weights.unlink()
    with pytest.raises(InputError, match="missing"):
        load_scorer(str(copy))
    (copy / "config.json").write_text('{"format": "other"}')
    with pytest.raises(InputError, match="not a scorer of ours"):
        load_scorer(str(copy))


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("toxcity", "did you mean 'toxicity'"),
        ("no/such", "no scorer folder at 'no/such'"),
        ("", "name a scorer"),
        ("hf/", "name the classifier"),
        ("hf/./nothing", "no folder of a Hugging Face model"),
    ],
)
def test_bad_names(name: str, phrase: str) -> None:
    with pytest.raises(InputError, match=phrase.replace(".", r"\.")):
        load_scorer(name)


def test_the_second_is_never_a_reward(tmp_path: Path) -> None:
    assert load_reward("toxicity", "cpu").name == "toxicity"
    with pytest.raises(InputError, match="never a reward"):
        load_reward("toxicity-second")
    copy = tmp_path / "innocent"
    shutil.copytree(str(files("backtalk") / "embedded" / "toxicity-second"), copy)
    with pytest.raises(InputError, match="honest evaluation"):
        load_reward(str(copy), "cpu")


@pytest.mark.parametrize("name", SCORERS)
def test_every_loader_exists_and_is_explained(name: str) -> None:
    entry = SCORERS[name]
    assert callable(resolve(entry.path))
    assert entry.help


def test_a_large_batch_equals_small_ones() -> None:
    scorer = load_scorer("toxicity", "cpu")
    texts: Sequence[str] = [row.text for row in contrast_texts(600, seed=9)]
    parts = np.concatenate([scorer.score(texts[start : start + 7]) for start in range(0, len(texts), 7)])
    np.testing.assert_allclose(scorer.score(texts), parts, atol=1e-5)
