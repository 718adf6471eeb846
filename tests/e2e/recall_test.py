"""quire eval recall: planted facts, asked for through caches."""

import csv
import struct

from quire_cli import MODEL, QuireTest, main, prose


class EvalRecall(QuireTest):
    SCORE = ["score", "nll", "nll_full", "nll_without", "exact", "answers", "answer_tokens"]
    READS = ["bits_per_value", "rows_read_per_token", "bytes_read_per_token"]

    def setUp(self):
        super().setUp()
        self.path = self.folder / "text"
        self.path.write_text(prose(6000))
        self.model = ["eval", "recall", "-m", MODEL, "-t", 1]
        self.sizes = ["--prompt-tokens", "350,400", "--facts", 3, "--seeds", 1]

    def test_rows_and_csv(self):
        recipes = ["turbo2(frame=rotated)", "full", "q8"]
        table = self.folder / "table.csv"
        result = self.ok_json(*self.model, "-f", self.path, *self.sizes, "--kv", ",".join(recipes), "--csv", table)
        rows = result["rows"]
        self.assertEqual([row["recipe"] for row in rows], recipes)
        for row in rows:
            self.assertEqual(list(row), ["recipe", *self.SCORE, *self.READS, "kinds", "lengths"])
            self.assertEqual([part["kind"] for part in row["kinds"]], ["numbers", "words", "quotes"])
            self.assertEqual([part["prompt_tokens"] for part in row["lengths"]], [350, 400])
            self.assertEqual(row["answers"], 6)
        turbo2, full, q8 = rows
        self.assertEqual((full["score"], full["nll"]), (1, full["nll_full"]))
        # The model copies what it finds, and cannot guess it.
        self.assertLess(full["nll"], 2)
        self.assertGreater(full["nll_without"], full["nll"] + 2)
        self.assertTrue(0.95 < q8["score"] < 1.05, q8)
        self.assertLess(turbo2["score"], q8["score"])
        self.assertLess(turbo2["bytes_read_per_token"], q8["bytes_read_per_token"])
        with table.open(newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual(len(lines), 3 * 6)
        self.assertEqual([line["answers_of"] for line in lines[:6]], ["all", "numbers", "words", "quotes", "350", "400"])
        self.assertEqual([float(lines[i]["nll"]) for i in (0, 6, 12)], [row["nll"] for row in rows])

    def test_of_a_seed_and_of_tokens(self):
        def nll(*arguments):
            return self.ok_json(*self.model, *self.sizes, "--kv", "q4", *arguments)["rows"][0]["nll"]
        by_text = nll("-f", self.path)
        ids = self.ok_json("tokenize", "-m", MODEL, "-f", self.path, "--no-parse-special")["tokens"]
        tokens = self.folder / "tokens.bin"
        tokens.write_bytes(struct.pack(f"<{len(ids)}H", *ids))
        self.assertEqual(nll("--tokens-file", tokens, "-t", 2), by_text)
        self.assertNotEqual(nll("-f", self.path, "--seed", 5), by_text)

    def test_text_form(self):
        out = self.ok(*self.model, "-f", self.path, "--prompt-tokens", 300, "--facts", 1, "--seeds", 1, "--kv",
                      "full").stdout.decode()
        self.assertRegex(out, r"\Arecipe +score .* at 300 .*\nfull +1\.000 .*\n\(1 answers of \d+ tokens, 1 seeds; nll")

    def test_bad_input(self):
        text = ["-f", self.path]
        empty = self.folder / "empty"
        empty.write_bytes(b" \n")
        self.refused(*self.model, "-f", empty, "--kv", "q8", says="empty")
        self.refused(*self.model, *text, "--kv", "q8", "--prompt-tokens", 4000, says="too few")
        self.refused(*self.model, *text, "--kv", "q8", "--prompt-tokens", "300,8190", says="8192")
        self.refused(*self.model, *text, "--kv", "q8", "--prompt-tokens", 100, says="do not fit")
        self.refused(*self.model, *text, "--kv", "q8", "--prompt-tokens", "100,0", says="--prompt-tokens")
        self.refused(*self.model, *text, "--kv", "q8", "--prompt-tokens", "many", says="number")
        self.refused(*self.model, *text, "--kv", "q8", "--facts", 65, says="--facts")
        self.refused(*self.model, *text, "--kv", "q8", "--seeds", 0, says="--seeds")
        self.refused(*self.model, *text, "--kv", "q8", "--seed", -1, says="--seed")
        self.refused(*self.model, *text, *self.sizes, "--kv", "turbo5", says="did you mean")
        self.refused(*self.model, *text, *self.sizes, says="--kv")
        self.refused(*self.model, *text, "-p", "text", *self.sizes, "--kv", "q8", says="not with both")
        self.refused(*self.model, *text, "--prompt-tokens", 200, "--facts", 1, "--seeds", 1, "--kv", "q8", "--csv",
                     self.folder / "no" / "dir", says="written")


if __name__ == "__main__":
    main()
