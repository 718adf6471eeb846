#!/usr/bin/env python3
"""Freezes cosines and sines of every way of scaling RoPE, from the keys and tensors of a GGUF file.

    freeze.py OUT [--check]     writes OUT/table.txt; --check holds it against transformers as well

The formulas are written here from the papers and the two implementations, apart from the engine's, in double
precision (numpy). With --check every frequency and attention factor must agree with transformers' own functions
to the rounding of f32; what transformers does not have (YaRN's ext_factor, combinations with divisors) is left
out of that. README.md says what the file holds.
"""

import argparse
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

POSITIONS = (1, 2047, 2049, 8000, 100_000)


@dataclass
class Case:
    """One file's positions: what its keys say, and what frequencies and attention factor that means."""

    name: str
    head: int = 64
    dims: int = 0  # 0: head
    base: float = 10_000.0
    trained: int = 2048
    kind: str = ""  # rope.scaling.type; "": no key
    factor: float = 0.0  # 0: no key
    original: int = 0
    context: int = 0  # asked for; 0: as trained
    yarn: dict = field(default_factory=dict)  # yarn_* keys
    attn_factor: float = 0.0  # rope.scaling.attn_factor; 0: no key
    divisors: dict = field(default_factory=dict)  # tensor -> values

    @property
    def rotated(self) -> int:
        """Rotated channels of a head."""
        return self.dims or self.head

    def plain(self, base: float | None = None) -> np.ndarray:
        """Frequencies as trained."""
        exponents = np.arange(0, self.rotated, 2, dtype=np.float64) / self.rotated
        return np.float64(base or self.base) ** -exponents

    def is_long(self) -> bool:
        """Whether LongRoPE takes its factors for long contexts."""
        return (self.context or self.trained) > (self.original or self.trained)

    def frequencies(self) -> np.ndarray:
        """Radians per position, f64 [rotated / 2]."""
        if self.kind == "dynamic":
            length = max(self.context, self.trained)
            growth = self.factor * length / self.trained - (self.factor - 1)
            return self.plain(self.base * growth ** (self.rotated / (self.rotated - 2)))
        frequencies = self.plain()
        if "rope_freqs.weight" in self.divisors:
            frequencies = frequencies / np.float32(self.divisors["rope_freqs.weight"]).astype(np.float64)
        if self.kind == "longrope":
            name = "rope_factors_long.weight" if self.is_long() else "rope_factors_short.weight"
            return frequencies / np.float32(self.divisors[name]).astype(np.float64)
        if self.kind == "linear" or (self.factor and not self.kind):
            return frequencies / self.factor
        if self.kind == "yarn":
            share = self.extrapolated()
            return frequencies * share + frequencies / self.factor * (1 - share)
        return frequencies

    def extrapolated(self) -> np.ndarray:
        """How much of each pair YaRN leaves as trained."""

        def pair(turns: float) -> float:
            length = self.original or self.trained
            return self.rotated * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(self.base))

        low = max(math.floor(pair(self.yarn.get("beta_fast", 32.0))), 0)
        high = min(math.ceil(pair(self.yarn.get("beta_slow", 1.0))), self.rotated - 1)
        ramp = np.clip((np.arange(self.rotated // 2) - low) / max(0.001, high - low), 0, 1)
        return (1 - ramp) * self.yarn.get("ext_factor", 1.0)

    def attention(self) -> float:
        """What cosines and sines are multiplied by."""
        if self.kind == "yarn":
            if "attn_factor" in self.yarn:
                factor = self.yarn["attn_factor"]
            elif self.yarn.get("ext_factor", 1.0) == 0 or self.factor <= 1:
                factor = 1.0
            else:
                factor = 0.1 * math.log(self.factor) + 1
                if multiplier := self.yarn.get("log_multiplier"):
                    factor /= 0.1 * multiplier * math.log(self.factor) + 1
            return factor * (self.attn_factor or 1.0)
        if self.kind == "longrope" and not self.attn_factor:
            original = self.original or self.trained
            factor = self.factor or self.trained / original
            return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
        return self.attn_factor or 1.0


def llama3_divisors(base: float, dims: int, factor: float, low: float, high: float, original: int) -> list[float]:
    """Llama 3.1's divisors, as converters write them to rope_freqs.weight."""
    divisors = []
    for exponent in np.arange(0, dims, 2) / dims:
        wavelength = 2 * math.pi * base**exponent
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return [float(np.float32(d)) for d in divisors]


def longrope_divisors(n: int) -> dict[str, list[float]]:
    """Factors of the shape that Phi-3's have: near 1 for fast pairs, rising."""
    steps = np.arange(n) / n
    return {
        "rope_factors_long.weight": [float(np.float32(1.05 + 60 * s**1.5)) for s in steps],
        "rope_factors_short.weight": [float(np.float32(1 + 1.6 * s)) for s in steps],
    }


LLAMA3 = {"rope_freqs.weight": llama3_divisors(500_000.0, 64, 8.0, 1.0, 4.0, 8192)}
PHI = {"head": 96, "trained": 131_072, "original": 4096, "kind": "longrope", "divisors": longrope_divisors(48)}
CASES = (
    Case("none"),
    Case("partial rotation", head=96, dims=72, base=500_000.0),
    Case("linear", kind="linear", factor=4.0),
    Case("a factor without a type", factor=8.0, base=1_000_000.0),
    Case("dynamic beyond the trained context", kind="dynamic", factor=2.0, context=8192),
    Case("dynamic within it", kind="dynamic", factor=2.0, context=1024),
    Case("yarn 4 from 2048", kind="yarn", factor=4.0, original=2048, trained=8192),
    Case("yarn as Qwen 2.5", head=128, base=1_000_000.0, kind="yarn", factor=4.0, original=32_768, trained=32_768),
    Case("yarn, other betas", kind="yarn", factor=16.0, original=4096, yarn={"beta_fast": 16.0, "beta_slow": 2.0}),
    Case("yarn, half extrapolated", kind="yarn", factor=4.0, yarn={"ext_factor": 0.5}),
    Case("yarn, not extrapolated", kind="yarn", factor=4.0, yarn={"ext_factor": 0.0}),
    Case("yarn, its attention given", kind="yarn", factor=4.0, yarn={"attn_factor": 0.875}),
    Case("yarn, log multiplier", kind="yarn", factor=40.0, yarn={"log_multiplier": 0.707}, attn_factor=1.25),
    Case("yarn and divisors", kind="yarn", factor=4.0, base=500_000.0, divisors=LLAMA3),
    Case("Llama 3.1", base=500_000.0, trained=131_072, divisors=LLAMA3),
    Case("longrope, long", **PHI),
    Case("longrope, short", context=4096, **PHI),
    Case("longrope, its attention given", attn_factor=1.19, **PHI),
)


def gguf_lines(case: Case) -> list[str]:
    """The keys and tensors that say it."""
    lines = [f"key u32 llama.attention.key_length {case.head}", f"key u32 llama.context_length {case.trained}"]
    lines += [f"key f32 llama.rope.freq_base {case.base!r}"]
    if case.dims:
        lines.append(f"key u32 llama.rope.dimension_count {case.dims}")
    if case.kind:
        lines.append(f"key string llama.rope.scaling.type {case.kind}")
    if case.factor:
        lines.append(f"key f32 llama.rope.scaling.factor {case.factor!r}")
    if case.original:
        lines.append(f"key u32 llama.rope.scaling.original_context_length {case.original}")
    if case.attn_factor:
        lines.append(f"key f32 llama.rope.scaling.attn_factor {case.attn_factor!r}")
    lines += [f"key f32 llama.rope.scaling.yarn_{name} {value!r}" for name, value in case.yarn.items()]
    for name, values in case.divisors.items():
        lines.append(f"values {name} " + " ".join(f"{v:.9g}" for v in values))
    if case.context:
        lines.append(f"context {case.context}")
    return lines


def table_lines(case: Case) -> list[str]:
    """The angles."""
    frequencies, attention = case.frequencies(), case.attention()
    lines = [f"attention {attention:.12g}"]
    for position in POSITIONS:
        angles = position * frequencies
        lines.append(f"position {position}")
        for name, values in (("cosine", np.cos(angles)), ("sine", np.sin(angles))):
            lines.append(name + " " + " ".join(f"{v:.8f}" for v in values * attention))
    return lines


def transformers_parameters(case: Case) -> dict | None:
    """The case as transformers' rope_parameters; None where it cannot say it."""
    rope: dict = {"rope_theta": case.base, "rope_type": case.kind or ("linear" if case.factor else "default")}
    if case.dims:
        rope["partial_rotary_factor"] = case.dims / case.head
    if case.factor:
        rope["factor"] = case.factor
    if case.kind == "yarn":
        if "ext_factor" in case.yarn or case.divisors:
            return None
        rope["original_max_position_embeddings"] = case.original or case.trained
        rope |= {k: case.yarn[k] for k in ("beta_fast", "beta_slow") if k in case.yarn}
        if "attn_factor" in case.yarn:
            rope["attention_factor"] = case.yarn["attn_factor"]
        if "log_multiplier" in case.yarn:
            rope |= {"mscale": 1.0, "mscale_all_dim": case.yarn["log_multiplier"]}
    elif case.kind == "longrope":
        rope["original_max_position_embeddings"] = case.original
        rope["long_factor"] = case.divisors["rope_factors_long.weight"]
        rope["short_factor"] = case.divisors["rope_factors_short.weight"]
        if case.attn_factor:
            rope["attention_factor"] = case.attn_factor
    elif case.divisors:
        rope |= {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        rope["original_max_position_embeddings"] = 8192
    return rope


def check(case: Case) -> str:
    """Holds a case against transformers; the outcome in words. Raises where they differ."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = transformers_parameters(case)
    if rope is None:
        return "not in transformers"
    config = LlamaConfig(
        hidden_size=2 * case.head,
        num_attention_heads=2,
        head_dim=case.head,
        max_position_embeddings=case.trained,
        rope_parameters=rope,
    )
    kind = rope["rope_type"]
    if kind == "default":
        theirs, attention = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
        if case.dims:
            return "partial rotation is not in transformers' Llama"
    else:
        theirs, attention = ROPE_INIT_FUNCTIONS[kind](config, None, seq_len=case.context or case.trained)
    multiplier = case.attn_factor if case.kind == "yarn" and case.attn_factor else 1.0
    gap = np.max(np.abs(theirs.numpy().astype(np.float64) / case.frequencies() - 1))
    if gap > 2e-6 or abs(attention * multiplier / case.attention() - 1) > 1e-6:
        raise SystemExit(f"{case.name}: frequencies differ by {gap:.1e}, attention {attention}, {case.attention()}")
    return f"frequencies agree to {gap:.0e}, attention factor {attention:.6f}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="freeze cosines and sines of scaled RoPE")
    parser.add_argument("out", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        for case in CASES:
            print(f"{case.name}: {check(case)}")
    lines = []
    for case in CASES:
        lines += [f"case {case.name}", *gguf_lines(case), *table_lines(case)]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "table.txt").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
