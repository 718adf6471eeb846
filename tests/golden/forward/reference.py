#!/usr/bin/env python3
"""A forward pass of a Llama-architecture GGUF in double precision: what the engine is held against.

    reference.py MODEL --tokens ID... [--top N]  the last position's N greatest logits
    reference.py MODEL --check                   the check against transformers' f32 logits of a short prompt

It shares no code with the engine: weights come from PyPI `gguf` (dequantized, then widened to float64) and
every other number is float64. Layers run one after another over the whole prompt; attention takes the queries
in blocks, so that 8,192 tokens fit in 4 GB.
"""

import argparse
import sys
from pathlib import Path

import gguf
import numpy as np

QUERY_BLOCK_TOKENS = 256  # 3 query heads x 256 x 8,192 scores x 8 B = 50 MB
LOGIT_BLOCK_TOKENS = 256  # 256 x 49,152 x 8 B = 100 MB

# From transformers 5.24, f32, the dequantized weights of SmolLM2-135M-Instruct.Q4_1: after
# 'The capital of France is' the logits of ' Paris', ' the', ' London', ' Le', ' New' at the last position.
CHECK_TOKENS = [504, 3575, 282, 4649, 314]
CHECK_LOGITS = [17.3713, 14.8886, 13.2450, 13.0095, 12.9515]
CHECK_TOLERANCE = 2e-4  # the f32 pass's own rounding and the four decimals it is quoted with


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    """x [n, d] scaled to unit mean square per row, times weight [d]."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def rotate(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """RoPE on x [n, heads, d]: pairs (2i, 2i+1) turn by angles [n, d/2], the pairing of llama GGUFs."""
    cosine, sine = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * cosine - odd * sine
    out[..., 1::2] = even * sine + odd * cosine
    return out


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x); exp overflows to infinity for very negative x, where the result is rightly -0."""
    with np.errstate(over="ignore"):
        return x / (1.0 + np.exp(-x))


def softmax_in_place(scores: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, written over its argument."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """q [n, heads, d], k and v [n, kv_heads, d]; query head h reads KV head h // (heads / kv_heads)."""
    n, n_heads, d = q.shape
    n_kv_heads = k.shape[1]
    group = n_heads // n_kv_heads
    out = np.empty_like(q)
    for start in range(0, n, QUERY_BLOCK_TOKENS):
        end = min(n, start + QUERY_BLOCK_TOKENS)
        hidden = np.arange(end)[None, :] > np.arange(start, end)[:, None]  # keys after the query
        for head in range(n_kv_heads):
            queries = q[start:end, head * group : (head + 1) * group].transpose(1, 0, 2).reshape(-1, d)
            scores = (queries @ k[:end, head].T).reshape(group, end - start, end)
            scores /= np.sqrt(d)
            scores[:, hidden] = -np.inf
            mixed = softmax_in_place(scores).reshape(-1, end) @ v[:end, head]
            out[start:end, head * group : (head + 1) * group] = mixed.reshape(group, -1, d).transpose(1, 0, 2)
    return out


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class Reference:
    """The model: metadata and weights of one GGUF file. Weights rest in f32 and are widened when used."""

    def __init__(self, path: Path):
        reader = gguf.GGUFReader(str(path))
        if reader.fields["general.architecture"].contents() != "llama":
            raise ValueError("only the llama architecture is known here")

        def value(name: str):
            return reader.fields["llama." + name].contents()

        self.n_layers = value("block_count")
        self.n_heads = value("attention.head_count")
        self.n_kv_heads = value("attention.head_count_kv")
        self.epsilon = value("attention.layer_norm_rms_epsilon")
        self.rope_base = value("rope.freq_base")
        self.head_size = value("embedding_length") // self.n_heads
        if value("rope.dimension_count") != self.head_size:
            raise ValueError("RoPE over a part of a head is not known here")
        self.weights = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
        self.n_vocab = self.weights["token_embd.weight"].shape[0]

    def weight(self, name: str) -> np.ndarray:
        """A weight in float64: matrices are [outputs, inputs]."""
        return self.weights[name + ".weight"].astype(np.float64)

    def seen_by(self, part: str, x: np.ndarray) -> np.ndarray:
        """x as `part` of the model sees it: the place where rounding_study.py rounds, and nothing here.

        Parts: "qkv", "output", "up" (with gate), "down", "head" multiply x by weights; "cache" is K and V.
        """
        del part
        return x

    def attention_block(self, x: np.ndarray, layer: int, angles: np.ndarray) -> np.ndarray:
        """What layer's attention adds to the residual stream x [n, d]."""
        name, n = f"blk.{layer}.", len(x)
        normed = self.seen_by("qkv", rms_norm(x, self.weight(name + "attn_norm"), self.epsilon))
        q = (normed @ self.weight(name + "attn_q").T).reshape(n, self.n_heads, self.head_size)
        k = (normed @ self.weight(name + "attn_k").T).reshape(n, self.n_kv_heads, self.head_size)
        v = (normed @ self.weight(name + "attn_v").T).reshape(n, self.n_kv_heads, self.head_size)
        k, v = self.seen_by("cache", rotate(k, angles)), self.seen_by("cache", v)
        mixed = causal_attention(rotate(q, angles), k, v).reshape(n, -1)
        return self.seen_by("output", mixed) @ self.weight(name + "attn_output").T

    def feed_forward_block(self, x: np.ndarray, layer: int) -> np.ndarray:
        """What layer's feed-forward part adds to the residual stream x [n, d]."""
        name = f"blk.{layer}."
        normed = self.seen_by("up", rms_norm(x, self.weight(name + "ffn_norm"), self.epsilon))
        gate = silu(normed @ self.weight(name + "ffn_gate").T)
        gate *= normed @ self.weight(name + "ffn_up").T
        return self.seen_by("down", gate) @ self.weight(name + "ffn_down").T

    def hidden(self, tokens: list[int]) -> np.ndarray:
        """The normed output of the last layer, [n, d], for tokens at positions 0..n-1."""
        x = self.weights["token_embd.weight"][np.asarray(tokens, dtype=np.int64)].astype(np.float64)
        half = self.head_size // 2
        frequencies = self.rope_base ** (-np.arange(half, dtype=np.float64) / half)
        angles = np.arange(len(tokens), dtype=np.float64)[:, None] * frequencies[None, :]
        for layer in range(self.n_layers):
            x += self.attention_block(x, layer, angles)
            x += self.feed_forward_block(x, layer)
        return rms_norm(x, self.weight("output_norm"), self.epsilon)

    def project(self, hidden: np.ndarray) -> np.ndarray:
        """Logits [rows, n_vocab] of rows of hidden(); the output matrix is the embedding if none is given."""
        name = "output" if "output.weight" in self.weights else "token_embd"
        return self.seen_by("head", hidden) @ self.weight(name).T

    def logits(self, tokens: list[int], positions: list[int]) -> np.ndarray:
        """Logits [positions, n_vocab] at the chosen positions of one prompt."""
        return self.project(self.hidden(tokens)[np.asarray(positions, dtype=np.int64)])

    def nll(self, tokens: list[int]) -> np.ndarray:
        """-ln p(token i | tokens before it) for i = 1..n-1: every token but the first, [n - 1]."""
        hidden, losses = self.hidden(tokens)[:-1], np.empty(len(tokens) - 1)
        targets = np.asarray(tokens[1:], dtype=np.int64)
        for start in range(0, len(hidden), LOGIT_BLOCK_TOKENS):
            part = slice(start, start + LOGIT_BLOCK_TOKENS)
            scored = log_softmax(self.project(hidden[part]))
            losses[part] = -scored[np.arange(len(scored)), targets[part]]
        return losses

    def check(self) -> float:
        """The greatest distance from transformers' logits of the check prompt; raises if it is too far."""
        logits = self.logits(CHECK_TOKENS, [len(CHECK_TOKENS) - 1])[0]
        greatest = np.sort(logits)[::-1][: len(CHECK_LOGITS)]
        distance = float(np.abs(greatest - np.array(CHECK_LOGITS)).max())
        if distance > CHECK_TOLERANCE:
            raise ValueError(f"the reference is {distance:.2g} away from the logits it must give: {greatest}")
        return distance


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="double-precision forward pass of a llama GGUF")
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", metavar="ID")
    parser.add_argument("--top", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    reference = Reference(options.model)
    if options.check:
        print(f"check passed: within {reference.check():.1e} of transformers' logits")
    if options.tokens:
        logits = reference.logits(options.tokens, [len(options.tokens) - 1])[0]
        for token in np.argsort(-logits)[: options.top]:
            print(f"{token:6d} {logits[token]:.6f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
