"""Made-up utterances through the cleaning rules, and the file format."""

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


def test_the_papers_conversations_are_fifty() -> None:
    assert len({*switchboard.TEST_25, *switchboard.VALID_25}) == 50
