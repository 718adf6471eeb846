"""quire eval ruler: RULER's tasks through caches, and their results in kvpress' form."""

import csv
import json

from quire_cli import MODEL, QuireTest, main, prose

TASKS = ["niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
         "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe"]


class EvalRuler(QuireTest):
    KEYS = ["recipe", "length", "task", "samples", "score", "nll", "bits_per_value", "rows_read_per_token",
            "bytes_read_per_token"]

    def setUp(self):
        super().setUp()
        self.path = self.folder / "text"
        self.path.write_text(prose(6000))
        self.model = ["eval", "ruler", "-m", MODEL, "-t", 1, "-f", self.path]
        self.sizes = ["--length", 512, "--samples", 1]

    def test_needle_is_found(self):
        rows = self.ok_json(*self.model, *self.sizes, "--tasks", "niah_single_1,niah_single_2", "--kv",
                            "full,turbo2(frame=rotated)")["rows"]
        self.assertEqual([list(row) for row in rows], [self.KEYS] * 4)
        self.assertEqual([(row["recipe"], row["task"]) for row in rows],
                         [(kv, task) for kv in ("full", "turbo2(frame=rotated)") for task in TASKS[:2]])
        # A small model copies seven digits from 512 tokens.
        self.assertEqual([row["score"] for row in rows[:2]], [100, 100])
        self.assertLess(rows[0]["nll"], 0.7)
        self.assertTrue(all(coded["nll"] > full["nll"] for full, coded in zip(rows[:2], rows[2:])), rows)
        self.assertLess(rows[2]["bytes_read_per_token"], rows[0]["bytes_read_per_token"])

    def test_every_task(self):
        rows = self.ok_json(*self.model, "--length", 800, "--samples", 1, "--kv", "q8")["rows"]
        self.assertEqual([row["task"] for row in rows], TASKS)
        self.assertTrue(all(0 <= row["score"] <= 100 and 0 < row["nll"] < 10 for row in rows), rows)

    def test_folder(self):
        out, table = self.folder / "results", self.folder / "table.csv"
        arguments = [*self.model, "--length", "400,512", "--samples", 2, "--tasks", "niah_single_1,fwe", "--kv", "full",
                     "--out", out, "--csv", table]
        rows = self.ok_json(*arguments)["rows"]
        with table.open(newline="") as file:
            self.assertEqual([float(line["score"]) for line in csv.DictReader(file)], [row["score"] for row in rows])
        names = [f"ruler__{length}__{MODEL.stem}__full__0.00" for length in (400, 512)]
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["leaderboard.csv", *names])
        folder = out / names[1]
        metrics = json.loads((folder / "metrics.json").read_text())
        self.assertEqual(metrics, {row["task"]: {"string_match": round(row["score"], 2)} for row in rows[2:]})
        with (folder / "predictions.csv").open(newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual(list(lines[0]), ["task", "question", "answer_prefix", "answer", "max_new_tokens",
                                          "predicted_answer", "compression_ratio"])
        self.assertEqual([line["task"] for line in lines], ["niah_single_1"] * 2 + ["fwe"] * 2)
        for row, pair in zip(rows[2:], (lines[:2], lines[2:])):
            matches = [[a.lower() in line["predicted_answer"].lower() for a in json.loads(line["answer"].replace("'", '"'))]
                       for line in pair]
            self.assertAlmostEqual(row["score"], sum(100 * sum(m) / len(m) for m in matches) / 2)
        config = dict(line.split(": ", 1) for line in (folder / "config.yaml").read_text().splitlines())
        self.assertEqual((config["dataset"], config["data_dir"], config["press_name"], config["seed"]),
                         ('"ruler"', '"512"', '"full"', "0"))
        with (out / "leaderboard.csv").open(newline="") as file:
            board = list(csv.DictReader(file))
        self.assertEqual(list(board[0]), ["dataset", "data_dir", "model", "method", "compression_ratio", "score"])
        self.assertAlmostEqual(float(board[1]["score"]), sum(row["score"] for row in rows[2:]) / 2, places=2)
        # Nothing is written over.
        before = (folder / "predictions.csv").read_bytes()
        self.ok(*arguments, "--seed", 1)
        self.assertEqual((folder / "predictions.csv").read_bytes(), before)
        self.assertNotEqual((folder / "1" / "predictions.csv").read_bytes(), before)

    def test_text_form(self):
        out = self.ok(*self.model, "--length", 300, "--samples", 1, "--tasks", "niah_single_1,niah_single_2", "--kv",
                      "q8").stdout.decode()
        self.assertRegex(out, r"\Arecipe +length +task +score .*\nq8 .*\nq8 .*\nq8 +300 +mean .*\n\(1 samples")

    def test_bad_input(self):
        kv = ["--kv", "q8"]
        empty = self.folder / "empty"
        empty.write_bytes(b"")
        self.refused("eval", "ruler", "-m", MODEL, "-f", empty, *kv, says="empty")
        self.refused(*self.model, *kv, "--tasks", "niah_single_4", says="there are niah_single_1, ")
        self.refused(*self.model, *kv, "--tasks", "vt,vt", says="twice")
        self.refused(*self.model, *kv, "--length", 9000, says="8192")
        self.refused(*self.model, *kv, "--length", "512,100", "--tasks", "niah_single_1", says="niah_single_1 needs at least")
        self.refused(*self.model, *kv, "--length", 0, says="--length")
        self.refused(*self.model, *kv, "--samples", 0, says="--samples")
        self.refused(*self.model, *kv, "--seed", -1, says="--seed")
        self.refused(*self.model, "--kv", "turbo5", says="did you mean")
        self.refused(*self.model, says="--kv")
        short = ["--length", 250, "--samples", 1, "--tasks", "niah_single_1"]
        self.refused(*self.model, *kv, *short, "--csv", self.folder / "no" / "dir", says="written")
        self.refused(*self.model, *kv, *short, "--out", self.path, says="cannot be")


if __name__ == "__main__":
    main()
