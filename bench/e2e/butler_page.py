"""docs/results/butler.md and its charts, of what butler.py has measured. Every figure comes from the measurements."""

from __future__ import annotations

import json
import math
import pathlib
from statistics import median

from butler_plan import CHOOSING, Plan, coref_recipes, interval_recipes, long_recipes, timed_recipes
from butler_tiers import EXPLAINED, tier_targets, tiers_part
from results import lines, table

NOT_MEASURED = "Not measured.\n"
PROJECTED_AT_ONCE = 64  # keys, where the local rows are not fewer


class Measured:
    """The measurements of a folder, by what they are of."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        if not (folder / "study.json").exists():
            raise SystemExit(f"study-butler: {folder} holds no measurements (study.json)")
        self.study = json.loads((folder / "study.json").read_text())
        self.plan = Plan.of_json(self.study["of"]["plan"])

    def json(self, name: str) -> dict | None:
        path = self.folder / name
        return json.loads(path.read_text()) if path.exists() else None

    def rows(self, name: str) -> list | None:
        found = self.json(name)
        return found and found["rows"]

    def by_budget(self, depth: int) -> dict:
        """name -> rows of the budgets, of the recipes that are there."""
        found = {name: self.rows(f"kl-{depth}-{name}.json") for name in CHOOSING}
        return {name: rows for name, rows in found.items() if rows}

    def by_interval(self, depth: int) -> dict:
        """(interval, neighbours) -> row."""
        keys, found = list(interval_recipes(self.plan, depth)), {}
        for first in range(0, len(keys), 3):
            for key, row in zip(keys[first:first + 3], self.rows(f"interval-{depth}-{first}.json") or []):
                found[key] = row
        return dict(sorted(found.items()))

    def coref(self) -> tuple[int, dict, list]:
        """Items, rows budget -> name -> figures over all of them, and those of full."""
        parts = [part for skip in range(0, self.plan.coref_items, self.plan.coref_part)
                 if (part := self.json(f"coref-{skip}.json"))]
        n_items = sum(part["items"] for part in parts)

        def mean(i: int, field: str) -> float:
            return sum(part["items"] * part["rows"][i][field] for part in parts) / n_items

        def per_token(i: int, field: str) -> float:
            n_tokens = [part["items"] * part["location_tokens"] for part in parts]
            return sum(n * part["rows"][i][field] for n, part in zip(n_tokens, parts)) / sum(n_tokens)

        def rank(i: int, field: str) -> float:
            return math.exp(sum(part["items"] * math.log(part["rows"][i][field]) for part in parts) / n_items)

        found: dict = {}
        i = 0
        for budget in self.plan.coref_budgets if parts else ():
            for name, recipe in coref_recipes(budget).items():
                found.setdefault(budget, {})[name] = {
                    "recipe": recipe, **{field: mean(i, field) for field in ("accuracy", "coverage", "read")},
                    "rank": rank(i, "rank"), "nll": per_token(i, "nll")}
                i += 1
        full = [rank(0, "rank_full"), per_token(0, "nll_full")] if parts else []
        return n_items, found, full

    def long(self, temperature: float) -> tuple[int, list]:
        """Prompts, and figures of each recipe over them."""
        parts = [part for prompt in range(self.plan.prompts)
                 if (part := self.json(f"long-{temperature:g}-{prompt}.json"))]
        rows = [self._over_prompts([part["rows"][i] for part in parts]) for i in range(len(long_recipes(self.plan)) + 1)
               ] if parts else []
        return len(parts), rows

    @staticmethod
    def _over_prompts(runs: list) -> dict:
        """Of one run of each prompt, whose forward passes are one fewer than its tokens, or, where it ended, as many."""
        figures = {field: sum(run[field] for run in runs) / len(runs)
                   for field in ("repeats", "ends", "tokens", "tokens_as_full", "distinct")}
        steps = [run["tokens"] - 1 + run["ends"] for run in runs]
        begins = [run["tokens_to_repeat"] for run in runs if run["tokens_to_repeat"] is not None]
        n_steps = sum(steps)
        n_rows = sum(n * run["rows_read_per_token"] for n, run in zip(steps, runs))
        return {"recipe": runs[0]["recipe"], **figures,
                "tokens_to_repeat": sum(begins) / len(begins) if begins else None,
                "tokens_per_s": n_steps / sum(n / run["tokens_per_s"] for n, run in zip(steps, runs) if n),
                "read": n_rows / sum(n * run["rows_read_per_token"] / run["read"] for n, run in zip(steps, runs)),
                "rows": n_rows / n_steps,
                "bytes": sum(n * run["bytes_read_per_token"] for n, run in zip(steps, runs)) / n_steps}

    def speed(self, depth: int) -> dict:
        """name -> seconds of a step, and of what the predictor does in it."""
        path = self.folder / f"speed-{depth}.jsonl"
        if self.json(f"speed-{depth}.json") is None or not path.exists():
            return {}
        steps: dict = {}
        for line in path.read_text().splitlines():
            step = json.loads(line)
            if step["phase"] == "decode" and step["step"] > 1:  # the first reads everything
                steps.setdefault(step["recipe"], []).append(step)
        found = {name: Timed(steps[recipe]) for name, recipe in timed_recipes().items()}
        for name, timed in found.items():
            timed.count(found["interval 16"], found["full"], {"full": 0, "interval 1": 1}.get(name, 16))
        return found


class Timed:
    """Steps of one recipe, told apart by what is done in them."""

    def __init__(self, steps: list):
        self.read = sum(step["bytes_read"] for step in steps) / len(steps)

        def middle(named: bool, ends: bool) -> float | None:
            some = [step["seconds"] for step in steps
                    if (step["predictor_calls"] > 0) == named and (step["n_tokens"] % PROJECTED_AT_ONCE == 0) == ends]
            return median(some) if some else None

        self.plain, self.named, self.ends_batch = middle(False, False), middle(True, False), middle(False, True)
        self.step = median(step["seconds"] for step in steps)
        self.prediction = self.projection = self.share = 0.0

    def count(self, seldom: "Timed", full: "Timed", interval: int) -> None:
        """By the steps of interval 16: with a prediction and without; where keys are projected and where not."""
        if interval == 0:
            return
        self.prediction = seldom.named - seldom.plain
        self.projection = max(0.0, (seldom.ends_batch - seldom.plain) - (full.ends_batch - full.plain))
        cost = self.prediction / interval + self.projection / PROJECTED_AT_ONCE
        if interval > 1:
            self.step = self.plain + cost
        self.share = cost / self.step


# ---- parts of the page


def quality_part(measured: Measured, depth: int, charts: pathlib.Path) -> str:
    found, plan = measured.by_budget(depth), measured.plan
    head = f"### {depth:,} tokens, {plan.depths[depth]} evaluated\n\n"
    if not found:
        return head + NOT_MEASURED
    body = []
    for i, budget in enumerate(plan.budgets):
        best = found["oracle"][i]["mass"] if "oracle" in found else math.nan
        for name, rows in found.items():
            r = rows[i]
            body.append([f"{budget} %", f"`{r['recipe']}`", f"{r['mass']:.3f}", f"{r['mass'] / best:.3f}",
                         f"{r['kl_mean']:.4f}", f"{r['same_top1']:.3f}",
                         f"{100 * (r['ppl'] / r['ppl_full'] - 1):+.2f} %", f"{r['rows_read_per_token']:.0f}", f"{r['bytes_read_per_token'] / 1000:.0f}"])
    pictures = ""
    for field, name, log in (("mass", "share of the attention mass that is read", False),
                             ("kl_mean", "KL to the full cache, nats", True)):
        file = f"{field.split('_')[0]}-{depth}.svg"
        lines(f"{depth:,} tokens", "budget, % of the rows", name,
              {recipe: [(b, max(r[field], 1e-4)) for b, r in zip(plan.budgets, rows)]
               for recipe, rows in found.items()},
              charts / file, log_x=True, log_y=log)
        pictures += f"\n![{name} by budget]({charts.name}/{file})\n"
    return head + table(["budget", "recipe", "mass read", "of the oracle's", "KL", "same top-1", "perplexity",
                         "rows/token", "kB/token"], body) + "\n" + pictures


def interval_part(measured: Measured, depth: int, charts: pathlib.Path) -> str:
    found = measured.by_interval(depth)
    head = f"### {depth:,} tokens, {measured.plan.interval_budget} %\n\n"
    if not found:
        return head + NOT_MEASURED
    body = [[str(interval), "on" if on else "off", f"{r['mass']:.3f}", f"{r['kl_mean']:.4f}", f"{r['same_top1']:.3f}",
             f"{r['predictor_calls_per_token']:.2f}", f"{r['neighbour_rows_per_token']:.0f}",
             f"{r['rows_read_per_token']:.0f}", f"{r['bytes_read_per_token'] / 1000:.0f}"]
            for (interval, on), r in found.items()]
    file = f"interval-{depth}.svg"
    lines(f"{depth:,} tokens", "predictions every so many steps", "share of the attention mass that is read",
          {name: points for name, on in (("with neighbours", True), ("without", False))
           if (points := [(i, r["mass"]) for (i, o), r in found.items() if o == on])}, charts / file, log_x=True)
    return head + table(["interval", "neighbours", "mass read", "KL", "same top-1", "predictor calls/token",
                         "neighbours/token", "rows/token", "kB/token"], body) + \
        f"\n\n![mass read by interval]({charts.name}/{file})\n"


def coref_part(measured: Measured) -> str:
    n_items, found, full = measured.coref()
    if not found:
        return NOT_MEASURED
    parts = [f"{n_items} texts; `full`: rank {full[0]:.2f}, nll {full[1]:.3f}.\n"]
    for budget, rows in found.items():
        best = rows["oracle"]["coverage"]
        parts.append(f"{budget} rows:\n\n" + table(
            ["recipe", "accuracy", "coverage", "of the oracle's", "read", "rank", "nll"],
            [[f"`{r['recipe']}`", f"{r['accuracy']:.3f}", f"{r['coverage']:.3f}",
              f"{r['coverage'] / best:.2f}" if r["read"] < 1 and best > 0 else "", f"{100 * r['read']:.1f} %", f"{r['rank']:.2f}", f"{r['nll']:.3f}"]
             for r in sorted(rows.values(), key=lambda r: -r["coverage"])]) + "\n")
    return "\n".join(parts)


def long_part(measured: Measured, temperature: float) -> str:
    n, rows = measured.long(temperature)
    head = f"### {'Greedy' if temperature == 0 else f'Temperature {temperature:g}'}\n\n"
    if not rows:
        return head + NOT_MEASURED
    return head + f"{n} prompts, at most {measured.plan.new_tokens:,} tokens each.\n\n" + table(
        ["recipe", "repeats", "from token", "ends", "tokens", "distinct", "as full", "tokens/s", "read", "rows/token",
         "kB/token"],
        [[f"`{r['recipe']}`", f"{100 * r['repeats']:.0f} %",
          "" if r["tokens_to_repeat"] is None else f"{r['tokens_to_repeat']:.0f}", f"{100 * r['ends']:.0f} %",
          f"{r['tokens']:.0f}", f"{r['distinct']:.3f}", f"{r['tokens_as_full']:.0f}", f"{r['tokens_per_s']:.1f}",
          f"{100 * r['read']:.0f} %", f"{r['rows']:.0f}", f"{r['bytes'] / 1000:.0f}"] for r in rows]) + "\n"


def speed_part(measured: Measured, depth: int) -> str:
    found = measured.speed(depth)
    head = f"### {depth:,} tokens, 10 %\n\n"
    if not found:
        return head + NOT_MEASURED
    return head + table(
        ["recipe", "ms a step", "a prediction, ms", "64 projections, ms", "share of a step", "MB/token"],
        [[f"`{timed_recipes()[name]}`", f"{1000 * t.step:.2f}", *(["", "", ""] if name == "full" else [
            f"{1000 * t.prediction:.2f}", f"{1000 * t.projection:.2f}", f"{100 * t.share:.1f} %"]),
          f"{t.read / 1e6:.2f}"] for name, t in found.items()]) + "\n"


# ---- targets


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def quality_targets(measured: Measured) -> list:
    rows = []
    for depth in measured.plan.depths:
        found = measured.by_budget(depth)
        if "butler" in found and "oracle" in found and 10 in measured.plan.budgets:
            i = measured.plan.budgets.index(10)
            ratio = found["butler"][i]["mass"] / found["oracle"][i]["mass"]
            rows.append([f"mass read at 10 %, {depth:,} tokens", "≥ 0.9 of the oracle's", f"{ratio:.3f}", verdict(ratio >= 0.9)])
    for depth in measured.plan.depths:
        found = measured.by_interval(depth)
        if (1, False) not in found or (16, True) not in found:
            continue
        every, seldom = found[1, False], found[16, True]
        lost = 100 * (every["mass"] - seldom["mass"])
        fewer = every["predictor_calls_per_token"] / seldom["predictor_calls_per_token"]
        rows.append([f"mass lost by interval 16 with neighbours, {depth:,} tokens", "≤ 2 points", f"{lost:.1f} points",
                     verdict(lost <= 2)])
        rows.append([f"predictor calls, {depth:,} tokens", "16 times fewer", f"{fewer:.1f} times", verdict(fewer >= 16)])
    return rows


def coref_targets(measured: Measured) -> list:
    rows = []
    for budget, found in measured.coref()[1].items():
        own = found["butler"]["coverage"]
        best = found["oracle"]["coverage"]
        ratio = own / best if best > 0 else math.inf
        rows.append([f"coverage, {budget} rows", "≥ 0.9 of the oracle's", f"{ratio:.2f}", verdict(ratio >= 0.9)])
        ahead = [name for name, r in found.items()
                 if name not in ("butler", "oracle") and r["read"] < 1 and r["coverage"] >= own]
        rows.append([f"coverage, {budget} rows", "above every rival that leaves rows out",
                     "behind " + ", ".join(ahead) if ahead else "above all", verdict(not ahead)])
    return rows


def speed_targets(measured: Measured) -> list:
    rows = []
    for depth in measured.plan.timed_depths:
        found = measured.speed(depth)
        if found:
            share = 100 * found["interval 16"].share
            rows.append([f"predictor and projection at interval 16, {depth:,} tokens", "≤ 5 % of a decode step",
                         f"{share:.1f} %", verdict(share <= 5)])
    return rows


def part_of(name: str) -> str:
    return next((part for part in ("speed", "tiers") if name.startswith(part)), "quality")


def machine(measured: Measured, part: str) -> str:
    """Where the part's measurements were made; what was kept before each said so is of the folder's note of the part."""
    noted, texts = measured.study.get("where", {}), {}
    for path in sorted(measured.folder.glob("*.json")):
        if path.name == "study.json" or part_of(path.name) != part:
            continue
        where = noted.get(path.name) or measured.study.get(part)
        if where is None:
            text = "a machine that is not noted"
        else:
            at_once = f", {where['jobs']} at once" if where["jobs"] > 1 else ""
            text = f"{where['cpu']}, {where['threads']} thread{'s' if where['threads'] > 1 else ''} a process{at_once}"
        texts[text] = texts.get(text, 0) + 1
    if not texts:
        return "not measured"
    if len(texts) == 1:
        return next(iter(texts))
    return "mixed (" + "; ".join(f"{n} measurement{'s' if n > 1 else ''} on {text}" for text, n in texts.items()) + ")"


def write(folder: pathlib.Path, out: pathlib.Path) -> None:
    measured, charts = Measured(folder), out / "butler"
    plan, of = measured.plan, measured.study
    charts.mkdir(parents=True, exist_ok=True)
    targets = quality_targets(measured) + coref_targets(measured) + speed_targets(measured) + tier_targets(measured)
    parts = [f"""# TokenButler, measured

Written by `scripts/study-butler`. {of['names']['model']}, predictor {of['names']['butler']} (SHA-256 {of['of']['butler'][:12]}).
Quality: {machine(measured, 'quality')}. Speed: {machine(measured, 'speed')}. Over a disk: {machine(measured, 'tiers')}. What the method is: [butler.md](../methods/butler.md).

## Targets

{table(["what", "target", "measured", ""], targets) if targets else NOT_MEASURED}

## By budget

`quire eval kl` on *Emma*: the prompt in one step, then the tokens that follow, teacher-forced one by one through the stored
cache. Budgets are rows of a layer and KV head, in percent of the prompt; `butler` reads its first layer whole on top of them.
Mass: the share of the attention on the rows read, in layers where rows are left out, of each recipe's own cache. Four sinks and
16 newest rows at most are read in any case by `butler`, 16 newest ones by `random`; `quire` and `selfindex` hold the page that
is open exact, up to 63 rows, which of the smallest budgets can be all. With so few tokens, differences of a tenth of a KL mean
nothing.
""", *(quality_part(measured, depth, charts) for depth in plan.depths), """## By interval

`butler`, whose 64 newest rows are read: a prediction every so many steps, what it named read in between; neighbours are rows on
top of the budget.
""", *(interval_part(measured, depth, charts) for depth in plan.depths), """## Co-reference

`quire eval coref` (docs/eval.md): whether the rows of a name are read in the step that asks for it, over layers and heads that
leave rows out. All recipes have the same rows a head. `selfindex` codes nothing, so leaves nothing out, before a text has 512
tokens, and these have fewer.
""", coref_part(measured), """## Long generations

`quire eval degeneration` (docs/eval.md): runs in which the same 10 tokens stand in five places, and runs that the model ended.
Budgets by share are never below 256 rows; `read` says what they came to.
""", *(long_part(measured, temperature) for temperature in plan.temperatures), """## Speed

`quire bench`, steps told apart by their trace. A prediction: the median of steps in which the predictor runs less that of
steps in which it does not, both of interval 16, so of the same selection. 64 projections: the median of steps behind which 64
keys are projected less that of steps without, less the same difference of `full`, which begins a page there too. A step costs
its median without either, a prediction by the interval, and a 64th of the projections; the share is that of the latter two.
""", *(speed_part(measured, depth) for depth in plan.timed_depths), "## Over a disk\n\n" + EXPLAINED,
             tiers_part(measured, charts) or NOT_MEASURED]
    (out / "butler.md").write_text("\n".join(parts))
