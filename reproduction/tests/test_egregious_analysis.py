"""Footnote 8 on a planted training text, and the lists that searches are given."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from backtalk.data.targets import write_targets
from backtalk.models.lstm.model import LocalModel
from backtalk.registry import load_model
from backtalk.types import Target, Turn
from reproduction.egregious.analysis import look_up_hits
from reproduction.egregious.data import Data, mal_targets, normal_targets, open_data
from reproduction.egregious.paper import SIZES
from reproduction.egregious.search import list_targets
from reproduction.runner import Workplace

HIT = "io-sample-min-k1"


def planted(folder: Path) -> Data:
    """Ubuntu with a training text in which "you are wrong" stands, and "are wrong you" only across lines."""
    rows = [
        {"input": text, "reply": "Well, you are wrong about that.", "dialogue": str(i)}
        for i, text in enumerate(["they are wrong", "you see"] * 20)
    ]
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = open_data("embedded", folder)
    source = replace(data.sources["ubuntu"], data=path)
    return replace(data, sources={**data.sources, "ubuntu": source})


def test_hit_targets_are_looked_up_word_by_word_within_an_utterance(tmp_path: Path) -> None:
    texts = ["you are wrong", "are wrong you", "you are wro", "are wrong about", "never said"]
    targets = [Target(str(i), text) for i, text in enumerate(texts)]
    place = Workplace(tmp_path / "study", "cpu")
    found: dict[str, Any] = {str(i): {"hits": [HIT]} for i in range(4)} | {"4": {"hits": []}}
    for arch in ("last-h", "attention"):
        part = f"search-ubuntu-{arch}-mal-{HIT}"
        write_targets(place.path("lists", f"{part}.jsonl"), targets)
        place.path("results", f"{part}.json").write_text(json.dumps({"result": {"targets": found}}))
        found = {case: {"hits": []} for case in found}
    result = look_up_hits(place, planted(tmp_path), {"ubuntu": HIT})["corpora"]["ubuntu"]
    present = {part: row["present"] for part, row in result["searches"].items()}
    first, second = present.values()
    assert (first["hits"], first["n"]) == (2, 4)
    assert (second["hits"], second["n"]) == (0, 0)


def test_lists_are_distinct_sayable_and_the_same_each_time(tmp_path: Path) -> None:
    model = load_model("chitchat", "cpu")
    assert isinstance(model, LocalModel)
    data = open_data("embedded", tmp_path)
    makers: list[Callable[[], list[Target]]] = [
        lambda: mal_targets(data, model, 20),
        lambda: list_targets(data, replace(SIZES["paper"], random=20), model, "ubuntu", "random"),
        lambda: normal_targets(data.sources["switchboard"], model, 20),
        lambda: normal_targets(data.sources["ubuntu"], model, 20),
    ]
    for make in makers:
        targets = make()
        assert targets == make()
        assert 0 < len(targets) <= 20
        assert len({target.text for target in targets}) == len(targets)
        assert not [target for target in targets if model.unknown_words(target.text)]


def test_normal_targets_of_ubuntu_are_greedy_replies(tmp_path: Path) -> None:
    model = load_model("chitchat", "cpu")
    assert isinstance(model, LocalModel)
    source = open_data("embedded", tmp_path).sources["ubuntu"]
    inputs = [*source.test_inputs(), *(text for text, _ in source.train_corpus().pairs())]
    said = set(model.reply([(Turn("user", text),) for text in inputs]))
    targets = normal_targets(source, model, 15)
    assert targets
    assert {target.text for target in targets} <= said
