"""The words that the rules of paraphrasing know: contractions, mild synonyms, openers, closers. Hand-written.

Words are those of the Penn Treebank (do n't, you 're), in lower case. Phrases in one row of a table can stand
for each other without a change of grammar or person; what fits only some places has a rule of its own.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _rows(text: str) -> tuple[tuple[str, ...], ...]:
    """Rows are divided by semicolons, the phrases of a row by slashes."""
    return tuple(tuple(phrase.strip() for phrase in row.split("/")) for row in text.split(";"))


CONTRACTED = {"am": "'m", "are": "'re", "is": "'s", "will": "'ll", "would": "'d", "have": "'ve"}
BEARERS = {
    "'m": _words("i"),
    "'re": _words("you we they"),
    "'s": _words("he she it that what who there here"),
    "'ll": _words("i you he she it we they that"),
    "'d": _words("i you he she we they"),
    "'ve": _words("i you we they"),
}
"""After which words a contraction is read without doubt: "nobody 's" may be a possessive."""
PARTICIPLES = _words("been met seen got had known done made told heard never always lost ruined")
"""Before them "have" is an auxiliary and "'s" may be "has"."""
AFTER_WOULD = _words("rather like love hate never say be not")
"""Before them "'d" is "would" and not "had"."""
NEGATED = {verb: verb for verb in _words("do does did is are was were would could should have has had")}
NEGATED |= {"will": "wo", "can": "ca"}
"""What stands before "n't" for a verb before "not"."""
PRONOUNS = _words("i you he she it we they")
PLAIN = _words("i you we they")
"""Pronouns whose verb has no ending."""

STRONG = _words("terrible awful horrible dreadful useless worthless pathetic tired")
""" "very" does not go with them."""
GRADABLE = STRONG | _words(
    "stupid dumb silly foolish boring dull annoying irritating ugly weird strange odd wrong mistaken bad "
    "scared afraid frightened angry mad smart clever bright weak lazy sad slow funny bored embarrassing rude "
    "interesting careful sorry lame"
)
INTENSIFIERS = ("so", "really", "very")
LINKS = _words("am are is was were 'm 're 's feel look sound")
FELT = _words("hate despise dislike want")
""" "really" may stand before them, and before "do n't", where "i" is the subject."""

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
"""They may stand for each other at the end alone, or before one of these, and not after a negation."""
AFTER_CLOSING = _words("already now please you")
NEGATIONS = _words("not n't never nobody nothing no")

OPENERS = ("well", "oh", "and", "honestly", "really", "seriously", "just", "please", "sorry but", "excuse me")
"""What a rule may take away from a sentence's start."""
OPENERS_OF_STATEMENTS = (
    *("look", "listen", "i think", "i guess", "i must say", "the truth is"),
    *("come on", "i am afraid", "i 'm afraid"),
)
"""The same where a statement follows: "look it up" and "i am afraid of you" stay whole."""
CLOSERS = ("honestly", "you know", "really", "please", "okay", "will you", "believe me")
TO_STATEMENT = ("honestly", "look", "listen", "really", "i think", "i must say", "the truth is")
AFTER_STATEMENT = ("honestly", "believe me")
TO_IMPERATIVE = ("just", "please", "come on", "seriously")
AFTER_IMPERATIVE = ("will you", "right now", "okay")
TO_NEGATIVE_IMPERATIVE = ("please", "look", "seriously")
TO_QUESTION = ("seriously", "come on")
TO_OTHER = ("honestly", "look", "seriously")

SUBJECTS = PRONOUNS | _words(
    "this that your my nobody everyone everybody someone somebody the our their his her"
)
IMPERATIVES = _words(
    "go leave shut be stop quit get figure look find deal talk speak work keep learn watch do say give grow "
    "forget wait use listen hold move"
)
QUESTIONS = _words("who what why where when how are is do does did can could will would which whose")
SUBORDINATE = _words("and or what until while if when i you now already else")
"""With one of them inside, an imperative is closed by nothing."""
NAMES = _words("idiot fool moron loser liar failure")
"""What somebody is called: "shut up you idiot"."""
