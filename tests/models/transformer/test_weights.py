"""The WEIGHTS level of Hugging Face models against a plain forward of one row at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.transformer import memory
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.protocols import Retokenises, WeightsModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.specs import ModelOptions
from backtalk.types import Turn
from tests.models.transformer.plain import plain_scores
from tests.models.transformer.tiny import CHATML, INST, KINDS, make_folder

pytestmark = pytest.mark.usefixtures("one_thread")

AROUND = {"prefix": "please do ", "suffix": " now and then"}
CASES: list[tuple[str, str, dict[str, Any]]] = [(kind, "", {}) for kind in KINDS] + [
    ("gpt2", "", AROUND),
    ("gpt2", CHATML, {}),
    ("llama", CHATML, AROUND),
    ("llama", CHATML, {"system": "be kind", **AROUND}),
    ("llama", INST, {}),
    ("llama", "", {"template": "text", **AROUND}),
    ("t5", "", {"system": "be kind", **AROUND}),
    ("bart", "", AROUND),
]
IDS = [f"{kind}-{'chat' if template else 'plain'}-{'+'.join(options)}" for kind, template, options in CASES]
TARGETS = ["you are a rude person.", "no", "leave me alone"]
LENGTH, COUNT = 5, 6


def make(folder: Path, kind: str, chat: str = "", **options: Any) -> TransformerModel:
    return load(str(make_folder(folder, kind, chat)), "cpu", ModelOptions(max_reply=8, **options))


def random_ids(model: TransformerModel, *size: int, seed: int = 3) -> Tensor:
    allowed = model.searchable().nonzero().squeeze(1)
    return allowed.cpu()[torch.randint(len(allowed), size, generator=torch.Generator().manual_seed(seed))]


def goals(model: TransformerModel) -> Tensor:
    return pad_rows([model.encode_target(text) for text in TARGETS], model.pad)


@pytest.mark.parametrize(("kind", "template", "options"), CASES, ids=IDS)
def test_scores_and_substitutions_equal_a_plain_forward(
    tmp_path: Path, kind: str, template: str, options: dict[str, Any]
) -> None:
    model = make(tmp_path, kind, template, **options)
    assert isinstance(model, WeightsModel)
    targets, inputs = goals(model), random_ids(model, len(TARGETS), LENGTH)
    candidates = random_ids(model, len(TARGETS), COUNT, seed=4)
    for position in range(LENGTH):
        found = model.score_substitutions(inputs, position, candidates, targets)
        for row, text in enumerate(TARGETS):
            target = model.encode_target(text)
            for place in range(COUNT):
                trigger = inputs[row].tolist()
                trigger[position] = int(candidates[row, place])
                expected, flags = plain_scores(model, trigger, target)
                own = found.log_probs[row, place].tolist()
                assert own[: len(target)] == pytest.approx(expected, abs=1e-4)
                assert not any(own[len(target) :])
                assert found.is_argmax[row, place, : len(target)].tolist() == flags
    alone = model.score(inputs[1:2], targets[1:2]).log_probs[0]  # without padding, and in no batch
    expected, _ = plain_scores(model, inputs[1].tolist(), model.encode_target(TARGETS[1]))
    assert alone[: len(expected)].tolist() == pytest.approx(expected, abs=1e-4)
    assert model._scorer.shares is not model.is_encoder_decoder  # what is claimed was used


@pytest.mark.parametrize(("kind", "template", "options"), CASES, ids=IDS)
def test_a_trigger_that_survives_stands_in_the_prompt_of_its_text(
    tmp_path: Path, kind: str, template: str, options: dict[str, Any]
) -> None:
    model = make(tmp_path, kind, template, **options)
    assert isinstance(model, Retokenises)
    around = model._slot
    triggers = random_ids(model, 300, 3)
    survive = model.survives(triggers).tolist()
    assert 0 < sum(survive) < 300
    for ids, good in zip(triggers.tolist(), survive, strict=True):
        prompt = model.prompt_ids((Turn("user", model.decode(ids)),))
        assert (prompt == [*around.before, *ids, *around.after]) == good
        if good:
            assert model.encode_input(model.decode(ids)) == ids


@pytest.mark.parametrize("kind", KINDS)
def test_no_special_token_may_stand_in_a_trigger(tmp_path: Path, kind: str) -> None:
    model = make(tmp_path, kind, CHATML if kind in ("gpt2", "llama") else "")
    tokenizer: Any = model.tokenizer
    allowed = model.searchable()
    assert allowed.shape == (model.vocabulary_size,)
    assert not allowed[tokenizer.all_special_ids].any()
    assert not allowed[tokenizer.convert_tokens_to_ids("<|im_start|>")]
    for token in allowed.nonzero().squeeze(1).tolist():
        assert tokenizer(tokenizer.decode([token]), add_special_tokens=False)["input_ids"] == [token]
    # A byte that is no whole letter can't be typed.
    assert not all(allowed[len(tokenizer.all_special_ids) : len(tokenizer)])
    assert allowed is model.searchable()


def test_a_template_that_strips_is_known(tmp_path: Path) -> None:
    model = make(tmp_path, "llama", CHATML.replace("message['content']", "message['content'].strip()"))
    (blank,) = model.tokenizer(" you", add_special_tokens=False)["input_ids"]
    (plain,) = model.tokenizer("n", add_special_tokens=False)["input_ids"]
    assert model.survives(torch.tensor([[blank, blank], [plain, blank]])).tolist() == [False, True]


def test_a_template_that_rewrites_is_asked_each_time(tmp_path: Path) -> None:
    model = make(tmp_path, "llama", CHATML.replace("message['content']", "message['content'].lower()"))
    (upper,) = model.tokenizer("H", add_special_tokens=False)["input_ids"]
    (lower,) = model.tokenizer("h", add_special_tokens=False)["input_ids"]
    assert model.survives(torch.tensor([[upper], [lower]])).tolist() == [False, True]


def test_what_an_architecture_does_to_its_logits_is_kept(tmp_path: Path) -> None:
    model = make(tmp_path, "bart")
    network: Any = model.network
    network.final_logits_bias = torch.randn_like(network.final_logits_bias)
    inputs, target = random_ids(model, 1, 4), model.encode_target(TARGETS[0])
    expected, flags = plain_scores(model, inputs[0].tolist(), target)
    for _ in range(2):  # what is found out at first holds
        found = model.score(inputs, torch.tensor([target]))
        assert found.log_probs[0].tolist() == pytest.approx(expected, abs=1e-4)
        assert found.is_argmax[0].tolist() == flags
    assert model._reader.is_linear is False


def test_a_network_that_is_another_behind_a_shared_past_is_read_whole(tmp_path: Path) -> None:
    model = make(tmp_path, "gpt2", CHATML)
    inputs, targets, candidates = random_ids(model, 3, 4), goals(model), random_ids(model, 3, 5)
    expected = model.score_substitutions(inputs, 2, candidates, targets)
    other = make(tmp_path, "gpt2", CHATML)
    network: Any = other.network
    plain = network.forward

    def forgetful(*given: Any, past_key_values: Any = None, **named: Any) -> Any:
        return plain(*given, past_key_values=None, **named)

    network.forward = forgetful
    found = other.score_substitutions(inputs, 2, candidates, targets)
    torch.testing.assert_close(found.log_probs, expected.log_probs, atol=1e-4, rtol=0)
    assert other._scorer.shares is False


class Crowded:
    """A network's forward that runs out of memory with more than so many rows."""

    def __init__(self, network: Any, most: int) -> None:
        self.plain, self.most = network.forward, most
        self.sizes: list[int] = []

    def __call__(self, *given: Any, **named: Any) -> Any:
        ids: Tensor = named.get("input_ids", named.get("inputs_embeds"))  # type: ignore[assignment]
        self.sizes.append(len(ids))
        if len(ids) > self.most:
            raise torch.cuda.OutOfMemoryError("planted")
        return self.plain(*given, **named)


def test_memory_that_runs_out_halves_the_candidates_once(tmp_path: Path) -> None:
    model = make(tmp_path, "gpt2", CHATML)
    inputs, targets, candidates = random_ids(model, 3, 4), goals(model), random_ids(model, 3, 10)
    expected = model.score_substitutions(inputs, 2, candidates, targets)
    network: Any = model.network
    crowd = network.forward = Crowded(network, 15)
    found = model.score_substitutions(inputs, 2, candidates, targets)
    torch.testing.assert_close(found.log_probs, expected.log_probs, atol=1e-5, rtol=0)
    # All 30 are too many; then a row's ten at a time, each behind a past of its own.
    assert crowd.sizes == [3, 30, 1, 10, 1, 10, 1, 10]
    crowd.most = 4
    with pytest.raises(InputError, match=" cpu with 10 "):
        model.score_substitutions(inputs, 2, candidates, targets)


def test_candidates_are_taken_as_memory_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(tmp_path, "llama", CHATML)
    inputs, targets, candidates = random_ids(model, 3, 4), goals(model), random_ids(model, 3, 10)
    expected = model.score_substitutions(inputs, 1, candidates, targets)
    network: Any = model.network
    crowd = network.forward = Crowded(network, 1 << 30)
    one = model.footprint.substituting(40, 8, 0)
    monkeypatch.setattr(memory, "free_bytes", lambda device: int(4.5 * one / memory.SHARE))
    found = model.score_substitutions(inputs, 1, candidates, targets)
    torch.testing.assert_close(found.log_probs, expected.log_probs, atol=1e-5, rtol=0)
    assert 1 < max(crowd.sizes) < 10
    assert sum(crowd.sizes) == 3 + 30  # a row's past is read once, however often its candidates are cut


def test_a_draft_is_near_and_shares_the_count(tmp_path: Path) -> None:
    model = make(tmp_path, "llama", CHATML)
    assert isinstance(model, Retokenises)
    inputs, targets = random_ids(model, 3, 4), goals(model)
    exact, before = model.score(inputs, targets), model.tokens_read
    draft = model.draft()
    assert (draft.network.dtype, model.network.dtype) == (torch.bfloat16, torch.float32)
    coarse = draft.score(inputs, targets)
    assert coarse.log_probs.dtype == torch.float32
    assert not torch.equal(coarse.log_probs, exact.log_probs)
    torch.testing.assert_close(coarse.log_probs.sum(1), exact.log_probs.sum(1), atol=1.0, rtol=0.05)
    assert model.tokens_read == 2 * before > 0


def test_only_what_comes_from_the_changed_token_on_is_read(tmp_path: Path) -> None:
    model = make(tmp_path, "gpt2", CHATML)
    inputs, targets, candidates = random_ids(model, 3, 4), goals(model), random_ids(model, 3, 50)
    model.score_substitutions(inputs, 3, candidates, targets)  # the first call is checked, which reads more
    around, before = model._slot, model.tokens_read
    model.score_substitutions(inputs, 3, candidates, targets)
    past = 3 * (len(around.before) + 3)
    assert model.tokens_read - before == past + 150 * (1 + len(around.after) + targets.shape[1] - 1)


def test_a_trigger_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = make(tmp_path, "gpt2")
    inputs = random_ids(model, 3, 125)
    with pytest.raises(InputError, match=r" 128; .*--length"):
        model.score(inputs, goals(model))


def test_another_model_may_judge_if_it_has_the_same_tokens(tmp_path: Path) -> None:
    model, judge = make(tmp_path / "a", "llama", CHATML), make(tmp_path / "b", "llama", CHATML)
    network: Any = judge.network
    with torch.no_grad():
        network.lm_head.weight.normal_(std=0.35)
    judged = model.judged_by(judge)
    inputs = random_ids(model, 2, 4)
    assert judged.language_model is not None
    assert judge.language_model is not None
    assert model.language_model is not None
    torch.testing.assert_close(judged.language_model.score(inputs), judge.language_model.score(inputs))
    assert not torch.allclose(judged.language_model.score(inputs), model.language_model.score(inputs))
    with pytest.raises(InputError, match="other tokens"):
        model.judged_by(make(tmp_path / "c", "gpt2"))
    with pytest.raises(InputError, match="name a causal model"):
        model.judged_by(make(tmp_path / "d", "t5"))


@pytest.mark.parametrize(("kind", "template"), [("gpt2", ""), ("llama", CHATML)])
def test_the_language_model_agrees_with_the_text(tmp_path: Path, kind: str, template: str) -> None:
    model = make(tmp_path, kind, template)
    text = "hello there, you like cats"
    ids = model.encode_input(text)
    assert model.language_model is not None
    (expected,) = model.text_log_prob([text])
    assert model.language_model.score(torch.tensor([ids]))[0].tolist() == pytest.approx(expected, abs=1e-4)


def test_the_fixed_text_is_in_every_prompt(tmp_path: Path) -> None:
    plain, framed = make(tmp_path, "gpt2"), make(tmp_path, "gpt2", **AROUND)
    assert framed.fingerprint != plain.fingerprint
    text = f"{AROUND['prefix']}hello{AROUND['suffix']}"
    assert framed.prompt_ids((Turn("user", "hello"),)) == plain.prompt_ids((Turn("user", text),))
    assert framed.reply([(Turn("user", "hello"),)]) == plain.reply([(Turn("user", text),)])


def test_text_that_grows_together_with_a_trigger_is_refused(tmp_path: Path) -> None:
    """Next to nothing would survive behind it, and a search would accept nothing without a word."""
    model = make(tmp_path, "gpt2", prefix="please hel")
    with pytest.raises(InputError, match=r"--prefix and --suffix"):
        model.encode_input("hello")
