"""Makes models and checks conversions with the PyPI package `gguf`, which the plain tests do without.

usage: convert_oracle.py make FOLDER | check_types FOLDER | check_folder FOLDER | check_same A B
`make` writes FOLDER/plain.gguf and FOLDER/llama, a model in Hugging Face form.
"""

import json
import pathlib
import struct
import sys

import gguf
import numpy as np
from gguf import quants
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
WIDTH, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCABULARY, TOKENS = 64, 4, 2, 16, 96, 300, 258
CONFIG = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": WIDTH, "intermediate_size": FFN,
          "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCABULARY,
          "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False}
LAYER = {"input_layernorm": ("attn_norm", [WIDTH]), "post_attention_layernorm": ("ffn_norm", [WIDTH]),
         "self_attn.q_proj": ("attn_q", [HEADS * HEAD_DIM, WIDTH]), "self_attn.k_proj": ("attn_k", [KV_HEADS * HEAD_DIM, WIDTH]),
         "self_attn.v_proj": ("attn_v", [KV_HEADS * HEAD_DIM, WIDTH]), "self_attn.o_proj": ("attn_output", [WIDTH, HEADS * HEAD_DIM]),
         "mlp.gate_proj": ("ffn_gate", [FFN, WIDTH]), "mlp.up_proj": ("ffn_up", [FFN, WIDTH]),
         "mlp.down_proj": ("ffn_down", [WIDTH, FFN])}


def folder_tensors():
    """(Hugging Face's name, GGUF's name, values)"""
    rng = np.random.default_rng(5)
    names = [("model.embed_tokens", "token_embd", [VOCABULARY, WIDTH]), ("model.norm", "output_norm", [WIDTH]),
             ("lm_head", "output", [VOCABULARY, WIDTH])]
    names += [(f"model.layers.0.{name}", f"blk.0.{to}", shape) for name, (to, shape) in LAYER.items()]
    tensors = [(f"{name}.weight", f"{to}.weight", rng.standard_normal(shape).astype(np.float32)) for name, to, shape in names]
    tensors[2][2][TOKENS:] = 0  # rows without a token are never the likeliest
    return tensors


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, values in tensors:
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for _, values in tensors))


def write_tokenizer(path):
    """Byte-level BPE of the 256 bytes, one merge and an end token; the other rows of the embedding have none."""
    vocabulary = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary["th"] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True, normalized=False)])
    tokenizer.save(str(path))


def make(folder):
    writer = gguf.GGUFWriter(folder / "plain.gguf", "llama")
    writer.add_uint32("llama.block_count", 1)
    rng = np.random.default_rng(3)
    writer.add_tensor("blk.0.attn_norm.weight", rng.standard_normal(WIDTH).astype(np.float32))
    for name, scale in (("ffn_up", 1), ("ffn_gate", 0.02), ("ffn_down", 1e-4)):
        values = rng.standard_normal((200, 128)).astype(np.float32) * np.float32(scale)
        values[3, 32:64] = 0
        writer.add_tensor(f"blk.0.{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = folder / "llama"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    write_safetensors(model / "model.safetensors", [(name, values) for name, _, values in folder_tensors()])
    write_tokenizer(model / "tokenizer.json")
    (model / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "chat_template": "{{ messages }}"}))


def tensors_of(path):
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def check_types(folder):
    """FOLDER/TYPE.gguf, converted from plain.gguf, against the package's own quantization."""
    plain = tensors_of(folder / "plain.gguf")
    for name in TYPES:
        converted = tensors_of(folder / f"{name.lower()}.gguf")
        assert list(converted) == list(plain), name
        for tensor in converted.values():
            source = plain[tensor.name].data
            if source.ndim == 1:
                assert tensor.tensor_type.name == "F32" and np.array_equal(tensor.data, source), tensor.name
                continue
            assert tensor.tensor_type.name == name, (tensor.name, tensor.tensor_type)
            expected = quants.quantize(source, tensor.tensor_type)
            assert np.array_equal(tensor.data.view(np.uint8), expected.view(np.uint8)), (name, tensor.name)


def interleaved(values, n_heads):
    """Rows from all first halves of pairs, then all second ones, to pairs side by side."""
    return values.reshape(n_heads, 2, HEAD_DIM // 2, -1).swapaxes(1, 2).reshape(values.shape)


def check_folder(folder):
    reader = gguf.GGUFReader(folder / "llama.gguf")
    converted = {tensor.name: tensor for tensor in reader.tensors}
    expected = folder_tensors()
    assert len(converted) == len(expected)
    for _, name, values in expected:
        if ".attn_q." in name:
            values = interleaved(values, HEADS)
        if ".attn_k." in name:
            values = interleaved(values, KV_HEADS)
        assert np.array_equal(converted[name].data, values), name
    value = {name: field.contents() for name, field in reader.fields.items()}
    assert value["general.architecture"] == "llama" and value["general.name"] == "llama"
    assert value["llama.rope.freq_base"] == 500000.0 and value["llama.attention.head_count_kv"] == KV_HEADS
    assert value["llama.context_length"] == 128 and value["tokenizer.ggml.model"] == "gpt2"
    tokens = value["tokenizer.ggml.tokens"]
    assert len(tokens) == VOCABULARY and tokens[256:260] == ["th", "<end>", "[PAD0]", "[PAD1]"], tokens[250:]
    assert value["tokenizer.ggml.merges"] == ["t h"] and value["tokenizer.ggml.eos_token_id"] == 257
    assert value["tokenizer.ggml.pre"] == "smollm" and value["tokenizer.chat_template"] == "{{ messages }}"
    assert not any(name.startswith("quire.") for name in value), list(value)


def check_same(first, second):
    one, other = gguf.GGUFReader(first), gguf.GGUFReader(second)
    assert [t.name for t in one.tensors] == [t.name for t in other.tensors]
    for a, b in zip(one.tensors, other.tensors):
        assert a.tensor_type == b.tensor_type and list(a.shape) == list(b.shape), a.name
        assert np.array_equal(a.data.view(np.uint8), b.data.view(np.uint8)), a.name
    assert list(one.fields) == list(other.fields)
    for name in one.fields:
        assert one.fields[name].contents() == other.fields[name].contents(), name


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(pathlib.Path, sys.argv[2:]))
