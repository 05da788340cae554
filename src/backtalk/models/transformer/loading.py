"""Loads Hugging Face models: `hf/NAME-OR-FOLDER`, `gguf/FILE`, `smollm2`, or a network in memory."""

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from backtalk.errors import InputError, short_reason
from backtalk.models.device import is_out_of_memory, pick_device
from backtalk.models.folder import refuse_broken, refuse_other_shapes
from backtalk.models.transformer.library import load_transformers
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.prompts import make_prompts
from backtalk.models.transformer.source import ADAPTER, ADAPTER_WEIGHTS, Source, find_source, gguf_source
from backtalk.specs import ModelOptions
from backtalk.store.typed import read_json

SHAPING = {  # keys of an adapter's config that define its computation; the others are about its training
    "r", "lora_alpha", "target_modules", "exclude_modules", "fan_in_fan_out", "bias", "modules_to_save",
    "use_rslora", "use_dora", "lora_bias", "layers_to_transform", "layers_pattern",
    "rank_pattern", "alpha_pattern", "target_parameters", "trainable_token_indices",
}  # fmt: skip
UNLIMITED = 1 << 20  # tokenizers without a limit have a larger number
MEMORY = "memory:"  # prefix of the name of a model that exists only in the caller's memory


def load(
    rest: str, device: str = "auto", options: ModelOptions | None = None, trusted: Collection[str] = ()
) -> TransformerModel:
    """Code that comes with a model runs only if the model's name is among `trusted`."""
    name = f"hf/{rest}"
    source = find_source(rest, name in trusted)
    # An adapter uses the files of its base, whose code may be trusted.
    others = [one.removeprefix("hf/") for one in trusted if one.startswith("hf/")]
    own_code = name in trusted or any(find_source(one).folder == source.folder for one in others)
    return _load(name, source, device, options, own_code)


def load_gguf(
    rest: str, device: str = "auto", options: ModelOptions | None = None, trusted: Collection[str] = ()
) -> TransformerModel:
    """Of `gguf/FILE`, or of `smollm2`."""
    name = rest if rest == "smollm2" else f"gguf/{rest}"
    return _load(name, gguf_source(name), device, options, own_code=False)


def _load(
    name: str, source: Source, device: str, options: ModelOptions | None, own_code: bool
) -> TransformerModel:
    where, options = pick_device(device), options or ModelOptions()
    if options.max_reply < 1:
        raise InputError("--max-reply should be at least 1")
    common = {"trust_remote_code": own_code, "local_files_only": True}
    with _in_one_sentence(name):
        library, folder, dtype = load_transformers(), str(source.folder), pick_dtype(options.dtype, where)
        config = library.AutoConfig.from_pretrained(folder, **common)
        how = {"use_safetensors": True, "output_loading_info": True, "dtype": dtype, **common}
        network, read = _class_for(library, config, folder).from_pretrained(folder, config=config, **how)
        refuse_incomplete(network, read["missing_keys"])
        _refuse_odd_tokens(network)
        if source.adapter is not None:
            network = _merge(network, source.adapter)
        refuse_broken(network.named_parameters())
        network = network.to(where).eval().requires_grad_(False)
        network.name_or_path = source.base  # peft writes it into an adapter as its base
        tokenizer = library.AutoTokenizer.from_pretrained(folder, **common)
        return _model(name, network, tokenizer, source.fingerprint(options, network.dtype), options)


def wrap(network: Any, tokenizer: Any, options: ModelOptions | None = None) -> TransformerModel:
    """A network that is in memory, with its tokenizer. Nothing is copied."""
    options = options or ModelOptions()
    name = f"{MEMORY}{getattr(network, 'name_or_path', '') or type(network).__name__}"
    try:
        refuse_broken(network.named_parameters())
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None
    found = hashlib.sha256(json.dumps([asdict(options), tokenizer.get_vocab()], sort_keys=True).encode())
    found.update(str(getattr(tokenizer, "chat_template", "")).encode())
    for key, value in sorted(network.state_dict().items()):
        found.update(f"{key} {tuple(value.shape)} {value.dtype}".encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return _model(name, network, tokenizer, found.hexdigest(), options)


def _model(
    name: str, network: Any, tokenizer: Any, fingerprint: str, options: ModelOptions
) -> TransformerModel:
    prompts = make_prompts(name, network, tokenizer, options)
    most: Any = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    limits = [limit or 0 for limit in (most, tokenizer.model_max_length)]
    context = min((int(limit) for limit in limits if 0 < limit <= UNLIMITED), default=None)
    return TransformerModel(name, network, tokenizer, prompts, fingerprint, options, context)


@contextmanager
def frozen(network: Any) -> Iterator[None]:
    """Inside, the network is in evaluation mode and its weights need no gradients."""
    was, wanted = network.training, [p for p in network.parameters() if p.requires_grad]
    network.eval().requires_grad_(False)
    try:
        yield
    finally:
        network.train(was)
        for parameter in wanted:
            parameter.requires_grad_(True)


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        # Older GPUs only emulate bfloat16.
        half = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
        return torch.bfloat16 if half else torch.float32
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def refuse_incomplete(network: Any, missing: Collection[str]) -> None:
    """ValueError if weights are not in the files: the library fills them with random numbers."""
    if odd := sorted(set(missing) & dict(network.named_parameters()).keys()):
        raise ValueError(f"the weights are incomplete: {odd[0]} is missing")


def _refuse_odd_tokens(network: Any) -> None:
    """ValueError if the settings name tokens that are no ids: generation would fail."""
    for settings in (network.generation_config, network.config):
        for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
            value = getattr(settings, name, None)
            for one in value if isinstance(value, list) else [value]:
                if one is not None and (type(one) is not int or abs(one) >= 1 << 31):
                    raise ValueError(f"its settings have {name} {one!r}, which is no token")


def _merge(network: Any, adapter: Path) -> Any:
    """The network with a LoRA adapter in its weights.

    peft's own loader opens pickle if it finds no safetensors, and imports a module that the adapter's config
    names. So only the keys that shape the adapter are used, and the tensors are read here.
    """
    try:
        from peft import LoraConfig, get_peft_model
        from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
    except ImportError:
        raise InputError(f"the adapter {adapter} needs peft; pip install 'backtalk[lora]'") from None
    said = read_json(adapter / ADAPTER)
    if said.get("peft_type") != "LORA":
        raise InputError(f"{adapter} is not a LoRA adapter ({said.get('peft_type')}); merge it into its base")
    config: Any = LoraConfig(**{key: value for key, value in said.items() if key in SHAPING})
    model: Any = get_peft_model(network, config)
    tensors = load_file(adapter / ADAPTER_WEIGHTS)
    refuse_other_shapes(tensors, get_peft_model_state_dict(model, save_embedding_layers=False))
    set_peft_model_state_dict(model, tensors)
    return model.merge_and_unload()


def _class_for(library: Any, config: Any, where: str) -> Any:
    """The library's class of a model that replies; one that only reads or classifies is refused."""
    named = [str(name) for name in config.architectures or []]
    speaking = ("CausalLM", "LMHead", "ForConditionalGeneration")
    replies = not named or any(part in name for name in named for part in speaking)
    kind = library.AutoModelForSeq2SeqLM if config.is_encoder_decoder else library.AutoModelForCausalLM
    own_code = "AutoModelForCausalLM" in getattr(config, "auto_map", {})
    if not replies or not (own_code or type(config) in kind._model_mapping):
        what = next(iter(named), config.model_type)
        raise InputError(f"{where} is no model that replies ({what}); name a causal or encoder-decoder one")
    return kind


@contextmanager
def _in_one_sentence(name: str) -> Iterator[None]:
    """Turns the libraries' errors about a model's files into an InputError."""
    try:
        yield
    except InputError:
        raise
    except ImportError as error:
        raise InputError(f"{name} needs a package that is not installed ({short_reason(error)})") from None
    except Exception as error:
        if is_out_of_memory(error):
            raise InputError(f"{name} does not fit the memory; try --dtype bfloat16") from None
        if "trust_remote_code" in str(error):
            mend = "read it, and run it with --trust-remote-code beside the typed name of the model"
            raise InputError(f"{name} comes with code of its own; {mend}") from None
        raise InputError(f"{name} can't be loaded: {short_reason(error)}") from None
