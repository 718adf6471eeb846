#!/usr/bin/env python3
"""Perplexity of a Gemma 3 file by transformers, to hold `quire eval ppl` against.

    quire tokenize -m MODEL -f TEXT --ids --no-bos > IDS         # any file of numbers
    real_model.py MODEL IDS [-c WINDOW]
    quire eval ppl -m MODEL -f TEXT -c WINDOW --precise --kv f32 --no-bos

The weights are dequantized by PyPI gguf and computed with in f32. Every window of so many tokens starts afresh, without
a begin token, and all its tokens but the first are scored, as quire does.
"""

import argparse
import re
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from gguf import GGUFReader, dequantize

from freeze import layer_names

CHUNK = 128  # positions whose logits are held at once


def load(path: Path) -> transformers.PreTrainedModel:
    """The model, in f32."""
    reader = GGUFReader(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def key(name: str, otherwise=None):
        field = reader.fields.get(f"gemma3.{name}")
        return otherwise if field is None else field.contents()

    def value(name: str) -> np.ndarray:
        tensor = tensors[name]
        shape = [int(n) for n in reversed(tensor.shape)]
        return np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32).reshape(shape)

    if reader.fields["general.architecture"].contents() != "gemma3" or key("rope.scaling.type", "none") != "none":
        raise SystemExit("only Gemma 3 without scaled positions is read")
    embedding = torch.from_numpy(value("token_embd.weight"))
    config = transformers.Gemma3TextConfig(
        vocab_size=embedding.shape[0],
        hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"),
        num_hidden_layers=key("block_count"),
        num_attention_heads=key("attention.head_count"),
        num_key_value_heads=key("attention.head_count_kv"),
        head_dim=key("attention.key_length"),
        max_position_embeddings=key("context_length"),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        sliding_window=key("attention.sliding_window"),
        query_pre_attn_scalar=key("attention.key_length"),
        attn_implementation="eager",
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": key("rope.freq_base_swa", 10_000.0)},
            "full_attention": {"rope_type": "default", "rope_theta": key("rope.freq_base")},
        },
    )
    state = {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding}
    state["model.norm.weight"] = torch.from_numpy(value("output_norm.weight") - 1)
    for layer in range(config.num_hidden_layers):
        for ours, theirs in layer_names("gemma3").items():
            weight = value(f"blk.{layer}.{ours}")
            state[f"model.layers.{layer}.{theirs}"] = torch.from_numpy(weight - 1 if "norm" in ours else weight)
    model = transformers.Gemma3ForCausalLM(config).eval()
    model.load_state_dict(state)
    return model


def window_nll(model: transformers.PreTrainedModel, tokens: torch.Tensor) -> float:
    """Summed over all tokens of a window but its first."""
    hidden = model.model(tokens[None], use_cache=False).last_hidden_state[0, :-1]
    nll = 0.0
    for first in range(0, len(hidden), CHUNK):
        log_p = torch.log_softmax(model.lm_head(hidden[first : first + CHUNK]).double(), -1)
        wanted = tokens[first + 1 : first + 1 + len(log_p)]
        nll -= log_p[torch.arange(len(log_p)), wanted].sum().item()
    return nll


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="perplexity of a Gemma 3 file by transformers")
    parser.add_argument("model", type=Path)
    parser.add_argument("ids", type=Path)
    parser.add_argument("-c", dest="window", type=int, default=2048)
    options = parser.parse_args()
    ids = torch.tensor([int(n) for n in re.findall(r"\d+", options.ids.read_text())])
    model = load(options.model)
    nll, n_scored = 0.0, 0
    with torch.no_grad():
        for first in range(0, len(ids) - 1, options.window):
            window = ids[first : first + options.window]
            if len(window) > 1:
                nll += window_nll(model, window)
                n_scored += len(window) - 1
    print(f"perplexity {np.exp(nll / n_scored):.5f} of {n_scored} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
