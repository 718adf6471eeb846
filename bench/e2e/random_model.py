#!/usr/bin/env python3
"""A model file of random weights in the shape of Llama 3.2 1B, to time programs at a size that no package ships.

    random_model.py OUT.gguf [--context 8192] [--seed 1]

Matrices are Q4_K and the embedding, which is the head too, Q6_K, as llama.cpp's Q4_K_M has most of them: 0.8 GB. Their
values are about those of a trained model, so that nothing overflows, and mean nothing: what the model says is noise.
Tokens have made-up names.
"""

import argparse
import os
import sys
from pathlib import Path

import gguf
import numpy as np

LAYERS, WIDTH, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 16, 2048, 8192, 32, 8, 64, 128_256
BLOCK = 256  # values of a block of either type
SPREAD = 0.02  # standard deviation of the weights


def f16_bytes(values: np.ndarray) -> np.ndarray:
    """[n] as [n][2] bytes."""
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def q4_k(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Bytes [rows][columns / 256 * 144]: scale and least scale in f16, 12 bytes of 6-bit scales, 128 of codes.

    A value is d·s·q − m·t with codes q in 0 .. 15, so with m·t = 7.5·d·s the mean is 0. All 6-bit s and t are 32: those of
    the first four sub-blocks stand in bytes 0 to 7, whose upper two bits are the upper two of the last four's.
    """
    n = rows * columns // BLOCK
    step = SPREAD / np.sqrt((16**2 - 1) / 12)
    d = np.full(n, step / 32) * random.uniform(0.8, 1.2, n)
    scales = np.zeros((n, 12), np.uint8)
    scales[:, :8] = 32 | (2 << 6)  # s and t of the first four sub-blocks, and the two high bits of the others'
    blocks = [f16_bytes(d), f16_bytes(7.5 * d), scales, random.integers(0, 256, (n, 128), dtype=np.uint8)]
    return np.concatenate(blocks, axis=1).reshape(rows, -1)


def q6_k(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Bytes [rows][columns / 256 * 210]: 128 and 64 bytes of codes, 16 scales of 8 bits, one in f16."""
    n = rows * columns // BLOCK
    step = SPREAD / np.sqrt((64**2 - 1) / 12)
    codes = random.integers(0, 256, (n, 192), dtype=np.uint8)
    scales = np.full((n, 16), 64, np.uint8)
    return np.concatenate([codes, scales, f16_bytes(np.full(n, step / 64))], axis=1).reshape(rows, -1)


def add_metadata(writer: gguf.GGUFWriter, context: int) -> None:
    """The keys of Llama 3.2 1B, and a vocabulary of so many tokens."""
    writer.add_name("random weights in the shape of Llama 3.2 1B")
    writer.add_block_count(LAYERS)
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(500_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that byte-level BPE writes as they are
    letters = [chr(c) for c in plain] + [chr(256 + i) for i in range(256 - len(plain))]  # and the others
    tokens = [*letters, "ab", *(f"token{i}" for i in range(VOCABULARY - len(letters) - 2)), "<|end_of_text|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * (VOCABULARY - 1) + [gguf.TokenType.CONTROL])
    writer.add_token_merges(["a b"])  # none would not be written
    writer.add_bos_token_id(VOCABULARY - 1)
    writer.add_eos_token_id(VOCABULARY - 1)
    writer.add_add_bos_token(False)


def add_tensors(writer: gguf.GGUFWriter, seed: int) -> None:
    """All tensors."""
    random = np.random.default_rng(seed)
    q4, q6 = gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q6_K
    writer.add_tensor("token_embd.weight", q6_k(random, VOCABULARY, WIDTH), raw_dtype=q6)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    shapes = {
        "attn_q": (HEADS * HEAD_DIM, WIDTH),
        "attn_k": (KV_HEADS * HEAD_DIM, WIDTH),
        "attn_v": (KV_HEADS * HEAD_DIM, WIDTH),
        "attn_output": (WIDTH, HEADS * HEAD_DIM),
        "ffn_gate": (FFN, WIDTH),
        "ffn_up": (FFN, WIDTH),
        "ffn_down": (WIDTH, FFN),
    }
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, np.float32))
        for name, (rows, columns) in shapes.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", q4_k(random, rows, columns), raw_dtype=q4)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="random weights in the shape of Llama 3.2 1B")
    parser.add_argument("out", type=Path)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    part = options.out.with_name(options.out.name + ".part")  # under another name until it is whole
    writer = gguf.GGUFWriter(part, "llama")
    add_metadata(writer, options.context)
    add_tensors(writer, options.seed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
