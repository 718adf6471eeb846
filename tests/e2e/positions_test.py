"""Contexts beyond the trained one, and positions other than the file's."""

import unittest

from quire_cli import CAPITAL, MODEL, QuireTest, main, prose


class Positions(QuireTest):
    def ppl(self, *arguments):
        path = self.folder / "text"
        path.write_text(prose(3000))
        return self.ok_json("eval", "ppl", "-m", MODEL, "-f", path, "--max-tokens", 300, "-c", 300, *arguments)["perplexity"]

    def test_a_longer_context_is_said_aloud(self):
        plain = self.ok("run", "-m", MODEL, "-p", CAPITAL, "-n", 2, "--temp", 0, "-c", 8192)
        self.assertNotIn(b"trained", plain.stderr)
        done = self.ok("run", "-m", MODEL, "-p", CAPITAL, "-n", 2, "--temp", 0, "-c", 10000)
        self.assertRegex(done.stderr.decode(), r"context of 10000 tokens is more than the 8192 .* no scaling")
        self.assertEqual(done.stdout, plain.stdout)
        scaled = self.ok("run", "-m", MODEL, "-p", CAPITAL, "-n", 2, "-c", 10000, "--rope-scaling", "yarn", "--rope-scale", 2)
        self.assertIn("yarn by 2", scaled.stderr.decode())
        self.assertEqual(self.run_json(CAPITAL, 1, "-c", 10000)["context_tokens"], 10000)

    def test_an_endless_recipe_stays_within_the_trained_positions(self):
        done = self.ok("run", "-m", MODEL, "-p", CAPITAL, "-n", 2, "-c", 10000, "--kv", "streaming")
        self.assertNotIn(b"trained", done.stderr)

    def test_a_longer_window_can_be_measured(self):
        path = self.folder / "text"
        path.write_text(prose(2000))
        done = self.ok("eval", "ppl", "-m", MODEL, "-f", path, "-c", 9000)
        self.assertIn(b"context of 9000 tokens is more than the 8192", done.stderr)

    def test_flags_reach_the_model(self):
        plain = self.ppl()
        self.assertEqual(self.ppl("--rope-scaling", "none"), plain)
        self.assertEqual(self.ppl("--rope-freq-base", 100000), plain)
        self.assertEqual(self.ppl("--rope-scaling", "dynamic", "--rope-scale", 4), plain)  # 300 tokens need none
        quarter = self.ppl("--rope-scale", 4)
        self.assertEqual(self.ppl("--rope-freq-scale", 0.25), quarter)
        self.assertEqual(self.ppl("--rope-scaling", "linear", "--rope-scale", 4), quarter)
        yarn = ("--rope-scaling", "yarn", "--rope-scale", 4)
        others = [
            self.ppl("--rope-freq-base", 10000),
            self.ppl(*yarn),
            self.ppl(*yarn, "--yarn-orig-ctx", 256),
            self.ppl(*yarn, "--yarn-ext-factor", 0.5),
            self.ppl(*yarn, "--yarn-attn-factor", 1.3),
            self.ppl(*yarn, "--yarn-beta-fast", 8),
            self.ppl(*yarn, "--yarn-beta-slow", 4),
        ]
        self.assertEqual(len({plain, quarter, *others}), 9)

    def test_saved_caches_belong_to_their_positions(self):
        path = self.folder / "saved.kv"
        self.ok("run", "-m", MODEL, "-p", CAPITAL, "-n", 0, "--save-kv", path)
        load = ("run", "-m", MODEL, "--load-kv", path, "-n", 1)
        self.ok(*load, "-c", 9000)
        self.refused(*load, "--rope-scale", 2, says="another model")

    def test_what_cannot_be_meant(self):
        run = ("run", "-m", MODEL, "-p", "x")
        self.refused(*run, "--rope-scaling", "ntk", says="dynamic")
        self.refused(*run, "--rope-scaling", "yarn", says="factor")
        self.refused(*run, "--rope-scaling", "longrope", says="rope_factors_long")
        self.refused(*run, "--rope-scale", 2, "--rope-freq-scale", 0.5, says="both")
        for flag in ("--rope-scale", "--rope-freq-scale", "--rope-freq-base", "--yarn-attn-factor", "--yarn-orig-ctx"):
            for value in (0, -1, "x"):
                with self.subTest(flag=flag, value=value):
                    self.refused(*run, flag, value, says=flag)


if __name__ == "__main__":
    main()
