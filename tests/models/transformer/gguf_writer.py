"""Writes a tiny Llama as a GGUF file, as llama.cpp stores it."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from backtalk.models.transformer.loading import load
from backtalk.specs import ModelOptions


def write_gguf(source: Path, path: Path, tied: bool = False) -> None:
    """The Llama of a folder as llama.cpp stores it, in float32."""
    model = load(str(source), "cpu", ModelOptions(dtype="float32"))
    config, tokenizer = model.network.config, model.tokenizer
    core = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    out: Any = import_module("gguf").GGUFWriter(path, "llama")
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_vocab_size(config.vocab_size)
    out.add_tokenizer_model("gpt2")
    words = sorted(core["vocab"], key=core["vocab"].get)
    special = {one.content for one in tokenizer.added_tokens_decoder.values()}
    out.add_token_list(words)
    out.add_token_types([3 if word in special else 1 for word in words])
    out.add_token_merges([" ".join(pair) for pair in core["merges"]])
    out.add_bos_token_id(tokenizer.bos_token_id)
    out.add_eos_token_id(tokenizer.eos_token_id)
    out.add_pad_token_id(tokenizer.pad_token_id)
    out.add_chat_template(tokenizer.chat_template)
    for name, value in model.network.state_dict().items():
        if not (tied and name == "lm_head.weight"):
            out.add_tensor(gguf_name(name), interleaved(name, value, config).numpy())
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def gguf_name(name: str) -> str:
    parts = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "model.layers.": "blk.", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    for old in sorted(parts, key=len, reverse=True):
        name = name.replace(old, parts[old])
    return name


def interleaved(name: str, value: Tensor, config: Any) -> Tensor:
    """llama.cpp pairs neighbouring rows of queries and keys for the rotation, transformers the two halves."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if part in name:
            split = value.reshape(count, 2, value.shape[0] // count // 2, value.shape[1])
            return split.swapaxes(1, 2).reshape(value.shape).contiguous()
    return value.contiguous()
