#!/usr/bin/env python3
"""Writes the seeds of fuzz_tokenizer_json: small files of every kind, and each with one thing wrong."""

import json
from pathlib import Path

OUT = Path(__file__).resolve().parent / "corpus" / "tokenizer_json"
MARK = "\u2581"
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
SPACES = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
ADDED = [{"id": 1, "content": "<s>", "special": True, "normalized": False, "rstrip": True},
         {"id": 2, "content": "<tool>", "special": False, "lstrip": True, "single_word": True, "normalized": True}]
ENDS = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}


def alphabet() -> list[str]:
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b if b in plain else next(others)) for b in range(256)]


def numbered(tokens: list[str]) -> dict:
    return {token: i for i, token in enumerate(dict.fromkeys(tokens))}


def pieces() -> dict:
    words = ["<unk>", "<s>", "<tool>", "a", "b", "ab", MARK, MARK + "ab"]
    model = {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "dropout": None,
             "vocab": numbered(words + [f"<0x{b:02X}>" for b in range(256)]), "merges": [["a", "b"], [MARK, "ab"]]}
    return {"added_tokens": ADDED, "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, REPLACE]},
            "pre_tokenizer": None, "post_processor": ENDS, "model": model,
            "decoder": {"type": "Sequence", "decoders": [SPACES, {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP]}}


def bytes_() -> dict:
    step = {"type": "Split", "pattern": {"Regex": r"\p{L}+|\s+(?!\S)|\d"}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": numbered(["<unk>", "<s>", "<tool>", *alphabet(), "ab"]), "merges": ["a b"], "ignore_merges": True}
    return {"added_tokens": ADDED, "normalizer": {"type": "NFC"}, "post_processor": ENDS, "model": model, "decoder": level,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [step, {"type": "Digits", "individual_digits": False}, level]}}


def unigram() -> dict:
    space = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": True}
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["<s>", 0], ["<tool>", 0], ["a", -2.5], [MARK, -1], [MARK + "b", -3e-1]]}
    return {"added_tokens": ADDED, "normalizer": {"type": "Lowercase"}, "pre_tokenizer": space, "decoder": space, "model": model}


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)

    def write(name: str, tree: dict, **changes):
        text = json.dumps({**tree, **changes}, ensure_ascii=False, separators=(",", ":"))
        (OUT / f"{name}.json").write_text(text)

    write("pieces", pieces())
    write("bytes", bytes_())
    write("unigram", unigram())
    level = bytes_()["decoder"]
    for name, step in {
        "hostile_expression": {"type": "Split", "pattern": {"Regex": r"(?:(?:\S*)*)*x"}, "behavior": "Removed", "invert": True},
        "nested_class": {"type": "Split", "pattern": {"Regex": "[a[b]]"}, "behavior": "Removed", "invert": True},
        "no_pattern": {"type": "Split", "behavior": "Removed"},
        "punctuation": {"type": "Punctuation", "behavior": "MergedWithNext"},
        "whitespace": {"type": "Whitespace"},
        "unknown_step": {"type": "FixedLength", "length": 5},
    }.items():
        write(name, bytes_(), pre_tokenizer={"type": "Sequence", "pretokenizers": [step, level]})
    write("no_decoder", pieces(), decoder=None)
    write("far_id", pieces(), added_tokens=[{"id": 2000000000, "content": "x"}])
    write("two_names", pieces(), added_tokens=[{"id": 3, "content": "x"}])
    write("merge_of_nothing", pieces(), model={**pieces()["model"], "merges": ["a z"]})
    write("huge_score", unigram(), model={**unigram()["model"], "vocab": [["a", 1e308], ["b", -1e308]]})
    write("replace_expression", pieces(), normalizer={"type": "Replace", "pattern": {"Regex": r"\s{2,}"}, "content": ""})
    (OUT / "deep.json").write_text("[" * 100)
    (OUT / "cut.json").write_text((OUT / "pieces.json").read_text()[:-40])
    (OUT / "empty.json").write_text("")


if __name__ == "__main__":
    main()
