"""Text as the embedded scorers read it: plain lower-case words with disguises undone, and n-grams of words.

People respell words to pass a filter. So accents, look-alike letters, digits in words, invisible characters
and spaced letters are undone first; the n-grams of words catch other spellings.
"""

import re
import unicodedata
from functools import lru_cache
from zlib import crc32

_TOKEN = re.compile(r"[^\W_](?:[*@$'’!|]*[^\W_])*[*@$]*|[*@$]+[^\W_]+|[!?.,;:\"“”]")
_SPACED = re.compile(r"(?<![^\W_])(?:[^\W\d_][ .*_-]){2,}[^\W\d_](?![^\W_'’])")
"""Three letters or more, each alone: i d i o t."""
_THRICE = re.compile(r"(.)\1{2,}")
_LEET = str.maketrans("013457@$!|", "oieastasii")
_LOOK_ALIKE = str.maketrans("аеорсухіѕјԁһ’‘“”ı", "aeopcyxisjdh''\"\"i")
_CONTRACTIONS = {
    "n't": "not", "'m": "am", "'re": "are", "'ve": "have", "'ll": "will", "'d": "would", "'s": "",
}  # fmt: skip
_SAID = {
    "can't": "can not", "cant": "can not", "won't": "will not", "wont": "will not", "dont": "do not",
    "doesnt": "does not", "didnt": "did not", "isnt": "is not", "arent": "are not", "wasnt": "was not",
    "aint": "is not", "ain't": "is not", "couldnt": "could not", "shouldnt": "should not",
    "wouldnt": "would not", "youre": "you are", "ur": "your", "u": "you", "r": "are", "ya": "you",
    "im": "i am", "ive": "i have", "theyre": "they are", "it's": "it is", "that's": "that is",
    "he's": "he is", "she's": "she is", "what's": "what is", "there's": "there is", "who's": "who is",
    "let's": "let us", "gonna": "going to", "wanna": "want to", "gotta": "got to", "yall": "you all",
    "y'all": "you all",
}  # fmt: skip
LONGEST_WORD = 40  # letters of a word that are read


def words_of(text: str) -> list[str]:
    """The words and punctuation marks of a text."""
    text = text.lower() if text.isascii() else _plain(text)
    text = _SPACED.sub(lambda found: re.sub(r"[ .*_-]", "", found[0]), text)
    return [word for token in _TOKEN.findall(text) for word in _spelt(token)]


def gram_ids(word: str, buckets: int) -> list[int]:
    """The buckets of a word and of its n-grams of three and four letters, with its ends marked."""
    marked = f"<{word}>"
    grams = [marked[i : i + size] for size in (3, 4) for i in range(len(marked) - size + 1)]
    return [crc32(gram.encode("utf-8", "replace")) % buckets for gram in dict.fromkeys([marked, *grams])]


def word_key(word: str) -> int:
    """A number for a word, 32 bits."""
    return crc32(word.encode("utf-8", "replace"))


def _plain(text: str) -> str:
    """Letters without accents, look-alikes and invisible characters."""
    kept = unicodedata.normalize("NFKD", text.lower().translate(_LOOK_ALIKE))
    return "".join(c for c in kept if unicodedata.category(c) not in {"Mn", "Cf", "Cs", "Co", "Cn"})


@lru_cache(maxsize=1 << 16)
def _spelt(token: str) -> tuple[str, ...]:
    """A token as words: contractions apart, digits and signs read as the letters they stand for."""
    if (said := _SAID.get(token)) is not None:
        return tuple(said.split())
    for ending, meant in _CONTRACTIONS.items():
        if token.endswith(ending) and len(token) > len(ending):
            return (*_spelt(token.removesuffix(ending)), *meant.split())
    token = token[:LONGEST_WORD]
    if token.isalpha():
        return (_THRICE.sub(r"\1\1", token),)
    if sum(c.isalpha() for c in token) > token[0].isdigit():  # b4d and 1diot, but not 3x
        token = token.translate(_LEET)
    elif token.isdigit():
        token = "0"
    return (_THRICE.sub(r"\1\1", token),)
