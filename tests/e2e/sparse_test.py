"""Recipes that read only the rows an index names: quire and selfindex."""

import json

from quire_cli import MODEL, QuireTest, main, prose

TEXT = prose(2800)  # long enough that rows are left out: budgets by share begin at 256 rows
RECIPES = ("quire", "quire(budget=20%,dense=2)", "quire(mass=0.9)", "selfindex", "selfindex(budget=160,full_rows=16)")


class Sparse(QuireTest):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text"
        self.text.write_text(TEXT)

    def go(self, n: int, *arguments) -> dict:
        return self.ok_json("run", "-m", MODEL, "-n", n, "--temp", 0, "--ignore-eos", *arguments)

    def test_gives_text_and_figures(self):
        full = self.go(24, "-f", self.text)
        for recipe in RECIPES:
            with self.subTest(recipe=recipe):
                result = self.go(24, "-f", self.text, "--kv", recipe)
                self.assertEqual(result["recipe"], recipe)
                self.assertEqual(result["generated_tokens"], 24)
                self.assertTrue(result["text"].strip())
                self.assertEqual(result["prompt_tokens"], full["prompt_tokens"])
                self.assertLess(result["kv_bytes"], full["kv_bytes"])
                self.assertLess(result["bytes_read_per_token"], full["bytes_read_per_token"] / 4)

    def test_short_texts_are_read_in_full(self):
        self.assertEqual(self.go(16, "-p", "The capital of France is", "--kv", "quire")["tokens"],
                         self.go(16, "-p", "The capital of France is", "--kv", "k=nested4,v=nested3")["tokens"])

    def test_threads_do_not_matter(self):
        for recipe in ("quire", "selfindex"):
            one, two = (self.go(16, "-f", self.text, "--kv", recipe, "-t", n)["tokens"] for n in (1, 2))
            self.assertEqual(one, two, recipe)

    def test_saved_caches_go_on(self):
        kv = self.folder / "a.kv"
        for recipe in RECIPES[:1] + RECIPES[3:]:
            with self.subTest(recipe=recipe):
                whole = self.go(20, "-f", self.text, "--kv", recipe)
                first = self.go(9, "-f", self.text, "--kv", recipe, "--save-kv", kv)
                second = self.go(11, "--load-kv", kv)
                self.assertEqual(second["recipe"], recipe)
                self.assertEqual(first["tokens"] + second["tokens"], whole["tokens"])

    def test_a_cache_saved_before_anything_is_coded(self):
        kv = self.folder / "a.kv"
        self.text.write_text(TEXT[:1000])
        for recipe in ("selfindex", "turbo4(stats=prompt)"):
            with self.subTest(recipe=recipe):
                self.go(0, "-f", self.text, "--kv", recipe, "--save-kv", kv)
                rest = TEXT[1000:2500]
                whole = self.go(12, "--load-kv", kv, "--append", "-p", rest)
                self.assertEqual(self.go(12, "--load-kv", kv, "--append", "-p", rest)["tokens"], whole["tokens"])

    def test_divergence(self):
        sizes = ["--prompt-tokens", 700, "--eval-tokens", 12]
        table = self.ok_json("eval", "kl", "-m", MODEL, "-f", self.text, *sizes, "--kv",
                             "k=nested4,v=nested3,quire,quire(budget=100%),quire(mass=0.9),selfindex")
        dense, quire, everything, by_mass, selfindex = table["rows"]
        self.assertEqual(everything["kl_mean"], dense["kl_mean"])
        self.assertEqual(everything["rows_read_per_token"], dense["rows_read_per_token"])
        self.assertEqual(everything["mass"], 1)
        for row in (quire, by_mass, selfindex):
            self.assertTrue(0.3 < row["mass"] < 1, row)
            self.assertLess(row["rows_read_per_token"], dense["rows_read_per_token"], row)
            self.assertLess(row["bytes_read_per_token"], dense["bytes_read_per_token"], row)
            self.assertTrue(0 < row["kl_mean"] < 2, row)
        # The least a share comes to, in 90 KV heads; a head has fewer rows where the others are hopeless.
        self.assertLessEqual(quire["rows_read_per_token"], 256 * 90)
        self.assertGreater(quire["rows_read_per_token"], 0.99 * 256 * 90)
        self.assertLess(quire["kl_mean"], selfindex["kl_mean"], table)

    def test_bad_settings(self):
        self.refused("run", "-m", MODEL, "-p", "x", "--kv", "quire(budget=0%)", says="reads nothing")
        self.refused("run", "-m", MODEL, "-p", "x", "--kv", "quire(mass=2)", says="mass= takes a number")
        self.refused("run", "-m", MODEL, "-p", "x", "--kv", "selfindex(stats=model)", says="stats=model")
        self.refused("run", "-m", MODEL, "-p", "x", "--kv", "quire(budget=5%", says="parenthesis")

    def test_recipes_are_listed(self):
        listed = self.ok("recipes").stdout.decode()
        for name in ("quire", "selfindex", "signvq", "nested4"):
            self.assertRegex(listed, rf"(?m)^\s*{name}\b")


if __name__ == "__main__":
    main()
