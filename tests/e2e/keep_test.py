"""Recipes that drop rows, or keep a reserve of exact rows that thins out with distance."""

from quire_cli import MODEL, QuireTest, SANITIZED, main, prose

TEXT = prose(2600)  # long enough that rows leave: budgets by share begin at 256 rows
DROPPING = ("streaming(window=200)", "h2o(budget=300)", "keyformer(budget=300)", "snapkv(budget=300)",
            "k=f16,v=f16,keep=log(reserve=128)")
CODING = ("logquant(reserve=128)", "turbo2(keep=log(reserve=128))", "k=turbo4,v=turbo3,keep=log(rule=strided)",
          "k=nested4,v=nested3,keep=log,select=sign")


class Keep(QuireTest):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text"
        self.text.write_text(TEXT)

    def go(self, n: int, *arguments) -> dict:
        return self.ok_json("run", "-m", MODEL, "-n", n, "--temp", 0, "--ignore-eos", *arguments)

    def test_gives_text_and_figures(self):
        full = self.go(16, "-f", self.text)
        for recipe in DROPPING + CODING:
            with self.subTest(recipe=recipe):
                result = self.go(16, "-f", self.text, "--kv", recipe)
                self.assertEqual(result["recipe"], recipe)
                self.assertEqual(result["generated_tokens"], 16)
                self.assertTrue(result["text"].strip())
                self.assertEqual(result["prompt_tokens"], full["prompt_tokens"])
                self.assertLess(result["kv_bytes"], full["kv_bytes"] * 0.7)
                self.assertLess(result["bytes_read_per_token"], full["bytes_read_per_token"] * 0.7)

    def test_texts_that_fit_lose_nothing(self):
        full = self.go(12, "-p", "The capital of France is")["tokens"]
        for recipe in ("streaming", "h2o", "keyformer", "snapkv", "logquant", "k=f16,v=f16,keep=log"):
            self.assertEqual(self.go(12, "-p", "The capital of France is", "--kv", recipe)["tokens"], full, recipe)

    def test_threads_do_not_matter(self):
        for recipe in ("h2o(budget=300)", "logquant(reserve=128)"):
            one, two = (self.go(12, "-f", self.text, "--kv", recipe, "-t", n)["tokens"] for n in (1, 2))
            self.assertEqual(one, two, recipe)

    def test_windows_that_fill_the_context_are_refused(self):
        self.refused("run", "-m", MODEL, "-p", "Once", "-n", 4, "--kv", "streaming(window=8192)", says="leaves nothing")

    def test_goes_beyond_the_context(self):
        if SANITIZED:
            self.skipTest("minutes under sanitizers; the release build runs it")
        long = self.folder / "long"
        long.write_text(TEXT * 12)
        result = self.go(8, "-f", long, "--kv", "streaming(window=100)")
        self.assertGreater(result["prompt_tokens"], 8192)
        self.assertIsNone(result["context_tokens"])
        self.assertEqual(result["generated_tokens"], 8)
        self.refused("run", "-m", MODEL, "-f", long, "-n", 4, says="8192")


if __name__ == "__main__":
    main()
