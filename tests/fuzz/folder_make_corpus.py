#!/usr/bin/env python3
"""Writes the seeds of corpus/folder_config and corpus/shard_index."""

import json
import pathlib

CORPUS = pathlib.Path(__file__).with_name("corpus")

SIZES = {"num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 10, "max_position_embeddings": 64}


def config(model_type, **more):
    return json.dumps({"model_type": model_type, **SIZES, **more})


CONFIGS = {
    "llama": config("llama", rope_theta=500000.0, tie_word_embeddings=True, attention_bias=True),
    "llama3": config("llama", rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                            "high_freq_factor": 4.0, "original_max_position_embeddings": 16}),
    "linear": config("llama", rope_scaling={"type": "linear", "factor": 2}),
    "dynamic": config("llama", rope_parameters={"rope_type": "dynamic", "factor": 2, "rope_theta": 10000.0}),
    "mistral": config("mistral", sliding_window=16),
    "qwen2": config("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1),
    "yarn": config("qwen2", rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                                          "beta_fast": 32, "mscale": 1, "mscale_all_dim": 1}),
    "qwen3": config("qwen3", layer_types=["full_attention", "sliding_attention"], use_sliding_window=True),
    "phi3": config("phi3", original_max_position_embeddings=16, partial_rotary_factor=1.0, sliding_window=2047,
                   rope_scaling={"type": "su", "long_factor": [1.5, 2], "short_factor": [1, 1.25]}),
    "gemma2": config("gemma2", query_pre_attn_scalar=144, attn_logit_softcapping=None, final_logit_softcapping=30.0),
    "gemma3": json.dumps({"model_type": "gemma3", "text_config": {
        "num_hidden_layers": 3, "hidden_size": 8, "intermediate_size": 12, "sliding_window": 4,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}}),
    "gemma3_text": config("gemma3_text", sliding_window_pattern=2, rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
    "refused": config("llama", quantization_config={"bits": 4}, num_experts=8),
    "no_layers": config("llama", num_hidden_layers=0),
    "huge": config("llama", hidden_size=2**64, vocab_size=1e300),
    "deep": '{"a":' * 100,
    "twice": '{"model_type":"llama","model_type":"qwen2"}',
    "array": "[]",
    "empty": "",
}

INDEXES = {
    "two": json.dumps({"metadata": {"total_size": 8}, "weight_map": {
        "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}),
    "outside": json.dumps({"weight_map": {"a": "../a.safetensors"}}),
    "absolute": json.dumps({"weight_map": {"a": "/a.safetensors"}}),
    "nul": json.dumps({"weight_map": {"a": "a\0.safetensors"}}),
    "number": json.dumps({"weight_map": {"a": 1}}),
    "none": json.dumps({"weight_map": {}}),
    "twice": '{"weight_map":{"a":"a.safetensors","a":"b.safetensors"}}',
    "no_map": "{}",
}


def main():
    for name, seeds in (("folder_config", CONFIGS), ("shard_index", INDEXES)):
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for seed, text in seeds.items():
            (folder / f"{seed}.json").write_text(text)


if __name__ == "__main__":
    main()
