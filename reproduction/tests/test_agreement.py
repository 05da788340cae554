"""Replies to abuse and to harmless texts: only agreement with abuse is abuse."""

from collections import Counter

from backtalk.data.labelled import LabelledText
from reproduction.data.agreement import PARTS, agreements, load_replies

ABUSE = LabelledText("they are all fools", True)
CALM = LabelledText("they sell good bread", False)


def test_only_agreement_with_abuse_is_abuse() -> None:
    rows = agreements([ABUSE, CALM, LabelledText("word " * 40, True)], 600, seed=1)
    assert Counter((row.context, row.toxic) for row in rows) == {
        (ABUSE.text, True): 200,
        (ABUSE.text, False): 150,
        (CALM.text, False): 250,
    }
    agreed = [row.text for row in rows if row.toxic]
    replies = load_replies()
    assert all(any(text.startswith(one) for one in replies["agree"]) for text in agreed)
    assert set(agreed) & {
        row.text for row in rows if row.context == CALM.text
    }  # the reply alone tells nothing
    assert agreements([ABUSE, CALM], 600, seed=1) == agreements([ABUSE, CALM], 600, seed=1)


def test_no_reply_stands_in_two_lists() -> None:
    replies = load_replies()
    assert sum(map(len, replies.values())) == len({one for part in PARTS for one in replies[part]})
    assert all(len(replies[part]) > 30 for part in PARTS)
