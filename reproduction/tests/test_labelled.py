"""`label`: public corpora become the labelled texts that `backtalk train-scorer` reads."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from backtalk.data.labelled import LabelledText, normal
from backtalk.errors import InputError
from backtalk.scorers.card import IDENTITY
from backtalk.training.scorer_data import read_splits
from reproduction.__main__ import run_command
from reproduction.data import labelled
from reproduction.data.mixture import clearly_aimed, mixture, split, with_rude_word


def plain(*texts: str) -> list[LabelledText]:
    return [LabelledText(text, False) for text in texts]


def written(folder: Path, text: str) -> Path:
    path = folder / "corpus"
    path.write_text(text, encoding="utf-8")
    return path


def test_civil_comments_are_labelled_by_sentence(tmp_path: Path) -> None:
    text = "You are all fools here. The weather is fine today. Ok."
    path = written(tmp_path, f'spans,text\n"{list(range(12, 17))}","{text}"\n')
    assert list(labelled.civil_sentences(path)) == [
        LabelledText("You are all fools here.", True),
        LabelledText("The weather is fine today.", False),
    ]


def test_tweets_lose_names_and_links(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ",count,hate_speech,offensive_language,neither,class,tweet\n"
        '0,3,0,3,0,1,"RT @someone: you fool &amp; more http://t.co/x"\n1,3,0,0,3,2,hello\n',
    )
    assert list(labelled.davidson(path)) == [
        LabelledText(": you fool more", True),
        LabelledText("hello", False),
    ]


def test_help_messages_are_harmless_and_lose_whom_they_are_said_to(tmp_path: Path) -> None:
    said = ["bob: how do i open it", "ann, how do i open it", "and close it then", "so what"]
    path = written(tmp_path, "".join(f"train\tlog\t{i}\tann\t{text}\n" for i, text in enumerate(said)))
    harmless = [LabelledText("and close it then", False), LabelledText("how do i open it", False)]
    assert list(labelled.ubuntu_messages(path)) == harmless


def test_a_toxic_sentence_has_neutral_rewrites(tmp_path: Path) -> None:
    path = written(tmp_path, "toxic\tneutral1\tneutral2\na\tb\t\n")
    assert list(labelled.paradetox(path)) == [LabelledText("a", True), LabelledText("b", False)]


def test_a_record_of_another_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, '{"continuation": {"text": "x", "toxicity": 0.7}}\n{"other": 1}\n')
    with pytest.raises(InputError, match="line 2: no record of RealToxicityPrompts"):
        list(labelled.rtp_continuations(path))


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    """Every corpus, small, some one folder down or zipped."""
    folder = tmp_path / "corpora"
    (folder / "below").mkdir(parents=True)

    def texts(seed: int, count: int = 80) -> list[tuple[str, int]]:
        ends = [("fool", 1), ("clown", 1), ("friend", 0), ("cook", 0)]
        return [(f"number {seed} {i} you are a {ends[i % 4][0]}", ends[i % 4][1]) for i in range(count)]

    def write(name: str, lines: list[str], start: str = "") -> None:
        whole = (start + "".join(f"{line}\n" for line in lines)).encode()
        zipped = name.endswith("gz")
        (folder / "below" / name if zipped else folder / name).write_bytes(
            gzip.compress(whole) if zipped else whole
        )

    write("jigsaw_balanced.csv", [f"{text},{toxic}" for text, toxic in texts(1)])
    write("jigsaw_natural.csv.gz", [f"0,{text},{toxic}" for text, toxic in texts(2)], "n,text,toxic\n")
    tweets = [f"0,3,0,0,0,{1 if toxic else 2},{text}" for text, toxic in texts(3)]
    write("davidson.csv", tweets, ",count,hate_speech,offensive_language,neither,class,tweet\n")
    comments = [f'"{list(range(len(text))) if toxic else []}",{text}' for text, toxic in texts(4)]
    write("civil_comments_spans_train.csv", comments, "spans,text\n")
    write(
        "paradetox.tsv", [f"{text}\tyou are number {text[9:12]}" for text, _ in texts(5)], "toxic\tneutral\n"
    )
    rated = [{"continuation": {"text": text, "toxicity": 0.9 * toxic}} for text, toxic in texts(6)]
    rated += [{"continuation": {"text": "unrated", "toxicity": None}}]
    write("quark_val_5k.jsonl.gz", [json.dumps(row) for row in rated])
    write("ubuntu_irc_messages.tsv", [f"train\tlog\t{i}\tann\thow do i open file {i}" for i in range(40)])
    write("edos_train.csv.gz", [f"{text},{toxic}" for text, toxic in texts(7)], "text,sexist\n")
    write("clean_data.csv", [f"{toxic},{text}" for text, toxic in texts(8)], "is_offensive,text\n")
    people = ("gay", "deaf", "muslim", "old", "jewish", "trans", "white", "blind", "female", "asian")
    lines = [f"{name} is a {word} {who}" for who in people for name in "abc" for word in ("fool", "cook")]
    made = [f"{line},{'BAD' if 'fool' in line else 'NOT_BAD'},name_adj" for line in lines]
    made += [f"you are {who},NOT_BAD,you_are_adj" for who in people]
    write("madlibs_15k.csv", made, "Text,Label,Template\n")
    for part, seed in (("train", 9), ("val", 10)):
        answers = [
            {
                "context": f"and {i}?",
                "response": text,
                "category": "x",
                "label": "Unsafe" if toxic else "Safe",
            }
            for i, (text, toxic) in enumerate(texts(seed))
        ]
        write(f"diasafety_{part}.json", [json.dumps(answers)])
    write("toxichat_train.jsonl", [json.dumps(THREAD)])
    return folder


THREAD = {
    "reddit_thread": [
        {"text": "hello &amp; welcome", "offense_label": "Safe"},
        {"text": "go away", "offense_label": "Offensive"},
    ],
    "final_dgpt_response": {"text": "why should i", "offense_label": "Safe"},
}


def test_a_turn_of_a_thread_comes_with_the_one_before_it(tmp_path: Path) -> None:
    found = list(labelled.toxichat(written(tmp_path, json.dumps(THREAD))))
    assert [(row.text, row.toxic, row.context) for row in found] == [
        ("hello & welcome", False, ""),
        ("go away", True, "hello & welcome"),
        ("why should i", False, "go away"),
    ]


def test_templates_and_identity_words_of_the_test_are_not_learnt(corpora: Path) -> None:
    parts = mixture(corpora, "encoder", chat=0, contrast=60)
    learnt = [row for row in parts.train if row.source == "madlibs"]
    of = {who: row for row in learnt for who in IDENTITY.findall(row.text)}
    unseen = {
        who for row in parts.test["madlibs"] if " is a " in row.text for who in IDENTITY.findall(row.text)
    }
    assert of.keys()
    assert unseen
    assert not of.keys() & unseen
    assert not any(row.text.startswith("you are") for row in learnt)
    assert sum(row.text.startswith("you are") for row in parts.test["madlibs"]) == 10
    contexts = [row for row in parts.train if row.context]
    assert {row.source for row in contexts} == {"diasafety"}
    assert sum(bool(row.context) for row in parts.valid) == 8


def test_a_recipe_becomes_a_folder_of_splits(corpora: Path, tmp_path: Path) -> None:
    out = tmp_path / "labelled"
    said = [LabelledText(f"such a fine day {i} and a stupid car", False) for i in range(30_000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reproduction.data.mixture._chat", lambda seed, contexts: said)
        assert run_command(["label", str(corpora), str(out), "--family", "letters"]) == 0
        read, made = read_splits(out), mixture(corpora, "letters")
    assert read.train == made.train
    assert read.valid == made.valid
    assert read.calm == made.calm
    assert read.test == made.test
    assert {row.source for row in read.train} == {"davidson", "civil comments", "ubuntu"}
    assert json.loads((out / "about.json").read_text())["known weaknesses"]


@pytest.mark.parametrize("family", ["words", "letters", "encoder"])
def test_nothing_that_is_held_out_is_trained_on(family: str, corpora: Path) -> None:
    parts = mixture(corpora, family, chat=0, contrast=60)
    seen = {normal(row.text) for row in parts.train}
    held_out = {normal(row.text) for rows in (parts.valid, *parts.test.values()) for row in rows}
    assert seen
    assert len(parts.test["realtoxicityprompts"]) == 80
    assert not seen & held_out
    weights = {row.source: row.weight for row in parts.train}
    words = {"jigsaw": 1.6, "paradetox": 0.4, "contrast": 0.6}
    more = {"civil comments": 1.0, "edos": 0.6, "edos, not sexist": 0.6, "madlibs": 0.6, "diasafety": 1.5}
    more |= {"paradetox": 1.0, "davidson": 1.0, "profanity-check": 1.0}
    assert weights == {
        "words": words,
        "encoder": {**words, **more},
        "letters": {"davidson": 1.0, "civil comments": 1.0},
    }[family]  # fmt: skip


@pytest.mark.parametrize("most", [10, 100])
def test_harmless_messages_are_drawn_by_the_seed(
    most: int, corpora: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reproduction.data.mixture._chat", lambda seed, contexts: [])
    drawn = [
        [row.text for row in mixture(corpora, "letters", most, seed=seed).train if row.source == "ubuntu"]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert len(set(drawn[0])) == min(most, 40)


def test_a_corpus_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["label", str(tmp_path), str(tmp_path / "out")]) == 2
    assert "jigsaw_balanced.csv" in capsys.readouterr().err


def test_splits_share_no_text_whatever_its_spelling() -> None:
    many = plain(*(f"Sentence number {i}!" for i in range(50)), *(f"sentence NUMBER {i}" for i in range(50)))
    parts = split(many, valid=0.2, test=0.4, seed=1)
    assert [len(part) for part in parts] == [20, 10, 20]
    first, second, third = ({normal(row.text) for row in part} for part in parts)
    assert not first & second
    assert not (first | second) & third
    assert parts == split(many, 0.2, 0.4, seed=1)


def test_a_mild_word_that_is_said_to_nobody_is_no_abuse_by_itself() -> None:
    kept = [
        LabelledText("You're a stupid man", True),
        LabelledText("that is a cruel thing to say", True),
        LabelledText("damn this law", True),  # swearing is minded whoever is meant
        LabelledText("what a stupid law", False),
    ]
    dropped = [LabelledText("what a STUPID, stupid law", True)]
    assert clearly_aimed(kept + dropped) == kept


def test_rude_words_are_found() -> None:
    rude, calm = LabelledText("My St00pid, stupid car", False), LabelledText("my new car", False)
    assert with_rude_word([calm, rude]) == [rude]
