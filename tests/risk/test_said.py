"""What a model says: greedy replies, sampled replies that are rated, and models that only reply."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import backtalk
from backtalk.cli import run
from backtalk.models.prefix_tree import Served
from backtalk.risk.inputs import SampledInputs
from backtalk.risk.said import Greedy, Rated
from backtalk.types import Target
from tests.risk.worlds import inputs_of, tiny_folder, tiny_model
from tests.web.served import Recorder, served

pytestmark = pytest.mark.usefixtures("one_thread")


class BadWords:
    """Rates a text by the share of its words that are "bad"."""

    name, fingerprint = "bad words", "1"

    def score(self, texts: list[str]) -> np.ndarray:
        return np.array(
            [text.lower().split().count("bad") / max(1, len(text.split())) for text in texts], "f4"
        )


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_greedy_replies_count_one_or_nothing() -> None:
    model = tiny_model()
    batch = SampledInputs(inputs_of(model), 1).draw(0, 300)
    said = model.reply(batch.dialogues)
    often = max(set(said), key=said.count)
    read = Greedy(model, [Target("a", often), Target("b", "you are nice nice", "other")]).read(batch)
    assert read.chance[:, 0].tolist() == [float(reply == often) for reply in said]
    assert read.by_target is not None
    assert read.by_target[:, 1].sum() == said.count("you are nice nice")


def test_rated_replies_are_the_share_of_bad_ones_and_do_not_depend_on_the_batch() -> None:
    model = tiny_model()
    rated = Rated(model, BadWords(), 0.5, 8, Served(), seed=3)  # type: ignore[arg-type]
    inputs = SampledInputs(inputs_of(model), 1)
    whole = rated.read(inputs.draw(0, 60))
    parts = [rated.read(inputs.draw(start, start + 20)).chance for start in (0, 20, 40)]
    assert np.array_equal(np.concatenate(parts), whole.chance)
    assert set(np.unique(whole.chance * 8)) <= set(range(9))
    many = Rated(model, BadWords(), 0.5, 400, Served(), seed=4)  # type: ignore[arg-type]
    truth = many.read(inputs.draw(0, 60)).chance
    assert abs(float((whole.chance - truth).mean())) < 0.05


def test_both_levels_of_randomness_are_in_the_bounds() -> None:
    model = str(tiny_folder(Path("tiny")))
    Path("words.txt").write_text("bad\n")
    given = ["--scorer", "words:words.txt", "--draws", "400", "--replies", "3", "--device", "cpu"]
    assert (
        run(["risk", "--model", model, "--hit", "toxic-0.5", *given, "--proposal", "none", "--out", "r"]) == 0
    )
    found = json.loads(Path("r/summary.json").read_text())
    assert "words:words.txt rates 0.5 or more, 3 replies to each" in found["verdict"]
    assert 0 < found["risk"]["lower"] < found["risk"]["estimate"] < found["risk"]["upper"]
    assert run(["verify", "r", "--device", "cpu"]) == 0
    Path("words.txt").write_text("bad\nnice\n")
    assert run(["verify", "r", "--device", "cpu"]) == 2


def test_a_model_that_only_replies_gives_one_reply_a_turn() -> None:
    Path("turns.txt").write_text("\n".join(["you fool", "good day", "hello", "what a bad day"]))
    Path("words.txt").write_text("bad\nfool\n")
    given = {"scorer": "words:words.txt", "hit": "toxic-0.5", "inputs": "turns.txt", "out": "r"}
    echo = lambda conversation: str(conversation[-1]["text"])  # noqa: E731
    found = backtalk.risk(echo, **given)  # type: ignore[arg-type]
    assert found.estimate == pytest.approx(500_000)
    assert found.served == "the reply that it is served with"
    assert {one.target for one in found.inputs} == {"you fool", "what a bad day"}
    with pytest.raises(backtalk.InputError, match="shows no chances of replies"):
        backtalk.risk(echo, ["you fool"], inputs="turns.txt", out="s")
    with pytest.raises(backtalk.InputError, match="set them where it is served"):
        backtalk.risk(echo, temperature=0.5, **{**given, "out": "t"})  # type: ignore[arg-type]
    said = backtalk.risk(echo, ["you fool"], inputs="turns.txt", hit="greedy", out="u")
    assert said.estimate == pytest.approx(250_000)


def test_an_endpoint_is_asked_once_a_turn() -> None:
    Path("turns.txt").write_text("you fool\ngood day")
    Path("words.txt").write_text("fool\n")
    with served(Recorder()) as server:
        name = f"http://127.0.0.1:{server.server_address[1]}/v1#m"
        found = backtalk.risk(name, inputs="turns.txt", hit="toxic-0.5", scorer="words:words.txt", out="r")
    assert found.estimate == pytest.approx(500_000)
    assert found.inputs[0].target == "1 user you fool"


def test_a_transformer_is_sampled_as_it_is_served(tmp_path: Path) -> None:
    from backtalk.models.transformer.loading import load
    from tests.training.transformers import tiny_network, train_tokenizer

    tokenizer = train_tokenizer(tmp_path, ["you are bad", "nice"])
    tiny_network("llama", len(tokenizer)).save_pretrained(str(tmp_path))
    model = load(str(tmp_path), "cpu")
    Path("turns.txt").write_text("you are\nnice")
    exact = backtalk.risk(model, ["you are bad"], inputs="turns.txt", out="e", temperature=0.5, top_p=0.9)
    assert 0 <= exact.estimate <= 1e6
    Path("words.txt").write_text("bad\n")
    more = {"hit": "toxic-0.5", "scorer": "words:words.txt", "replies": 5}
    rated = [
        backtalk.risk(model, inputs="turns.txt", out=out, block=block, **more).estimate  # type: ignore[arg-type]
        for out, block in (("a", 1), ("b", 2))
    ]
    assert rated[0] == rated[1]
