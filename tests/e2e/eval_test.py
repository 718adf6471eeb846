"""quire eval: plausible, the same however it is asked for."""

import csv
import struct

from quire_cli import MODEL, QuireTest, main, prose


class EvalPpl(QuireTest):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "text"
        self.path.write_text(prose(3000))

    def ppl(self, *arguments) -> dict:
        return self.ok_json("eval", "ppl", "-m", MODEL, *arguments)

    def test_windows(self):
        result = self.ppl("-f", self.path, "-c", 100, "--max-tokens", 250)
        self.assertEqual((result["tokens"], result["windows"], result["scored_tokens"]), (250, 3, 247))
        self.assertTrue(1 < result["perplexity"] < 1000, result)
        self.assertGreater(result["standard_error"], 0)

    def test_tokens_file_is_the_same_as_text(self):
        ids = self.ok_json("tokenize", "-m", MODEL, "-f", self.path, "--no-parse-special")["tokens"]
        tokens = self.folder / "tokens.bin"
        tokens.write_bytes(struct.pack(f"<{len(ids)}H", *ids))
        by_text = self.ppl("-f", self.path, "-c", 256)
        by_tokens = self.ppl("--tokens-file", tokens, "-c", 256, "-t", 1)
        self.assertEqual(by_text["total_nll"], by_tokens["total_nll"])

    def test_recipes_are_near_each_other(self):
        values = [self.ppl("-f", self.path, "--kv", kv, "--max-tokens", 400)["mean_nll"] for kv in ("f32", "f16", "bf16")]
        self.assertLess(max(values) - min(values), 0.02, values)

    def test_text_form(self):
        self.assertIsNone(self.ppl("-p", "One two three.")["begin_token"])  # SmolLM2 wants none
        out = self.ok("eval", "ppl", "-m", MODEL, "-f", self.path, "--max-tokens", 64).stdout.decode()
        self.assertRegex(out, r"\Aperplexity [\d.]+ ± [\d.]+ .*63 tokens in 1 windows")

    def test_bad_input(self):
        empty = self.folder / "empty"
        empty.write_bytes(b"")
        self.refused("eval", "ppl", "-m", MODEL, "-f", empty, says="at least 2 tokens")
        self.refused("eval", "ppl", "-m", MODEL, "-f", self.path, "-c", 1)
        odd = self.folder / "odd"
        odd.write_bytes(b"abc")
        self.refused("eval", "ppl", "-m", MODEL, "--tokens-file", odd, says="odd")
        odd.write_bytes(b"\xff\xff\x01\x00")
        self.refused("eval", "ppl", "-m", MODEL, "--tokens-file", odd, says="65535")
        self.refused("eval", "-m", MODEL)


class EvalKl(QuireTest):
    KEYS = ["recipe", "kl_mean", "kl_p99", "same_top1", "ppl", "ppl_full", "mass", "bits_per_value",
            "rows_read_per_token", "bytes_read_per_token", "predictor_calls_per_token", "neighbour_rows_per_token"]

    def setUp(self):
        super().setUp()
        self.path = self.folder / "text"
        self.path.write_text(prose(3000))
        self.model = ["eval", "kl", "-m", MODEL]
        self.sizes = ["--prompt-tokens", 300, "--eval-tokens", 20]

    def test_sizes_that_are_not_given_fit_the_text(self):
        result = self.ok_json(*self.model, "-f", self.path, "--kv", "q8")
        whole = len(self.ok_json("tokenize", "-m", MODEL, "-f", self.path, "--no-parse-special")["tokens"])
        self.assertEqual(result["eval_tokens"], whole // 7)
        self.assertEqual(result["prompt_tokens"], whole - whole // 7)
        self.refused(*self.model, "-f", self.path, "--kv", "q8", "--prompt-tokens", 6000, says="6000 of prompt and 1000")

    def test_dropped_rows_have_no_known_mass(self):
        row = self.ok_json(*self.model, "-f", self.path, *self.sizes, "--kv", "streaming(window=100)", "-c", 9000)["rows"][0]
        self.assertIsNone(row["mass"])

    def test_rows_and_csv(self):
        recipes = ["turbo4(frame=rotated)", "k=turbo4,v=turbo3,frame=rotated", "q8", "full", "kivi2(sink=4,tail=64)"]
        table = self.folder / "table.csv"
        result = self.ok_json(*self.model, "-f", self.path, *self.sizes, "--kv", ",".join(recipes), "--csv", table)
        rows = result["rows"]
        self.assertEqual([list(row) for row in rows], [self.KEYS] * 5)
        self.assertEqual([row["recipe"] for row in rows], recipes[:4] + ["kivi2(sink=4,tail=64)"])
        turbo4, turbo43, q8, full, kivi2 = rows
        self.assertEqual((full["kl_mean"], full["same_top1"], full["ppl"]), (0, 1, full["ppl_full"]))
        self.assertTrue(0 < q8["kl_mean"] < turbo4["kl_mean"] < turbo43["kl_mean"] < kivi2["kl_mean"], rows)
        self.assertLess(turbo43["bits_per_value"], turbo4["bits_per_value"])
        self.assertLess(turbo4["bytes_read_per_token"], full["bytes_read_per_token"])
        self.assertEqual({row["mass"] for row in rows}, {1})
        with table.open(newline="") as file:
            read = list(csv.DictReader(file))
        self.assertEqual([row["recipe"] for row in read], [row["recipe"] for row in rows])
        self.assertEqual([float(row["kl_mean"]) for row in read], [row["kl_mean"] for row in rows])

    def test_selections(self):
        recipes = ["quest(budget=80,dense=0)", "doublesparse(budget=80)", "doublesparse(budget=80,from=prompt)",
                   "oracle(budget=80)", "random(budget=80)", "oracle", "oracle(budget=100%)"]
        result = self.ok_json(*self.model, "-f", self.path, *self.sizes, "--kv", ",".join(recipes))
        quest, model, prompt, oracle, drawn, floor, full = result["rows"]
        for row in (quest, model, prompt, oracle, drawn):
            self.assertLessEqual(row["rows_read_per_token"], 80 * 90)
            self.assertGreaterEqual(row["rows_read_per_token"], 65 * 90)
            self.assertLess(row["mass"], 1)
            self.assertGreater(row["kl_mean"], 0)
        self.assertLess(max(quest["mass"], model["mass"], prompt["mass"]), oracle["mass"])
        self.assertLess(drawn["mass"], min(quest["mass"], model["mass"], prompt["mass"]))
        self.assertLess(oracle["kl_mean"], drawn["kl_mean"])
        self.assertGreater(model["bits_per_value"], oracle["bits_per_value"])
        self.assertEqual((full["kl_mean"], full["mass"]), (0, 1))
        self.assertGreater(floor["rows_read_per_token"], oracle["rows_read_per_token"])

    def test_text_form(self):
        out = self.ok(*self.model, "-f", self.path, *self.sizes, "--kv", "q4,bf16").stdout.decode()
        self.assertRegex(out, r"\Arecipe +KL .*\nq4 +0\.\d+ .*\nk=bf16,v=bf16 +0\.\d+ .*\n\(full: perplexity")

    def test_bad_input(self):
        text = ["-f", self.path]
        self.refused(*self.model, *text, "--kv", "q4", "--prompt-tokens", 5000, says="tokens")
        self.refused(*self.model, *text, "--kv", "q4", "--prompt-tokens", 0, says="--prompt-tokens")
        self.refused(*self.model, *text, *self.sizes, "--kv", "q4,turbo5", says="did you mean 'turbo")
        self.refused(*self.model, *text, *self.sizes, "--kv", "q4,tail=128", says="coded")
        self.refused(*self.model, *text, *self.sizes, "--kv", "q4(tail=1", says="parenthesis")
        self.refused(*self.model, *text, *self.sizes, says="--kv")
        self.refused(*self.model, *text, *self.sizes, "--kv", "q8", "--csv", self.folder / "no" / "dir", says="written")


if __name__ == "__main__":
    main()
