"""The part of docs/results/butler.md on decoding over a disk (bench/micro/tier_bench): table, chart, target."""

from __future__ import annotations

import pathlib

from results import lines, table

NAMES = ("butler", "dense")
TARGET = 12  # times as fast as dense
EXPLAINED = """`tier_bench`: a stack of attention layers in the shape of Llama-3.1-8B, keys, values and queries made up, nothing but
attention and the predictor computed. Each recipe in a process of its own, with the same limit and the same disk; dense is `full`.
Where it stands for a model and where not: [tiers.md](tiers.md).
"""


def found_runs(measured) -> dict:
    """name -> what tier_bench has written, of those that are there."""
    return {name: run for name in NAMES if (run := measured.json(f"tiers-{name}.json"))}


def slower(runs: dict) -> float | None:
    """How many times as long as butler's a dense step takes, by the means."""
    return runs["dense"]["seconds_mean"] / runs["butler"]["seconds_mean"] if len(runs) == len(NAMES) else None


def tiers_part(measured, charts: pathlib.Path) -> str:
    runs = found_runs(measured)
    if not runs:
        return ""
    body = [[f"`{run['recipe']}`", f"{run['seconds_mean']:.2f}",
             f"{run['seconds_median']:.2f} ({run['seconds_p10']:.2f}, {run['seconds_p90']:.2f})",
             f"{run['tokens_per_s']:.3f}", f"{run['fetched_bytes_per_token'] / 1e9:.2f}",
             f"{run['fetched_bytes_per_token'] / 1e9 / run['seconds_mean']:.2f}", f"{100 * run['hit_rate']:.1f} %",
             f"{run['peak_bytes'] / 1e6:.0f}", f"{run['peak_rss_bytes'] / 1e6:.0f}", str(run["steps"])]
            for run in runs.values()]
    one = next(iter(runs.values()))
    head = (f"{one['tokens']:,} tokens, {one['layers']} layers, {one['kv_heads']} KV heads of {one['head_dim']}; "
            f"{one['outside_bytes'] / 1e9:.1f} GB outside ({one['device']}), `--kv-ram-mb {one['limit_bytes'] / 1e6:.0f}`.\n\n")
    lines(f"{one['tokens']:,} tokens over a disk", "step", "seconds",
          {name: list(enumerate(run["seconds"], 1)) for name, run in runs.items()}, charts / "tiers.svg", log_y=True)
    return head + table(["recipe", "s/token, mean", "median (10 %, 90 %)", "tokens/s", "GB fetched/token", "GB/s",
                         "there when asked for", "peak MB", "resident peak MB", "steps"], body) + \
        f"\n\n![seconds of each step]({charts.name}/tiers.svg)\n"


def tier_targets(measured) -> list:
    runs = found_runs(measured)
    times = slower(runs)
    if times is None:
        return []
    return [[f"decoding over a disk, {runs['butler']['tokens']:,} tokens", f"≥ {TARGET} times as fast as dense",
             f"{times:.1f} times", "met" if times >= TARGET else "**missed**"]]
