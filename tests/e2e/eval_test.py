"""quire eval ppl: plausible, the same however it is asked for."""

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
        out = self.ok("eval", "ppl", "-m", MODEL, "-f", self.path, "--max-tokens", 64).stdout.decode()
        self.assertRegex(out, r"\Aperplexity [\d.]+ ± [\d.]+ .*63 tokens in 1 windows")

    def test_bad_input(self):
        empty = self.folder / "empty"
        empty.write_bytes(b"")
        self.refused("eval", "ppl", "-m", MODEL, "-f", empty, says="at least 2 tokens")
        self.refused("eval", "ppl", "-m", MODEL, "-f", self.path, "-c", 9000, says="8192")
        self.refused("eval", "ppl", "-m", MODEL, "-f", self.path, "-c", 1)
        odd = self.folder / "odd"
        odd.write_bytes(b"abc")
        self.refused("eval", "ppl", "-m", MODEL, "--tokens-file", odd, says="odd")
        odd.write_bytes(b"\xff\xff\x01\x00")
        self.refused("eval", "ppl", "-m", MODEL, "--tokens-file", odd, says="65535")
        self.refused("eval", "-m", MODEL)


if __name__ == "__main__":
    main()
