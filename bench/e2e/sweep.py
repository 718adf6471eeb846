"""Quality, bytes, rows read and speed of every recipe, and attention alone: docs/results/cpu.md and its charts.

Every measurement is one command, whose output is kept in build/sweep/; what is there is not measured again, so an
interrupted sweep goes on. What does not depend on time can be measured by several processes at once (--jobs), and
elsewhere: --quality measures it alone. --render measures nothing and writes the page of what there is. Called by
scripts/sweep.
"""

import argparse
import json
import os
import pathlib
import re
from concurrent.futures import ThreadPoolExecutor

import results
from results import ROOT, Kept, cpu_name, slug, table

KEPT = ROOT / "build/sweep"
NOT_MEASURED = "not measured"
OUT = ROOT / "docs/results"

# Recipes at about the same share of rows read, 7.5 %, where they read in part.
RECIPES = {
    "codes": ("turbo4", "k=turbo4,v=turbo3", "turbo3", "turbo2", "q8", "q4", "kivi4", "kivi2", "kivi2(sink=4)", "token4",
              "token2", "polar4r"),
    "keep": ("logquant(reserve=128)", "logquant(reserve=128,partial=on)", "turbo2(keep=log(reserve=64))",
             "turbo2(keep=log(reserve=128))", "turbo2(keep=log(reserve=256,rule=strided))", "streaming(window=512)",
             "h2o(budget=7.5%)", "keyformer(budget=7.5%)", "snapkv(budget=7.5%)"),
    "select": ("quire", "quire(budget=20%)", "quire(mass=0.9)", "selfindex", "monarch", "monarch(trigger=off)", "quest",
               "doublesparse",
               "butler", "oracle", "random"),
}
DEPTHS = {512: 128, 2000: 200, 6000: 1000}  # prompt tokens: evaluated tokens
TIMED = ("full", "turbo4", "kivi2", "quire", "selfindex", "monarch", "logquant(reserve=128)",
         "turbo2(keep=log(reserve=64))", "streaming(window=512)", "h2o(budget=7.5%)")
TIMED_MORE = ("snapkv(budget=7.5%)", "quest", "doublesparse")
TIMED_TOO = ("full", "turbo3", "turbo2", "q8", "q4", "kivi4", "polar4r", "keyformer(budget=7.5%)", "butler")
RIVALS = ("selfindex", "quest", "doublesparse", "butler", "snapkv(budget=7.5%)", "h2o(budget=7.5%)",
          "keyformer(budget=7.5%)", "streaming(window=512)")
ATTENTION = ("full", "turbo4", "turbo3", "kivi4", "quire", "selfindex", "monarch")
ATTENTION_TOKENS = (4096, 16384, 32768, 131072)


def kept(name: str, command: list, redo: bool) -> str:
    return Kept(KEPT, "sweep", redo).get(name, command)


def wanted(options, name: str) -> bool:
    return not options.render or (KEPT / name).exists()


class Study:
    """A command of `quire eval` over recipes: one run for each of `groups`, which several recipes may be joined in."""

    def __init__(self, kind: str, groups: tuple, command: list):
        self.kind, self.groups, self.command = kind, groups, command

    def name(self, group: str) -> str:
        return f"{self.kind}-{slug(group)}.json"

    def run(self, options, group: str) -> list:
        return json.loads(kept(self.name(group),
                               [options.quire, "eval", *self.command, "-m", options.model, "-f", options.text, "-t",
                                max(1, options.threads // options.jobs), "--json", "--kv", group], options.redo))["rows"]

    def rows(self, options) -> list:
        return [row for group in self.groups if wanted(options, self.name(group)) for row in self.run(options, group)]


def quality(depth: int) -> Study:
    recipes = tuple(recipe for group in RECIPES.values() for recipe in group)
    return Study(f"quality-{depth}", recipes, ["kl", "--prompt-tokens", depth, "--eval-tokens", DEPTHS[depth]])


def speed(options, depth: int) -> list:
    """Rows of all runs; each row knows the speed of `full` in its own run."""
    rows = []
    for name, recipes in ((f"speed-{depth}.json", TIMED + TIMED_MORE), (f"speed-too-{depth}.json", TIMED_TOO)):
        if not wanted(options, name):
            continue
        text = kept(name,
                    [options.quire, "bench", "-m", options.model, "-f", options.text, "-t", options.threads, "--json",
                     "--no-quality", "--prompt-tokens", depth, "--max-new-tokens", 65, "--repeats", options.repeats,
                     "--mode", ",".join(recipes)], options.redo)
        run = json.loads(text)["rows"]
        rows += [{**row, "full": run[0]["decode_tokens_per_s"]["median"]} for row in run]
    return rows


# In groups, each of which makes the full cache and the text without the facts once.
RECALL_RECIPES = (("quire", "quire(mass=0.9)", "selfindex", "oracle", "random"),
                  ("monarch", "monarch(trigger=off)", "quest", "doublesparse", "snapkv(budget=7.5%)"),
                  ("streaming(window=512)", "h2o(budget=7.5%)", "keyformer(budget=7.5%)", "logquant(reserve=128)",
                   "turbo2(keep=log(reserve=128))"),
                  ("full", "turbo4", "turbo3", "turbo2", "kivi2"))
RECALL_TOKENS = (2000, 4000)
RECALL_SEEDS = 8


def recall(tokens: int) -> Study:
    return Study(f"recall-{tokens}", tuple(",".join(group) for group in RECALL_RECIPES),
                 ["recall", "--prompt-tokens", tokens, "--seeds", RECALL_SEEDS])


def streaming(options) -> str:
    if not wanted(options, "streaming.txt"):
        return NOT_MEASURED
    return kept("streaming.txt",
                [options.quire, "eval", "ppl", "-m", options.model, "-f", options.text, "-t",
                 max(1, options.threads // options.jobs), "--kv",
                 "streaming", "-c", 50000, "--max-tokens", 50000, "--segment", 5000], options.redo)


def measure_quality(options) -> None:
    """What does not depend on time, the longest runs first."""
    studies = [*(recall(tokens) for tokens in sorted(RECALL_TOKENS, reverse=True)),
               *(quality(depth) for depth in sorted(DEPTHS, reverse=True))]
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(streaming, options)]
        waiting += [pool.submit(study.run, options, group) for study in studies for group in study.groups]
        for run in waiting:
            run.result()


ATTENTION_LINE = re.compile(r"^(\S+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\d+)%\s+([\d.]+)x\s+([\d.]+)$", re.M)


def attention(options, tokens: int) -> tuple[str, list]:
    if not wanted(options, f"attention-{tokens}.txt"):
        return f"{tokens:,} tokens: {NOT_MEASURED}", []
    text = kept(f"attention-{tokens}.txt",
                [options.bench, "-t", options.threads, "--tokens", tokens, "--repeats", 7, *ATTENTION], options.redo)
    return text.splitlines()[0], ATTENTION_LINE.findall(text)


# ---- charts


def scatter(title: str, x_name: str, points: list, path: pathlib.Path, log_x: bool = False) -> None:
    """points: (name, x, kl); small is good and below."""
    results.scatter(title, x_name, "KL to the full cache, nats",
                    [(name.replace("(budget=7.5%)", ""), x, y) for name, x, y in points], path, log_x,
                    ours=("quire", "monarch", "turbo"))


# ---- the page


def quality_table(rows: list) -> str:
    return table(
        ["recipe", "KL", "KL p99", "same top-1", "perplexity", "mass read", "bits/value", "rows/token", "kB/token"],
        [[f"`{r['recipe']}`", f"{r['kl_mean']:.4f}", f"{r['kl_p99']:.3f}", f"{r['same_top1']:.3f}",
          f"{100 * (r['ppl'] / r['ppl_full'] - 1):+.2f} %", "–" if r["mass"] is None else f"{r['mass']:.3f}",
          f"{r['bits_per_value']:.2f}", f"{r['rows_read_per_token']:.0f}", f"{r['bytes_read_per_token'] / 1000:.0f}"]
         for r in rows])


def rivals_text(rows: list) -> str:
    """In what others are ahead of quire, each with what it reads and keeps."""
    by_name = {r["recipe"]: r for r in rows}
    quire = by_name["quire"]
    parts = []
    for what, field in (("nearer to the full cache", "kl_mean"), ("fewer rows read", "rows_read_per_token"),
                        ("fewer bytes read", "bytes_read_per_token"), ("fewer bytes kept", "bits_per_value")):
        ahead = [f"`{name}`" for name in RIVALS if name in by_name and by_name[name][field] < quire[field]]
        parts.append(f"{what}: {', '.join(ahead) or 'none'}")
    return "Ahead of `quire` here, of the recipes that read or keep a part: " + "; ".join(parts) + ".\n"


def speed_table(rows: list) -> str:
    return table(["recipe", "prefill s", "tokens/s", "min..max", "ratio", "KV MB"],
                 [[f"`{r['recipe']}`", f"{r['prefill_seconds']['median']:.2f}",
                   f"{r['decode_tokens_per_s']['median']:.1f}",
                   f"{r['decode_tokens_per_s']['min']:.1f}..{r['decode_tokens_per_s']['max']:.1f}",
                   f"{r['decode_tokens_per_s']['median'] / r['full']:.2f}", f"{r['kv_bytes'] / 1e6:.1f}"]
                  for r in rows])


def recall_table(rows: list) -> str:
    return table(["recipe", "score", "NLL", "whole answer", "rows/token"],
                 [[f"`{r['recipe']}`", f"{r['score']:.3f}", f"{r['nll']:.2f}", f"{r['exact']:.2f}",
                   f"{r['rows_read_per_token']:.0f}"] for r in rows])


def write_page(options) -> None:
    charts = OUT / "cpu"
    charts.mkdir(parents=True, exist_ok=True)
    parts = [f"""# Recipes side by side

Written by `scripts/sweep`. SmolLM2-135M-Instruct (Q4_1), prose of Jane Austen ("Emma"): the prompt in one step, then the
next tokens of the text, teacher-forced one by one through the recipe's stored cache. KL, same top-1 and perplexity are against
the full f16 cache; every byte of a cache counts; rows are summed over layers and KV heads. Speeds: {cpu_name()}, {options.threads}
threads. Recipes that drop or leave out rows are asked for 7.5 % of them, and never less than 256 a head: at 512 tokens that
is half of them. Some read more than that: `monarch` its window besides, `quest` two layers whole, `snapkv` all that comes
behind the prompt. `h2o` and `keyformer` read their keys a second time, to see what is attended to. What dropped rows would
have had of the attention is not known (–). Few tokens are evaluated at each depth, so differences below a tenth of a KL mean
nothing.
"""]
    for depth in DEPTHS:
        rows = quality(depth).rows(options)
        parts.append(f"## {depth:,} tokens of prompt, {DEPTHS[depth]} evaluated\n\n" + quality_table(rows) + "\n")
        parts.append(rivals_text(rows))
        all_rows = next(r["rows_read_per_token"] for r in rows if r["recipe"] == "turbo4")
        for field, unit, name, chart in (("bits_per_value", 1, "bits per value, everything counted", "bytes"),
                                         ("rows_read_per_token", all_rows / 100, "% of the rows read", "rows"),
                                         ("bytes_read_per_token", 1e6, "MB of cache read per token", "read")):
            scatter(f"{depth:,} tokens", name, [(r["recipe"], r[field] / unit, r["kl_mean"]) for r in rows],
                    charts / f"quality-{chart}-{depth}.svg", log_x=chart == "read")
            parts.append(f"![KL against {name}](cpu/quality-{chart}-{depth}.svg)\n")
        timed = speed(options, depth)
        if not timed:
            parts.append(f"Whole decode at this depth: {NOT_MEASURED}.\n")
            continue
        parts.append(f"Whole decode at this depth, {options.repeats} repeats taking turns, 64 tokens each, the prompt computed anew; "
                     "two runs, each with a `full` of its own, which ratios are to:\n\n" + speed_table(timed) + "\n")
        kl = {r["recipe"]: r["kl_mean"] for r in rows}
        scatter(f"{depth:,} tokens", "speed of the whole decode, times full f16",
                [(r["recipe"], r["decode_tokens_per_s"]["median"] / r["full"], kl[r["recipe"]]) for r in timed
                 if r["recipe"] in kl], charts / f"quality-speed-{depth}.svg")
        parts.append(f"![KL against speed](cpu/quality-speed-{depth}.svg)\n")
    parts.append(f"## Planted facts\n\n`quire eval recall`: 16 facts (numbers, words, quotes) in prose of \"Emma\", {RECALL_SEEDS} "
                 "seeds; the score is 1 where the answers are as likely as with the full cache and 0 where they are as "
                 "likely as without the facts (docs/eval.md). The question comes behind the text, as from someone else, so "
                 "that recipes which choose by the prompt's end, `snapkv` above all, choose without knowing it. Bytes are "
                 "those of the tables above.\n")
    for tokens in RECALL_TOKENS:
        parts.append(f"{tokens:,} tokens:\n\n" + recall_table(recall(tokens).rows(options)) + "\n")
    parts.append("## Text without end\n\n`quire eval ppl --kv streaming`: 4 sinks and a window of 2,000 over 50,000 tokens, six times the "
                 "context that the model was trained for.\n\n```\n" + streaming(options).strip() + "\n```\n")
    parts.append("## Attention alone\n\nOne layer of the shape of Llama-3.1-8B (32 query and 8 KV heads of 128), out of the "
                 "caches; made-up rows with outlier channels, sinks and 1 token in 200 that a head looks for "
                 "(`bench/micro/attention_bench.cpp`). Error: of the output, as a share of its norm.\n")
    for tokens in ATTENTION_TOKENS:
        head, lines = attention(options, tokens)
        parts.append(f"{head}\n\n" + table(
            ["recipe", "µs a layer", "MB read", "GB/s", "of the bandwidth", "times full", "error"],
            [[f"`{name}`", *rest[:3], rest[3] + " %", rest[4], rest[5]] for name, *rest in lines]) + "\n")
    (OUT / "cpu.md").write_text("\n".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quire", default=ROOT / "build/release/quire")
    parser.add_argument("--bench", default=ROOT / "build/release/attention_bench")
    parser.add_argument("--model", default=ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--text", default=KEPT / "emma.txt")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--redo", action="store_true", help="measure again what build/sweep holds")
    parser.add_argument("--jobs", type=int, default=1, help="so many processes at once where time is not measured")
    parser.add_argument("--quality", action="store_true", help="measure what does not depend on time, and write nothing")
    parser.add_argument("--render", action="store_true", help="measure nothing, and write the page of what was")
    KEPT.mkdir(parents=True, exist_ok=True)
    options = parser.parse_args()
    if options.quality:
        measure_quality(options)
    else:
        write_page(options)


if __name__ == "__main__":
    main()
