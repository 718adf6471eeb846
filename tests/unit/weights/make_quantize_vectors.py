#!/usr/bin/env python3
"""Writes quantize_vectors.inc: values and the blocks that the PyPI package `gguf` encodes them to.

Run by hand (python tests/unit/weights/make_quantize_vectors.py) when a type is added; the result is committed, so
that the tests need no Python. The values: normal ones of several sizes, halves and ties on the grid of the codes,
equal values of both signs, zeros, a single value among zeros, tiny and large ones.
"""

import pathlib

import gguf
import numpy as np
from gguf import quants

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16"]


def make_values():
    rng = np.random.default_rng(20261130)
    blocks = [rng.standard_normal(32) * size for size in (1, 1, 1, 0.02, 0.02, 1e-3, 300)]
    blocks.append(np.zeros(32))
    blocks.append(np.where(np.arange(32) == 17, -3.0, 0.0))
    blocks.append(np.where(np.arange(32) % 2 == 0, 1.0, -1.0))  # which of equals is farthest
    blocks.append(np.full(32, 0.75))
    blocks.append((np.arange(32) - 16) / 4)  # halves of the codes' grid
    blocks.append((np.arange(32) - 15.5) / 8)
    blocks.append(np.concatenate([[127.0], np.arange(31) - 15.5]))  # Q8_0: d = 1, every value a tie
    blocks.append(-np.abs(rng.standard_normal(32)))
    blocks.append(np.abs(rng.standard_normal(32)) + 100)
    blocks.append(rng.standard_normal(32) * 1e-6)  # scales that are subnormal as f16
    blocks.append(rng.standard_normal(32) * 1e4)
    return np.concatenate(blocks).astype(np.float32)


def write_array(out, kind, name, values, width):
    out.write(f"constexpr {kind} {name}[] = {{\n")
    for i in range(0, len(values), width):
        out.write("  " + ", ".join(values[i:i + width]) + ",\n")
    out.write("};\n")


def main():
    values = make_values()
    path = pathlib.Path(__file__).with_name("quantize_vectors.inc")
    with path.open("w") as out:
        out.write("// Made by make_quantize_vectors.py with the PyPI package gguf; do not edit.\n")
        out.write("// Values as the bits of f32, blocks as bytes.\n")
        write_array(out, "uint32_t", "kValues", [f"0x{bits:08x}" for bits in values.view(np.uint32)], 12)
        for name in TYPES:
            blocks = quants.quantize(values, gguf.GGMLQuantizationType[name]).view(np.uint8)
            write_array(out, "uint8_t", f"k{name}", [f"0x{byte:02x}" for byte in blocks], 24)


if __name__ == "__main__":
    main()
