#!/usr/bin/env python3
"""Freezes what PyPI `tokenizers` and `jinja2` say, for tokenizer_test.cpp. Run it only on purpose:

    freeze.py [MODEL.gguf]      writes data/encode.txt and data/chat.txt beside itself

encode.txt: for each text one line with its UTF-8 in hex, then a line of ids for each pre-tokenizer in the order
smollm gpt-2 llama-bpe qwen2, control tokens as text, then one for smollm with control tokens parsed. A line "="
stands for the same ids as the line above it.

chat.txt: for each conversation a line "chat N GENERATE", then N lines "ROLE HEX", then the ids.
"""

import sys
from pathlib import Path

import jinja2
from corpus import frozen_corpus
from oracle import PRE_TOKENIZERS, Model

HERE = Path(__file__).resolve().parent

CHATS = [
    [("user", "Hello, who are you?")],
    [("system", "You are terse."), ("user", "What is 12 + 30?")],
    [("user", "Hi"), ("assistant", "Hello! How can I help you today?"), ("user", "Write a poem about the sea.")],
    [("system", ""), ("user", "")],
    [("user", "\n\n  leading and trailing white space  \n")],
    [("user", "1\n2\n3"), ("assistant", " 4"), ("system", "Be kind."), ("user", "日本語で答えて 👩‍👩‍👧 l'été don't")],
    [("system", "\tTab first"), ("user", "code:\n```c\nint x = 0;\n```"), ("assistant", "")],
    [("tool", "{\"result\": 42}")],
    [],
]


def joined(ids: list[int]) -> str:
    return " ".join(map(str, ids))


def freeze_encode(model: Model) -> str:
    tokenizers = [model.tokenizer(name, parse_control=False) for name in PRE_TOKENIZERS]
    tokenizers.append(model.tokenizer("smollm", parse_control=True))
    lines = []
    for text in frozen_corpus():
        lines.append(text.encode().hex())
        above = None
        for tokenizer in tokenizers:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            lines.append("=" if ids == above else joined(ids))
            above = ids
    return "\n".join(lines) + "\n"


def freeze_chat(model: Model) -> str:
    tokenizer = model.tokenizer("smollm", parse_control=True)
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)  # as transformers sets it
    template = environment.from_string(model.chat_template)
    lines = []
    for chat in CHATS:
        messages = [{"role": role, "content": content} for role, content in chat]
        for generate in (0, 1):
            text = template.render(messages=messages, add_generation_prompt=bool(generate))
            lines.append(f"chat {len(chat)} {generate}")
            lines += [f"{role} {content.encode().hex()}" for role, content in chat]
            lines.append(joined(tokenizer.encode(text, add_special_tokens=False).ids))
    return "\n".join(lines) + "\n"


def main() -> None:
    default = HERE.parents[2] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    model = Model(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
    data = HERE / "data"
    data.mkdir(exist_ok=True)
    (data / "encode.txt").write_text(freeze_encode(model))
    (data / "chat.txt").write_text(freeze_chat(model))


if __name__ == "__main__":
    main()
