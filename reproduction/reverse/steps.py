"""The work of the study's parts: the victim, the targets, the generator before and after REINFORCE, what each
decoder reaches, and the controls at equal queries."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from backtalk.cli.train import train_model
from backtalk.data.corpora import read_corpus, reference_pairs, split
from backtalk.data.tokenise import get_recipe
from backtalk.models.device import pick_device
from backtalk.models.lstm.reverse import craft, load_generator, save_generator
from backtalk.models.service.budget import BudgetedQueries, MemoryAnswers
from backtalk.output_file import write_whole
from backtalk.protocols import TextModel
from backtalk.registry import load_model
from backtalk.scorers.similarity import WordVectors, load_vectors
from backtalk.searches.reverse.searches import Retrieved
from backtalk.searches.reverse.training import rl_targets
from backtalk.specs.train import TrainSpec
from backtalk.store.typed import read_json
from backtalk.training.reverse import PretrainConfig, ReinforceConfig, pretrain, reinforce
from backtalk.types import Target
from reproduction.data.formats import pair_lines
from reproduction.page import Result
from reproduction.reverse.paper import GROUPS, LISTS, Size
from reproduction.runner import Workplace, data_folder, write_once
from reproduction.spec import EMBEDDED
from reproduction.verdicts import difference_of, mean_of

SEED = 1
RECIPE = "he-glass-2019"
EMBEDDED_PAIRS = 600
DIALOGUE_PAIRS = 10  # embedded pairs in a row that stay together in a split
Chosen = dict[str, dict[str, list[tuple[str, str]]]]
"""List -> length -> targets, each with the input that it answered."""
Decoding = Literal["beam", "sample"]
HOW: tuple[Decoding, ...] = ("beam", "sample")  # as in the paper, and what comes nearer at as many inputs


@dataclass(frozen=True)
class Text:
    """A corpus cut in two."""

    corpus: str
    source: str  # what `read_corpus` takes
    format: str
    test: float  # the share of dialogues that targets are taken from
    remark: str

    @property
    def files(self) -> tuple[Path, ...]:
        return () if self.source == "chitchat" else (Path(self.source),)

    def sides(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """(input, reply) pairs to train from, and unseen ones."""
        parts = split(read_corpus(self.source, self.format), SEED, valid=0.01, test=self.test)
        return parts.train.pairs() + parts.valid.pairs(), parts.test.pairs()


def open_texts(name: str, folder: Path) -> dict[str, Text]:
    """By corpus, of a folder of data with twitter/, or of the embedded pairs, written out."""
    if name == EMBEDDED:
        path = folder / "data" / "pairs.jsonl"
        write_once(path, pair_lines(reference_pairs("")[:EMBEDDED_PAIRS], DIALOGUE_PAIRS))
        return {"chitchat": Text("chitchat", str(path), "pairs-jsonl", 0.4, "the shipped chitchat pairs")}
    root = data_folder(name, "twitter/")
    found = sorted(root.glob("twitter/*.tsv*"))
    slice_ = found[0] if found else root / "twitter" / "pairs.tsv"
    return {
        "chitchat": Text("chitchat", "chitchat", "chitchat-first", 0.1, "chitchat-dataset"),
        "twitter": Text("twitter", str(slice_), "pairs-tsv", 0.3, "a slice of Twitter, 8,703 pairs"),
    }


def group_of(text: str) -> str | None:
    """The length of a target as the paper groups it; None outside its groups."""
    words = len(get_recipe(RECIPE).words(text))
    ends = {name: [int(end) for end in name.split("-")] for name in GROUPS}
    return next((name for name, (low, high) in ends.items() if low <= words <= high), None)


class Victim:
    """The sealed model: replies alone, each input asked once, and how many were."""

    def __init__(self, model: TextModel) -> None:
        self._asker = BudgetedQueries(model, MemoryAnswers())

    @property
    def asked(self) -> int:
        return sum(self._asker.answers.spent().values())

    def ask(self, inputs: Sequence[str]) -> list[str | None]:
        return self._asker.ask(inputs, "pairs")


def train_victim(place: Workplace, texts: Sequence[Text], size: Size) -> Result:
    """The paper's network (3 layers of 1024) with our optimizer: the text is far smaller. And with attention:
    without it the network said 13 different things to the 12,480 unseen inputs of chitchat."""
    sides = [text.sides() for text in texts]
    train_file, test_file = place.path("data", "train.jsonl"), place.path("data", "test.jsonl")
    write_whole(train_file, pair_lines(pair for learnt, _ in sides for pair in learnt))
    write_whole(test_file, pair_lines(pair for _, unseen in sides for pair in unseen))
    folder = place.path("models", "victim")
    names = ("vocabulary", "layers", "hidden", "embedding", "lr", "batch", "epochs")
    values = {name: getattr(size, f"victim_{name}") for name in names}
    values |= {"data": str(train_file), "test": str(test_file), "out": str(folder), "device": place.device}
    values |= {"arch": "attention", "recipe": RECIPE, "embedding_start": 1.0, "dropout": 0.3}
    train_model(TrainSpec(**values, language_model=False, seed=SEED))
    card = read_json(folder / "card.json")
    remark = " and ".join(text.remark for text in texts)
    return {"remark": remark, "pairs": card["pairs"], "test_perplexity": card["test_perplexity"]}


def choose_targets(place: Workplace, text: Text, size: Size) -> Result:
    """Generated and Real targets by length, a Real one with the input that it answered."""
    _, unseen = text.sides()
    random.Random(f"targets/{SEED}").shuffle(unseen)
    victim = _victim(place)
    inputs = list(dict.fromkeys(asked for asked, _ in unseen))
    generated = {reply: "" for reply in victim.ask(inputs) if reply}
    real = {reply: asked for asked, reply in reversed(unseen)}
    chosen: Chosen = {}
    for name, found in zip(LISTS, (generated, real), strict=True):
        rows = list(found.items())
        random.Random(f"{name}/{SEED}").shuffle(rows)
        chosen[name] = {
            group: [row for row in rows if group_of(row[0]) == group][: size.targets] for group in GROUPS
        }
    write_whole(place.path("lists", f"{text.corpus}.json"), json.dumps(chosen))
    counts = {name: {group: len(rows) for group, rows in own.items()} for name, own in chosen.items()}
    return {"counts": counts}


def pretrain_generator(place: Workplace, texts: Sequence[Text], size: Size) -> Result:
    """Pairs by asking, then maximum likelihood."""
    learnt = [pair for text in texts for pair in text.sides()[0]]
    utterances = list(dict.fromkeys(one for pair in learnt for one in pair))
    random.Random(f"utterances/{SEED}").shuffle(utterances)
    victim = _victim(place)
    asked = utterances[: size.pairs]
    pairs = [(reply, one) for one, reply in zip(asked, victim.ask(asked), strict=True) if reply]
    config = PretrainConfig(**size.some("layers", "hidden", "embedding", "epochs", "batch"), seed=SEED)
    pretrain(pairs, config, place.path("generators", "pretrained"), pick_device(place.device))
    write_whole(
        place.path("lists", "pairs.json"), json.dumps({"pairs": pairs, "more": utterances[size.pairs :]})
    )
    replies = [reply for reply, _ in pairs]
    return {"queries": victim.asked, "pairs": len(pairs), "different_replies": len(set(replies))}


def reinforce_generator(place: Workplace, texts: Sequence[Text], size: Size) -> Result:
    """On the replies that were gathered."""
    pairs, more = _pairs(place)
    generator = load_generator(place.path("generators", "pretrained"), place.device)
    victim, vectors = _victim(place), load_vectors()
    config = ReinforceConfig(steps=size.rl_steps, batch=size.rl_batch, samples=size.rl_samples, seed=SEED)
    targets = rl_targets(pairs, [one for _, one in pairs] or more, SEED)
    folder = place.path("generators", "rl")
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint, facts = folder / "reinforce.safetensors", {"vectors": vectors.fingerprint}
    steps = reinforce(generator, targets, victim.ask, vectors.similarity, config, checkpoint, facts)
    rewards = [progress.similarity for progress in steps]
    save_generator(generator, folder, {"of": [text.corpus for text in texts]})
    return {"queries": victim.asked, "rewards": rewards}


def measure_inputs(place: Workplace, text: Text) -> Result:
    """Table 1's first row: what the victim says to the inputs that the Real targets really answered."""
    victim, vectors = _victim(place), load_vectors()
    found = {}
    for group, rows in _targets(place, text.corpus)["real"].items():
        replies = victim.ask([asked for _, asked in rows])
        near = vectors.similarity([reply or "" for reply in replies], [target for target, _ in rows])
        found[group] = {"near": near.tolist(), **mean_of(near.tolist())}
    return {"real": found}


def measure_decoder(place: Workplace, text: Text, which: str, how: str, width: int) -> Result:
    """Similarities of one generator and decoding, on every list and length."""
    generator = load_generator(place.path("generators", which), place.device)
    victim, vectors = _victim(place), load_vectors()
    found: Result = {}
    for name, groups in _targets(place, text.corpus).items():
        found[name] = {}
        for group, rows in groups.items():
            targets = [target for target, _ in rows]
            decode = cast(Decoding, "beam" if how == "greedy" else how)
            best = best_of(targets, craft(generator, targets, width, decode), victim, vectors)
            found[name][group] = {**best, **mean_of(best["near"])}
    return {"queries": victim.asked, **found}


def compare_at_equal_queries(place: Workplace, text: Text, size: Size) -> Result:
    """Everything gets the queries that the trained generator had: pairs, REINFORCE and beam-N."""
    lists = [rows for groups in _targets(place, text.corpus).values() for rows in groups.values()]
    targets = [target for rows in lists for target, _ in rows]
    pairs, more = _pairs(place)
    vectors = load_vectors()
    spent = place.result("rl")["queries"]
    asking = size.equal_beam * len(targets)
    wider = size.equal_beam + spent // max(1, len(targets))
    near: dict[str, list[float]] = {}
    queries: dict[str, int] = {}
    for which, width in (("rl", size.equal_beam), ("pretrained", wider)):
        generator = load_generator(place.path("generators", which), place.device)
        for how in HOW:
            victim, name = _victim(place), f"{which}-{how}"
            near[name] = best_of(targets, craft(generator, targets, width, how), victim, vectors)["near"]
            queries[name] = len(pairs) + (spent if which == "rl" else 0) + victim.asked
    victim, extra = _victim(place), more[: spent + asking]
    gathered = [*pairs, *((r, one) for one, r in zip(extra, victim.ask(extra), strict=True) if r)]
    nearest = Retrieved(gathered, vectors).nearest([Target(str(i), one) for i, one in enumerate(targets)])
    near["retrieval"] = best_of(targets, [row[:1] for row in nearest], victim, vectors)["near"]
    queries["retrieval"] = len(gathered)
    pool, victim = [one for _, one in gathered], _victim(place)
    each = min(len(pool), (len(pairs) + spent + asking) // max(1, len(targets)))
    drawn = [random.Random(f"{SEED}/{one}").sample(pool, each) for one in targets]
    near["random"] = best_of(targets, drawn, victim, vectors)["near"]
    queries["random"] = each * len(targets)
    return {
        "budget": len(pairs) + spent + asking,
        "n": {"rl": size.equal_beam, "pretrained": wider, "random": each},
        "queries": queries,
        "mean": {name: mean_of(values) for name, values in near.items()},
        "rl_less": {
            how: {name: difference_of(values, near[f"rl-{how}"]) for name, values in near.items()}
            for how in HOW
        },
    }


def best_of(
    targets: Sequence[str], proposals: Sequence[Sequence[str]], victim: Victim, vectors: WordVectors
) -> dict[str, Any]:
    """The nearest reply to each target, and the input it came from."""
    owners = [row for row, own in enumerate(proposals) for _ in own]
    inputs = [text for own in proposals for text in own]
    replies = [reply or "" for reply in victim.ask(inputs)]
    near = vectors.similarity(replies, [targets[row] for row in owners])
    ends = np.cumsum([len(own) for own in proposals]).tolist()
    best: dict[str, Any] = {"near": [], "cases": []}
    for target, own, end in zip(targets, proposals, ends, strict=True):
        if not own:
            best["near"].append(0.0)
            continue
        place = end - len(own) + int(np.argmax(near[end - len(own) : end]))
        best["near"].append(float(near[place]))
        best["cases"].append([inputs[place], target, replies[place], float(near[place])])
    best["cases"] = sorted(best["cases"], key=lambda case: -case[3])[:3]
    return best


def _victim(place: Workplace) -> Victim:
    return Victim(load_model(f"sealed:{place.path('models', 'victim')}", place.device))


def _targets(place: Workplace, corpus: str) -> Chosen:
    found: Chosen = json.loads(place.path("lists", f"{corpus}.json").read_text(encoding="utf-8"))
    return found


def _pairs(place: Workplace) -> tuple[list[tuple[str, str]], list[str]]:
    found = json.loads(place.path("lists", "pairs.json").read_text(encoding="utf-8"))
    return [(reply, one) for reply, one in found["pairs"]], list(found["more"])
