#!/usr/bin/env python3
"""Freezes what the engine is held against: next-token distributions of seven prompts, and a perplexity.

    freeze.py MODEL OUT [--skip-perplexity]     writes prompt_NNNN.bin, perplexity.json, perplexity_tokens.bin

Takes about five minutes and 3 GB on two cores. README.md says what the files hold.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from austen import novel_text
from gguf_tokenizer import load_tokenizer
from golden_file import Golden
from reference import Reference, log_softmax

N_POSITIONS = 64
MIXED_TEXT = Path(__file__).parent / "mixed.txt"
# Prompt length in tokens -> the novel and the text at which the prompt starts there.
PROSE_PROMPTS = {
    1: ("emma", "Emma Woodhouse, handsome"),
    2: ("prideprejudice", "It is a truth universally"),
    63: ("sensesensibility", "The family of Dashwood"),
    64: ("northangerabbey", "No one who had ever seen Catherine"),
    65: ("emma", "Sixteen years had Miss Taylor"),
    4000: ("mansfieldpark", "About thirty years ago"),
}
MIXED_TOKENS = 700  # mixed.txt, then prose
MIXED_PROSE = ("northangerabbey", "Catherine, for many years of her life")

PERPLEXITY_NOVEL = "persuasion"
PERPLEXITY_TOKENS = 20_000
PERPLEXITY_WINDOW = 2_048
PERPLEXITY_RULE = (
    "Window w covers tokens [w*2048, min((w+1)*2048, n_tokens)), the last one being partial. Each window "
    "starts afresh: empty cache, position 0, no BOS. Every token of a window but its first is scored, given "
    "the tokens before it in the window. perplexity = exp(total_nll / scored_tokens), in nats."
)


def prose_tokens(tokenizer: Tokenizer, novel: str, start: str, n: int) -> list[int]:
    """The first n tokens of the novel from the words `start` on."""
    text = novel_text(novel)
    at = text.index(start)
    tokens = tokenizer.encode(text[at : at + 8 * n + 100]).ids[:n]
    if len(tokens) != n:
        raise ValueError(f"{novel} is too short for {n} tokens")
    return tokens


def make_prompts(tokenizer: Tokenizer) -> dict[int, list[int]]:
    """Prompt length -> token ids."""
    prompts = {n: prose_tokens(tokenizer, *where, n) for n, where in PROSE_PROMPTS.items()}
    mixed = tokenizer.encode(MIXED_TEXT.read_text(encoding="utf-8")).ids
    prompts[MIXED_TOKENS] = mixed + prose_tokens(tokenizer, *MIXED_PROSE, MIXED_TOKENS - len(mixed))
    return dict(sorted(prompts.items()))


def spread_positions(n_tokens: int) -> list[int]:
    """All positions, or N_POSITIONS of them evenly spread from the first to the last."""
    if n_tokens <= N_POSITIONS:
        return list(range(n_tokens))
    return np.round(np.linspace(0, n_tokens - 1, N_POSITIONS)).astype(int).tolist()


def freeze_prompts(reference: Reference, tokenizer: Tokenizer, out: Path) -> None:
    """Writes prompt_NNNN.bin for each prompt."""
    for n, tokens in make_prompts(tokenizer).items():
        positions = spread_positions(n)
        golden = Golden.of_log_p(tokens, positions, log_softmax(reference.logits(tokens, positions)))
        golden.save(out / f"prompt_{n:04d}.bin")
        print(
            f"{n:5d} tokens, {len(positions)} positions, least margin {golden.margins.min():.4f}", flush=True
        )


def sha256(data: bytes) -> str:
    """The digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def freeze_perplexity(reference: Reference, tokenizer: Tokenizer, model_sha256: str, out: Path) -> None:
    """Writes perplexity_tokens.bin and perplexity.json."""
    text = novel_text(PERPLEXITY_NOVEL)
    tokens = tokenizer.encode(text).ids[:PERPLEXITY_TOKENS]
    prefix = tokenizer.decode(tokens, skip_special_tokens=False)
    if not text.startswith(prefix):
        raise ValueError("the tokens do not spell the start of the text")
    token_bytes = np.asarray(tokens, dtype="<u2").tobytes()
    sums, scored = [], []
    for start in range(0, len(tokens), PERPLEXITY_WINDOW):
        losses = reference.nll(tokens[start : start + PERPLEXITY_WINDOW])
        sums.append(float(losses.sum()))
        scored.append(len(losses))
        print(f"window {len(sums) - 1}: perplexity {np.exp(losses.mean()):.4f}", flush=True)
    result = {
        "rule": PERPLEXITY_RULE,
        "novel": PERPLEXITY_NOVEL,
        "text_sha256": sha256(text.encode()),
        "prefix_bytes": len(prefix.encode()),  # of the text: what the tokens spell
        "model_sha256": model_sha256,
        "tokens_file": "perplexity_tokens.bin",
        "tokens_sha256": sha256(token_bytes),
        "n_tokens": len(tokens),
        "window_tokens": PERPLEXITY_WINDOW,
        "scored_tokens": sum(scored),
        "window_scored_tokens": scored,
        "window_nll": sums,
        "total_nll": sum(sums),
        "perplexity": float(np.exp(sum(sums) / sum(scored))),
    }
    (out / "perplexity_tokens.bin").write_bytes(token_bytes)
    (out / "perplexity.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"perplexity {result['perplexity']:.6f} over {sum(scored)} tokens")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="freeze reference distributions and perplexity")
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--skip-perplexity", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    reference, tokenizer = Reference(options.model), load_tokenizer(options.model)
    print(f"check passed: within {reference.check():.1e} of transformers' logits")
    freeze_prompts(reference, tokenizer, options.out)
    if not options.skip_perplexity:
        freeze_perplexity(reference, tokenizer, sha256(options.model.read_bytes()), options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
