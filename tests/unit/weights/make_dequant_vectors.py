#!/usr/bin/env python3
"""Writes dequant_vectors.inc: blocks of every tensor type and what the PyPI package `gguf` decodes them to.

Run by hand (python tests/unit/weights/make_dequant_vectors.py) when a type is added; the result is
committed, so that the tests need no Python. Per type: quantized random values where the package can
quantize, random bytes with sane scales, and random bytes with extreme ones (zero, subnormal, largest,
infinite f16). NaN never appears as a scale, only as a result (infinity minus infinity); tests compare any
NaN as equal.
"""

import pathlib

import gguf
import numpy as np
from gguf import quants

# Per type, the byte offsets of its f16 scales in a block.
SCALE_OFFSETS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "F32": [], "F16": [], "BF16": [],
}
EXTREME_SCALES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x3C00]
PLAIN_F32 = [0.0, -0.0, 1.0, -1.5, 3.4028235e38, 1e-45, float("inf"), float("-inf")]


def random_blocks(rng, type_, n_blocks, scales):
    """Random bytes whose scales are drawn by `scales` (a function of nothing giving 16 bits)."""
    n_bytes = gguf.GGML_QUANT_SIZES[type_][1]
    blocks = rng.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
    for block in blocks:
        for offset in SCALE_OFFSETS[type_.name]:
            block[offset:offset + 2] = np.array([scales()], dtype="<u2").view(np.uint8)
    return blocks.reshape(-1)


def make_blocks(rng, type_):
    """The bytes to decode."""
    if type_.name == "F32":
        values = np.concatenate([np.array(PLAIN_F32), rng.standard_normal(24)])
        return values.astype("<f4").view(np.uint8)
    if type_.name in ("F16", "BF16"):
        words = np.concatenate([np.array(EXTREME_SCALES), np.array([0x7F80, 0xFF80, 0x0080, 0x7F7F]),
                                rng.integers(0, 0x7B00, 50)])
        if type_.name == "F16":
            words = words[(words & 0x7C00 != 0x7C00) | (words & 0x3FF == 0)]
        return words.astype("<u2").view(np.uint8)
    n_large = 2 if gguf.GGML_QUANT_SIZES[type_][0] == 256 else 6
    parts = []
    try:
        values = rng.standard_normal((n_large, gguf.GGML_QUANT_SIZES[type_][0])).astype(np.float32)
        parts.append(quants.quantize(values, type_).reshape(-1))
    except NotImplementedError:
        pass
    sane = lambda: np.float16(rng.standard_normal() * 0.1).view(np.uint16)
    extreme = lambda: rng.choice(EXTREME_SCALES)
    parts.append(random_blocks(rng, type_, n_large, sane))
    parts.append(random_blocks(rng, type_, n_large, extreme))
    return np.concatenate(parts)


def write_array(out, type_name, name, words, digits):
    out.write(f"constexpr {type_name} {name}[] = {{\n")
    per_line = 24 if digits == 2 else 9
    for i in range(0, len(words), per_line):
        out.write("  " + ", ".join(f"0x{int(w):0{digits}x}" for w in words[i:i + per_line]) + ",\n")
    out.write("};\n")


def main():
    path = pathlib.Path(__file__).with_name("dequant_vectors.inc")
    rng = np.random.default_rng(20240607)
    with open(path, "w") as out:
        out.write("// Made by make_dequant_vectors.py with the PyPI package gguf; do not edit.\n")
        out.write("// Blocks as bytes, values as the bits of f32.\n")
        for name in SCALE_OFFSETS:
            type_ = gguf.GGMLQuantizationType[name]
            blocks = make_blocks(rng, type_)
            with np.errstate(all="ignore"):
                values = quants.dequantize(blocks.reshape(1, -1), type_).reshape(-1).astype("<f4")
            write_array(out, "uint8_t", f"k{name}Blocks", blocks, 2)
            write_array(out, "uint32_t", f"k{name}Values", values.view("<u4"), 8)
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
