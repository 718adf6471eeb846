#!/usr/bin/env python3
"""Writes the seeds of corpus/safetensors."""

import json
import pathlib
import struct

FOLDER = pathlib.Path(__file__).with_name("corpus") / "safetensors"


def packed(header: str, data: bytes = b"", n_header: int | None = None) -> bytes:
    text = header.encode()
    return struct.pack("<Q", len(text) if n_header is None else n_header) + text + data


def tensor(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def butler(**changes):
    """A predictor of 3 layers, 2 query heads, 1 KV head of 4 values, width 6, stride 4, dim 2, hidden 2."""
    metadata = {"format": "quire.butler", "version": "1", "model": "0123456789abcdef", "n_layers": "3", "n_heads": "2",
                "n_kv_heads": "1", "head_dim": "4", "width": "6", "stride": "4", "dim": "2", "hidden": "2", **changes}
    shapes = {"layer.1.projection": [1, 4, 2], "layer.2.projection": [1, 4, 2], "producer.0.in": [2, 6],
              "producer.0.norm_bias": [6], "producer.0.norm_weight": [6], "producer.0.out": [2, 2, 2, 2]}
    header, at = {"__metadata__": metadata}, 0
    for name, shape in shapes.items():
        n = 2
        for size in shape:
            n *= size
        header[name] = tensor(shape, at, at + n, "BF16")
        at += n
    return packed(json.dumps(header), bytes(at))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    one = json.dumps({"t": tensor([1], 0, 4)})
    seeds = {
        "valid": packed(json.dumps({"__metadata__": {"a": "b\n\u00e9"}, "t": tensor([2, 3], 0, 24),
                                    "u": tensor([], 24, 26, "F16")}), bytes(26)),
        "butler": butler(),
        "butler_other_model": butler(model="fedcba9876543210"),
        "butler_other_width": butler(width="7"),
        "butler_huge": butler(hidden="1048576"),
        "butler_no_number": butler(dim="-1"),
        "empty": packed("{}"),
        "nothing": b"",
        "length_wraps": packed(one, bytes(4), 2**64 - 8),
        "short": packed(one, bytes(3)),
        "product_wraps": packed(json.dumps({"t": tensor([2**32, 2**32], 0, 0)})),
        "unknown_type": packed(json.dumps({"t": tensor([1], 0, 4, "Q4")}), bytes(4)),
        "overlap": packed(json.dumps({"t": tensor([1], 0, 4), "u": tensor([1], 2, 6)}), bytes(6)),
        "hole": packed(json.dumps({"t": tensor([1], 0, 4), "u": tensor([1], 6, 10)}), bytes(10)),
        "backwards": packed(json.dumps({"t": tensor([1], 4, 0)}), bytes(4)),
        "negative": packed(json.dumps({"t": tensor([-1], 0, 4)}), bytes(4)),
        "twice": packed(one[:-1] + "," + one[1:], bytes(4)),
        "deep": packed('{"a":' + "[" * 1000),
        "surrogates": packed('{"__metadata__":{"\\ud83d\\ude00":"\\ud83d"}}'),
    }
    for name, data in seeds.items():
        (FOLDER / f"{name}.safetensors").write_bytes(data)


if __name__ == "__main__":
    main()
