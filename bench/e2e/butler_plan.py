"""What the study of TokenButler measures: sizes, and the recipes that are compared."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Plan:
    """What is measured; kept beside the measurements, so that a page is made of what there is."""

    # Prompt tokens: evaluated tokens. The first of these is read whole, the others are a multiple of 16, so that
    # intervals come out even.
    depths: dict = dataclasses.field(default_factory=lambda: {2000: 401, 7000: 209})
    budgets: tuple = (2, 5, 10, 20)  # % of the prompt
    interval_budget: int = 10
    intervals: tuple = (1, 2, 4, 8, 16)
    coref_budgets: tuple = (64, 128)  # rows
    coref_items: int = 100
    coref_part: int = 10  # items of one command
    shares: tuple = (70, 50, 30)  # % of the text, of long generations
    temperatures: tuple = (1,)  # greedily, `full` repeats itself with every prompt that was tried
    prompts: int = 20
    new_tokens: int = 1500
    timed_depths: tuple = (2000, 7000)
    timed_tokens: int = 258
    repeats: int = 2
    # Of a stack of made-up attention layers over a disk (bench/micro/tier_bench): steps are those that are timed, behind
    # so many others; every 16th has a prediction.
    tier_tokens: int = 262_144
    tier_layers: int = 32
    tier_ram_mb: int = 2048
    tier_rows: int = 2048  # of a layer and KV head
    tier_steps: int = 32
    tier_warm: int = 17
    tier_dense_steps: int = 3
    tier_dense_warm: int = 1

    @staticmethod
    def tiny() -> "Plan":
        return Plan(depths={300: 17, 500: 17}, budgets=(5, 10, 20), intervals=(1, 4, 16), coref_items=2, coref_part=1,
                    shares=(50,), prompts=2, new_tokens=40, timed_depths=(300,), timed_tokens=140, repeats=1,
                    tier_tokens=2048, tier_layers=3, tier_ram_mb=16, tier_rows=256, tier_steps=4, tier_warm=2,
                    tier_dense_steps=2)

    @staticmethod
    def of_json(values: dict) -> "Plan":
        return Plan(**{**values, "depths": {int(depth): n for depth, n in values["depths"].items()}})

    def rows(self, depth: int, percent: int) -> int:
        """A budget by share would be 256 rows at least, so budgets are given in rows."""
        return max(1, round(depth * percent / 100))


# Sixteen newest rows and four sinks at most are read in any case where a recipe has such a setting, so that what is
# compared is the choice of the others: quire's and selfindex' exact rows are those of the page that is open, up to 63.
CHOOSING = {
    "butler": "butler(budget={rows},local=16)",
    "quire": "quire(budget={rows},tail=0)",
    "selfindex": "selfindex(budget={rows},full_rows=16)",
    "quest": "quest(budget={rows},dense=0)",
    "doublesparse": "doublesparse(budget={rows})",
    "oracle": "oracle(budget={rows})",
    "random": "random(budget={rows},recent=16)",
}


def interval_recipes(plan: Plan, depth: int) -> dict:
    """(interval, neighbours): recipe, as many newest rows being read as the recipe has by itself."""
    rows = plan.rows(depth, plan.interval_budget)
    return {(interval, on): f"butler(budget={rows}" + f",interval={interval}" * (interval > 1) + ",neighbours=on" * on + ")"
            for on in (False, True) for interval in plan.intervals}


def coref_recipes(rows: int) -> dict:
    """All read so many rows in the answer step: `streaming` its sinks too, `snapkv` the question, of about 16 tokens."""
    return {**{name: recipe.format(rows=rows) for name, recipe in CHOOSING.items()},
            "h2o": f"h2o(budget={rows})", "snapkv": f"snapkv(budget={max(1, rows - 16)},window=16)",
            "streaming": f"streaming(window={rows - 4})"}


def long_recipes(plan: Plan) -> list:
    """`full` comes first by itself."""
    least = min(plan.shares)
    return [recipe.format(share=share) for recipe in ("butler(budget={share}%,local=16)", "quire(budget={share}%,tail=16)",
                                                      "h2o(budget={share}%)") for share in plan.shares] + [
        f"butler(budget={least}%,local=16,interval=16,neighbours=on)", f"oracle(budget={least}%)"]


def tier_recipes(plan: Plan, folder: str) -> dict:
    """name -> recipe over the same kind of tier, each measured by a process of its own."""
    place = f",place=disk(path={folder})"
    return {"butler": f"butler(budget={plan.tier_rows},interval=16,neighbours=on,keys=int8){place}", "dense": f"full{place}"}


def timed_recipes() -> dict:
    return {"full": "full", "interval 1": "butler(budget=10%)", "interval 16": "butler(budget=10%,interval=16)",
            "interval 16, neighbours": "butler(budget=10%,interval=16,neighbours=on)"}
