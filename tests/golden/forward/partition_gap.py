#!/usr/bin/env python3
"""How much lower the divergence over the frozen partition is than over the whole vocabulary.

    partition_gap.py MODEL [--noise STD]

Adds normal noise to the reference's logits of the 700-token prompt, the same as an engine's rounding might,
and compares the two divergences. README.md states the outcome.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from golden_file import Golden
from reference import Reference, log_softmax

GOLDEN = Path(__file__).parent / "data" / "prompt_0700.bin"
SEED = 20240317


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="partition divergence against full divergence")
    parser.add_argument("model", type=Path)
    parser.add_argument("--noise", type=float, default=0.03)
    options = parser.parse_args()
    golden = Golden.load(GOLDEN)
    logits = Reference(options.model).logits(golden.tokens.tolist(), golden.positions.tolist())
    noise = np.random.default_rng(SEED).normal(0.0, options.noise, logits.shape)
    log_p, log_q = log_softmax(logits), log_softmax(logits + noise)
    full = np.sum(np.exp(log_p) * (log_p - log_q), axis=1)
    part = np.array([golden.kl(row, i) for i, row in enumerate(log_q)])
    own = np.array([golden.kl(row, i) for i, row in enumerate(log_p)])
    tail = np.exp(golden.bucket_log_p.astype(np.float64)).sum(axis=1)
    print(f"noise of std {options.noise}: full KL mean {full.mean():.3e} max {full.max():.3e}")
    print(f"partition KL mean {part.mean():.3e} max {part.max():.3e}")
    print(
        f"partition / full: mean over positions {(part / full).mean():.4f}, least {(part / full).min():.4f}"
    )
    print(f"mass outside the top tokens: mean {tail.mean():.4f}, greatest {tail.max():.4f}")
    print(f"partition KL of the reference to itself: {own.min():.1e} to {own.max():.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
