"""Made-up utterances through the cleaning rules, and both file formats."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from backtalk.errors import InputError
from backtalk.types import Turn
from reproduction.data import switchboard


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Well, uh, I like dogs.", "i like dogs"),
        ("And, um, so we, we drove home, you know,", "we drove home"),
        ("but I mean, it's, it is cold", "it is cold"),
        ("I think, I think, I think so", "i think i think so"),
        ("it was very, very good", "it was very very good"),
        ("do you know him", "do you know him"),
        ("I don't know what you mean", "i do n't know what you mean"),
        ("Oh, really?", "really"),
        ("Oh.", "oh"),
        ("Huh.", "huh"),
        ("Uh-huh.", "uh-huh"),
        ("So, uh,", ""),
        ("You know,", ""),
        ("I see that. *typo for hear", "i see that"),
        ("<laughter> Yes", "yes"),
        ("my red, my blue hat", "my red my blue hat"),
        ("on the, on the N B B network", "on the n b b network"),
        ("Hey, excuse me, like I, I left", "i left"),
    ],
)
def test_clean(text: str, words: str) -> None:
    assert switchboard.clean(text) == words.split()


@pytest.mark.parametrize(
    ("text", "cleaned", "stripped"),
    [
        ("{F Uh, } I like cats. /", "i like cats", "Uh, I like cats."),
        ("{C And } {D you know, } it rains, /", "it rains", "And you know, it rains,"),
        ("[ I, + I ] agree. <laughter> /", "i agree", "I, I agree."),
        ("[ we, + {F um, } they ] left -/", "they left", "we, um, they left"),
        ("[ [ it, + it, ] + it ] 's late /", "it it 's late", "it, it, it 's late"),
        ("{C But, {F uh, } } ((no)) # way # -- /", "no way", "But, uh, no way"),
        ("{F Oh. } /", "oh", "Oh."),
        ("{D Well, } -/", "", "Well,"),
        ("I saw it. /  *[[listen]]", "i saw it", "I saw it."),
        ("{C And it stopped /", "and it stopped", "And it stopped"),
        ("the <<pause>> mother-in-law /", "the mother-in-law", "the mother-in-law"),
    ],
)
def test_markup(text: str, cleaned: str, stripped: str) -> None:
    assert switchboard.clean_markup(text) == cleaned.split()
    assert switchboard.strip_markup(text) == stripped


def test_tsv_folder(tmp_path: Path) -> None:
    (tmp_path / "swda_a.tsv").write_text("1001\tA\tUh, hello.\tfp\n1001\tB\tUm,\t%\n1001\tB\tHi.\tfp\n")
    (tmp_path / "swda_b.tsv.gz").write_bytes(gzip.compress(b"1002\tA\tSo?\tqw\n"))
    assert switchboard.read_tsv(tmp_path) == [
        ("1001", (Turn("A", "hello"), Turn("B", "hi"))),
        ("1002", ()),
    ]


def test_tsv_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"swda_\*\.tsv"):
        switchboard.read_tsv(tmp_path)
    path = tmp_path / "swda_x.tsv"
    path.write_text("1001\tA\thello\tfp\n1001\tA\thello\n")
    with pytest.raises(InputError, match=r"swda_x\.tsv, line 2: 3 .* 4"):
        switchboard.read_tsv(path)


CSV = """swda_filename,conversation_no,caller,utterance_index,text,act_tag
x,4999,A,1,"{D So, } where do you, {F uh, }",qw
x,4999,B,2,Yeah. /,b
x,4999,A,3,live? /,+
x,4999,B,4,"[ In, + in ] a ""small"" town. /",sd
"""


def test_csv_units_go_on_until_the_slash(tmp_path: Path) -> None:
    (tmp_path / "sw00utt").mkdir()
    (tmp_path / "sw00utt" / "sw_0001_4999.utt.csv").write_text(CSV)
    [(name, turns)] = switchboard.read_csv(tmp_path)
    assert name == "4999"
    assert turns == (Turn("A", "where do you live"), Turn("B", "yeah"), Turn("B", "in a small town"))


def test_csv_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.utt\.csv"):
        switchboard.read_csv(tmp_path)
    path = tmp_path / "a.utt.csv"
    path.write_text("conversation_no,text\n1,hello\n")
    with pytest.raises(InputError, match="'caller'"):
        switchboard.read_csv(path)
    path.write_text(CSV + "x,4999\n")
    with pytest.raises(InputError, match="line 6: "):
        switchboard.read_csv(path)
    path.write_text(CSV + 'x,4999,A,5,"never closed,sd\n')
    with pytest.raises(InputError, match="line 6: damaged csv"):
        switchboard.read_csv(path)


def test_the_papers_conversations_are_fifty() -> None:
    assert len({*switchboard.TEST_25, *switchboard.VALID_25}) == 50
