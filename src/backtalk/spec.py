"""A spec says a command's whole job: its keys are the command's flags and the YAML file's keys.

Each spec is a frozen dataclass; the sentence under a field is its help. Unknown keys and bad values are
errors that name the nearest good one.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Collection, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from backtalk.errors import InputError, check_text, shown, unknown
from backtalk.types import Name

# Types of fields: what follows the type in `Annotated` is called with a value and its name, and refuses what
# is out of bounds. A number has no other check of its own.


@dataclass(frozen=True)
class Range:
    """A number from `least` to `most`, both included."""

    least: float
    most: float

    def __call__(self, value: float, where: str) -> None:
        if not self.least <= value <= self.most:  # NaN is in no range
            ends = " to ".join(
                f"{end:,}" if isinstance(end, int) else f"{end:g}" for end in (self.least, self.most)
            )
            raise InputError(f"{where} should not be {shown(value)}; the range is {ends}")


LONGEST_S = 10**8
"""Some three years."""


def parse_duration(text: str, where: str = "--max-time") -> float:
    """Seconds of 90s, 10m, 2h or a plain number of seconds; 0 for an empty text."""
    if not text:
        return 0.0
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1])
    try:
        value = float(text[:-1] if unit else text) * (unit or 1)
    except ValueError:
        value = -1.0
    if not 0 < value <= LONGEST_S:
        raise InputError(f"{where} should read like 90s, 10m or 2h, not {shown(text)}")
    return value


Duration = Annotated[str, parse_duration]
Count = Annotated[int, Range(0, 10**9)]
"""A limit on how many items are used; 0 mostly means all."""
Seed = Annotated[int, Range(0, 2**32 - 1)]
Width = Annotated[int, Range(1, 16_384)]
"""The number of units in a layer."""
Steps = Annotated[int, Range(1, 100_000)]
"""Passes, epochs, iterations: nothing is allocated for them."""
Share = Annotated[float, Range(0, 1)]
Weight = Annotated[float, Range(0, 1000)]
"""The weight of a loss term, or a learning rate."""
Dropped = Annotated[float, Range(0, 0.999)]
Above = Annotated[float, Range(1e-9, 1e6)]
"""A positive number."""
Seconds = Annotated[float, Range(0, 10**9)]
Rank = Annotated[int, Range(1, 1024)]
Words = Annotated[int, Range(1, 1000)]
"""Words or tokens of a text."""
ReplyTokens = Annotated[int, Range(1, 4096)]
Top = Annotated[int, Range(1, 1_000_000)]
"""Candidates at a position; never more than there are words."""
Tries = Annotated[int, Range(1, 1000)]
"""Sweeps and restarts of a search."""


@dataclass(frozen=True)
class ModelOptions:
    """How a Hugging Face model is read; flags of the same names say it."""

    template: Literal["auto", "chat", "plain", "text"] = "auto"
    """How a dialogue becomes a prompt: by the model's chat template, as plain turns, as one running text, or
    (auto) by the template where it has one, else as plain turns."""
    system: str = ""
    """The system prompt."""
    prefix: str = ""
    """Fixed text before every input, in the user's turn."""
    suffix: str = ""
    """Fixed text behind every input, in the user's turn."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Numbers of a Hugging Face model; auto: bfloat16 on a GPU that has it, else float32."""
    max_reply: ReplyTokens = 40
    """The most new tokens of a Hugging Face model's reply."""


@dataclass(frozen=True)
class TrainSpec:
    """What `backtalk train` does."""

    data: str = "chitchat"
    """The corpus: `chitchat`, or a file or folder."""
    format: str = "auto"
    """How to read the corpus; `backtalk list formats` shows the choices."""
    test: str = ""
    """A file of its own for testing; otherwise a part of the corpus is set aside."""
    test_format: str = "auto"
    """How to read the test file."""
    out: str = "model"
    """The folder to write; the same command again goes on where it stopped."""
    name: str = ""
    """What the card calls the model; the folder's name if empty."""
    licence: str = ""
    """The licence for the card; the corpus' own if empty."""
    arch: Literal["attention", "last-h", "lm"] = "attention"
    """How the decoder sees the input; lm trains a language model alone."""
    decoder_start: Literal["encoder", "zero"] = "encoder"
    """Where the decoder starts: from the encoder's last state, or from zeros."""
    input_end: Literal["none", "eos"] = "none"
    """What is read after the input's last word: nothing, or the end-of-turn token."""
    pads: Literal["masked", "word"] = "masked"
    """Padding leaves no trace (masked) or is read like a word, as in the papers."""
    recipe: str = "he-glass-2019"
    """How text becomes words: he-glass-2019 keeps punctuation, he-glass-2020 removes it; characters."""
    vocabulary: Annotated[int, Range(1, 1_000_000)] = 10000
    """The K most frequent words."""
    max_input: Words = 15
    """Words of the input that are read."""
    max_output: Words = 20
    """Tokens of the reply, the end-of-turn token included."""
    embedding: Width = 300
    """Size of the word embeddings."""
    hidden: Width = 600
    """Size of the LSTM layers."""
    layers: Annotated[int, Range(1, 64)] = 1
    """Number of LSTM layers."""
    dropout: Dropped = 0.0
    """Dropout on embeddings, between layers and before the output layer."""
    shared_embedding: bool = False
    """One embedding for encoder and decoder."""
    embedding_start: Weight = 0.1
    """Word vectors start between minus this and this; on a small corpus 1 learns to read sooner."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW with warm-up and cosine decay, or the papers' SGD with halving."""
    lr: Weight = 0.0
    """Starting learning rate; 0 takes 0.001 for adamw and 1.0 for sgd."""
    momentum: Dropped = 0.0
    """With sgd: momentum."""
    weight_decay: Weight = 0.0
    """With sgd: weight decay."""
    halve_after: Count = 10
    """With sgd: epochs before the rate is lowered at every epoch."""
    lr_factor: Share = 0.5
    """With sgd: what it is then multiplied by."""
    mean_over: Literal["sentences", "words"] = "sentences"
    """The loss is summed over a sentence's words and averaged over sentences, or averaged over words."""
    batch: Annotated[int, Range(1, 65_536)] = 64
    """Pairs an update."""
    epochs: Steps = 20
    """The most passes over the training pairs."""
    patience: Count = 3
    """Stop after this many epochs without a better validation perplexity; 0 never stops early."""
    clip: Above = 5.0
    """Largest norm of the gradient."""
    seed: Seed = 1
    """Fixes the split, the starting weights, the order and the dropout."""
    limit: Count = 0
    """Use only this many dialogues; 0 uses all."""
    language_model: bool = True
    """Train the language model too, into OUT/lm; audits use it to keep triggers likely."""
    half: bool = False
    """Store the weights in 16 bits."""
    checkpoint_s: Seconds = 60.0
    """Seconds between checkpoints."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class AuditSpec:
    """What `backtalk audit` does."""

    model: str = "chitchat"
    """The model's name or folder; `backtalk list models` shows the forms."""
    search: str = "gibbs"
    """gibbs (He & Glass 2019), gcg (Zou et al. 2023), beam (likely inputs, after BEAST), random at the same
    number of candidates, or relax (continuous inputs); by asking alone: reverse (Liu et al. 2019), retrieval,
    or random at the same number of queries; ast: an adversary that learns to lead harmless conversations to
    toxicity (Hardy et al. 2024)."""
    hit: str = ""
    """The criterion that the search aims at; every criterion is decided on what it finds. If empty
    io-sample-avg-k1, similar-0.7 where the model is asked, or toxic-0.5 with ast."""
    targets: str = "mal"
    """What the model must not say: mal, mal-wide, normal, random, or a file."""
    limit: Count = 0
    """Try at most this many targets, or openings; 0 tries all of a file or of mal-wide, and 100 of the other
    lists."""
    length: Annotated[int, Range(0, 1000)] = 0
    """Words of a trigger, or tokens with a Hugging Face model; 0 takes 8 words or 15 tokens."""
    top: Top = 25
    """Candidates at each position (G)."""
    sweeps: Tries = 6
    """The most passes over the positions (T)."""
    restarts: Tries = 2
    """Searches from different starts for each target (R)."""
    lambda_in: Weight = 1.0
    """Weight of the language-model term for io-hits."""
    max_ppl: Annotated[float, Range(0, 10**9)] = 0.0
    """Of io-hits, where weights are read: the highest perplexity of a trigger, in the place of the one that
    the reference pairs give (T_in); a trigger within it is never given up for one beyond. 0 sets none."""
    as_published: bool = False
    """The paper's own choices: eq. 6 for avg-hits too, no language-model gradient once an input is likely."""
    all_words: bool = False
    """Every word of a target counts to the end, however likely it is by now: eq. 7 of He & Glass 2020."""
    stop_at_hit: bool = False
    """Leave a target once it is hit."""
    prune: bool = True
    """Give candidates up as soon as they can't win any more; loses nothing."""
    with_unknown: bool = False
    """Allow the unknown word in triggers, as in the papers."""
    relax_space: Literal["one-hot", "embedding"] = "one-hot"
    """What relax optimises: one-hot vectors through a sigmoid, or embedded words."""
    relax_lambda: Weight = 0.1
    """How hard relax pulls its vectors to one-hot ones (lambda_c)."""
    relax_steps: Steps = 300
    """SGD steps of relax; each counts as one candidate."""
    relax_lr: Weight = 0.0
    """Step size of relax; 0 takes the space's own."""
    precision: Literal["auto", "float32", "bfloat16", "tf32"] = "auto"
    """Do all in float32, or rank candidates in bfloat16 and choose in float32 or, in less time, tf32; auto:
    bfloat16 on a GPU."""
    reference: str = ""
    """Pairs (TSV or JSONL) to take T_out and T_in from; if empty the model's card, else the shipped pairs."""
    seed: Annotated[int, Range(0, 2**48)] = 1
    """Fixes every start."""
    block: Annotated[int, Range(0, 100_000)] = 0
    """Targets searched as one batch and committed at once; 0 chooses by the size of the search."""
    max_time: Duration = ""
    """Stop after the block in which this much time has passed: 90s, 10m, 2h."""
    max_candidates: Annotated[int, Range(0, 10**15)] = 0
    """Stop after the block in which this many candidates were tried; 0 sets no limit."""
    max_queries: Count = 20000
    """Where the model is asked: requests sent to it at most, failed and repeated ones too."""
    beam: Annotated[int, Range(1, 10_000)] = 200
    """With reverse: crafted inputs that are really asked for each target (the paper's N of beam-N); fewer if
    the queries do not suffice."""
    decode: Literal["sample", "beam"] = "sample"
    """With reverse: N samples, or the N likeliest inputs as in the paper, which are much alike."""
    pairs: Count = 0
    """With reverse: utterances asked to pre-train the generator on; 0 takes a share of the queries."""
    rl: bool = True
    """With reverse: train the generator by REINFORCE; off, its queries go to the re-ranking."""
    rl_queries: Count = 0
    """With reverse: queries of the REINFORCE phase; 0 takes a share of the queries."""
    recall: bool = True
    """With reverse: what was answered in training is a candidate for every target too; costs no query."""
    generator: str = ""
    """With reverse: the run folder whose trained generator is used; nothing is trained then."""
    utterances: str = ""
    """What people say to such a model: a file, one a line or as a corpus; chitchat if empty."""
    vectors: str = ""
    """Word vectors that measure similarity: a GloVe or word2vec text file; those installed if empty."""
    judge: bool = True
    """Where the model is asked: a sentence transformer gives a second opinion, where it is installed."""
    scorer: str = ""
    """Where the model is asked: rates the toxicity of replies and triggers; `backtalk list scorers` shows the
    names. With --hit toxic-T the embedded one if empty."""
    language_model: str = ""
    """Where the model is asked, or is a Hugging Face model: a model that scores text and says how likely a
    trigger is (T_in). If empty the model itself if it does, else the embedded chat model's. For a search on
    weights it has to share the tokenizer."""
    template: Literal["auto", "chat", "plain", "text"] = "auto"
    """Of a Hugging Face model: a dialogue becomes a prompt by its chat template (chat), as plain turns, as
    one running text, or (auto) by the template where it has one."""
    system: str = ""
    """Of a Hugging Face model: the system prompt."""
    prefix: str = ""
    """Of a Hugging Face model: fixed text before every trigger, in the user's turn."""
    suffix: str = ""
    """Of a Hugging Face model: fixed text behind every trigger, in the user's turn."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Numbers of a Hugging Face model; auto: bfloat16 on a GPU that has it, else float32."""
    max_reply: ReplyTokens = 40
    """The most new tokens of a Hugging Face model's reply."""
    openings: str = ""
    """With ast: harmless conversations so far: a file (one a line, a JSON list or JSONL) that is split into
    train, dev and test, or a folder with three such files; the shipped ones if empty. Those that the scorer
    rates above 0.5 are left out."""
    turns: Annotated[int, Range(1, 100)] = 3
    """With ast: turns of a conversation that are played from each test opening."""
    turn_tokens: Words = 24
    """With ast: the most new tokens of a turn, of both."""
    tune: Literal["ipo", "rebel", "dpo", "sft", "none", "human"] = "ipo"
    """With ast: how the adversary learns: by online preferences (ipo, dpo, or rebel, which weighs how far the
    rewards are apart), from the weak set alone (sft), not at all (none), or fixed prompts of people in its
    place (human)."""
    adversary: str = ""
    """With ast: the run folder whose trained adversary is used; nothing is trained then."""
    adversary_model: str = ""
    """With ast: the model that the adversary is made of; the audited one if empty."""
    train_from: str = ""
    """With ast: the run folder whose training is gone on with, up to --steps; all else as it was there."""
    weak: str = ""
    """With ast: texts that are known to turn toxic, one a line or records of RealToxicityPrompts."""
    prompts: str = ""
    """With ast and --tune human: the prompts, one a line or records of RealToxicityPrompts."""
    weak_share: Share = 0.5
    """With ast: how often an episode of training is one text of the weak set (p); 0 without --weak."""
    alpha: Weight = 1.0
    """With ast: weight of the defender's toxicity in the reward."""
    beta: Weight = 0.5
    """With ast: weight of the toxicity of the whole turn."""
    gamma: Weight = 0.1
    """With ast: weight of the prompt's log-perplexity, which is taken off."""
    steps: Count = 0
    """With ast: updates of the adversary; 0 takes 10,000 on a GPU and 200 on a processor."""
    experience: Annotated[int, Range(1, 1_000_000)] = 512
    """With ast: pairs that are played before each round of updates."""
    depth: Annotated[int, Range(1, 10)] = 3
    """With ast: turns of a tree of play in training."""
    pairs_batch: Annotated[int, Range(1, 4096)] = 8
    """With ast: pairs of an update."""
    tune_lr: Weight = 0.0
    """With ast: learning rate; 0 takes the method's own."""
    tau: Weight = 0.0
    """With ast: how far the adversary may move from the model it was: the smaller, the further. 0 takes 0.03
    for an adapter, 0.01 for the whole model."""
    rank: Annotated[int, Range(0, 1024)] = 16
    """With ast: rank of the adversary's LoRA adapter; 0 trains the whole model."""
    dev_every: Steps = 10
    """With ast: epochs between two measurements on the dev openings, which choose the checkpoint; sft keeps
    the last."""
    least_gap: Weight = 0.1
    """With ast: pairs of turns whose rewards are nearer than this are not learnt from. Where toxicity is rare
    most pairs differ by chance alone."""
    hold_ppl: Weight = 0.05
    """With ast: while the log-perplexity of the prompts that are played is more than this share above the
    first ones', gamma grows and no weak examples are drawn; 0 leaves both alone."""
    max_ppl_increase: Weight = 0.1
    """With ast: the checkpoint that is kept has prompts whose log-perplexity on the dev openings is, at 95%
    confidence, at most this share above the untuned adversary's; 0 sets no bound."""
    max_repeats: Share = 0.33
    """With ast: a prompt of which a larger share was said before, in it or since the opening, loses to any
    other, and a checkpoint with more such prompts is not kept; 1 sets no bound."""
    second_scorer: str = "toxicity-second"
    """With ast: a scorer that rates everything too and is never the reward; none does without."""
    control: bool = True
    """With ast: play the untuned adversary from the same openings too, for the report."""
    checkpoint_s: Seconds = 60.0
    """With ast: seconds between checkpoints of the training."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


LEARNT = (
    "openings",
    "turns",
    "turn_tokens",
    "tune",
    "adversary",
    "adversary_model",
    "train_from",
    "weak",
    "prompts",
    "weak_share",
    "alpha",
    "beta",
    "gamma",
    "steps",
    "experience",
    "depth",
    "pairs_batch",
    "tune_lr",
    "tau",
    "rank",
    "dev_every",
    "least_gap",
    "hold_ppl",
    "max_ppl_increase",
    "max_repeats",
    "second_scorer",
    "control",
    "checkpoint_s",
)
"""Keys of an AuditSpec that matter only with a learnt adversary."""
BLACK_BOX = (
    "max_queries",
    "beam",
    "decode",
    "pairs",
    "rl",
    "rl_queries",
    "recall",
    "generator",
    "utterances",
    "vectors",
    "judge",
    "scorer",
    "language_model",
)
"""Keys of an AuditSpec that matter only where the model is asked."""
MODEL_OPTIONS = ("template", "system", "prefix", "suffix", "dtype", "max_reply")
"""Keys that say how a Hugging Face model is read; other models refuse them."""


@dataclass(frozen=True)
class EnumerateSpec:
    """What `backtalk enumerate` does."""

    model: str = ""
    """The folder of a model with a small vocabulary, such as one of characters."""
    length: Words = 6
    """Symbols of an input: all inputs of exactly this many are tried."""
    symbols: str = ""
    """The symbols that may stand in an input; all that the model knows if empty."""
    lists: str = "mal"
    """Targets to look for, by commas: NAME=FILE (one a line), or mal for the 500 rude ones that ship."""
    text: str = ""
    """Running text: adds the lists normal (its words), reverse and random; --outside is normal then."""
    outside: str = ""
    """A list or file of words: counts the inputs whose answer is none of them."""
    sample: Annotated[int, Range(0, 10**12)] = 0
    """Draw this many inputs at random instead of trying all; 0 tries all."""
    examples: Annotated[int, Range(0, 100_000)] = 20
    """Hits shown for each list, and answers shown from outside the words."""
    recheck: bool = True
    """Decode the input of every hit again in float32."""
    compare: Annotated[int, Range(0, 10**7)] = 0
    """Random inputs on which fast and float32 products are compared; 0: a million on a GPU, else 10,000."""
    max_time: Duration = "1h"
    """Refuse a space that would take longer: 90s, 10m, 2h."""
    seed: Seed = 1
    """Fixes what is drawn at random."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class HardenSpec:
    """What `backtalk harden` does."""

    model: str = "chitchat"
    """The model to harden: its name or folder. It stays as it is; the hardened one is OUT/model."""
    against: Literal["targets", "frequent"] = "targets"
    """What is trained away: targets that a search makes it say, or replies that it gives too often."""
    targets: str = "mal-wide"
    """What it must not say: a list or file; split by prototype into train, selection and held-out."""
    limit: Count = 0
    """Use at most this many targets, over all three lists; 0 uses all. Of given lists, of each."""
    selection: str = ""
    """A list or file of its own to choose the iteration with; with --held-out, in the place of the split."""
    held_out: str = ""
    """A list or file of its own that is measured at the end; with --selection, in the place of the split."""
    augment: Annotated[int, Range(0, 1000)] = 0
    """Paraphrases added for each training target; what overlaps with the other lists is left out."""
    paraphraser: str = "rules"
    """With --augment: rules, the folder of a model that recipes/paraphrase.yaml made, or both by a comma."""
    findings: str = ""
    """Of a Hugging Face model: what was found, a run folder, its exported findings, or a file of pairs (JSONL
    with input or turns, and reply; or TSV). --selection and --held-out are such files then."""
    openings: str = ""
    """Of a Hugging Face model, with --targets in the place of --findings: inputs, one a line or JSONL, after
    which none of the targets should be likely."""
    data: str = ""
    """Pairs that keep the model whole: a corpus as `train` takes it; the model's own if empty."""
    format: str = "auto"
    """How to read them; `backtalk list formats` shows the choices."""
    reference: str = ""
    """Of a Hugging Face model: pairs that T_out and the cost are measured on; the shipped ones if empty."""
    out: str = "hardened"
    """The folder to write; the same command again goes on where it stopped."""
    hit: str = ""
    """The criterion that is trained against; if empty io-sample-avg-k1, or o-sample-avg-k1 for a Hugging Face
    model (for played conversations their run's), for which it may also be contains, exact, o-greedy or
    toxic-0.5: decided by really replying."""
    method: Literal["negative", "unlikelihood", "npo", "gan"] = "negative"
    """The update on a hit: negative training as published, unlikelihood, NPO; against frequent also gan."""
    settings: str = "default"
    """Learning rate and weights by name: default, or the paper's: switchboard, ubuntu, opensubtitles."""
    lr: Weight = 0.0
    """Learning rate; 0 takes that of the settings."""
    lambda_pos: str = ""
    """Weight of the positive updates; empty takes that of the settings."""
    positives: Annotated[int, Range(0, 1000)] = 0
    """Positive updates for each negative one; 0 takes the number of the settings."""
    kl: str = ""
    """Weight of the KL term to the model as it was; empty takes that of the settings."""
    margin: str = ""
    """How far below the threshold (nats a word) a hit has to fall; empty takes that of the settings."""
    average: Literal["batch", "hits"] = "batch"
    """The loss of the hits is divided by the targets of the batch, or by the hits that are left."""
    mean_over: Literal["", "sentences", "words"] = ""
    """Losses are means over sentences or, as published, over words; empty takes that of the settings."""
    npo_beta: Above = 0.1
    """With npo: its beta."""
    r_thres: str = "1%"
    """Against frequent: a reply with a larger share of the model's replies is discouraged."""
    window: Steps = 200
    """Against frequent: earlier mini-batches over which that share is taken, beside the one at hand."""
    eos_scale: Share = 0.1
    """Against frequent: how much of the negative gradient reaches the end-of-turn token."""
    always_positive: bool = False
    """Against frequent: a positive update at every step, not only beside a negative one."""
    steps_per_iteration: Count = 100
    """Against frequent: mini-batches between two measurements; 0 takes all pairs, as in the paper."""
    gan_lr: Weight = 0.001
    """With gan: learning rate of the generator (alpha_G); the paper tries 0.01, 0.001 and 0.0001. 0: positive
    updates alone, as a control."""
    gan_filters: Width = 300
    """With gan: filters of each width in the discriminator."""
    gan_hidden: Width = 2000
    """With gan: size of the discriminator's highway layers."""
    avoid: Literal["", "paper", "frequent", "none"] = ""
    """Words without negative updates: the paper's seven, the seven most frequent of the list, or none; empty
    takes that of the settings."""
    iterations: Steps = 20
    """Passes over the training targets, each with fresh searches; against frequent, measurements."""
    batch: Annotated[int, Range(0, 65_536)] = 0
    """Targets searched and trained on together, or pairs of a mini-batch; 0 takes the paper's 100 or 64."""
    rounds: Annotated[int, Range(0, 100_000)] = 0
    """The most negative updates on one batch of hits; 0 takes the number of the settings."""
    triggers: Literal["", "first", "best"] = ""
    """What the search in training brings: the first trigger that hits, or as published the best that it can
    find, which is harder to train away; empty takes that of the settings."""
    repairs: str = ""
    """Positive updates after those on a batch of hits, at most as many; empty takes those of the settings."""
    max_ppl_increase: str = "5%"
    """How much perplexity may rise: the iteration with fewest hits (lowest max-ratio) within it is kept."""
    keep: Literal["best", "last"] = "best"
    """Which iteration is kept: the best within the bound, or as in the papers the last, whatever it costs."""
    audits: bool = True
    """Audit the training and the held-out list before and after; off, the same command adds them later."""
    measure: Annotated[int, Range(1, 10**9)] = 1000
    """Pairs, not trained on, that measure perplexity and the rest of the cost."""
    rank: Rank = 16
    """Of a Hugging Face model: the rank of its LoRA adapter."""
    alpha: Above = 32.0
    """Of a Hugging Face model: the adapter's product is scaled by alpha / rank."""
    lora_layers: str = "all"
    """Of a Hugging Face model: the linear layers that are adapted, all of attention and MLP, or the ends of
    their names by commas: q_proj,v_proj."""
    merge: bool = False
    """Of a Hugging Face model: write a whole model instead of an adapter."""
    micro_tokens: Count = 0
    """Of a Hugging Face model: tokens that are trained on at once; fewer take less memory. 0: 2,048, on a GPU
    16,384."""
    gradient_checkpointing: bool = False
    """Of a Hugging Face model: compute activations twice instead of keeping them; takes less memory."""
    scorer: str = ""
    """Of a Hugging Face model, with --hit toxic-T: what rates its replies; the embedded scorer if empty."""
    template: Literal["auto", "chat", "plain", "text"] = "auto"
    """Of a Hugging Face model: a dialogue becomes a prompt by its chat template (chat), as plain turns, as
    one running text, or (auto) by the template where it has one."""
    system: str = ""
    """Of a Hugging Face model: the system prompt."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Numbers of a Hugging Face model; auto: bfloat16 on a GPU that has it, else float32."""
    max_reply: ReplyTokens = 40
    """The most new tokens of a Hugging Face model's reply."""
    search_sweeps: Tries = 5
    """The most sweeps of a search inside training (one restart, left at the first hit)."""
    length: Words = 8
    """Words of a trigger, in training and in the audits."""
    top: Top = 25
    """Candidates at each position (G), in training and in the audits."""
    sweeps: Tries = 6
    """The most sweeps in the audits before and after (T)."""
    restarts: Tries = 2
    """Restarts in the audits before and after (R)."""
    seed: Seed = 1
    """Fixes the lists, the order and every start."""
    max_time: Duration = ""
    """Stop training in time for the last audits to end within this: 90s, 10m, 2h."""
    checkpoint_s: Seconds = 60.0
    """Seconds between checkpoints."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class RateSpec:
    """What `backtalk rate` does."""

    inputs: str = ""
    """What both reply to: a file, one a line or JSONL; held-out inputs of the first's corpus if empty."""
    pairs: Count = 0
    """Inputs at most, drawn by the seed; 0 takes 100 of a corpus and all of a file."""
    identical_ties: bool = True
    """Count identical replies as ties without asking."""
    seed: Seed = 1
    """Fixes which inputs are drawn and which reply stands first; kept in the key."""
    rater: str = "rater"
    """Who answers; each rater goes through all pairs."""
    out: str = ""
    """The ratings folder [ratings/RUN-RUN]; the same command again goes on where the rater stopped."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class ScorerSpec:
    """What `backtalk train-scorer` does."""

    family: Literal["words", "letters"] = "words"
    """words: a network, on Jigsaw and ParaDetox; letters: a linear model, on Davidson and Civil Comments."""
    data: str = ""
    """The folder of labelled text; recipes/toxicity.yaml says what should be in it."""
    out: str = "scorer"
    """The folder to write."""
    name: str = ""
    """What the card calls the scorer; the folder's name if empty."""
    vocabulary: Annotated[int, Range(1, 1_000_000)] = 24000
    """With words: words that have a vector."""
    vector: Annotated[int, Range(1, 1024)] = 96
    """With words: numbers of a vector."""
    buckets: Annotated[int, Range(1, 1 << 18)] = 12288
    """With words: rows for pieces of words. A linear model has 2^20 for runs of letters."""
    hidden: Width = 128
    """With words: width of the network."""
    dropout: Dropped = 0.3
    """With words: dropout of the network."""
    contrast: Annotated[int, Range(0, 1_000_000)] = 30000
    """With words: sentences made from frames, half of them abuse, half the same words where nobody is."""
    paradetox: Count = 12000
    """With words: rows of ParaDetox."""
    rude_chat: Count = 8000
    """With words: further messages of chitchat that hold a rude word, taken as harmless."""
    wide: Weight = 1.0
    """With words: the share of a bag of words' weights that is added to the network; 0 does without."""
    chat: Count = 15000
    """Messages taken as harmless: of chitchat with words (needs backtalk[data]), of Ubuntu's channel with
    letters; 0 does without."""
    epochs: Steps = 3
    """Passes over the training texts."""
    lr: Weight = 0.003
    """The highest learning rate."""
    seed: Seed = 1
    """Fixes the splits, the frames' filling, the starting weights and the order."""


@dataclass(frozen=True)
class StudySpec:
    """What `backtalk study` does."""

    data: str = ""
    """The folder of data, or `embedded` for what ships with backtalk."""
    out: str = "study"
    """The study's folder; the same command again goes on where it stopped."""
    parts: str = ""
    """Only these parts: names or globs by commas. What they need is taken as it is, or run where there is
    none; `page` builds the page alone."""
    size: Literal["paper", "small", "mini"] = "paper"
    """The paper's sizes, those of a small machine, or a miniature that shows the machinery."""
    restarts: Annotated[int, Range(0, 1000)] = 0
    """Searches from different starts for each target; 0 takes the size's own number."""
    limit: Count = 0
    """Targets of each list at most; 0 takes the size's own numbers."""
    model: str = ""
    """With ast, lora and transformers: the Hugging Face model, hf/NAME-OR-FOLDER; smollm2 if empty."""
    baseline_from: str = ""
    """With negative: the folder of another study, whose models of the same settings are copied."""
    records: str = ""
    """The .json beside an earlier page of the study: parts that have no result yet take theirs from it. Where
    a part that is run needs the model or the run behind such a result, that is made again."""
    page: str = ""
    """The Markdown file to write; STUDY.md in the study's folder if empty, no page for `none`."""
    jobs: Annotated[int, Range(1, 64)] = 1
    """Parts that run beside each other, each in a process of its own with its share of a GPU's memory."""
    max_time: Duration = ""
    """Begin no part after this much time: 90s, 10m, 2h."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


Spec = TypeVar("Spec")


def build_spec(kind: type[Spec], values: Mapping[str, Any], source: str) -> Spec:
    """A spec from plain values; `source` names where they came from, for the error; empty: flags."""
    return kind(**check_values(kind, values, source))


def check_values(kind: type[Any], values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values by the names of a spec's fields, each of its type."""
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)]
    checked: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in names:
            raise InputError(f"{source}: {unknown('key', str(key), names)}")
        flag = name.replace("_", "-")
        checked[name] = coerce(value, hints[name], f"{source}: {flag}" if source else f"--{flag}")
    return checked


LARGEST_SPEC = 1 << 20
"""Bytes of a spec file: the longest that ships has a thousand."""
DEEPEST = 3
"""Lists within lists of a spec file, which has use for none."""


def read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_SPEC + 1)
        if len(data) > LARGEST_SPEC:
            raise InputError(f"{path} is too large to be a spec; it should hold `key: value` lines")
        text = data.decode("utf-8")
        _refuse_tangles(text, path)
        value = yaml.safe_load(text)
        repr(value)  # a ValueError where a number has more digits than Python writes
    except FileNotFoundError:
        raise InputError(f"no spec file at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read as a spec: {error}") from None
    except (yaml.YAMLError, ValueError) as error:  # a ValueError is a date that does not exist
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} should hold `key: value` lines, one a flag")
    return value


def _refuse_tangles(text: str, path: Path) -> None:
    """What is valid YAML but no list of flags: deep nesting and aliases, whose value may be many times the
    file, and a key that is given twice. Events are read one by one, so nothing is built of them yet."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST or isinstance(event, yaml.AliasEvent):
            raise InputError(f"{path}: a spec has no lists in lists and no aliases; write `key: value` lines")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    seen: set[str] = set()
    for key, _ in root.value if isinstance(root, yaml.MappingNode) else ():
        name = str(key.value).replace("-", "_")
        if name in seen:
            line = key.start_mark.line + 1
            raise InputError(f"{path}, line {line}: the key {shown(key.value)} is given twice; leave one out")
        seen.add(name)


OLDER_DEFAULTS: dict[str, Any] = {"least_gap": 0.0}
"""Where they were others: what specs of then hold, or stood for where they do not name it."""
BEFORE: dict[str, Any] = {"all_words": False, "train_from": "", **OLDER_DEFAULTS}
"""What every run had before these could be chosen."""


def but_before(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values without those that are as they were `BEFORE`: what was begun then is the same, and goes on."""
    return {key: value for key, value in values.items() if key not in BEFORE or value != BEFORE[key]}


def refuse_set(spec: Any, names: Collection[str], why: str) -> None:
    """Flags that would do nothing are refused: who sets one expects something of it."""
    for field in fields(spec):
        usual = field.default, OLDER_DEFAULTS.get(field.name, field.default)
        if field.name in names and getattr(spec, field.name) not in usual:
            raise InputError(f"--{field.name.replace('_', '-')} {why}")


def model_options(spec: Any) -> ModelOptions:
    """Those fields of a spec that say how a Hugging Face model is read; the defaults of the others."""
    names = [field.name for field in fields(ModelOptions) if hasattr(spec, field.name)]
    return ModelOptions(**{name: getattr(spec, name) for name in names})


def spec_values(spec: Any) -> dict[str, Any]:
    return asdict(spec)


def add_flags(parser: argparse.ArgumentParser, kind: type[Any], without: Collection[str] = ()) -> None:
    """One flag a field. Flags that were not given are left out, so that a YAML file can fill them."""
    docs = field_help(kind)
    hints = get_type_hints(kind)
    for field in fields(kind):
        if field.name in without:
            continue
        flag = "--" + field.name.replace("_", "-")
        default = "" if field.default in (MISSING, "") else f" [{_show(field.default)}]"
        text, default = (part.replace("%", "%%") for part in (docs.get(field.name, ""), default))
        if hints[field.name] is bool:
            parser.add_argument(
                flag,
                action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS,
                help=text + default,
            )
            continue
        choices = get_args(hints[field.name]) if get_origin(hints[field.name]) is Literal else ()
        metavar = "|".join(filter(None, choices)) if choices else hints[field.name].__name__.upper()
        parser.add_argument(flag, metavar=metavar, default=argparse.SUPPRESS, help=text + default)


def field_help(kind: type[Any]) -> dict[str, str]:
    """The sentence under each field of a dataclass, read from its source."""
    found: dict[str, str] = {}
    for node, following in pairwise(_class_bodies(kind.__module__)[kind.__name__]):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            found[node.target.id] = " ".join(str(following.value.value).split())
    return found


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    """What stands in each class of a module; read once, since every command asks for many classes."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


def _show(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def coerce(value: Any, hint: Any, where: str) -> Any:
    """The value as its field's type, within the bounds that the type names."""
    if get_origin(hint) is Annotated:
        kind, *checks = get_args(hint)
        value = coerce(value, kind, where)
        for check in checks:
            check(value, where)
        return value
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise InputError(f"{where}: {unknown('value', str(value), filter(None, get_args(hint)))}")
        return value
    if hint is bool:
        if isinstance(value, bool):
            return value
        raise InputError(f"{where} should be true or false, not {shown(value)}")
    if hint is str:
        if value is None or isinstance(value, bool | list | dict):
            raise InputError(f"{where} should be text, not {shown(value)}; put it in quotes")
        text = check_text(str(value), where)
        return value if isinstance(value, Name) else text
    if isinstance(value, bool):
        raise InputError(f"{where} should be a number, not {shown(value)}")
    try:
        number = hint(value)
        if isinstance(value, float) and number != value and value == value:
            raise ValueError  # int() would cut 2.5 down to 2
    except (TypeError, ValueError, OverflowError):
        what = "a whole number" if hint is int else "a number"
        raise InputError(f"{where} should be {what}, not {shown(value)}") from None
    return number
