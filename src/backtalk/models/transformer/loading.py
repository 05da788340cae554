"""`hf/NAME-OR-FOLDER` loaded: the right class, numbers and device, an adapter merged in, one sentence for
whatever is wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from backtalk.errors import InputError
from backtalk.models.device import pick_device
from backtalk.models.folder import refuse_broken, refuse_other_shapes
from backtalk.models.gpu.memory import is_out_of_memory
from backtalk.models.transformer.chat_prompts import ChatPrompts
from backtalk.models.transformer.encoder_prompts import EncoderPrompts
from backtalk.models.transformer.fingerprint import fingerprint
from backtalk.models.transformer.memory import text_config
from backtalk.models.transformer.model import Prompts, TransformerModel
from backtalk.models.transformer.plain_prompts import TurnPrompts
from backtalk.models.transformer.running_prompts import RunningPrompts
from backtalk.models.transformer.source import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    Source,
    find_source,
    needs_extra,
)
from backtalk.specs.model import ModelOptions
from backtalk.store.typed import read_json

SHAPING = {
    *("r", "lora_alpha", "target_modules", "exclude_modules", "fan_in_fan_out", "bias", "modules_to_save"),
    *("use_rslora", "use_dora", "lora_bias", "layers_to_transform", "layers_pattern"),
    *("rank_pattern", "alpha_pattern", "target_parameters", "trainable_token_indices"),
}
"""Keys of an adapter's config that say what it computes; the others are about its training."""
UNLIMITED = 1 << 20
"""A context of more tokens than this is a tokenizer's way to say that it knows of no limit."""


def load(
    rest: str, device: str = "auto", options: ModelOptions | None = None, trusted: Collection[str] = ()
) -> TransformerModel:
    name, where = f"hf/{rest}", pick_device(device)
    source = find_source(rest, name in trusted)
    own_code = name in trusted or any(_is_at(one, source) for one in trusted)
    return load_source(name, source, where, options or ModelOptions(), own_code)


def _is_at(trusted: str, source: Source) -> bool:
    """Whether the code at `source` is that of the trusted model: an adapter stands on its base's files."""
    return trusted.startswith("hf/") and find_source(trusted.removeprefix("hf/")).folder == source.folder


def load_source(
    name: str, source: Source, device: torch.device, options: ModelOptions, own_code: bool = False
) -> TransformerModel:
    """The model whose files lie at `source`; `own_code` says that the code there may run."""
    if options.max_reply < 1:
        raise InputError("--max-reply should be at least 1")
    with _in_one_sentence(name):
        network, tokenizer = _open(source, device, options, own_code)
        prompts = make_prompts(name, network, tokenizer, options)
    network.name_or_path = source.base  # what peft writes into an adapter as its base
    return TransformerModel(
        name=name,
        network=network,
        tokenizer=tokenizer,
        prompts=prompts,
        fingerprint=fingerprint(source, options, network.dtype),
        options=options,
        context=context_of(network, tokenizer),
    )


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    # Older ones only emulate it.
    half = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.bfloat16 if half else torch.float32


def _open(source: Source, device: torch.device, options: ModelOptions, own_code: bool) -> tuple[Any, Any]:
    try:
        from transformers.utils import logging

        from transformers import AutoConfig, AutoTokenizer
    except ImportError as error:
        raise needs_extra(error) from None
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # it would draw over ours
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # what matters is checked here
    where = str(source.folder)
    common = {"trust_remote_code": own_code, "local_files_only": True}
    config: Any = AutoConfig.from_pretrained(where, **common)
    network, read = _class_for(config, where).from_pretrained(
        where,
        config=config,
        use_safetensors=True,
        output_loading_info=True,
        **{"dtype" if release() >= (4, 56) else "torch_dtype": pick_dtype(options.dtype, device)},
        **common,
    )
    refuse_incomplete(network, read["missing_keys"])
    _refuse_odd_tokens(network)
    if source.adapter is not None:
        network = _merge(network, source.adapter)
    refuse_broken(network.named_parameters())
    network = network.to(device).eval().requires_grad_(False)
    tokenizer: Any = AutoTokenizer.from_pretrained(where, **common)
    return network, tokenizer


def release() -> tuple[int, int]:
    """Major and minor of the transformers that is installed."""
    try:
        major, minor, *_ = version("transformers").split(".")
    except PackageNotFoundError:
        raise needs_extra(ImportError("it is not installed")) from None
    return int(major), int(minor)


def refuse_incomplete(network: Any, missing: Collection[str]) -> None:
    """ValueError where weights are not in the files: the library fills them with random numbers."""
    if odd := sorted(set(missing) & dict(network.named_parameters()).keys()):
        raise ValueError(f"the weights are incomplete: {odd[0]} is missing")


def _refuse_odd_tokens(network: Any) -> None:
    """ValueError where the settings name tokens that are no numbers: generation would fail over them."""
    for settings in (network.generation_config, network.config):
        for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
            value = getattr(settings, name, None)
            for one in value if isinstance(value, list) else [value]:
                if one is not None and (type(one) is not int or abs(one) >= 1 << 31):
                    raise ValueError(f"its settings have {name} {one!r}, which is no token")


def _merge(network: Any, adapter: Path) -> Any:
    """The network with a LoRA adapter in its weights.

    peft's own loader opens pickle where it finds no safetensors, and imports a module that the adapter's
    config names. So only what shapes the adapter is taken from the config, and the tensors are read here.
    """
    try:
        from peft import LoraConfig, get_peft_model
        from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
    except ImportError:
        raise InputError(f"the adapter {adapter} needs peft; pip install 'backtalk[lora]'") from None
    said = read_json(adapter / ADAPTER)
    if said.get("peft_type") != "LORA":
        raise InputError(f"{adapter} is not a LoRA adapter ({said.get('peft_type')}); merge it into its base")
    known = {field.name for field in fields(LoraConfig)} & SHAPING
    config: Any = LoraConfig(**{key: value for key, value in said.items() if key in known})
    model: Any = get_peft_model(network, config)
    tensors = load_file(adapter / ADAPTER_WEIGHTS)
    own = get_peft_model_state_dict(model, save_embedding_layers=False)
    refuse_other_shapes(tensors, own)
    set_peft_model_state_dict(model, tensors)
    return model.merge_and_unload()


def _class_for(config: Any, where: str) -> Any:
    """The library's class of a model that replies; one that only reads or classifies is refused."""
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    named = [str(name) for name in config.architectures or []]
    replies = not named or any(
        part in name for name in named for part in ("CausalLM", "LMHead", "ForConditionalGeneration")
    )
    kind: Any = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    own_code = "AutoModelForCausalLM" in getattr(config, "auto_map", {})
    if not replies or not (own_code or type(config) in kind._model_mapping):
        what = named[0] if named else config.model_type
        raise InputError(f"{where} is no model that replies ({what}); name a causal or encoder-decoder one")
    return kind


def make_prompts(name: str, network: Any, tokenizer: Any, options: ModelOptions) -> Prompts:
    """How the model reads a dialogue with these options."""
    has_template = bool(getattr(tokenizer, "chat_template", None))
    if options.template == "chat" and not has_template:
        raise InputError(f"{name} has no chat template; use --template plain")
    stops = _stops(network)
    chat = None
    if has_template and options.template in ("auto", "chat"):
        chat = ChatPrompts(tokenizer, options.system, stops)
    config = network.config
    if config.is_encoder_decoder:
        if options.template == "text":
            raise InputError(
                f"{name} reads a dialogue with its encoder; --template text is for causal models"
            )
        settings = network.generation_config
        starts = (settings.decoder_start_token_id, config.decoder_start_token_id, settings.bos_token_id)
        start = next((token for token in starts if token is not None), None)
        if start is None:
            raise InputError(f"the config of {name} has no decoder_start_token_id; add it")
        blenderbot = str(config.model_type).startswith("blenderbot")
        return EncoderPrompts(tokenizer, options.system, stops, int(start), chat, blenderbot)
    if options.template == "text":
        return RunningPrompts(tokenizer, options.system, stops)
    return chat or TurnPrompts(tokenizer, options.system, stops)


def _stops(network: Any) -> set[int]:
    """Every token at which the model's own settings end a reply."""
    found: list[Any] = []
    for settings in (network.generation_config, network.config):
        ends = getattr(settings, "eos_token_id", None)
        found += ends if isinstance(ends, list) else [ends]
    return {int(token) for token in found if token is not None}


def context_of(network: Any, tokenizer: Any) -> int | None:
    """The most tokens that fit."""
    config = text_config(network.config)
    limits = [getattr(config, "max_position_embeddings", None), tokenizer.model_max_length]
    known = [int(limit) for limit in limits if limit is not None and 0 < limit <= UNLIMITED]
    return min(known, default=None)


@contextmanager
def _in_one_sentence(name: str) -> Iterator[None]:
    """What the libraries raise about a model's files, as a sentence."""
    try:
        yield
    except InputError:
        raise
    except ImportError as error:
        raise InputError(f"{name} needs a package that is not installed ({first_line(error)})") from None
    except Exception as error:
        if is_out_of_memory(error):
            raise InputError(
                f"{name} does not fit the memory; use a smaller model or --dtype bfloat16"
            ) from None
        if "trust_remote_code" in str(error):
            raise InputError(
                f"{name} comes with code of its own; read it, and run it with --trust-remote-code beside the "
                "typed name of the model"
            ) from None
        raise InputError(f"{name} can't be loaded: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """What an error says, short enough for a sentence."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:200] + " ..."
