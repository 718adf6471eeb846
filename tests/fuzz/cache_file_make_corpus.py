#!/usr/bin/env python3
"""Writes the seeds of corpus/cache_file. Sizes and checksums are left 0: the target puts them right."""

import pathlib
import struct

FOLDER = pathlib.Path(__file__).with_name("corpus") / "cache_file"
LOGQUANT_PAGE = 896  # coded, of the same layer
OPEN_PAGE = 64 * 16 * 2 * 2  # 64 tokens of the target's one layer, head size 16, in f16


def section(name, data, flags=1, length=None):
    header = name.encode().ljust(16, b"\0") + struct.pack("<2IQ", flags, 0, len(data) if length is None else length)
    return header + data + bytes(-len(data) % 8)


def moved(*values):
    """Numbers u32 or f32."""
    return section("moved", b"".join(struct.pack("<f" if isinstance(x, float) else "<I", x) for x in values))


def saved(recipe="full", geometry=(1, 2, 16, 1), rows=(3, 0), pages=OPEN_PAGE, tokens=3, more=b"", version=2):
    sections = [
        section("model", b"0123456789abcdef"),
        section("recipe", recipe.encode()),
        section("geometry", struct.pack(f"<{len(geometry)}I", *geometry)),
        section("calibration", bytes(8)),
        section("rows", struct.pack(f"<{len(rows)}Q", *rows)),
        section("pages", bytes(i % 251 for i in range(pages))),
        section("tokens", struct.pack(f"<{tokens}i", *range(tokens))),
        section("logits", struct.pack("<3f", 1, 2, 3), flags=0),
    ]
    return b"QUIREKVC" + struct.pack("<2IQ", version, 0, 0) + b"".join(sections) + more + bytes(8)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    whole = saved()
    seeds = {
        "valid": whole,
        "valid_empty": saved(rows=(0, 0), pages=0, tokens=0),
        "valid_pending": saved(tokens=4),
        "valid_fp8": saved("fp8", pages=OPEN_PAGE // 2),
        # One coded page with its sinks, nothing behind it.
        "valid_turbo4": saved("turbo4(sink=1,tail=0)", rows=(64, 1), pages=1344, tokens=64),
        "valid_kivi4": saved("kivi4(tail=0)", rows=(64, 1), pages=1408, tokens=64),
        "valid_polar4": saved("polar4(sink=0,tail=0,frame=rotated)", rows=(64, 1), pages=1792, tokens=64),
        # Rows that have left: three of ten tokens in the window, and the sink beside them.
        "valid_streaming": saved("streaming(window=3,sink=1)", rows=(10, 0), pages=64 + OPEN_PAGE, tokens=10,
                                 more=moved(4, 3, 9, 7, 8, 0.0, 0.0, 0.0)),
        "valid_h2o": saved("h2o(budget=2)", rows=(5, 0), tokens=5, more=moved(1, 2, 0, 4, 1.5, 0.25)),
        "valid_keyformer": saved("keyformer(budget=2)", rows=(5, 0), tokens=5, more=moved(1, 2, 0, 4, 1.5, 0.25)),
        "valid_snapkv": saved("snapkv(budget=2,window=2)", rows=(5, 0), tokens=5, more=moved(0, 2, 4, 3, 1.5, 0.25)),
        "valid_log": saved("k=f16,v=f16,keep=log(reserve=3)", rows=(5, 0), tokens=5,
                           more=moved(5, 3, 0, 3, 4, 0.0, 0.0, 0.0)),
        # A reserve of three; 67 tokens have left it, of which a page is coded.
        "valid_logquant": saved("logquant(reserve=3)", rows=(70, 1), pages=OPEN_PAGE + LOGQUANT_PAGE, tokens=70,
                                more=moved(65, 66, 67, 0, 68, 69)),
        "valid_partial": saved("logquant(reserve=3,partial=on)", rows=(70, 1),
                               pages=OPEN_PAGE + LOGQUANT_PAGE + 3 * 16 * 2, tokens=70),
        "no_moves": saved("h2o(budget=2)", rows=(5, 0), tokens=5),
        "moves_twice": saved("h2o(budget=2)", rows=(5, 0), tokens=5, more=moved(1, 2, 4, 4, 1.5, 0.25)),
        "many_rows": saved("h2o(budget=2)", rows=(2**63, 0), tokens=5, more=moved(1, 2**32 - 1, 0, 4, 1.5, 0.25)),
        "mass_infinite": saved("h2o(budget=2)", rows=(5, 0), tokens=5, more=moved(1, 2, 0, 4, float("inf"), 0.25)),
        "window_of_old_rows": saved("streaming(window=3,sink=1)", rows=(10, 0), pages=64 + OPEN_PAGE, tokens=10,
                                    more=moved(4, 3, 9, 6, 8, 0.0, 0.0, 0.0)),
        "other_section_optional": saved(more=section("later", b"xyz", flags=0)),
        "other_section": saved(more=section("later", b"xyz")),
        "section_twice": saved(more=section("tokens", b"")),
        "section_too_long": saved(more=section("later", b"xyz", flags=0, length=2**63)),
        "other_recipe": saved("full "),
        "no_recipe": saved("turbo9"),
        "recipe_of_two_lines": saved("turbo4(si\nnk=1)"),
        "many_layers": saved(geometry=(2**32 - 1, 2, 16, 1)),
        "huge_heads": saved("q8", geometry=(1, 2**32 - 1, 2**32 - 1, 2**32 - 1)),
        "many_tokens": saved(rows=(2**63, 0)),
        "many_sealed": saved("turbo4", rows=(3, 2**58)),
        "version_3": saved(version=3),
        "short": whole[:300],
        "foreign": b"GGUF" + bytes(100),
        "empty": b"",
    }
    for name, data in seeds.items():
        (FOLDER / f"{name}.kv").write_bytes(data)


if __name__ == "__main__":
    main()
