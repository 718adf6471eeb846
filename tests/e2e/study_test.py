"""scripts/study-butler's Python: what it measures, keeps and renders, in small."""

import json
import subprocess
import sys
import xml.dom.minidom
from pathlib import Path

from quire_cli import MODEL, QUIRE, SANITIZED, TIMEOUT_S, QuireTest, main

BENCH = Path(__file__).resolve().parents[2] / "bench/e2e"
sys.path.insert(0, str(BENCH))

import butler_page  # noqa: E402
from butler_plan import Plan, coref_recipes, interval_recipes  # noqa: E402


class Study(QuireTest):
    def study(self, *arguments, code: int = 0) -> str:
        command = [sys.executable, BENCH / "butler.py", "--quire", QUIRE.resolve(), "--model", MODEL.resolve(), "--kept",
                   self.folder / "kept", "--out", self.folder / "out", *arguments]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_measures_once_and_renders_what_there_is(self):
        if SANITIZED:
            self.skipTest("minutes under sanitizers; the release build runs it")
        text = self.folder / "text"
        text.write_text(" ".join(f"Number {i} is {i * i % 97} and {i * i * i % 89} of many." for i in range(200)))
        tiny = ["--tiny", "--quality", "--text", text, "--jobs", 2]
        for part in ("interval-300", "kl-300-butler", "kl-300-oracle", "long-1-1"):
            self.assertIn("quire eval", self.study(*tiny, "--only", part))
        kept = self.folder / "kept"
        self.assertEqual(sorted(path.name for path in kept.iterdir()),
                         ["interval-300-0.json", "interval-300-3.json", "kl-300-butler.json", "kl-300-oracle.json",
                          "long-1-1.json", "study.json"])
        before = {path.name: path.read_bytes() for path in kept.iterdir()}
        self.assertEqual(self.study(*tiny, "--only", "interval-300"), "")
        self.assertEqual({path.name: path.read_bytes() for path in kept.iterdir()}, before)
        self.assertIn("another plan", self.study("--quality", "--text", text, code=1))
        self.assertIn("another text", self.study("--tiny", "--quality", "--text", MODEL, code=1))

        self.study("--render", kept)
        page = (self.folder / "out/butler.md").read_text()
        row = json.loads((kept / "kl-300-butler.json").read_text())["rows"][1]
        self.assertIn(f"| 10 % | `{row['recipe']}` | {row['mass']:.3f} |", page)
        self.assertIn("| predictor calls, 300 tokens | 16 times fewer | 16.0 times | met |", page)
        self.assertIn("## Co-reference", page)
        self.assertIn("1 prompts, at most 40 tokens each", page)
        self.assertIn(butler_page.NOT_MEASURED, page)
        for name in ("mass-300", "kl-300", "interval-300"):
            xml.dom.minidom.parse(str(self.folder / f"out/butler/{name}.svg"))
            self.assertIn(f"(butler/{name}.svg)", page)
        self.assertIn("no measurements", self.study("--render", self.folder, code=1))

    def test_what_fails_is_told_and_not_kept(self):
        text = self.folder / "text"
        text.write_text("Too short.")
        told = self.study("--tiny", "--quality", "--text", text, "--only", "kl-300-butler", code=1)
        self.assertIn("1 of 1 measurements failed", told)
        self.assertEqual([path.name for path in (self.folder / "kept").iterdir()], ["study.json"])


class Places(QuireTest):
    def test_machines_of_each_measurement_are_told(self):
        here = {"cpu": "A", "cores": 2, "threads": 1, "jobs": 1}
        names = ("kl-300-butler.json", "kl-300-oracle.json", "speed-300.json")
        for name in names:
            (self.folder / name).write_text("{}")

        def machine(study: dict, part: str) -> str:
            (self.folder / "study.json").write_text(json.dumps({"of": {"plan": {"depths": {}}}, **study}))
            return butler_page.machine(butler_page.Measured(self.folder), part)

        self.assertEqual(machine({"where": {name: here for name in names}}, "quality"), "A, 1 thread a process")
        self.assertEqual(machine({"where": {}}, "tiers"), "not measured")
        mixed = machine({"where": {names[0]: here, names[1]: {**here, "cpu": "B", "jobs": 4}}}, "quality")
        self.assertEqual(mixed, "mixed (1 measurement on A, 1 thread a process; 1 measurement on B, 1 thread a process, 4 at once)")
        self.assertEqual(machine({"quality": here}, "quality"), "A, 1 thread a process")

    def test_decoding_over_a_disk_is_measured_by_two_processes(self):
        bench = QUIRE.with_name("tier_bench")
        if SANITIZED or not bench.exists():
            self.skipTest("needs the release build's tier_bench")
        kept, out = self.folder / "kept", self.folder / "out"
        text = self.folder / "text"
        text.write_text("It is not read.")
        command = [sys.executable, BENCH / "butler.py", "--quire", QUIRE.resolve(), "--tier-bench", bench.resolve(), "--model",
                   MODEL.resolve(), "--text", text, "--kept", kept, "--out", out, "--tier-folder", self.folder]
        for more in (["--tiny", "--tiers"], ["--render", kept]):
            done = subprocess.run([str(part) for part in [*command, *more]], capture_output=True, text=True,
                                  timeout=TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        runs = {name: json.loads((kept / f"tiers-{name}.json").read_text()) for name in ("butler", "dense")}
        self.assertTrue(runs["dense"]["recipe"].startswith("full,place=disk"))
        self.assertEqual(runs["dense"]["limit_bytes"], runs["butler"]["limit_bytes"])
        page = (out / "butler.md").read_text()
        times = runs["dense"]["seconds_mean"] / runs["butler"]["seconds_mean"]
        self.assertIn(f"| decoding over a disk, 2,048 tokens | ≥ 12 times as fast as dense | {times:.1f} times |", page)
        xml.dom.minidom.parse(str(out / "butler/tiers.svg"))


class Figures(QuireTest):
    def test_runs_weigh_by_their_steps(self):
        run = {"recipe": "q8", "repeats": 0, "ends": 0, "tokens": 11, "tokens_as_full": 3, "distinct": 1, "tokens_per_s": 10,
               "read": 0.5, "rows_read_per_token": 100, "bytes_read_per_token": 10, "tokens_to_repeat": None}
        ended = {**run, "repeats": 1, "ends": 1, "tokens": 30, "tokens_per_s": 15, "read": 0.25, "rows_read_per_token": 50,
                 "tokens_to_repeat": 20}
        both = butler_page.Measured._over_prompts([run, ended])
        # 10 steps of 100 rows in 1 s and 30 of 50 in 2 s.
        self.assertEqual((both["repeats"], both["ends"], both["tokens"], both["tokens_to_repeat"]), (0.5, 0.5, 20.5, 20))
        self.assertAlmostEqual(both["tokens_per_s"], 40 / 3)
        self.assertAlmostEqual(both["rows"], 2500 / 40)
        self.assertAlmostEqual(both["read"], 2500 / (2000 + 6000))

    def test_steps_are_told_apart(self):
        def steps(calls, seconds):
            return [{"seconds": seconds(n), "n_tokens": n, "bytes_read": 1, "predictor_calls": calls(n)}
                    for n in range(1, 257)]
        full = butler_page.Timed(steps(lambda n: 0, lambda n: 2.0 + 0.5 * (n % 64 == 0)))
        seldom = butler_page.Timed(steps(lambda n: n % 16 == 1, lambda n: 1.0 + 0.5 * (n % 64 == 0) + 0.25 * (n % 64 == 0) +
                                         0.125 * (n % 16 == 1)))
        seldom.count(seldom, full, 16)
        self.assertAlmostEqual(seldom.prediction, 0.125)
        self.assertAlmostEqual(seldom.projection, 0.25)
        cost = 0.125 / 16 + 0.25 / 64
        self.assertAlmostEqual(seldom.share, cost / (1 + cost))

    def test_recipes_of_a_plan(self):
        plan = Plan()
        self.assertEqual([plan.rows(2000, b) for b in plan.budgets], [40, 100, 200, 400])
        self.assertTrue(all((n - 1) % max(plan.intervals) == 0 for n in plan.depths.values()))
        recipes = interval_recipes(plan, 2000)
        self.assertEqual(len(set(recipes.values())), 2 * len(plan.intervals))
        self.assertEqual(recipes[16, True], "butler(budget=200,interval=16,neighbours=on)")
        self.assertEqual(len(set(coref_recipes(64).values())), 10)
        self.assertEqual(Plan.of_json(json.loads(json.dumps(vars(plan)))).depths, plan.depths)


if __name__ == "__main__":
    main()
