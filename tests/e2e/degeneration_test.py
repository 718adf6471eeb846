"""quire eval degeneration: long generations through caches."""

import csv
import json

from quire_cli import MODEL, SANITIZED, QuireTest, main

KEYS = ["recipe", "repeats", "ends", "tokens", "tokens_to_repeat", "tokens_as_full", "distinct", "tokens_per_s", "read",
        "rows_read_per_token", "bytes_read_per_token"]


class EvalDegeneration(QuireTest):
    def setUp(self):
        super().setUp()
        self.model = ["eval", "degeneration", "-m", MODEL]

    def test_rows_csv_and_texts(self):
        if SANITIZED:
            self.skipTest("minutes under sanitizers; the release build runs it")
        table, texts = self.folder / "table.csv", self.folder / "texts.jsonl"
        recipes = ["oracle(budget=40)", "h2o(budget=40)", "full", "random(budget=100%)"]
        arguments = [*self.model, "--prompts", 2, "--skip", 3, "-n", 40, "--csv", table, "--texts", texts]
        result = self.ok_json(*arguments, "--kv", ",".join(recipes))
        self.assertEqual((result["prompts"], result["skipped"], result["temperature"]), (2, 3, 0))
        rows = result["rows"]
        self.assertEqual([row["recipe"] for row in rows], recipes)
        for row in rows:
            self.assertEqual(list(row), KEYS)
            self.assertEqual((row["repeats"], row["tokens_to_repeat"], row["tokens"]), (0, None, 40))
            self.assertGreater(row["tokens_per_s"], 0)
        oracle, h2o, full, everything = rows
        self.assertEqual((full["read"], full["tokens_as_full"]), (1, 40))
        self.assertEqual((everything["read"], everything["tokens_as_full"]), (1, 40))
        for row in (oracle, h2o):
            self.assertTrue(0.3 < row["read"] < 0.7, row)
            self.assertLess(row["rows_read_per_token"], full["rows_read_per_token"])
        # 90 pairs of a layer and a KV head.
        self.assertEqual(oracle["rows_read_per_token"], 90 * 40)
        with table.open(newline="") as file:
            self.assertEqual([line["recipe"] for line in csv.DictReader(file)], recipes)
        lines = [json.loads(line) for line in texts.read_text().splitlines()]
        self.assertEqual([(line["recipe"], line["prompt"]) for line in lines],
                         [(recipe, prompt) for recipe in recipes for prompt in (4, 5)])
        self.assertEqual(lines[4]["text"], lines[6]["text"])
        self.assertTrue(all(line["finish_reason"] == "length" for line in lines))

    def test_full_stands_beside_and_a_small_model_goes_round_in_circles(self):
        if SANITIZED:
            self.skipTest("minutes under sanitizers; the release build runs it")
        prompts = self.folder / "prompts"
        prompts.write_text("one two one two one two one two one two\n\n \nSay yes.\n")
        arguments = [*self.model, "-f", prompts, "--raw", "--prompts", 1, "-n", 90]
        rows = self.ok_json(*arguments, "--kv", "q8")["rows"]
        self.assertEqual([row["recipe"] for row in rows], ["full", "q8"])
        self.assertEqual((rows[0]["repeats"], rows[0]["ends"]), (1, 0))
        self.assertTrue(50 <= rows[0]["tokens_to_repeat"] <= 90, rows[0])
        self.assertLess(rows[0]["distinct"], 0.5)
        # What is drawn is the seed's.
        drawn = [self.ok_json(*arguments, "-n", 12, "--temp", 1.5, "-s", seed, "-t", threads, "--kv", "q8", "--texts",
                              self.folder / "texts") and (self.folder / "texts").read_text()
                 for seed, threads in ((1, 1), (1, 2), (2, 1))]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        ended = self.ok_json(*self.model, "-f", prompts, "--skip", 1, "-n", 120, "--kv", "full")
        self.assertEqual((ended["prompts"], ended["rows"][0]["ends"]), (1, 1))

    def test_text_form(self):
        out = self.ok(*self.model, "--prompts", 1, "-n", 3, "--kv", "q8").stdout.decode()
        self.assertRegex(out, r"\Arecipe +repeats +from +ends .*\nfull +0 % +- +0 % +3 .*\nq8 .*\n\(1 prompts, at most 3")

    def test_bad_input(self):
        empty = self.folder / "empty"
        empty.write_bytes(b" \n")
        self.refused(*self.model, says="--kv")
        self.refused(*self.model, "--kv", "turbo5", says="did you mean")
        self.refused(*self.model, "--kv", "q8", "-f", empty, says="no prompt")
        self.refused(*self.model, "--kv", "q8", "--skip", 20, says="leaves none of the 20")
        self.refused(*self.model, "--kv", "q8", "--prompts", 0, says="--prompts")
        self.refused(*self.model, "--kv", "q8", "-n", 0, says="--n-predict")
        self.refused(*self.model, "--kv", "q8", "-n", 8190, says="8192")
        self.refused(*self.model, "--kv", "q8", "-s", -1, says="--seed")
        self.refused(*self.model, "--kv", "q8", "--temp", -1, says="temperature")
        self.refused(*self.model, "--kv", "q8", "--prompts", 1, "-n", 1, "--texts", self.folder / "no" / "dir",
                     says="written")


if __name__ == "__main__":
    main()
