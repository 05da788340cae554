"""Training of the Reverse Dialogue Generator of Liu et al. 2019: maximum likelihood on (reply, input) pairs
that were gathered by asking the black box (section 5.1.2), then REINFORCE (eq. 2 to 5).

The defaults fit two processor cores and some thousand pairs. The paper pre-trains two layers of 1024 with
60,000 words by SGD at 20, decay 0.25 where validation does not improve, batches of 16 and clipping at 0.25.
Its decoder reads the encoder's last state only; ours also attends to the target, which takes fewer pairs.

In REINFORCE, some inputs are sampled for each target and sent to the black box; inputs whose replies are more
similar to the target than those of the others become likelier. Eq. (4) has a factor pi too many: the samples
are drawn from pi already. The paper has no baseline; ours is the mean reward of the target's other samples,
which costs no query.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from backtalk.data.pairs import encode_pairs
from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import PAD, Vocabulary
from backtalk.errors import InputError
from backtalk.models.device import product_precision
from backtalk.models.lstm.decode import sample
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.reverse import InputPolicy, draw_seed, load_generator, save_generator
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.specs.train import TrainSpec
from backtalk.training.mle import Progress, train
from backtalk.training.resumable import Resumable

Ask = Callable[[Sequence[str]], list[str | None]]  # inputs -> the black box's replies; None: no reply
Similarity = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]  # of replies and targets
FloatArray = NDArray[np.float64]
LEAST_PAIRS = 20  # fewer distinct pairs teach nothing, and leave none for validation


@dataclass(frozen=True)
class PretrainConfig:
    """Sizes of the generator, and how it is trained."""

    layers: int = 1  # of the encoder and of the decoder
    hidden: int = 256  # size of a layer
    embedding: int = 128  # size of a word's vector; the paper's is 300
    dropout: float = 0.2  # the paper's is 0.1
    attention: bool = True
    vocabulary: int = 60_000  # most words
    least: int = 2  # words that occur less often are unknown
    recipe: str = "he-glass-2019"  # how text becomes words
    max_target: int = 20  # words of a target that are read
    max_words: int = 15  # words of an input that is written
    lr: float = 3e-3
    batch: int = 32
    epochs: int = 8
    patience: int = 2  # stop after this many epochs without a better validation loss; 0: never
    clip: float = 5.0  # largest norm of a gradient
    valid: float = 0.05  # share of the pairs that is kept for validation
    seed: int = 1
    checkpoint_s: float = 30.0  # seconds between two checkpoints


def pretrain(
    pairs: Sequence[tuple[str, str]],
    config: PretrainConfig,
    folder: Path,
    device: torch.device,
    report: Callable[[Progress], None] = lambda _: None,
) -> LocalModel:
    """A generator trained on (reply, input) pairs, in `folder`: from its checkpoint if there is one, loaded
    if it is finished. The same pairs and settings give the same weights on a CPU."""
    recipe = get_recipe(config.recipe)
    distinct = [pair for pair in dict.fromkeys(pairs) if all(map(recipe.words, pair))]
    if (n := len(distinct)) < LEAST_PAIRS:
        raise InputError(f"{n} pairs are too few to learn from; give {LEAST_PAIRS} utterances or more")
    settings = {key: value for key, value in asdict(config).items() if key != "checkpoint_s"}
    facts = {"settings": settings, "pairs_sha256": hashlib.sha256(repr(distinct).encode()).hexdigest()}
    if (folder / "card.json").is_file():
        generator = load_generator(folder, str(device))
        if any(generator.card.get(key) != value for key, value in facts.items()):
            raise InputError(f"{folder} holds a generator of other pairs or settings; use --fresh or --out")
        return generator
    order = np.random.default_rng([config.seed, len(distinct)]).permutation(len(distinct)).tolist()
    count = max(1, round(config.valid * len(distinct)))
    held, learnt = [distinct[i] for i in order[:count]], [distinct[i] for i in order[count:]]
    counts = Counter(word for pair in learnt for text in pair for word in recipe.words(text))
    frequent = {word: number for word, number in counts.items() if number >= config.least}
    vocabulary = Vocabulary.from_counts(frequent, config.vocabulary)
    network = _new_network(len(vocabulary), config).to(device)
    sizes = recipe, vocabulary, config.max_target, config.max_words
    arrays = encode_pairs(learnt, *sizes), encode_pairs(held, *sizes)
    checkpoint = folder / "checkpoint.safetensors"
    same = ("lr", "batch", "epochs", "patience", "clip", "seed", "checkpoint_s")
    how = TrainSpec(**{name: getattr(config, name) for name in same})
    # tf32 products while training on a GPU; what is written afterwards is in float32 again.
    fast = product_precision("high") if device.type == "cuda" else nullcontext()
    with torch.random.fork_rng(), fast:
        for progress in train(network, *arrays, how, checkpoint, facts, device):
            report(progress)
    network.requires_grad_(False)
    lengths = (config.max_target, config.max_words)
    generator = LocalModel("reverse", network, vocabulary, recipe, "", None, {}, *lengths)
    save_generator(generator, folder, facts)
    checkpoint.unlink(missing_ok=True)
    return generator


def _new_network(words: int, config: PretrainConfig) -> Seq2Seq:
    sizes = config.embedding, config.hidden, config.layers, config.dropout, config.attention
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        network = Seq2Seq(Seq2SeqConfig(words, *sizes))
        # Not the usual 0.1: with small vectors it learns to write long before it learns to read.
        for part in (network.embed_input, network.embed_output):
            nn.init.uniform_(part.weight, -1.0, 1.0)
    return network


@dataclass(frozen=True)
class ReinforceConfig:
    """How the generator learns from the black box's replies."""

    steps: int = 60  # updates, at most; each asks batch times samples questions
    batch: int = 16  # targets of an update
    samples: int = 8  # N of eq. (4): inputs that are sampled for a target
    lr: float = 1e-3  # of Adam, as in the paper
    floor: float = 0.5  # rewards below it are set to 0
    clip: float = 1.0  # largest norm of a gradient; the paper's is 0.25
    seed: int = 1
    checkpoint_s: float = 30.0  # seconds between two checkpoints; 0: one after every update


class ReinforceProgress(NamedTuple):
    step: int
    steps: int
    similarity: float  # mean over the replies
    reward: float  # the same with those below the floor set to 0
    answered: int  # replies to the batch times samples inputs


def rewards_of(similarity: NDArray[np.floating[Any]], floor: float) -> FloatArray:
    """R, eq. (2), set to 0 below the floor."""
    return np.where(similarity < floor, 0.0, similarity).astype(np.float64)


def advantages_of(rewards: FloatArray, answered: NDArray[np.bool_]) -> FloatArray:
    """(targets, samples): each reward less the mean of the others'; 0 where there is no reply. This baseline
    does not depend on the sample itself, so the expectation of the gradient stays as it is."""
    known = np.where(answered, rewards, 0.0)
    others = answered.sum(1, keepdims=True) - 1
    mean = (known.sum(1, keepdims=True) - known) / np.maximum(others, 1)
    return np.where(answered & (others > 0), rewards - mean, 0.0)


def policy_loss(log_probs: Tensor, advantages: Tensor, count: int) -> Tensor:
    """A number whose gradient is minus the estimate of eq. (4): the mean over samples of R grad log pi."""
    return -(advantages * log_probs).sum() / count


def reinforce(
    generator: LocalModel,
    targets: Sequence[str],
    ask: Ask,
    similarity: Similarity,
    config: ReinforceConfig,
    checkpoint: Path,
    facts: dict[str, Any],
) -> Iterator[ReinforceProgress]:
    """Trains `generator`, the pre-trained one, in place, from the checkpoint if there is one. An update has
    one decoding and one call of `ask`. Training ends after `steps`, or when `ask` gives only None."""
    if not targets:
        raise InputError("there are no targets to train the reverse generator on")
    network = generator.network.eval()
    optimizer = torch.optim.Adam(network.parameters(), config.lr)
    settings = {key: value for key, value in asdict(config).items() if key != "checkpoint_s"}
    listed = hashlib.sha256(repr(list(targets)).encode()).hexdigest()
    own = {"settings": settings, "targets_sha256": listed, "generator": generator.fingerprint}
    at, every_s = SimpleNamespace(step=0, finished=config.steps <= 0), config.checkpoint_s
    saved = Resumable(checkpoint, {**facts, **own}, network, optimizer, at, every_s=every_s)
    saved.restore()
    policy, read = InputPolicy(network), generator.encode_texts(targets)  # (all targets, n)
    size = min(config.batch, len(targets))
    while not at.finished:
        epoch, within = divmod(at.step, len(targets) // size)
        order = np.random.default_rng([config.seed, epoch]).permutation(len(targets))
        rows = order[within * size : (within + 1) * size].repeat(config.samples)
        goals = read[torch.from_numpy(rows).to(read.device)]
        goals = goals[:, : int((goals != PAD).sum(1).max())]
        seeds = [draw_seed(config.seed, at.step, row) for row in range(len(goals))]
        written = sample(policy, network.start(goals), seeds, generator.max_output, read.device)
        replies = ask([generator.decode(ids) for ids in written.tolist()])
        answered = np.array([reply is not None for reply in replies])
        near = similarity([reply or "" for reply in replies], [targets[row] for row in rows.tolist()])
        near = np.where(answered, near, 0.0)
        rewards = rewards_of(near, config.floor)
        if number := int(answered.sum()):
            shape = size, config.samples
            advantages = advantages_of(rewards.reshape(shape), answered.reshape(shape)).reshape(-1)
            # theta = theta + alpha grad J, eq. (5); without dropout, as the samples were drawn
            network.requires_grad_(True)
            optimizer.zero_grad(set_to_none=True)  # pre-training left gradients
            log_probs = policy.log_prob(goals, written)
            loss = policy_loss(log_probs, torch.from_numpy(advantages).to(log_probs), number)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            norm = float(nn.utils.clip_grad_norm_(network.parameters(), config.clip))
            if not math.isfinite(norm):
                raise InputError(f"the gradient's norm is {norm} in update {at.step}; lower the rate")
            optimizer.step()
            network.requires_grad_(False)
        at.step += 1
        at.finished = at.step >= config.steps or not number
        saved.save_if_due(now=at.finished)
        mean, reward = (float(one.sum() / max(1, number)) for one in (near, rewards))
        yield ReinforceProgress(at.step, config.steps, mean, reward, number)
