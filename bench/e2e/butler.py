"""TokenButler measured: quality by budget and interval, co-reference, long generations, speed: docs/results/butler.md.

Every measurement is one command, whose JSON is kept in a folder as soon as it ends; what is there is not measured
again, so an interrupted study goes on. --quality measures what does not depend on time, in as many single-threaded
processes at once as --jobs says, --speed the rest, and --tiers decoding at 256K tokens over a disk; all also elsewhere, with
Python alone. --render DIR writes the page from such a folder and measures nothing. Called by scripts/study-butler.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess

import butler_page
from butler_plan import CHOOSING, Plan, coref_recipes, interval_recipes, long_recipes, tier_recipes, timed_recipes
from results import ROOT, Kept, cpu_name


class Study:
    """Names of measurements and their commands."""

    def __init__(self, plan: Plan, options):
        self.plan, self.options = plan, options

    def eval(self, *arguments) -> list:
        return [self.options.quire, "eval", *arguments, "-m", self.options.model, "--butler", self.options.butler,
                "-t", 1, "--json"]

    def kl(self, depth: int, recipes) -> list:
        return self.eval("kl", "-f", self.options.text, "--prompt-tokens", depth, "--eval-tokens",
                         self.plan.depths[depth], "--kv", ",".join(recipes))

    def quality_jobs(self) -> list:
        """The longest first, as far as is known."""
        plan, jobs = self.plan, []
        for skip in range(0, plan.coref_items, plan.coref_part):
            recipes = [recipe for rows in plan.coref_budgets for recipe in coref_recipes(rows).values()]
            jobs.append((f"coref-{skip}.json", self.eval("coref", "--skip", skip, "--items",
                                                         min(plan.coref_part, plan.coref_items - skip), "--kv",
                                                         ",".join(recipes))))
        for depth in sorted(plan.depths, reverse=True):
            for name, recipe in CHOOSING.items():
                jobs.append((f"kl-{depth}-{name}.json",
                             self.kl(depth, [recipe.format(rows=plan.rows(depth, b)) for b in plan.budgets])))
            recipes = list(interval_recipes(plan, depth).values())
            for first in range(0, len(recipes), 3):
                jobs.append((f"interval-{depth}-{first}.json", self.kl(depth, recipes[first:first + 3])))
        for temperature in plan.temperatures:
            for prompt in range(plan.prompts):
                command = self.eval("degeneration", "--skip", prompt, "--prompts", 1, "-n", plan.new_tokens,
                                    "--temp", temperature, "--kv", ",".join(long_recipes(plan)))
                jobs.append((f"long-{temperature:g}-{prompt}.json", command))
        return jobs

    def calibrate(self) -> None:
        """Has the model's calibration made where there is none, before many processes want it at once."""
        command = self.eval("kl", "-p", "One two three four", "--prompt-tokens", 2, "--eval-tokens", 1, "--kv", "quire")
        subprocess.run([str(part) for part in command], check=False, capture_output=True)

    def speed_jobs(self, folder: pathlib.Path) -> list:
        """Not warmed up: it is medians of many steps that count, and prefills take most of the time."""
        return [(f"speed-{depth}.json",
                 [self.options.quire, "bench", "-m", self.options.model, "--butler", self.options.butler, "-f",
                  self.options.text, "-t", self.options.threads, "--json", "--no-quality", "--no-warmup",
                  "--prompt-tokens", depth, "--max-new-tokens", self.plan.timed_tokens, "--repeats", self.plan.repeats, "--trace",
                  folder / f"speed-{depth}.jsonl", "--mode", ",".join(timed_recipes().values())])
                for depth in self.plan.timed_depths]

    def tier_jobs(self) -> list:
        plan = self.plan
        steps = {"butler": (plan.tier_warm, plan.tier_steps), "dense": (plan.tier_dense_warm, plan.tier_dense_steps)}
        return [(f"tiers-{name}.json",
                 [self.options.tier_bench, "--recipe", recipe, "--tokens", plan.tier_tokens, "--layers", plan.tier_layers,
                  "--kv-ram-mb", plan.tier_ram_mb, "--warm", steps[name][0], "--steps", steps[name][1], "-t",
                  self.options.tier_threads])
                for name, recipe in tier_recipes(plan, self.options.tier_folder).items()]


def digest(path: pathlib.Path) -> str:
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def note_study(folder: pathlib.Path, plan: Plan, options, part: str, names: list) -> None:
    """What the folder's measurements are of, which must not be mixed, and where those named are about to be made."""
    path = folder / "study.json"
    of = {"model": digest(options.model), "butler": digest(options.butler), "text": digest(options.text),
          "plan": json.loads(json.dumps(dataclasses.asdict(plan)))}
    known = json.loads(path.read_text()) if path.exists() and not options.redo else {"of": of}
    # A plan that was kept before there was a part says nothing of it.
    known["of"]["plan"] = {**of["plan"], **known["of"]["plan"]}
    for name, value in of.items():
        if known["of"][name] != value:
            raise SystemExit(f"study-butler: {folder} holds measurements of another {name}; give another folder with "
                             "--kept, or measure anew with --redo")
    known["names"] = {"model": pathlib.Path(options.model).name, "butler": pathlib.Path(options.butler).name}
    threads = {"speed": options.threads, "tiers": options.tier_threads}.get(part, 1)
    where = {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": threads,
             "jobs": options.jobs if part == "quality" else 1}
    known.setdefault("where", {}).update({name: where for name in names})
    path.write_text(json.dumps(known) + "\n")


def whole_path(text: str) -> pathlib.Path:
    return pathlib.Path(text).absolute()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", type=whole_path, default=ROOT / "build/release/quire")
    parser.add_argument("--model", type=whole_path, default=ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--butler", type=whole_path, default=ROOT / "assets/butler-smollm2-135m.safetensors",
                        help="the trained predictor")
    parser.add_argument("--text", type=whole_path, default=ROOT / "build/butler-study/emma.txt")
    parser.add_argument("--kept", type=whole_path, default=ROOT / "build/butler-study/measured",
                        help="folder of the measurements")
    parser.add_argument("--out", type=whole_path, default=ROOT / "docs/results", help="folder of butler.md and butler/")
    parser.add_argument("--threads", type=int, default=1, help="of what is timed")
    parser.add_argument("--tier-bench", type=whole_path, default=ROOT / "build/release/tier_bench")
    parser.add_argument("--tier-folder", default="/tmp", help="where rows lie on disk: room for 35 GB")
    parser.add_argument("--tier-threads", type=int, default=os.cpu_count())
    parser.add_argument("--jobs", type=int, default=1, help="so many processes at once where time is not measured")
    parser.add_argument("--quality", action="store_true",
                        help="measure what does not depend on time, and write no page")
    parser.add_argument("--speed", action="store_true", help="measure what does, and write no page")
    parser.add_argument("--tiers", action="store_true", help="measure decoding over a disk, and write no page")
    parser.add_argument("--only", default="",
                        help="only measurements whose name begins so: kl-7000, interval, coref, long, speed, tiers")
    parser.add_argument("--render", type=whole_path, metavar="DIR",
                        help="write the page from a folder; measure nothing")
    parser.add_argument("--redo", action="store_true", help="measure again what the folder holds")
    parser.add_argument("--tiny", action="store_true", help="a few tokens of each, to try the study out")
    options = parser.parse_args()
    if options.render is None:
        plan = Plan.tiny() if options.tiny else Plan()
        study = Study(plan, options)
        kept = Kept(options.kept, "study-butler", options.redo)
        parts = {"quality": (study.quality_jobs(), options.jobs), "speed": (study.speed_jobs(options.kept), 1),
                 "tiers": (study.tier_jobs(), 1)}
        chosen = [part for part in parts if getattr(options, part)]
        for part in chosen or parts:
            jobs = [job for job in parts[part][0] if job[0].startswith(options.only)]
            if not jobs:
                continue
            new = [name for name, _ in jobs if options.redo or not (options.kept / name).exists()]
            note_study(options.kept, plan, options, part, new)
            if new and part != "tiers":
                study.calibrate()
            kept.get_all(jobs, parts[part][1])
        if chosen:
            return
    butler_page.write(options.render or options.kept, options.out)


if __name__ == "__main__":
    main()
