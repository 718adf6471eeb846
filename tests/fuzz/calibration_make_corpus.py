#!/usr/bin/env python3
"""Writes the seeds of corpus/calibration. Checksums are left 0: the target puts them right."""

import pathlib
import struct

FOLDER = pathlib.Path(__file__).with_name("corpus") / "calibration"
FINGERPRINT = b"0123456789abcdef"


def calibration(heads, head_dim, values=None, n_heads=4, version=2, fingerprint=FINGERPRINT, n_layers=None):
    n = sum(heads) * head_dim
    header = b"QUIRECAL" + struct.pack("<4I", version, len(heads) if n_layers is None else n_layers, n_heads, head_dim)
    body = struct.pack(f"<{len(heads)}I", *heads) + struct.pack(f"<{4 * n}f", *(values or [1.0] * (4 * n)))
    return header + fingerprint + body + bytes(8)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    nan, infinity = float("nan"), float("inf")
    seeds = {
        "valid": calibration([2, 1], 4),
        "valid_no_attention": calibration([2, 0, 1], 3),
        "valid_empty": calibration([], 64),
        "nan_mean": calibration([1], 2, [nan, 0, 1, 1, 0, 0, 1, 1]),
        "zero_balance": calibration([1], 2, [0, 0, 0, 1, 0, 0, 1, 1]),
        "infinite_value": calibration([1], 2, [0, 0, 1, 1, infinity, 0, 1, 1]),
        "negative_product": calibration([1], 2, [0, 0, 1, 1, 0, 0, 1, -1]),
        "other_model": calibration([1], 2, fingerprint=b"fedcba9876543210"),
        "version_1": calibration([1], 2, version=1),
        "heads_that_do_not_divide": calibration([3], 2),
        "many_layers": calibration([1], 2, n_layers=2**32 - 1),
        "short": calibration([2, 1], 4)[:60],
        "foreign": b"GGUF" + bytes(100),
        "empty": b"",
    }
    for name, data in seeds.items():
        (FOLDER / f"{name}.calibration").write_bytes(data)


if __name__ == "__main__":
    main()
