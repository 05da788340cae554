"""The hardened Hugging Face model: an adapter folder as peft writes it, or with --merge a whole model, and a
card that names its parent, findings and training. `hf/FOLDER` loads either.

The folder is written under another name and moved in place, so that it is there whole or not at all.
"""

from __future__ import annotations

import errno
import gc
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors import SafetensorError

from backtalk import __version__
from backtalk.hardening.lora_plan import LoraPlan
from backtalk.hardening.selection import Selection
from backtalk.models.device import pick_device
from backtalk.models.folder import write_card
from backtalk.models.transformer.fingerprint import fingerprint
from backtalk.models.transformer.loading import pick_dtype
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.source import find_source
from backtalk.registry import load_model
from backtalk.spec import spec_values
from backtalk.specs.model import ModelOptions
from backtalk.store.faults import writing
from backtalk.store.folder import PARTIAL, sync_folder
from backtalk.training.lora import Adapter

MEND = "make room, or choose another folder; the same command goes on from there"


def write_adapter(plan: LoraPlan, adapter: Adapter, selection: Selection) -> None:
    """The network is the plan's parent's; merging changes it for good."""
    partial = plan.model_folder.with_name(plan.model_folder.name + PARTIAL)
    with writing(plan.out, MEND), _as_os_error():
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        if plan.spec.adapter.merge:
            merged = adapter.merge()
            merged.save_pretrained(str(partial), safe_serialization=True)
            plan.parent.tokenizer.save_pretrained(str(partial))
        else:
            adapter.save(partial)
        write_card(partial, card_of(plan, selection))
        partial.replace(plan.model_folder)
        sync_folder(plan.out)


@contextmanager
def _as_os_error() -> Iterator[None]:
    """A full disk, where safetensors writes."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error)) from None


def card_of(plan: LoraPlan, selection: Selection) -> dict[str, Any]:
    best = selection.best
    return {
        "name": plan.out.resolve().name,
        "kind": "merged" if plan.spec.adapter.merge else "adapter",
        "backtalk": __version__,
        "T_out": plan.thresholds.out,
        "test_perplexity": round(best.perplexity, 2),
        "parent": {"name": plan.spec.model, "fingerprint": plan.parent.fingerprint},
        "read": spec_values(plan.spec.options),
        "hardening": {
            **plan.described(),
            **selection.told(),
        },
        "finished": True,
    }


def hardened_fingerprint(plan: LoraPlan, options: ModelOptions | None = None) -> str:
    """What the hardened model is known by, from its files alone; read by the plan's options if no others."""
    options = options or plan.spec.options
    dtype = pick_dtype(options.dtype, pick_device(plan.spec.device))
    return fingerprint(find_source(str(plan.model_folder)), options, dtype)


def load_hardened(plan: LoraPlan) -> TransformerModel:
    """As anyone loads it. The parent is let go first: there may be room for one of them alone."""
    plan.parent.network = None
    plan.parent.forget_steps()
    gc.collect()  # networks hold themselves
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    model = load_model(f"hf/{plan.model_folder}", plan.spec.device, plan.spec.options, plan.trusted)
    assert isinstance(model, TransformerModel)
    return model
