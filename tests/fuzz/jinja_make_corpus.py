#!/usr/bin/env python3
"""Writes the seeds of corpus/jinja: the templates of tests/golden/jinja, and a few that try their limits."""

import pathlib

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "corpus" / "jinja"
TEMPLATES = HERE.parent / "golden" / "jinja" / "templates"


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("qwen3_reasoning", "llama31_tools", "mistral_v3_tools", "gemma3", "command_r_tools", "stablelm_call_block"):
        (FOLDER / name).write_bytes((TEMPLATES / f"{name}.jinja").read_bytes() + b"\0hello <|im_end|> there")
    seeds = {
        "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "self": "{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns }}{{ ns == ns.me }}",
        "loops": "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
        "growth": "{% set ns = namespace(s='ab') %}{% for x in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "brackets": "{{ " + "(" * 500 + "[" * 500 + "{" * 500,
        "chain": "{{ 1" + " + 1" * 500 + "|string" * 500 + " }}",
        "numbers": "{{ 9223372036854775807 + 1 }}{{ 10 ** 400 }}{{ 1e308 * 10 }}{{ 7 // -2 }}{{ '%.3f' % 1e300 }}",
        "slices": "{{ messages[::-1] }}{{ 'abc'[9:0:-2] }}{{ messages[0].content[1:-1] }}",
        "texts": "{{ messages[0].content.split('a', 1)|join('|')|indent(3)|title|tojson }}\0a\xe9\u65e5b\"\\\n",
        "formats": "{{ '%5.2f|%-3s|%x' % (1.5, 'a', 255) }}{{ '{:>5}{0}'.format(1) }}{{ '{a!r:^9}'.format(a='x') }}",
        "lists": "{{ messages|groupby('role')|map('last')|list }}{{ messages|sort(attribute='role,n') }}{{ [3, 1]|batch(2, 0)|list }}",
        "blocks": "{% set x | upper %}a{% endset %}{% filter trim %} {{ x }} {% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}",
        "unclosed": "{% if x %}{{ 'a",
        "empty": "",
    }
    for name, text in seeds.items():
        (FOLDER / name).write_bytes(text.encode())


if __name__ == "__main__":
    main()
