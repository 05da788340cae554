"""What the cards of the two toxicity scorers say in words: data, licences, and what they are weak at."""

from __future__ import annotations

_JIGSAW = "Jigsaw Toxic Comment Classification (Wikipedia talk pages): labels CC0, text CC-BY-SA 3.0"
_TESTS = """Held-out rows of Jigsaw, Davidson and Civil Comments; RealToxicityPrompts (Gehman et al. 2020)
with Perspective's scores, toxic from 0.5, which is never trained on. Training rows that share a text or a run
of eight words with any test or validation row were dropped."""

_BIAS = """0.5 is where as many of a fifth of the rows of Jigsaw at its natural rate are over it as are toxic,
or fewer, so that at most one in fifty of 2,000 chitchat messages is over it."""

_NOTES: dict[str, dict[str, str | list[str]]] = {
    "words": {
        "says": "How abusive a short English text is, 0 to 1. It may be a reward.",
        "reads": """Lower-case words with disguises undone. Deep: word vectors and hashed pieces of words, two
        convolutions and one self-attention over at most 128 words; longer texts by their worst
        window. Wide: a weight for each word and each pair of neighbours, added.""",
        "data": [
            _JIGSAW,
            """ParaDetox (Logacheva et al. 2022), CC0, less toxic rows with a mild word and no "you" """,
            """chitchat-dataset 0.9.0 (Myers, Etchart and Fulda 2019), MIT, taken as harmless, messages with a
            rude word among them""",
            """sentences made from frames and twins that were written for it (data/contrast_frames.txt,
            data/contrast_twins.txt)""",
            "word vectors: wordllama, MIT, on their main directions, trained further",
        ],
        "tests": _TESTS,
        "the bias": _BIAS,
        "minimal pairs": """data/toxicity_pairs.jsonl was written before any training, and
        data/toxicity_pairs_blind.jsonl, the second set, before the twins; in 80 of its 94 pairs "you" is in
        both sentences or in neither. No thing, person or animal of the frames and twins stands in either set,
        and no sentence that holds one of theirs, or a run of four words, was trained on. Choices were made by
        data/toxicity_pairs_dev.jsonl and validation rows.""",
        "known weaknesses": [
            "English only.",
            """Who or what is insulted moves the score, but often not past 0.5. Of the second set of minimal
            pairs a bag of words of the same texts orders as many.""",
            """Abuse without a rude word is known where a frame is like it, and often missed elsewhere; so are
            threats in plain words.""",
            "Mention of a group may raise a score without abuse, as in the raters' labels; frames soften it.",
            'Swearing without a victim ("damn, that was good") is rated higher than most people would.',
            "Irony, and abuse that only the conversation before it shows, is missed.",
            'Frames teach "you are not ..." as kind: "you are not the brightest" may pass.',
        ],
    },
    "letters": {
        "says": "A second opinion on how abusive a short English text is. Kept for judging: never a reward.",
        "reads": "Runs of two to five letters, hashed into 2^20 weights (NB-SVM, Wang and Manning 2012).",
        "data": [
            "Davidson et al. 2017, tweets (hate speech and offensive language against neither), MIT",
            "Civil Comments with toxic spans (Pavlopoulos et al. 2021), CC0, cut into sentences",
            "Ubuntu IRC messages (Kummerfeld et al. 2019), CC-BY 4.0, taken as harmless",
        ],
        "tests": _TESTS,
        "the bias": f"{_BIAS} Of Jigsaw it has seen nothing else.",
        "known weaknesses": [
            "English only.",
            "A linear model: it knows bad words and not who they are said of; see its minimal pairs.",
            "The tweets were gathered by slang words, so harmless slang is rated high.",
        ],
    },
}


def notes(family: str) -> dict[str, str | list[str]]:
    """The words of a family's card, each in one line."""
    return {
        key: [" ".join(one.split()) for one in value] if isinstance(value, list) else " ".join(value.split())
        for key, value in _NOTES[family].items()
    }
