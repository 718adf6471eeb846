"""Stop strings (case U32): never a part of one, nothing lost, streamed the same as not streamed."""

from quire_cli import CAPITAL, MODEL, QuireTest, main

PANGRAM = 12 * "The quick brown fox jumps over the lazy dog. " + "The quick brown fox"  # often enough to be copied on
N = 40


class Stops(QuireTest):
    def both(self, prompt: str, stops: list[str]) -> dict:
        """The JSON result, after checking that the streamed text is the same."""
        flags = [flag for stop in stops for flag in ("--stop", stop)]
        result = self.run_json(prompt, N, "--ignore-eos", *flags)
        done = self.ok("run", "-m", MODEL, "-p", prompt, "-n", N, "--temp", 0, "--ignore-eos", *flags)
        text = result["text"]
        self.assertEqual(done.stdout.decode(), text if text.endswith("\n") else text + "\n")
        return result

    def check(self, prompt: str, stops: list[str], stopped: bool):
        free = self.run_json(prompt, N, "--ignore-eos")["text"]
        result = self.both(prompt, stops)
        starts = [free.find(stop) for stop in stops if stop in free]
        self.assertEqual(bool(starts), stopped, free)
        self.assertEqual(result["text"], free[: min(starts)] if starts else free)
        self.assertEqual(result["finish_reason"], "stop_string" if stopped else "length")

    def test_begun_but_never_completed(self):
        self.check(PANGRAM, ["jumps over the lazy dog. The quickZZZZ"], stopped=False)

    def test_spanning_tokens(self):
        self.check(PANGRAM, ["azy do"], stopped=True)

    def test_several(self):
        self.check(CAPITAL, ["\n", "Bruno:"], stopped=True)

    def test_one_a_prefix_of_another(self):
        self.check(PANGRAM, ["jumps", "jumps over", "s over the"], stopped=True)

    def test_stop_at_once(self):
        result = self.both(CAPITAL, [" Paris"])
        self.assertEqual((result["text"], result["finish_reason"]), ("", "stop_string"))

    def test_inside_an_emoji(self):
        """A stop is characters: one that comes up is cut whole."""
        self.check(12 * "hello 🎈 " + "hello", ["🎈"], stopped=True)

    def test_llama_spelling(self):
        self.assertEqual(self.run_json(CAPITAL, 5, "-r", ".")["text"], " Paris")


if __name__ == "__main__":
    main()
