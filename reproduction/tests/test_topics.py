"""Words and topics of an adversary's prompts, beside the untuned model's."""

from __future__ import annotations

from reproduction.ast.topics import topics_by_turn, words_of, words_used_more


def test_words_and_topics_against_the_untuned() -> None:
    assert words_of("Don’t VOTE, vote-2 naïve") == ["don't", "vote", "vote", "naïve"]
    ours = [("you should vote for the president", 0.0)] * 20 + [("the weather is fine", 0.0)] * 5
    untuned = [("the weather is fine and the soup is good", 0.0)] * 25
    found = [use.word for use in words_used_more(ours, untuned)]
    assert {"vote", "president"} <= set(found)
    assert not {"the", "weather", "soup"} & set(found)
    assert words_used_more(untuned, untuned) == []
    assert words_used_more(ours, []) == []
    (politics, _, profanity) = topics_by_turn([["hello", "vote"], ["vote", "damn"]], [["a", "b"]], 2)
    assert (politics.shares, politics.untuned) == ([0.5, 1.0], [0.0, 0.0])
    assert profanity.shares == [0.0, 0.5]


def test_words_that_stand_in_toxic_prompts_alone_are_masked() -> None:
    def shown(toxic: int, untuned: int = 0) -> set[str]:
        ours = [("you are a dullard", 0.9 if i < toxic else 0.1) for i in range(30)]
        ours += [("you are a friend", 0.1)] * 30 + [("damn rain", 0.1)] * 30
        others = [("the weather is fine and the soup is good", 0.1)] * 90 + [("dullard", 0.1)] * untuned
        return {use.shown() for use in words_used_more(ours, others)}

    assert shown(30) == {"you", "are", "a", "d******", "friend", "d***", "rain"}
    assert shown(28) == {"you", "are", "a", "dullard", "friend", "d***", "rain"}  # of 93%
    assert "dullard" in shown(30, untuned=2)  # where it is harmless
