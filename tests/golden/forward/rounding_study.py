#!/usr/bin/env python3
"""What rounding the activations or the cache costs, each alone, everything else being double precision.

    rounding_study.py MODEL [--cases TEXT ...]

Prints mean and greatest KL from the frozen reference, for the prompts of 63 and 700 tokens, and how often the
top token is the same where the reference's margin exceeds 0.05. README.md holds the outcome.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from golden_file import Golden
from reference import Reference, log_softmax

DATA = Path(__file__).parent / "data"
PROMPTS = (63, 700)
CLEAR_MARGIN = 0.05
Rounding = Callable[[np.ndarray], np.ndarray]


def int8(block: int) -> Rounding:
    """8-bit integers with one f16 scale for `block` numbers (0: a row); 32 is llama.cpp's Q8_0 and Q8_1."""

    def apply(x: np.ndarray) -> np.ndarray:
        rows = x.reshape(-1, block or x.shape[-1])
        scale = np.abs(rows).max(axis=-1, keepdims=True) / 127
        scale[scale == 0] = 1
        return (np.round(rows / scale) * scale.astype(np.float16)).reshape(x.shape)

    return apply


def two_int8(x: np.ndarray) -> np.ndarray:
    """Two 8-bit integers: the second one rounds what the first one leaves."""
    first = int8(32)(x)
    return first + int8(32)(x - first)


def f16(x: np.ndarray) -> np.ndarray:
    """IEEE half precision."""
    return x.astype(np.float16).astype(np.float64)


def bf16(x: np.ndarray) -> np.ndarray:
    """The upper half of an f32, rounded to nearest even."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


MATRICES = ("qkv", "output", "up", "down", "head")


def everywhere(rounding: Rounding, but: dict[str, Rounding] | None = None) -> dict[str, Rounding]:
    """The same rounding before every matrix, with exceptions."""
    return dict.fromkeys(MATRICES, rounding) | (but or {})


CASES: dict[str, dict[str, Rounding]] = {
    "int8, block 32": everywhere(int8(32)),
    "int8, block 16": everywhere(int8(16)),
    "int8, block 8": everywhere(int8(8)),
    "int8, one scale a row": everywhere(int8(0)),
    "int8 for qkv alone": {"qkv": int8(32)},
    "int8 for output alone": {"output": int8(32)},
    "int8 for up and gate alone": {"up": int8(32)},
    "int8 for down alone": {"down": int8(32)},
    "int8 for head alone": {"head": int8(32)},
    "int8 for output and down, two int8 else": everywhere(two_int8, {"output": int8(32), "down": int8(32)}),
    "int8 for output, two int8 else": everywhere(two_int8, {"output": int8(32)}),
    "two int8, block 32": everywhere(two_int8),
    "bf16": everywhere(bf16),
    "f16": everywhere(f16),
    "cache bf16": {"cache": bf16},
    "cache f16": {"cache": f16},
    "bf16, cache f16": everywhere(bf16, {"cache": f16}),
    "two int8, cache f16": everywhere(two_int8, {"cache": f16}),
}


class RoundedReference(Reference):
    """The reference with chosen roundings by part of the model."""

    roundings: dict[str, Rounding] = {}

    def seen_by(self, part: str, x: np.ndarray) -> np.ndarray:
        rounding = self.roundings.get(part)
        return rounding(x) if rounding else x


def divergence(model: Reference, n_tokens: int) -> str:
    """One prompt's figures, as a table's entry."""
    golden = Golden.load(DATA / f"prompt_{n_tokens:04d}.bin")
    log_q = log_softmax(model.logits(golden.tokens.tolist(), golden.positions.tolist()))
    kl = np.array([golden.kl(row, i) for i, row in enumerate(log_q)])
    clear = golden.margins > CLEAR_MARGIN
    same = (log_q.argmax(axis=1) == golden.top_ids[:, 0])[clear].sum()
    return f"{kl.mean():.1e} / {kl.max():.1e}, {same}/{clear.sum()}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="what rounding costs")
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--cases", nargs="+", metavar="TEXT", help="only cases whose name contains one of these"
    )
    options = parser.parse_args()
    model = RoundedReference(options.model)
    print("| rounded | " + " | ".join(f"{n} tokens" for n in PROMPTS) + " |\n| --- | --- | --- |")
    for name, roundings in CASES.items():
        if not options.cases or any(text in name for text in options.cases):
            model.roundings = roundings
            print(f"| {name} | " + " | ".join(divergence(model, n) for n in PROMPTS) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
