"""quire bench: the fields it promises, a line for every step, and what it refuses before it runs."""

import json
import xml.etree.ElementTree as ElementTree

from quire_cli import CAPITAL, MODEL, QuireTest, SANITIZED, main, prose

TEXT = prose(1400 if SANITIZED else 3000)
N_PROMPT, N_NEW = (200, 6) if SANITIZED else (400, 12)

ROW_FIELDS = ["mode", "recipe", "prompt_tokens", "generated_tokens", "decode_steps", "prefill_seconds", "prefill_tokens_per_s",
              "decode_tokens_per_s", "kv_bytes", "peak_resident_bytes", "peak_is_of_run", "rows_read_per_token",
              "bytes_read_per_token", "kl", "kl_p99", "same_top1", "ppl", "ppl_full", "ppl_change", "mass", "quality_text",
              "counters", "runs"]
COUNTERS = ["total_tokens", "hot_tokens", "cold_tokens", "dropped_tokens", "sticky_tokens", "promotions", "page_ins", "page_outs",
            "outside_tokens", "tier_pieces", "tier_hits", "tier_fetched_bytes"]
TRACE_FIELDS = ["step", "phase", "mode", "recipe", "prompt_tokens", "repeat", "seconds", "n_tokens", "rows_read", "bytes_read",
                "predictor_calls", "kv_bytes", *COUNTERS]
DELTAS = ["prefill_seconds", "decode_tokens_per_s", "kv_bytes", "peak_resident_bytes", "rows_read_per_token",
          "bytes_read_per_token"]


class Bench(QuireTest):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text"
        self.text.write_text(TEXT)
        self.base = ["bench", "-m", MODEL, "-f", self.text]
        self.short = ["--prompt-tokens", N_PROMPT, "--max-new-tokens", N_NEW, "--repeats", 2, "--no-warmup"]

    def read_lines(self, path) -> list[dict]:
        return [json.loads(line) for line in path.read_text().splitlines()]

    def test_json_has_the_fields(self):
        result = self.ok_json(*self.base, *self.short, "--mode", "standard,turbo4(frame=rotated),quire(budget=64,frame=rotated)")
        standard, turbo4, quire = result["rows"]
        self.assertEqual((standard["mode"], standard["recipe"]), ("standard", "full"))
        for row in result["rows"]:
            self.assertEqual(list(row), ROW_FIELDS)
            self.assertEqual(list(row["counters"]), COUNTERS)
            self.assertEqual((row["prompt_tokens"], row["generated_tokens"], row["decode_steps"]), (N_PROMPT, N_NEW, N_NEW - 1))
            speed = row["decode_tokens_per_s"]
            self.assertTrue(0 < speed["min"] <= speed["median"] <= speed["max"], speed)
            self.assertEqual(len(row["runs"]), 2)
            self.assertGreater(row["peak_resident_bytes"], 0)
            self.assertEqual(row["counters"]["total_tokens"], N_PROMPT + N_NEW - 1)
            self.assertEqual(row["quality_text"], "continuation")
        self.assertEqual((standard["kl"], standard["same_top1"], standard["ppl_change"]), (0, 1, 0))
        self.assertTrue(0 < turbo4["kl"] < quire["kl"], result)
        self.assertLess(turbo4["kv_bytes"], standard["kv_bytes"])
        self.assertLess(quire["rows_read_per_token"], turbo4["rows_read_per_token"])
        self.assertGreater(turbo4["counters"]["cold_tokens"], 0)
        self.assertEqual(standard["counters"]["cold_tokens"], 0)

    def test_delta_is_against_the_first(self):
        result = self.ok_json(*self.base, *self.short, "--mode", "full,q8", "--no-quality", "--repeats", 1)
        full, q8 = result["rows"]
        self.assertNotIn("kl", q8)
        (delta,) = result["delta"]
        self.assertEqual((delta["mode"], delta["against"], delta["prompt_tokens"]), ("q8", "full", N_PROMPT))
        for name in DELTAS:
            self.assertEqual(list(delta[name]), ["abs", "pct"], name)
        self.assertEqual(delta["kv_bytes"]["abs"], q8["kv_bytes"] - full["kv_bytes"])
        self.assertAlmostEqual(delta["kv_bytes"]["pct"], 100 * (q8["kv_bytes"] / full["kv_bytes"] - 1))
        self.assertIn("decode_ranges_overlap", delta)

    def test_trace_has_a_line_for_every_step(self):
        trace, folder, output = self.folder / "t" / "trace.jsonl", self.folder / "traces", self.folder / "o" / "result.json"
        sizes = ["--prompt-tokens", f"60,{N_PROMPT}", "--max-new-tokens", N_NEW, "--repeats", 2, "--no-warmup", "--no-quality"]
        printed = self.ok_json(*self.base, *sizes, "--mode", "full,q4", "--trace", trace, "--trace-dir", folder, "--output", output)
        self.assertEqual(json.loads(output.read_text()), printed)
        lines = self.read_lines(trace)
        self.assertEqual([(line["prompt_tokens"], line["repeat"], line["mode"], line["step"]) for line in lines],
                         [(n, repeat, mode, step) for n in (60, N_PROMPT) for repeat in (1, 2) for mode in ("full", "q4")
                          for step in range(N_NEW)])
        for line in lines:
            self.assertEqual(list(line), TRACE_FIELDS)
            self.assertEqual(line["phase"], "prefill" if line["step"] == 0 else "decode")
            self.assertEqual(line["n_tokens"], line["prompt_tokens"] + line["step"])
            self.assertEqual(line["hot_tokens"] + line["cold_tokens"], line["total_tokens"])
        files = {f"{mode}.run{repeat}.jsonl" for mode in ("full", "q4") for repeat in (1, 2)}
        self.assertEqual({path.name for path in folder.iterdir()}, files)
        self.assertEqual(self.read_lines(folder / "q4.run2.jsonl"),
                         [line for line in lines if (line["mode"], line["repeat"]) == ("q4", 2)])

    def test_charts(self):
        folder = self.folder / "charts"
        self.ok(*self.base, "--prompt-tokens", f"{N_PROMPT},60", "--max-new-tokens", 3, "--repeats", 1, "--no-warmup", "--no-quality",
                "--mode", "full,q4", "--svg", folder)
        self.assertEqual({path.name for path in folder.iterdir()},
                         {"decode-time.svg", "residency-60.svg", f"residency-{N_PROMPT}.svg"})
        for path in folder.iterdir():
            root = ElementTree.parse(path).getroot()
            self.assertTrue(root.tag.endswith("svg"))
            self.assertGreaterEqual(len(root.findall("{*}polyline")), 2, path)

    def test_table_and_notes(self):
        done = self.ok("bench", "-m", MODEL, "-p", CAPITAL, "--mode", "full,q8", "-n", 4, "--repeats", 1)
        self.assertRegex(done.stdout.decode(), r"\Arecipe +prompt +prefill s .*ppl change\nfull +5 .*\nq8 +5 .*\n\Z")
        notes = done.stderr.decode()
        self.assertIn("nothing left the window of q8", notes)
        self.assertIn("what `full` generated", notes)

    def test_published_flags(self):
        """Those of Monarch's benchmark, as they are given there; its own mode is not needed for it."""
        flags = ["--base-model", "x", "--temperature", "0", "--top-p", "0.9", "--repeats", 1, "--load-in-4bit", "--window-size", 512,
                 "--max-hot-tokens", 768, "--page-size", 16, "--compression-mode", "legacy", "--promotion-threshold", 0.15,
                 "--sticky-threshold", 3, "--importance-decay", 0.92, "--initial-sticky-tokens", 16, "--preset", "fast",
                 "--max-new-tokens", 3]
        result = self.ok_json("bench", "--model", MODEL, "--prompt-file", self.text, "--mode", "standard", *flags)
        self.assertEqual([row["mode"] for row in result["rows"]], ["standard"])
        self.assertEqual(result["rows"][0]["generated_tokens"], 3)
        config = result["config"]
        self.assertEqual((config["promotion_threshold"], config["sticky_threshold"], config["window_size"]), (0.15, 3, 512))
        for word in ("--base-model", "--load-in-4bit", "legacy", "--sticky-threshold"):
            self.assertTrue(any(word in note for note in result["notes"]), word)

    def test_without_a_prompt_it_takes_its_own(self):
        result = self.ok_json("bench", "--model", MODEL, "--mode", "standard", "--max-new-tokens", 3, "--repeats", 1, "--no-warmup",
                              "--no-quality", "--json")
        self.assertEqual(result["rows"][0]["prompt_tokens"], 2000)
        self.assertTrue(any("there is no prompt" in note for note in result["notes"]), result["notes"])
        self.refused("bench", "--model", MODEL, "-p", "", "--mode", "standard", says="prompt is empty")

    def test_preset(self):
        result = self.ok_json(*self.base, "--mode", "full", "--preset", "fast", "--prompt-tokens", 20, "--no-warmup", "--no-quality")
        config = result["config"]
        self.assertEqual((config["max_new_tokens"], config["repeats"], config["window_size"], config["max_hot_tokens"]),
                         (64, 1, 256, 384))

    def test_sampled_runs_repeat(self):
        sampled = ["--temperature", 0.8, "--seed", 7, "--mode", "full,full", "--no-quality"]
        result = self.ok_json(*self.base, *self.short, *sampled)
        self.assertEqual(result["rows"][0]["rows_read_per_token"], result["rows"][1]["rows_read_per_token"])

    def test_bad_flags(self):
        cases = [("--max-new-tokens", 1), ("--max-new-tokens", "x"), ("--repeats", 0), ("--prompt-tokens", "0"), ("--prompt-tokens", "5,-1"),
                 ("--prompt-tokens", ""), ("--window-size", 0), ("--page-size", 0), ("--promotion-threshold", 1.5),
                 ("--promotion-threshold", "nan"), ("--sticky-threshold", 0), ("--importance-decay", -1), ("--initial-sticky-tokens", -1),
                 ("--preset", "slow"), ("--compression-mode", "zip"), ("--temperature", -1), ("--top-p", 2), ("--seed", -1), ("-t", 0)]
        for flag, value in cases:
            with self.subTest(flag=flag, value=value):
                self.refused(*self.base, "--mode", "full", flag, value)
        self.refused(*self.base, "--mode", "ful", says="full")
        self.refused(*self.base, "--mode", "full,", says="--mode")
        self.refused(*self.base, "--mode", "", says="--mode")
        self.refused(*self.base, "--mode", "full", "--promotion-treshold", 1, says="did you mean")
        self.refused("bench", "-m", MODEL, "-p", "", "--mode", "full", says="empty")
        self.refused("bench", "-m", MODEL, "-p", "x", "-f", self.text, "--mode", "full", says="both")

    def test_sizes_that_do_not_fit(self):
        self.refused(*self.base, "--mode", "full", "--prompt-tokens", 100000, says="fewer than")
        self.refused(*self.base, "--mode", "full", "--prompt-tokens", 100, "-n", 8100, says="8192")

    def test_files_that_cannot_be_written(self):
        file = self.folder / "file"
        file.write_text("x")
        for flag in ("--output", "--trace"):
            self.refused(*self.base, "--mode", "full", flag, self.folder, says="directory")
            self.refused(*self.base, "--mode", "full", flag, file / "below", says="file")
        for flag in ("--trace-dir", "--svg"):
            self.refused(*self.base, "--mode", "full", flag, file, says="file")
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"text", "file"})
        self.assertEqual(file.read_text(), "x")


class Monarch(QuireTest):
    """The published benchmark: mode `both`."""

    WINDOW = ["--window-size", 128, "--max-hot-tokens", 192, "--promotion-threshold", 0.15, "--sticky-threshold", 3]

    def setUp(self):
        super().setUp()
        if b"monarch" not in self.ok("recipes").stdout:
            self.skipTest("this build has no recipe monarch")
        self.text = self.folder / "text"
        self.text.write_text(TEXT)
        self.base = ["bench", "-m", MODEL, "-f", self.text, "--mode", "both", "--max-new-tokens", N_NEW, "--repeats", 1]

    def test_tokens_leave_the_window(self):
        result = self.ok_json(*self.base, *self.WINDOW, "--prompt-tokens", N_PROMPT)
        standard, monarch = result["rows"]
        self.assertEqual((standard["mode"], monarch["mode"]), ("standard", "monarch-v3"))
        self.assertTrue(monarch["recipe"].startswith("monarch"), monarch["recipe"])
        self.assertGreater(monarch["counters"]["cold_tokens"], 0)
        self.assertLess(monarch["rows_read_per_token"], standard["rows_read_per_token"])
        self.assertGreater(monarch["kl"], 0)
        self.assertEqual([delta["mode"] for delta in result["delta"]], ["monarch-v3"])
        self.assertFalse(any("nothing left" in note for note in result["notes"]), result["notes"])

    def test_a_short_prompt_stays_in_the_window(self):
        result = self.ok_json(*self.base, "--prompt-tokens", 20)
        self.assertEqual(result["rows"][1]["counters"]["cold_tokens"], 0)
        self.assertTrue(any("nothing left the window of monarch-v3" in note for note in result["notes"]), result["notes"])


if __name__ == "__main__":
    main()
