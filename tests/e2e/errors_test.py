"""Bad input: one sentence on stderr, exit code 2 (3: no device), nothing on stdout."""

from quire_cli import CAPITAL, MODEL, QuireTest, call, main, prose


class Errors(QuireTest):
    def run_refused(self, *arguments, says: str = "") -> str:
        return self.refused("run", "-m", MODEL, "-p", CAPITAL, *arguments, says=says)

    def test_commands(self):
        self.refused(says="run")
        self.refused("rnu", says="did you mean 'run'?")
        self.refused("-m", MODEL)
        self.refused("xyzzyplugh", says="inspect")

    def test_unknown_flags(self):
        self.run_refused("--tmp", 1, says="did you mean '--temp'?")
        self.run_refused("--top_k", 1, says="did you mean '--top-k'?")
        self.run_refused("--repeat-penalty-thing", 1, says="--repeat-penalty-thing")
        self.run_refused("stray", says="stray")
        self.refused("inspect", MODEL, "--jsno", says="--json")

    def test_unknown_recipe(self):
        self.run_refused("--kv", "ful", says="full")
        self.run_refused("--kv", "k=f17", says="f16")
        self.run_refused("--kv", "")

    def test_values_out_of_range(self):
        cases = [("-t", 0), ("-t", 100000), ("-t", -1), ("-t", "x"), ("-n", -5), ("-n", "1.5"), ("-c", 0), ("-c", -1), ("-c", 2**33),
                 ("--temp", -1), ("--temp", "nan"), ("--temp", "inf"), ("--top-p", 2), ("--top-p", "nan"), ("--min-p", -0.1),
                 ("--top-k", -1), ("--repeat-penalty", 0), ("--repeat-last-n", -2), ("--seed", -2), ("--chunk", -1),
                 ("--kv-budget-mb", -1), ("--kv-budget-mb", "nan"), ("--stop", ""), ("-n", 10**30)]
        for flag, value in cases:
            with self.subTest(flag=flag, value=value):
                self.run_refused(flag, value)

    def test_prompt_over_the_context(self):
        path = self.folder / "long"
        path.write_text("a " * 9000)
        error = self.refused("run", "-m", MODEL, "-f", path, says="8192")
        self.assertRegex(error, r"\b(9000|9001|18000|18001)\b")
        self.refused("run", "-m", MODEL, "-p", prose(400), "-c", 20, says="20")

    def test_budget_too_small(self):
        self.run_refused("--kv-budget-mb", 1, says="1000000")

    def test_prompts(self):
        empty = self.folder / "empty"
        empty.write_bytes(b"")
        self.refused("run", "-m", MODEL, "-p", "", says="empty")
        self.refused("run", "-m", MODEL, "-f", empty, says="empty")
        self.refused("run", "-m", MODEL, says="empty")
        self.refused("run", "-m", MODEL, "-f", self.folder, says="directory")
        self.refused("run", "-m", MODEL, "-f", self.folder / "missing", says="missing")
        self.refused("run", "-m", MODEL, "-f", empty, "-p", "x", says="both")

    def test_models(self):
        self.refused("run", "-p", CAPITAL, says="--model")
        self.refused("run", "-m", self.folder / "none.gguf", "-p", CAPITAL, says="none.gguf")
        self.refused("run", "-m", self.folder, "-p", CAPITAL)
        self.refused("chat", "-m", "/dev/null")
        self.refused("tokenize", "-m", self.folder / "none.gguf", "-p", "a", says="none.gguf")

    def test_devices(self):
        self.run_refused("--device", "gpu", says="cuda:N")
        self.run_refused("--device", "cuda", "--chunk", 8, says="--chunk")
        self.refused("run", "-m", MODEL, "-p", CAPITAL, "--device", "cuda:99", "--display-prompt", says="CUDA", code=3)
        self.refused("chat", "-m", MODEL, "-p", CAPITAL, "--device", "cuda:99", says="CUDA", code=3)
        self.refused("bench", "--device", "cuda:99", "--random-weights", "llama-3.1-8b", says="CUDA", code=3)
        self.refused("bench", "--device", "cuda", says="--random-weights")
        # What means nothing there is refused by name, on either side.
        for flag, *value in (("--repeats", 2), ("--trace", "x"), ("--trace-dir", "x"), ("--svg", "x"), ("--file", "x"), ("--prompt", "x"),
                             ("--prompt-tokens", 5), ("--temp", 1), ("--top-p", 0.5), ("--seed", 3), ("--no-warmup",), ("--no-quality",),
                             ("--preset", "fast"), ("--window-size", 5), ("--ctx-size", 99), ("--base-model", "x")):
            self.refused("bench", "--device", "cuda", "--random-weights", "llama-3.1-8b", flag, *value, says="is for --device cpu")
        for flag in ("--batch", "--context"):
            self.refused("bench", "-m", MODEL, "-p", CAPITAL, flag, 5, says=f"{flag} needs --device cuda")

    def test_flags_that_exclude_each_other(self):
        self.run_refused("--chat", "--raw")
        self.run_refused("--system-prompt", "x", says="--chat")

    def test_help_and_version(self):
        for command in ([], ["run"], ["chat"], ["inspect"], ["tokenize"], ["convert"], ["eval"], ["eval", "ppl"], ["recipes"], ["calibrate"]):
            done = call(*command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, b""), command)
            self.assertIn(b"--help", done.stdout)
            if command != ["eval"]:
                self.assertIn(b"Example", done.stdout, command)
        self.assertRegex(call("--version").stdout, rb"\Aquire \d+\.\d+\.\d+\n\Z")

    def test_recipes(self):
        self.assertIn(b"full", self.ok("recipes").stdout)


if __name__ == "__main__":
    main()
