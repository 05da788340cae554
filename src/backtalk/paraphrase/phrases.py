"""The words of the paraphrasing rules: contractions, mild synonyms, openers, closers. Hand-written.

Words are those of the Penn Treebank (do n't, you 're), in lower case. The phrases in one row of a table can
replace each other without a change of grammar or person; phrases that fit only in some places have a rule.
Slashes separate the phrases of a row, semicolons the rows.
"""

from __future__ import annotations

Words = tuple[str, ...]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _phrases(text: str) -> tuple[Words, ...]:
    return tuple(tuple(phrase.split()) for phrase in text.split("/"))


def _rows(text: str) -> tuple[tuple[Words, ...], ...]:
    return tuple(map(_phrases, text.split(";")))


CONTRACTED = {"am": "'m", "are": "'re", "is": "'s", "will": "'ll", "would": "'d", "have": "'ve"}
BEARERS = {
    "'m": _words("i"),
    "'re": _words("you we they"),
    "'s": _words("he she it that what who there here"),
    "'ll": _words("i you he she it we they that"),
    "'d": _words("i you he she we they"),
    "'ve": _words("i you we they"),
}
"""The words after which a contraction is unambiguous: "nobody 's" may be a possessive."""
PARTICIPLES = _words("been met seen got had known done made told heard never always lost ruined")
"""Before these, "have" is an auxiliary and "'s" may be "has"."""
AFTER_WOULD = _words("rather like love hate never say be not")  # before these, "'d" is not "had"
NEGATED = {verb: verb for verb in _words("do does did is are was were would could should have has had")}
NEGATED |= {"will": "wo", "can": "ca"}  # the stem before "n't" of each verb
PRONOUNS = _words("i you he she it we they")
PLAIN = _words("i you we they")  # their verb has no ending

STRONG = _words("terrible awful horrible dreadful useless worthless pathetic tired")  # never "very" ...
GRADABLE = STRONG | _words(
    "stupid dumb silly foolish boring dull annoying irritating ugly weird strange odd wrong mistaken bad "
    "scared afraid frightened angry mad smart clever bright weak lazy sad slow funny bored embarrassing rude "
    "interesting careful sorry lame"
)
INTENSIFIERS = ("so", "really", "very")
LINKS = _words("am are is was were 'm 're 's feel look sound")
FELT = _words("hate despise dislike want")
""" "really" fits before these, and before "do n't", if "i" is the subject."""

SYNONYMS = _rows(
    """
    stupid/dumb/silly/foolish; boring/dull; terrible/awful/horrible; annoying/irritating;
    weird/strange/odd; smart/clever/bright; useless/worthless; lame/pathetic; scared/afraid/frightened;
    idiot/fool/moron; idiots/fools/morons; a loser/a failure; nobody/no one; everyone/everybody;
    someone/somebody; anyone/anybody; anymore/any longer; hate/ca n't stand/despise; hates/despises;
    quit talking/stop talking; regret this/be sorry for this; do n't care/could n't care less;
    do not care/could n't care less; do n't want to/refuse to; do not want to/refuse to;
    make no sense/do n't make any sense; have no friends/do n't have any friends;
    have no talent/do n't have any talent; have no taste/do n't have any taste;
    know nothing/do n't know anything; figure it out/work it out; talk to/speak to;
    talking to/speaking to; talk too much/speak too much; this conversation/this chat;
    not my problem/not my business; texting me/messaging me; message me/text me; go ask/go and ask;
    go bother/go and bother; wasting my time/a waste of my time; bad at/terrible at;
    bad friend/terrible friend; big mistake/huge mistake; huge failure/big failure;
    mean person/nasty person; ruin/destroy/wreck; mess things up/mess everything up; tired of/sick of;
    done with/finished with; trust me/believe me; make you sorry/make you regret it;
    tell everyone/tell everybody
    """
)

CLOSING_SYNONYMS = _rows(
    "shut up/be quiet/stop talking; leave me alone/go away/get lost; get away/escape; is over/is finished"
)
"""These replace each other only at the end or before one of AFTER_CLOSING, and not after a negation."""
AFTER_CLOSING = _words("already now please you")
NEGATIONS = _words("not n't never nobody nothing no")

OPENERS = _phrases("well/oh/and/honestly/really/seriously/just/please/sorry but/excuse me")
"""A rule may remove these from the start of a sentence."""
OPENERS_OF_STATEMENTS = _phrases(
    "look/listen/i think/i guess/i must say/the truth is/come on/i am afraid/i 'm afraid"
)
"""The same if a statement follows: "look it up" and "i am afraid of you" are kept."""
CLOSERS = _phrases("honestly/you know/really/please/okay/will you/believe me")
TO_STATEMENT = _phrases("honestly/look/listen/really/i think/i must say/the truth is")
AFTER_STATEMENT = _phrases("honestly/believe me")
TO_IMPERATIVE = _phrases("just/please/come on/seriously")
AFTER_IMPERATIVE = _phrases("will you/right now/okay")
TO_NEGATIVE_IMPERATIVE = _phrases("please/look/seriously")
TO_QUESTION = _phrases("seriously/come on")
TO_OTHER = _phrases("honestly/look/seriously")

SUBJECTS = PRONOUNS | _words(
    "this that your my nobody everyone everybody someone somebody the our their his her"
)
IMPERATIVES = _words(
    "go leave shut be stop quit get figure look find deal talk speak work keep learn watch do say give grow "
    "forget wait use listen hold move"
)
QUESTIONS = _words("who what why where when how are is do does did can could will would which whose")
SUBORDINATE = _words("and or what until while if when i you now already else")
"""An imperative that contains one of these gets no closer."""
NAMES = _words("idiot fool moron loser liar failure")  # as in "shut up you idiot"
