"""Log-probabilities against a plain Hugging Face forward of one row at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.errors import InputError
from backtalk.models.transformer.generation import SamplingConfig
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.scoring import Row, token_logits
from backtalk.protocols import LogprobModel
from backtalk.specs import ModelOptions
from backtalk.types import Access, Dialogue, Turn
from tests.models.transformer.tiny import CHATML, INST, KINDS, make_folder, reading

pytestmark = pytest.mark.usefixtures("one_thread")

DIALOGUES: list[Dialogue] = [
    (Turn("user", "hello there"),),
    (Turn("user", "what is your name, and what do you like? i like cats and dogs"),),
    (Turn("user", "hello"), Turn("model", "leave me alone"), Turn("user", "you are very rude")),
]
REPLIES = ["you are a rude person.", "no", "i am not in the mood, please leave me alone."]
CASES = [(kind, "") for kind in KINDS] + [("gpt2", CHATML), ("llama", CHATML), ("llama", INST)]


def plain_forward(model: TransformerModel, dialogue: Dialogue, reply: str) -> list[float]:
    """One row, no padding, no hook: all logits, then the log-softmax at the reply's places."""
    prompt, wanted = model.prompt_ids(dialogue), model.reply_ids(reply)
    network: Any = model.network
    with torch.no_grad():
        if model.is_encoder_decoder:
            written = torch.tensor([[*model.prompts.lead, *wanted]])
            logits = network(input_ids=torch.tensor([prompt]), decoder_input_ids=written).logits[0]
            start = len(model.prompts.lead) - 1
        else:
            logits = network(input_ids=torch.tensor([prompt + wanted])).logits[0]
            start = len(prompt) - 1
    log_probs = logits.log_softmax(1)
    return [float(log_probs[start + t, token]) for t, token in enumerate(wanted)]


@pytest.mark.parametrize(("kind", "template"), CASES)
def test_a_batch_equals_one_row_at_a_time(tmp_path: Path, kind: str, template: str) -> None:
    model = load(str(make_folder(tmp_path, kind, template)), "cpu")
    assert isinstance(model, LogprobModel)
    assert model.access == Access.WEIGHTS
    expected = [plain_forward(model, *row) for row in zip(DIALOGUES, REPLIES, strict=True)]
    found = model.log_prob(DIALOGUES, REPLIES)
    assert [len(row) for row in found] == [len(model.reply_ids(reply)) for reply in REPLIES]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-4)
    rows = [model.row(*pair) for pair in zip(DIALOGUES, REPLIES, strict=True)]
    for mine, theirs in zip(model.score_rows(rows, masked=False), expected, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-4)  # nothing sees what stands behind it
    (alone,) = model.log_prob(DIALOGUES[1:2], REPLIES[1:2])  # without padding
    assert alone == pytest.approx(expected[1], abs=1e-4)


def test_short_rows_are_not_read_as_wide_as_long_ones(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path, "llama")), "cpu")
    rows = [Row([5 + number] * length, [9, 2]) for number, length in enumerate((3, 110, 4, 60, 100, 3))]
    alone = [model.score_rows([row])[0] for row in rows]
    with reading(model.network) as shapes:
        found = model.score_rows(rows)
    assert shapes == [(3, 111), (3, 5)]  # the last token is not read
    for mine, expected in zip(found, alone, strict=True):
        assert mine == pytest.approx(expected, abs=1e-4)
    sampling = SamplingConfig(temperature=0.0, most=3)
    with reading(model.network) as shapes:
        model.continued([row.prompt for row in rows], range(6), sampling)
    assert (6, 1) in shapes, "what is written is one batch"


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_model_as_a_language_model_of_its_inputs(tmp_path: Path, kind: str) -> None:
    model = load(str(make_folder(tmp_path, kind)), "cpu")
    found = model.text_log_prob(["hello there", "", "you are a rude person."])
    tokenizer: Any = model.tokenizer
    text = tokenizer("you are a rude person.", add_special_tokens=False)["input_ids"]
    start = tokenizer.bos_token_id  # gpt2 begins a text with its end of text, which is its bos too
    with torch.no_grad():
        network: Any = model.network
        log_probs = network(input_ids=torch.tensor([[start, *text]])).logits[0].log_softmax(1)
    assert found[1] == []
    assert len(model.text_log_prob(["cats and dogs " * 200])[0]) == 127
    assert found[2] == pytest.approx([float(log_probs[t, token]) for t, token in enumerate(text)], abs=1e-4)


def test_with_a_template_an_input_is_read_where_a_user_types_it(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path, "llama", CHATML)), "cpu")
    before, text = model.prompts.text_ids("hello there")
    tokenizer: Any = model.tokenizer
    assert tokenizer.decode(before) == "<|im_start|>user\n"
    assert tokenizer.decode(text) == "hello there"


def test_an_encoder_decoder_model_is_no_language_model_of_inputs(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path, "t5")), "cpu")
    with pytest.raises(InputError, match="name a causal one"):
        model.text_log_prob(["hello"])


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_asked_places_reach_the_output_layer(tmp_path: Path, kind: str) -> None:
    model = load(str(make_folder(tmp_path, kind)), "cpu")
    seen: list[tuple[int, ...]] = []
    output: Any = model.network.get_output_embeddings()
    hook = output.register_forward_hook(lambda _, given, result: seen.append(tuple(result.shape)))
    rows = [Row(model.prompt_ids(DIALOGUES[1]), model.reply_ids("no")) for _ in range(3)]
    logits = token_logits(model.network, model.batch(rows))
    hook.remove()
    tokens = 3 * len(rows[0].reply)
    assert seen == [(1, tokens, logits.shape[1])]
    assert logits.shape[0] == tokens


def test_a_network_that_skips_its_output_layer_is_scored_too(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path, "gpt2")), "cpu")
    expected = model.log_prob(DIALOGUES, REPLIES)
    network: Any = model.network
    network.get_output_embeddings = lambda: torch.nn.Linear(1, 1)  # never called: no hook runs
    for mine, theirs in zip(model.log_prob(DIALOGUES, REPLIES), expected, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)


def test_what_an_architecture_does_to_its_logits_is_kept(tmp_path: Path) -> None:
    """BART adds a bias to its logits behind the output layer."""
    model = load(str(make_folder(tmp_path, "bart")), "cpu")
    network: Any = model.network
    network.final_logits_bias = torch.randn_like(network.final_logits_bias)
    (found,) = model.log_prob(DIALOGUES[:1], REPLIES[:1])
    assert found == pytest.approx(plain_forward(model, DIALOGUES[0], REPLIES[0]), abs=1e-4)


def test_as_many_replies_as_dialogues(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path, "gpt2")), "cpu")
    assert model.log_prob([], []) == []
    with pytest.raises(InputError, match="3 dialogues but 1 replies"):
        model.log_prob(DIALOGUES, ["no"])
    with pytest.raises(InputError, match="no turns"):
        model.log_prob([()], ["no"])


def test_bfloat16_is_near(tmp_path: Path) -> None:
    folder = str(make_folder(tmp_path, "llama"))
    exact = load(folder, "cpu").log_prob(DIALOGUES, REPLIES)
    coarse = load(folder, "cpu", ModelOptions(dtype="bfloat16")).log_prob(DIALOGUES, REPLIES)
    totals = [(sum(a), sum(b)) for a, b in zip(exact, coarse, strict=True)]
    assert totals[0][0] != totals[0][1]
    for mine, theirs in totals:
        assert mine == pytest.approx(theirs, rel=0.05)
