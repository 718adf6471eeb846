#!/usr/bin/env python3
"""Freezes logits of tiny random models of every family, computed by transformers.

    freeze.py OUT [NAME ...]     writes OUT/NAME.txt and OUT/NAME.logits, of all models or those named

A model is a GGUF file in words (README.md): its keys, and tensors whose values come from a hash of their names. The
engine's test builds that file; here the same tensors go into transformers' own class of the family, in f32.
"""

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import transformers

N_VOCAB = 256
N_TOKENS = 700
# The first token, the ends of a window of 32, of a page of 64 and of a chunk of 256 tokens, and the last.
POSITIONS = (0, 31, 32, 33, 62, 63, 64, 255, 256, 511, 699)
WIDTH, HIDDEN, HEADS, KV_HEADS = 64, 96, 4, 2


def hash_bits(name: str, n: int) -> np.ndarray:
    """The first n of the numbers that a name stands for, u64 (tests/golden/model_text.h has the same)."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        x = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hash_values(name: str, shape: tuple[int, ...], mean: float, scale: float) -> np.ndarray:
    """A tensor's values in f32."""
    bits = hash_bits(name, int(np.prod(shape))) >> np.uint64(40)
    unit = bits.astype(np.float32) / np.float32(8388608) - np.float32(1)
    return (np.float32(mean) + np.float32(scale) * unit).reshape(shape)


def layer_names(architecture: str) -> dict[str, str]:
    """GGUF's names of a layer's tensors and transformers'."""
    names = {"attn_norm.weight": "input_layernorm.weight", "attn_output.weight": "self_attn.o_proj.weight"}
    if architecture == "phi3":
        names |= {"attn_qkv.weight": "self_attn.qkv_proj.weight", "ffn_up.weight": "mlp.gate_up_proj.weight"}
    else:
        names |= {f"attn_{x}.weight": f"self_attn.{x}_proj.weight" for x in "qkv"}
        names |= {f"ffn_{x}.weight": f"mlp.{x}_proj.weight" for x in ("gate", "up")}
    if architecture == "qwen2":
        names |= {f"attn_{x}.bias": f"self_attn.{x}_proj.bias" for x in "qkv"}
    if architecture in ("qwen3", "gemma3"):
        names |= {f"attn_{x}_norm.weight": f"self_attn.{x}_norm.weight" for x in "qk"}
    if architecture in ("gemma2", "gemma3"):
        names |= {
            "post_attention_norm.weight": "post_attention_layernorm.weight",
            "ffn_norm.weight": "pre_feedforward_layernorm.weight",
            "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
        }
    else:
        names["ffn_norm.weight"] = "post_attention_layernorm.weight"
    return names | {"ffn_down.weight": "mlp.down_proj.weight"}


@dataclass
class Model:
    """A model of one family, as a GGUF file says it and as transformers does."""

    name: str
    architecture: str
    config: transformers.PretrainedConfig
    kind: type  # transformers' class
    layers: int = 4
    head: int = 16
    trained: int = 2048
    keys: list[str] = field(default_factory=list)  # "TYPE NAME VALUE", NAME without the architecture
    tensors: dict[str, tuple[tuple[int, ...], float, float]] = field(default_factory=dict)  # shape, mean, scale
    lists: dict[str, list[float]] = field(default_factory=dict)  # tensors given value by value
    context: int = 0  # that positions are loaded for; 0: as trained
    head_mean: float = 0  # of norms of single heads; 0: there are none
    norm_offset: float = 0  # transformers adds it to the weights of norms

    def __post_init__(self) -> None:
        q, kv = HEADS * self.head, KV_HEADS * self.head
        self.add("token_embd.weight", (N_VOCAB, WIDTH), 0, 0.35)
        self.add("output_norm.weight", (WIDTH,), 1, 0.2)
        if not self.config.tie_word_embeddings:
            self.add("output.weight", (N_VOCAB, WIDTH), 0, 0.4)
        for layer in range(self.layers):
            p = f"blk.{layer}."
            self.add(p + "attn_norm.weight", (WIDTH,), 1, 0.2)
            if self.fused:
                self.add(p + "attn_qkv.weight", (q + 2 * kv, WIDTH), 0, 0.3)
            else:
                self.add(p + "attn_q.weight", (q, WIDTH), 0, 0.3)
                self.add(p + "attn_k.weight", (kv, WIDTH), 0, 0.3)
                self.add(p + "attn_v.weight", (kv, WIDTH), 0, 0.25)
            if self.architecture == "qwen2":
                self.add(p + "attn_q.bias", (q,), 0, 0.5)
                self.add(p + "attn_k.bias", (kv,), 0, 4.0)
                self.add(p + "attn_v.bias", (kv,), 0, 0.5)
            if self.head_mean:
                self.add(p + "attn_q_norm.weight", (self.head,), self.head_mean, 0.3)
                self.add(p + "attn_k_norm.weight", (self.head,), self.head_mean, 0.3)
            self.add(p + "attn_output.weight", (WIDTH, q), 0, 0.2)
            self.add(p + "ffn_norm.weight", (WIDTH,), 1, 0.2)
            if self.norm_offset:
                self.add(p + "post_attention_norm.weight", (WIDTH,), 1, 0.2)
                self.add(p + "post_ffw_norm.weight", (WIDTH,), 1, 0.2)
            if not self.fused:
                self.add(p + "ffn_gate.weight", (HIDDEN, WIDTH), 0, 0.3)
            self.add(p + "ffn_up.weight", ((2 if self.fused else 1) * HIDDEN, WIDTH), 0, 0.3)
            self.add(p + "ffn_down.weight", (WIDTH, HIDDEN), 0, 0.2)

    @property
    def fused(self) -> bool:
        """Whether projections lie in one tensor."""
        return self.architecture == "phi3"

    def add(self, name: str, shape: tuple[int, ...], mean: float, scale: float) -> None:
        """One more tensor."""
        self.tensors[name] = (shape, mean, scale)

    def value(self, name: str) -> np.ndarray:
        """A tensor's values, [rows][columns]."""
        return hash_values(name, *self.tensors[name])

    def lines(self) -> list[str]:
        """The file in words."""
        a = self.architecture
        counts = {
            "block_count": self.layers,
            "embedding_length": WIDTH,
            "feed_forward_length": HIDDEN,
            "context_length": self.trained,
            "attention.head_count": HEADS,
            "attention.head_count_kv": KV_HEADS,
            "attention.key_length": self.head,
            "attention.value_length": self.head,
        }
        out = [f"key string general.architecture {a}"]
        out += [f"key u32 {a}.{name} {value}" for name, value in counts.items()]
        out.append(f"key f32 {a}.attention.layer_norm_rms_epsilon 1e-05")
        for key in self.keys:
            kind, name, value = key.split(" ", 2)
            out.append(f"key {kind} {a}.{name} {value}")
        for name, (shape, mean, scale) in self.tensors.items():
            out.append(f"tensor {name} {mean:g} {scale:g} " + " ".join(str(n) for n in reversed(shape)))
        for name, values in self.lists.items():
            out.append(f"values {name} " + " ".join(f"{v:.9g}" for v in values))
        if self.context:
            out.append(f"context {self.context}")
        return [*out, f"tokens {N_TOKENS}", "positions " + " ".join(str(p) for p in POSITIONS)]

    def rows_of_heads(self, name: str) -> np.ndarray:
        """A projection with the rows of a head as transformers has them: rotated pairs half a head apart."""
        rows = self.value(name)
        if self.architecture != "llama":
            return rows
        heads = rows.reshape(-1, self.head // 2, 2, rows.shape[-1])
        return heads.transpose(0, 2, 1, 3).reshape(rows.shape)

    def state(self) -> dict[str, np.ndarray]:
        """transformers' parameters."""
        offset = np.float32(self.norm_offset)
        state = {
            "model.embed_tokens.weight": self.value("token_embd.weight"),
            "model.norm.weight": self.value("output_norm.weight") - offset,
        }
        head = "output.weight" if "output.weight" in self.tensors else "token_embd.weight"
        state["lm_head.weight"] = self.value(head)
        for layer in range(self.layers):
            ours, theirs = f"blk.{layer}.", f"model.layers.{layer}."
            for name, other in layer_names(self.architecture).items():
                value = self.rows_of_heads(ours + name) if name in ("attn_q.weight", "attn_k.weight") else None
                value = self.value(ours + name) if value is None else value
                state[theirs + other] = value - offset if "norm" in name else value
        return state

    def logits(self) -> np.ndarray:
        """Of the frozen positions, f32 [positions][N_VOCAB]."""
        model = self.kind(self.config).eval()
        state = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in self.state().items()}
        missing, unexpected = model.load_state_dict(state, strict=False)
        if unexpected or [name for name in missing if not (name == "lm_head.weight" and self.config.tie_word_embeddings)]:
            raise SystemExit(f"{self.name}: missing {missing}, unexpected {unexpected}")
        tokens = (hash_bits("tokens", N_TOKENS) >> np.uint64(40)) % np.uint64(N_VOCAB)
        with torch.no_grad():
            out = model(torch.from_numpy(tokens.astype(np.int64))[None], use_cache=False)
        return out.logits[0, list(POSITIONS)].numpy().astype("<f4")


def settings(layers: int = 4, head: int = 16, trained: int = 2048, **more) -> dict:
    """What all configurations have."""
    return {
        "vocab_size": N_VOCAB,
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": head,
        "max_position_embeddings": trained,
        "rms_norm_eps": 1e-5,
        "attn_implementation": "eager",
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
        **more,
    }


def llama(name: str, keys: list[str], rope: dict, tied: bool = False, trained: int = 2048, **more) -> Model:
    """A Llama model; `more` is of Model."""
    config = transformers.LlamaConfig(
        **settings(trained=trained, tie_word_embeddings=tied, rope_parameters=rope)
    )
    return Model(name, "llama", config, transformers.LlamaForCausalLM, trained=trained, keys=keys, **more)


def llama3_divisors(base: float, dims: int) -> list[float]:
    """Of factor 8, low 1, high 4, original 128, as a converter writes them."""
    wavelengths = 2 * np.pi * base ** (np.arange(0, dims, 2) / dims)
    smooth = (128 / wavelengths - 1) / 3
    between = 1 / ((1 - smooth) / 8 + smooth)
    divisors = np.where(wavelengths < 32, 1, np.where(wavelengths > 128, 8, between))
    return [float(d) for d in divisors.astype(np.float32)]


def phi3(name: str, original: int, context: int, trained: int) -> Model:
    """A Phi-3 model whose positions are made for `context` tokens; three quarters of a head are rotated."""
    long_factors, short_factors = [1.1, 1.5, 3.0, 6.0, 9.0, 12.0], [1.0, 1.05, 1.1, 1.2, 1.4, 1.8]
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "long_factor": long_factors,
        "short_factor": short_factors,
        "original_max_position_embeddings": original,
        "partial_rotary_factor": 0.75,
    }
    config = transformers.Phi3Config(
        **settings(trained=trained, rope_parameters=rope, original_max_position_embeddings=original),
        resid_pdrop=0.0,
    )
    keys = [
        "u32 rope.dimension_count 12",
        "f32 rope.freq_base 10000",
        "string rope.scaling.type longrope",
        f"u32 rope.scaling.original_context_length {original}",
    ]
    lists = {"rope_factors_long.weight": long_factors, "rope_factors_short.weight": short_factors}
    kind = transformers.Phi3ForCausalLM
    return Model(name, "phi3", config, kind, trained=trained, keys=keys, lists=lists, context=context)


THETA = {"rope_type": "default", "rope_theta": 10_000.0}


def llama_models() -> list[Model]:
    """Llama's ways of scaling, and a window."""
    low_high = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    llama3 = {"rope_type": "llama3", "rope_theta": 50_000.0, "original_max_position_embeddings": 128, **low_high}
    mistral = transformers.MistralConfig(**settings(rope_parameters=THETA, sliding_window=32))
    return [
        llama("llama", ["f32 rope.freq_base 10000"], THETA, tied=True),
        llama(
            "llama3",
            ["f32 rope.freq_base 50000"],
            llama3,
            lists={"rope_freqs.weight": llama3_divisors(50_000.0, 16)},
        ),
        llama(
            "llama_linear",
            ["string rope.scaling.type linear", "f32 rope.scaling.factor 4"],
            {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
        ),
        llama(
            "llama_dynamic",
            ["string rope.scaling.type dynamic", "f32 rope.scaling.factor 2"],
            {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0},
            trained=256,
            context=N_TOKENS,
        ),
        Model(
            "mistral", "llama", mistral, transformers.MistralForCausalLM, keys=["u32 attention.sliding_window 32"]
        ),
    ]


def qwen_models() -> list[Model]:
    """Qwen 2 with its biases, also with YaRN, and Qwen 3."""
    t = transformers
    yarn = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 128}
    wide = {"layers": 4, "head": 32}
    million = {"rope_type": "default", "rope_theta": 1_000_000.0}
    plain = t.Qwen2Config(**settings(rope_parameters=THETA, tie_word_embeddings=True))
    scaled = t.Qwen2Config(**settings(rope_parameters=yarn, trained=512))
    yarn_keys = [
        "string rope.scaling.type yarn",
        "f32 rope.scaling.factor 4",
        "u32 rope.scaling.original_context_length 128",
    ]
    return [
        Model("qwen2", "qwen2", plain, t.Qwen2ForCausalLM),
        Model("qwen2_yarn", "qwen2", scaled, t.Qwen2ForCausalLM, trained=512, keys=yarn_keys, context=N_TOKENS),
        Model(
            "qwen3",
            "qwen3",
            t.Qwen3Config(**settings(**wide, rope_parameters=million)),
            t.Qwen3ForCausalLM,
            **wide,
            keys=["f32 rope.freq_base 1000000"],
            head_mean=1.2,
        ),
    ]


def gemma_models() -> list[Model]:
    """Gemma 2 and 3, their windows short."""
    t = transformers
    common = {"head": 32, "tie_word_embeddings": True, "sliding_window": 32, "query_pre_attn_scalar": 48}
    keys = ["u32 attention.sliding_window 32", f"f32 attention.scale {48**-0.5:.9g}"]
    caps = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 6.0}
    two = t.Gemma2Config(**settings(**common, rope_parameters=THETA), **caps)
    bases = {
        "sliding_attention": THETA,
        "full_attention": {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
    }
    three = t.Gemma3TextConfig(**settings(layers=6, **common, rope_parameters=bases))
    two_keys = [*keys, "f32 attn_logit_softcapping 5", "f32 final_logit_softcapping 6"]
    three_keys = [
        *keys,
        "f32 rope.freq_base 1000000",
        "string rope.scaling.type linear",
        "f32 rope.scaling.factor 8",
    ]
    return [
        Model("gemma2", "gemma2", two, t.Gemma2ForCausalLM, head=32, keys=two_keys, norm_offset=1),
        Model(
            "gemma3",
            "gemma3",
            three,
            t.Gemma3ForCausalLM,
            layers=6,
            head=32,
            keys=three_keys,
            head_mean=1.2,
            norm_offset=1,
        ),
    ]


def models() -> list[Model]:
    """All of them."""
    phi = [
        phi3("phi3_short", original=1024, context=1024, trained=4096),
        phi3("phi3_long", original=256, context=0, trained=1024),
    ]
    return [*llama_models(), *qwen_models(), *phi, *gemma_models()]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="freeze logits of tiny random models of every family")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for model in models():
        if options.names and model.name not in options.names:
            continue
        logits = model.logits()
        log_p = logits - np.log(np.exp(logits.astype(np.float64)).sum(1, keepdims=True))
        entropy = float(-(np.exp(log_p) * log_p).sum(1).mean())
        print(f"{model.name}: logits up to {np.abs(logits).max():.2f}, entropy {entropy:.2f} of {np.log(N_VOCAB):.2f}")
        (options.out / f"{model.name}.txt").write_text("\n".join(model.lines()) + "\n")
        (options.out / f"{model.name}.logits").write_bytes(logits.tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
