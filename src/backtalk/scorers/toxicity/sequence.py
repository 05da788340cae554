"""Any Hugging Face sequence classifier as a scorer: `hf/NAME-OR-PATH`, `hf/NAME#LABEL`.

The label is the one the user names, else the one called toxic or toxicity, else the second of two.
Weights are read as safetensors only, and no code of the model's own is run.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from backtalk.errors import InputError, short_reason, unknown
from backtalk.models.device import pick_device
from backtalk.models.folder import refuse_broken
from backtalk.models.transformer.library import load_transformers
from backtalk.models.transformer.loading import refuse_incomplete
from backtalk.models.transformer.source import find_source
from backtalk.scorers.toxicity.network import batches_by_length, in_chunks
from backtalk.types import Name, origin_of

SLOTS = {"cpu": 4096, "cuda": 1 << 16}  # tokens of a batch, padding included
CHUNK = 4096  # texts that are sorted by length together
LONGEST = 512  # tokens of a text that are read, unless the model or its tokenizer has a lower limit


class SequenceScorer:
    def __init__(self, name: str, network: Any, tokenizer: Any, label: int, device: torch.device) -> None:
        self.name, self.tokenizer, self.label, self.device = name, tokenizer, label, device
        self.network = network.to(device).eval().requires_grad_(False)
        config = network.config
        # Labels are independent by the rule of transformers' own pipeline.
        single = config.problem_type != "single_label_classification" and config.num_labels == 1
        self.sigmoid = single or config.problem_type == "multi_label_classification"
        # RoBERTa and its kin count positions from two up, so two of theirs can't be used.
        positions = getattr(config, "max_position_embeddings", None) or LONGEST + 2
        self.longest = int(min(tokenizer.model_max_length, max(positions - 2, 8), LONGEST))
        self.fingerprint = network_digest(network, str(label))

    def score(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts,): the label's probability; long texts are cut."""
        return in_chunks(self._score_chunk, texts, CHUNK)

    @torch.no_grad()
    def _score_chunk(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = self.tokenizer(list(texts), truncation=True, max_length=self.longest)
        order, batches = batches_by_length([len(ids) for ids in rows["input_ids"]], SLOTS[self.device.type])
        parts = []
        for batch in batches:
            own = {key: [values[row] for row in batch] for key, values in rows.items()}
            read = self.tokenizer.pad(own, return_tensors="pt").to(self.device)
            logits = self.network(**read).logits.float()  # (batch, labels)
            parts.append((logits.sigmoid() if self.sigmoid else logits.softmax(1))[:, self.label])
        scores = np.empty(len(texts), dtype=np.float32)
        scores[order] = torch.cat(parts).cpu().numpy()
        return scores


def load(name: str, device: str = "auto") -> SequenceScorer:
    """`name` is a hub name or a folder, with #LABEL to choose the label."""
    where, asked = (name, "") if Path(name).is_dir() else name.partition("#")[::2]
    network, tokenizer = load_network(name, where, "AutoModelForSequenceClassification", "classifier")
    label = choose_label(network.config.id2label, asked, where)
    return SequenceScorer(f"hf/{name}", network, tokenizer, label, pick_device(device))


def load_network(name: str, where: str, kind: str, what: str) -> tuple[Any, Any]:
    """A Hugging Face network and its tokenizer. `where` is the name without a label."""
    library = load_transformers("judge")
    if not where.strip():
        raise InputError(
            f"name the {what}: NAME-OR-FOLDER, with #LABEL where a classifier has several labels"
        )
    source = find_source(Name(where, origin_of(name)))
    if source.adapter is not None:
        raise InputError(f"{where} is an adapter; merge it into its base model to use it as a {what}")
    folder, options = str(source.folder), {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = library.AutoTokenizer.from_pretrained(folder, **options)
        network, loaded = getattr(library, kind).from_pretrained(
            folder, use_safetensors=True, output_loading_info=True, **options
        )
        network = network.float()
        refuse_incomplete(network, loaded["missing_keys"])
        refuse_broken(network.named_parameters())
    except (OSError, ValueError, TypeError) as error:
        why = f"{where} can't be loaded as a {what} with safetensors weights"
        raise InputError(f"{why}: {short_reason(error)}") from None
    return network, tokenizer


def network_digest(network: Any, more: str) -> str:
    """The sha256 of a network's weights and of whatever else decides its scores."""
    digest = hashlib.sha256(more.encode())
    for key, value in sorted(network.state_dict().items()):
        digest.update(key.encode())
        digest.update(value.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()


def choose_label(labels: Mapping[int, str], asked: str, where: str) -> int:
    """The index of the label that counts."""
    places = {str(text).casefold(): int(place) for place, text in labels.items()}
    if asked and asked.casefold() not in places:
        raise unknown(f"label of {where}", asked, map(str, labels.values()))
    for wanted in (asked.casefold() or "toxicity", "toxicity", "toxic"):
        if wanted in places:
            return places[wanted]
    if len(labels) <= 2:
        return len(labels) - 1
    known = ", ".join(map(str, labels.values()))
    raise InputError(f"{where} has no label called toxic; say which counts with hf/{where}#LABEL ({known})")
