"""Tokenizers of every kind against PyPI `tokenizers` and `sentencepiece`: small ones are trained here, from text of this
repository, written as tokenizer.json or GGUF, and must give the same ids and the same text.

tokenizers_test.py PROBE, with the Python of .venv, which has the packages; without it the test is skipped.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
SKIPPED = 77

try:
    import gguf
    import numpy
    import sentencepiece
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing
except ImportError as error:
    if not PYTHON.exists() or Path(sys.prefix) == ROOT / ".venv":
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

sys.path.insert(0, str(ROOT / "tests" / "golden" / "tokenizer"))
from corpus import frozen_corpus, random_text  # noqa: E402
from oracle import LLAMA_BPE, QWEN2  # noqa: E402

PROBE = Path(sys.argv.pop(1)) if len(sys.argv) > 1 else ROOT / "build/release/tokenizer_probe"

O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = O200K.replace(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
).replace("{1,3}+", "{1,3}")
CODER = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"]
MARK = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]

CHAT = [
    "<s>[INST] hi [/INST] hello</s>", "<s> a</s>  b <s>c", "x<unk>y", "<s>", "<s></s>", "a<s>", " <s> ", "<0x0A>", "a\n\n\nb",
    "x<tool>y", " <tool> ", "<tool><tool>", "aword bword", "x word y", "word", "words word-word_word", "wordword", "left  left",
    "  right  right  ", "\u2581a\u2581\u2581b", "\u2581", "\u2581\u2581", "  \u2581 ", "\u212b \ufb01 \u3392 \uff21", "\u1e9b\u0323",
    "e\u0301\u0323 a\u0323\u0301", "\u1100\u1161\u11a8 \uac00\u11a8", "\u0344 \u0958 \u2126", "UPPER \u0130 \u1e9e \u03a3\u03a3 \u01c5",
]


def training_text() -> list[str]:
    files = sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "src" / "text").glob("*.cpp"))
    return [line for file in files for line in file.read_text().splitlines(keepends=True)][:3000] + frozen_corpus()[:29]


def corpus() -> list[str]:
    rng = random.Random(91)
    return frozen_corpus() + CHAT + [random_text(rng, 14) for _ in range(60)]


TEXT = training_text()
CORPUS = corpus()


def byte_level(steps: list, vocab_size: int = 700, normalizer=None, ignore_merges: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    special = ["<unk>", "<s>", "</s>", "<|im_end|>", "<|im_start|>"]
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def split(expression: str, behavior: str = "isolated", invert: bool = False):
    return pre_tokenizers.Split(Regex(expression), behavior, invert)


def plain_bytes(use_regex: bool = False):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def rewrite(tokenizer: Tokenizer, change) -> Tokenizer:
    tree = json.loads(tokenizer.to_str())
    change(tree)
    return Tokenizer.from_str(json.dumps(tree))


def pieces(byte_fallback: bool, prefix: str, unknown: bool = True) -> Tokenizer:
    """BPE over characters, as tokenizer.json has SentencePiece's: prefix is legacy, always, first or never."""
    special = ["<unk>", "<s>", "</s>"] + (BYTES if byte_fallback else [])
    model = models.BPE(unk_token="<unk>" if unknown else None, fuse_unk=True, byte_fallback=byte_fallback)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=1100 if byte_fallback else 850, special_tokens=special, show_progress=False,
                                  initial_alphabet=[MARK], limit_alphabet=200)
    tokenizer.train_from_iterator(TEXT, trainer)
    replace = normalizers.Replace(" ", MARK)
    if prefix == "legacy":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), replace])
        tokenizer.pre_tokenizer = None
    elif prefix == "gemma":
        tokenizer.normalizer = replace
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=prefix, split=False)
    steps = [decoders.Replace(MARK, " ")] + ([decoders.ByteFallback()] if byte_fallback else []) + [decoders.Fuse()]
    if prefix in ("legacy", "always", "first"):
        steps.append(decoders.Strip(content=" ", left=1, right=0))
    tokenizer.decoder = decoders.Sequence(steps)

    def change(tree):
        tree["added_tokens"] = [t for t in tree["added_tokens"] if t["content"] not in BYTES]
        if not tree["pre_tokenizer"]:
            tree["pre_tokenizer"] = None

    return rewrite(tokenizer, change)


def unigram(normalizer=None, byte_fallback: bool = False, scheme: str = "always") -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(replacement=MARK, prepend_scheme=scheme)
    special = ["<unk>", "<s>", "</s>"] + (BYTES if byte_fallback else [])
    trainer = trainers.UnigramTrainer(vocab_size=900, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXT[::3], trainer)
    if not byte_fallback:
        return tokenizer

    def change(tree):
        tree["model"]["byte_fallback"] = True
        tree["added_tokens"] = [t for t in tree["added_tokens"] if t["content"] not in BYTES]
        tree["decoder"] = {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}

    return rewrite(tokenizer, change)


class Probe:
    """Many questions to one tokenizer, asked in one call."""

    def __init__(self, path: Path):
        self.path, self.questions = path, []

    def encode(self, text: str, mode: str = "parse"):
        self.questions.append(f"encode {mode} {text.encode().hex()}")

    def decode(self, ids: list[int]):
        self.questions.append("decode " + " ".join(map(str, ids)))

    def answers(self) -> list:
        done = subprocess.run([PROBE, self.path], input="\n".join(self.questions), capture_output=True, text=True,
                              check=False, timeout=300)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        self.head, *lines = done.stdout.splitlines()
        return [[int(i) for i in line.split()] if question.startswith("encode") else bytes.fromhex(line).decode()
                for question, line in zip(self.questions, lines, strict=True)]


class Agreement(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def agree(self, tokenizer: Tokenizer, decodes: bool = True, texts=CORPUS):
        (self.folder / "tokenizer.json").write_text(tokenizer.to_str())
        probe = Probe(self.folder)
        expected = []
        for mode, as_text in (("parse", False), ("text", True)):
            tokenizer.encode_special_tokens = as_text
            for text in texts:
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                if isinstance(tokenizer.model, models.Unigram) and ((as_text and any(i < 3 for i in ids)) or "<0x" in text):
                    continue  # a unigram model there finds its control and byte tokens in any text
                probe.encode(text, mode)
                expected.append((text, ids))
                if decodes:
                    probe.decode(ids)
                    expected.append((ids, tokenizer.decode(ids, skip_special_tokens=True)))
        for (asked, wanted), answer in zip(expected, probe.answers(), strict=True):
            self.assertEqual(answer, wanted, asked)

    def test_gpt2(self):
        self.agree(byte_level([plain_bytes(use_regex=True)]))

    def test_gpt2_with_a_space_before(self):
        self.agree(byte_level([pre_tokenizers.ByteLevel(add_prefix_space=True)]))

    def test_smollm(self):
        self.agree(byte_level([pre_tokenizers.Digits(individual_digits=True), plain_bytes(use_regex=True)]))

    def test_llama3(self):
        self.agree(byte_level([split(LLAMA_BPE), plain_bytes()], ignore_merges=True))

    def test_qwen2(self):
        self.agree(byte_level([split(QWEN2), plain_bytes()], normalizer=normalizers.NFC()))

    def test_expressions_without_a_scanner(self):
        for expression in (TEKKEN, O200K, POSSESSIVE):
            with self.subTest(expression):
                self.agree(byte_level([split(expression), plain_bytes()], vocab_size=500))
        self.agree(byte_level([split(expression) for expression in CODER] + [plain_bytes()], vocab_size=500))

    def test_behaviors(self):
        for behavior in ("isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next"):
            for invert in (False, True):
                with self.subTest(behavior, invert=invert):
                    steps = [split(r"\s|[a-e]", behavior, invert), plain_bytes()]
                    self.agree(byte_level(steps, vocab_size=400), decodes=False)

    def test_other_pre_tokenizers(self):
        for step in (pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous"),
                     pre_tokenizers.Digits(), pre_tokenizers.CharDelimiterSplit("a"), pre_tokenizers.Split("the", "isolated"),
                     split(r"[[:punct:]]+|\h+|\w+|\S\s"), split(r"^.|.$|\d+|\D\b")):
            with self.subTest(str(step)):
                self.agree(byte_level([step, plain_bytes()], vocab_size=400), decodes=False)

    def test_normal_forms(self):
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            with self.subTest(form):
                normalizer = getattr(normalizers, form)()
                # `tokenizers` knows an older Unicode, whose characters of later versions are their own forms.
                texts = [text for text in CORPUS if normalizer.normalize_str(text) == unicodedata.normalize(form, text)]
                self.assertGreater(len(texts), 0.9 * len(CORPUS))
                self.agree(byte_level([plain_bytes(use_regex=True)], vocab_size=400, normalizer=normalizer), texts=texts)

    def test_other_normalizers(self):
        for normalizer in (normalizers.Lowercase(), normalizers.Strip(), normalizers.Strip(left=False),
                           normalizers.Replace(Regex(r"\s{2,}"), "_"), normalizers.Replace("a", "bb")):
            with self.subTest(str(normalizer)):
                self.agree(byte_level([plain_bytes(use_regex=True)], vocab_size=400, normalizer=normalizer))

    def test_added_tokens(self):
        tokenizer = byte_level([plain_bytes(use_regex=True)], normalizer=normalizers.NFC())
        tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("word", single_word=True, normalized=False),
                              AddedToken("left", lstrip=True, normalized=False), AddedToken("\u03c3\u03ba\u03c5\u03bb\u03af", normalized=True),
                              AddedToken("right", rstrip=True, normalized=False)])
        tokenizer.add_special_tokens([AddedToken("<s>", lstrip=True, rstrip=True, normalized=False)])
        self.agree(tokenizer)

    def test_pieces(self):
        for prefix in ("legacy", "always", "first", "never", "gemma"):
            with self.subTest(prefix):
                self.agree(pieces(True, prefix))

    def test_pieces_without_bytes(self):
        self.agree(pieces(False, "legacy"))
        self.agree(pieces(False, "first", unknown=False))

    def test_pieces_with_added_tokens(self):
        tokenizer = pieces(True, "gemma")
        tokenizer.add_tokens([AddedToken("\n" * n, normalized=False) for n in range(1, 4)] + [AddedToken("<tool>", normalized=False)])
        tokenizer.add_special_tokens([AddedToken("</s>", rstrip=True, normalized=False)])
        self.agree(tokenizer)

    def test_unigram(self):
        self.agree(unigram())
        self.agree(unigram(normalizer=normalizers.NFKC(), scheme="first"))
        self.agree(unigram(byte_fallback=True))

    def test_both_ends(self):
        tokenizer = pieces(True, "legacy")
        tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>",
                                                      special_tokens=[("<s>", 1), ("</s>", 2)])
        (self.folder / "tokenizer.json").write_text(tokenizer.to_str())
        probe = Probe(self.folder)
        probe.answers()
        self.assertEqual(probe.head.split()[1:], ["1", "2", "1", "1"])

    def sentencepiece(self, **options):
        """A model trained by sentencepiece, as GGUF."""
        (self.folder / "text").write_text("".join(TEXT))
        sentencepiece.SentencePieceTrainer.train(
            input=str(self.folder / "text"), model_prefix=str(self.folder / "model"), vocab_size=1100, max_sentence_length=100000,
            normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2, num_threads=2,
            split_digits=True, hard_vocab_limit=False, allow_whitespace_only_pieces=True, **options)
        model = sentencepiece.SentencePieceProcessor(model_file=str(self.folder / "model.model"))
        kinds = [(model.IsUnknown, 2), (model.IsControl, 3), (model.IsUnused, 5), (model.IsByte, 6)]
        ids = range(model.vocab_size())
        types = [next((kind for test, kind in kinds if test(i)), 1) for i in ids]
        tokens = [model.id_to_piece(i) for i in ids]
        for symbol in options.get("user_defined_symbols", []):
            types[tokens.index(symbol)] = 4
            tokens[tokens.index(symbol)] = symbol.replace(MARK, " ")
        writer = gguf.GGUFWriter(self.folder / "model.gguf", "llama")
        writer.add_tokenizer_model("llama" if options["model_type"] == "bpe" else "t5")
        writer.add_token_list(tokens)
        writer.add_token_scores([model.get_score(i) for i in ids])
        writer.add_token_types(types)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_add_space_prefix(options.get("add_dummy_prefix", True))
        writer.add_tensor("x", numpy.zeros(32, dtype=numpy.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return model

    def test_sentencepiece(self):
        for model_type in ("bpe", "unigram"):
            for byte_fallback in (True, False):
                for prefix in (True, False):
                    with self.subTest(model_type, byte_fallback=byte_fallback, prefix=prefix):
                        symbols = [] if prefix else ["<tool>"]
                        if model_type == "bpe" and not prefix:  # unigram weighs them, as other tokens
                            symbols += ["\n", "\n\n", MARK * 2, MARK * 3]
                        model = self.sentencepiece(model_type=model_type, byte_fallback=byte_fallback, add_dummy_prefix=prefix,
                                                   user_defined_symbols=symbols)
                        self.agree_with_sentencepiece(model, model_type == "unigram")

    def agree_with_sentencepiece(self, model, by_sum: bool):
        probe = Probe(self.folder / "model.gguf")
        expected = []
        for text in CORPUS:
            if MARK in text:  # there it is a space, also where a user-defined token begins
                continue
            ids = model.encode(text)
            probe.encode(text, "text")
            expected.append((text, ids))
            if 0 not in ids:  # sentencepiece writes an unknown token as a sign of its own
                probe.decode(ids)
                expected.append((ids, model.decode(ids)))
        for (asked, wanted), answer in zip(expected, probe.answers(), strict=True):
            if by_sum and isinstance(answer, list) and answer != wanted:
                # Of cuts that are equally likely either may be taken: sentencepiece rounds the sums to 24 bits.
                sums = [sum(model.get_score(i) for i in ids) for ids in (answer, wanted)]
                self.assertAlmostEqual(sums[0] / sums[1], 1, 6, asked)
                self.assertEqual(model.decode(answer), model.decode(wanted))
            else:
                self.assertEqual(answer, wanted, asked)


if __name__ == "__main__":
    unittest.main()
