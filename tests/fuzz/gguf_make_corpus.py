#!/usr/bin/env python3
"""Writes the hand-made seeds of corpus/gguf: small valid files by the PyPI package `gguf`, and broken ones.

The files whose names are hashes were found by the fuzzer (fuzz_gguf -merge=1).
"""

import pathlib
import struct

import gguf
import numpy as np

SCALARS = {
    "uint8": 1, "int8": -1, "uint16": 2, "int16": -2, "uint32": 3, "int32": -3, "uint64": 4, "int64": -4,
    "float32": 0.5, "float64": 0.25, "bool": True, "string": "text",
}
ARRAYS = [[1, 2, 3], [1.0, 2.0], [True, False], ["", "a", "two words"]]
FOLDER = pathlib.Path(__file__).with_name("corpus") / "gguf"


def write_valid(name, types, alignment=None):
    writer = gguf.GGUFWriter(FOLDER / name, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    for kind, value in SCALARS.items():
        getattr(writer, f"add_{kind}")(kind, value)
    for i, values in enumerate(ARRAYS):
        writer.add_array(f"array.{i}", values)
    for type_ in types:
        _, n_bytes = gguf.GGML_QUANT_SIZES[type_]
        data = np.arange(2 * n_bytes, dtype=np.uint8).reshape(2, n_bytes)
        writer.add_tensor(f"w.{type_.name}", data, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def header(n_tensors, n_entries, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_entries)


def entry(key, type_, value):
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", type_) + value


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
    types = [gguf.GGMLQuantizationType[name] for name in names]
    write_valid("valid_all_types.gguf", types)
    write_valid("valid_alignment_8.gguf", types[:2], 8)
    write_valid("unsupported_type.gguf", [gguf.GGMLQuantizationType.Q2_K])
    broken = {
        "empty_key": header(0, 1) + entry(b"", 4, struct.pack("<I", 1)),
        "string_2_63": header(0, 1) + entry(b"key", 8, struct.pack("<Q", 1 << 63)),
        "nested_arrays": header(0, 1) + entry(b"key", 9, struct.pack("<IQ", 9, 1) * 50),
        "alignment_3": header(0, 1) + entry(b"general.alignment", 4, struct.pack("<I", 3)),
        "split": header(0, 1) + entry(b"split.count", 2, struct.pack("<H", 3)),
        "huge_counts": header(1 << 62, 1 << 62),
        "big_endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
        "version_1": header(0, 0, 1),
        "lfs_pointer": b"version https://git-lfs.github.com/spec/v1\n",
        "overflow_shape": header(1, 0) + struct.pack("<Q1sIQQIQ", 1, b"w", 2, 1 << 32, 1 << 32, 0, 0),
        "empty": b"",
    }
    for name, data in broken.items():
        (FOLDER / f"broken_{name}.gguf").write_bytes(data)


if __name__ == "__main__":
    main()
