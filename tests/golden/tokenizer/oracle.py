"""PyPI `tokenizers` over the BPE vocabulary of a GGUF file, with any of the four pre-tokenizers."""

from pathlib import Path

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

CONTROL_TOKEN = 3  # tokenizer.ggml.token_type of a control token
PRE_TOKENIZERS = ("smollm", "gpt-2", "llama-bpe", "qwen2")

# As the tokenizer.json of Llama 3 and of Qwen2 have them.
LLAMA_BPE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA_BPE.replace(r"\p{N}{1,3}", r"\p{N}")


class Model:
    """The tokenizer part of a GGUF file."""

    def __init__(self, path: Path):
        fields = gguf.GGUFReader(str(path)).fields
        self.tokens = fields["tokenizer.ggml.tokens"].contents()
        self.types = fields["tokenizer.ggml.token_type"].contents()
        self.merges = [tuple(m.split(" ", 1)) for m in fields["tokenizer.ggml.merges"].contents()]
        self.chat_template = fields["tokenizer.chat_template"].contents()

    def tokenizer(self, pre_tokenizer: str, parse_control: bool) -> Tokenizer:
        vocabulary = {token: i for i, token in enumerate(self.tokens)}
        bpe = models.BPE(vocab=vocabulary, merges=self.merges, ignore_merges=pre_tokenizer == "llama-bpe")
        tokenizer = Tokenizer(bpe)
        tokenizer.pre_tokenizer = make_pre_tokenizer(pre_tokenizer)
        if pre_tokenizer == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.decoder = decoders.ByteLevel()
        if parse_control:
            control = [t for t, kind in zip(self.tokens, self.types) if kind == CONTROL_TOKEN]
            tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
        return tokenizer


def make_pre_tokenizer(name: str):
    if name == "smollm":
        return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)])
    if name == "gpt-2":
        return ByteLevel(add_prefix_space=False, use_regex=True)
    expression = {"llama-bpe": LLAMA_BPE, "qwen2": QWEN2}[name]
    return Sequence(
        [Split(Regex(expression), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
