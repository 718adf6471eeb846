"""A PyPI `tokenizers` tokenizer built from the vocabulary and merges inside a GGUF file."""

from pathlib import Path

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL_TOKEN = 3  # tokenizer.ggml.token_type of a control token


def load_tokenizer(path: Path) -> Tokenizer:
    """Byte-level BPE with the pre-tokenizer `smollm`: digits one by one, then GPT-2's pattern."""
    fields = gguf.GGUFReader(str(path)).fields

    def value(name: str):
        return fields["tokenizer.ggml." + name].contents()

    if (value("model"), value("pre")) != ("gpt2", "smollm"):
        raise ValueError("only the pre-tokenizer smollm is known here")
    tokens, types = value("tokens"), value("token_type")
    merges = [tuple(merge.split(" ", 1)) for merge in value("merges")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, types) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    return tokenizer
