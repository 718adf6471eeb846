#!/usr/bin/env python3
"""Freezes what PyPI `jinja2` prints, for jinja_test.cpp. Run it only on purpose:

    freeze.py      writes data/small.jsonl and data/chat.jsonl beside itself

Each line is an object: "template", or "name" of one whose "source" stood in an earlier line; "context", a JSON text, or
that of the line before; and "text", or "error" with what jinja2 says.
"""

import json
from pathlib import Path

import conversations
import environment
import small_cases

HERE = Path(__file__).resolve().parent


def render(source: str, context: dict) -> dict:
    try:
        return {"text": environment.make_environment().from_string(source).render(**context)}
    except Exception as error:  # whatever a template ends with is a refusal
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def freeze_small() -> list[dict]:
    context = json.dumps(small_cases.CONTEXT, ensure_ascii=False)
    sources = ["{{ " + e + " }}" for e in small_cases.EXPRESSIONS if e] + small_cases.STATEMENTS
    lines = []
    for source in sources:
        got = render(source, small_cases.CONTEXT)
        if "error" in got:
            raise SystemExit(f"an error: {source}: {got['error']}")
        if " object at 0x" in got["text"] or "<built-in" in got["text"] or "<function" in got["text"] or "bound method" in got["text"]:
            continue  # an address
        lines.append({"template": source, **got})
    for source in ["{{ " + e + " }}" for e in small_cases.ERRORS if e] + small_cases.STATEMENT_ERRORS:
        got = render(source, small_cases.CONTEXT)
        if "error" not in got:
            raise SystemExit(f"no error: {source} -> {got['text']!r}")
        lines.append({"template": source, **got})
    lines[0]["context"] = context
    return lines


def freeze_chat() -> list[dict]:
    lines = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text()
        for i, (messages, more) in enumerate(conversations.CONVERSATIONS):
            context = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True,
                       "tools": None, "documents": None, **more}
            line = {"name": path.stem, "context": json.dumps(context, ensure_ascii=False), **render(source, context)}
            lines.append({"source": source, **line} if i == 0 else line)
    return lines


def main() -> None:
    data = HERE / "data"
    data.mkdir(exist_ok=True)
    for name, lines in {"small": freeze_small(), "chat": freeze_chat()}.items():
        n_errors = sum("error" in line for line in lines)
        print(f"{name}: {len(lines)} lines, {n_errors} of them errors")
        (data / f"{name}.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


if __name__ == "__main__":
    main()
