"""quire run: where the prompt comes from, what is printed, what the figures are."""

import os
import pty
import signal
import subprocess
import time

from quire_cli import CAPITAL, CAPITAL_TOKENS, MODEL, QUIRE, QuireTest, main, prose

KEYS = {"model", "recipe", "prompt_tokens", "generated_tokens", "prefill_tokens_per_s", "decode_tokens_per_s", "kv_bytes",
        "kv_bytes_full_f16", "bytes_read_per_token", "peak_rss_bytes", "text", "tokens", "seed", "finish_reason", "threads",
        "load_seconds", "isa", "prefill_mode"}
PAGE_BYTES = 64 * 30 * 3 * 64 * 2 * 2  # 64 tokens of SmolLM2-135M in f16


class Run(QuireTest):
    def test_golden_next_token(self):
        result = self.run_json(CAPITAL, 1)
        self.assertEqual(result["text"], " Paris")
        self.assertEqual(result["tokens"], [7042])
        self.assertEqual(result["prompt_tokens"], len(CAPITAL_TOKENS))

    def test_json_has_every_key(self):
        result = self.run_json(CAPITAL, 8)
        self.assertLessEqual(KEYS, set(result))
        self.assertEqual(result["recipe"], "full")
        self.assertEqual(result["generated_tokens"], len(result["tokens"]))
        self.assertEqual(result["finish_reason"], "length")
        self.assertEqual(result["prefill_mode"], "layer-major")
        self.assertGreater(result["decode_tokens_per_s"], 0)
        self.assertGreater(result["prefill_tokens_per_s"], 0)

    def test_bytes(self):
        """5 + 8 tokens are one page; 70 + 70 are three. The last token generated is never computed."""
        small = self.run_json(CAPITAL, 8)
        self.assertEqual((small["kv_bytes"], small["kv_bytes_full_f16"]), (PAGE_BYTES, PAGE_BYTES))
        self.assertEqual(small["bytes_read_per_token"], PAGE_BYTES / 64 * 9)  # steps read 6 to 12 tokens
        single = self.run_json(CAPITAL, 8, "--kv", "f32")
        self.assertEqual((single["kv_bytes"], single["kv_bytes_full_f16"]), (2 * PAGE_BYTES, PAGE_BYTES))
        self.assertEqual(single["recipe"], "k=f32,v=f32")
        self.assertEqual(single["bytes_read_per_token"], 2 * small["bytes_read_per_token"])

    def test_prompt_sources_agree(self):
        path = self.folder / "prompt.txt"
        path.write_text(CAPITAL + "\n")
        expected = self.run_json(CAPITAL, 6)["text"]
        common = ["run", "-m", MODEL, "-n", 6, "--temp", 0]
        self.assertEqual(self.ok_json(*common, "-f", path)["text"], expected)
        self.assertEqual(self.ok_json(*common, stdin=CAPITAL + "\n")["text"], expected)
        self.assertEqual(self.ok_json(*common, "-f", "-", stdin=CAPITAL)["text"], expected)

    def test_text_goes_to_stdout_and_figures_to_stderr(self):
        expected = self.run_json(CAPITAL, 12)["text"]
        done = self.ok("run", "-m", MODEL, "-p", CAPITAL, "-n", 12, "--temp", 0)
        self.assertEqual(done.stdout.decode().rstrip("\n"), expected.rstrip("\n"))
        self.assertRegex(done.stderr.decode(), r"\Aprompt 5 tokens [\d.]+ tokens/s · generated 12 tokens [\d.]+ tokens/s · "
                         r"KV [\d.]+ MB \(full\) · peak memory [\d.]+ MB · load [\d.]+ s\n\Z")

    def test_display_prompt(self):
        done = self.ok("run", "-m", MODEL, "-p", CAPITAL, "-n", 1, "--temp", 0, "--display-prompt")
        self.assertEqual(done.stdout.decode(), CAPITAL + " Paris\n")

    def test_streams_as_it_is_made(self):
        """The first piece is there long before the end."""
        command = [str(QUIRE), "run", "-m", str(MODEL), "-p", "Once upon a time", "-n", "400", "--ignore-eos", "--temp", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as process:
            first = os.read(process.stdout.fileno(), 65536)
            self.assertIsNone(process.poll())
            rest = process.stdout.read()
        self.assertGreater(len(rest), 4 * len(first))
        self.assertEqual(process.returncode, 0)

    def test_zero_tokens(self):
        result = self.run_json(CAPITAL, 0)
        self.assertEqual((result["tokens"], result["text"], result["finish_reason"]), ([], "", "length"))

    def test_sampling_repeats_by_seed(self):
        common = ["run", "-m", MODEL, "-p", "Once upon a time", "-n", 40, "--temp", 1.2]
        first = self.ok_json(*common, "--seed", 7)
        self.assertEqual(first["seed"], 7)
        self.assertEqual(self.ok_json(*common, "-s", 7, "-t", 1)["tokens"], first["tokens"])
        self.assertNotEqual(self.ok_json(*common, "--seed", 8)["tokens"], first["tokens"])
        random = self.ok_json(*common)
        self.assertEqual(self.ok_json(*common, "--seed", random["seed"])["tokens"], random["tokens"])

    def test_top_k_of_one_is_greedy(self):
        self.assertEqual(self.run_json(CAPITAL, 20)["tokens"], self.run_json(CAPITAL, 20, "--temp", 2, "--top-k", 1)["tokens"])

    def test_chat_ends_by_itself_and_ignore_eos_does_not(self):
        common = ["run", "-m", MODEL, "--chat", "-p", "What is the capital of France?", "--temp", 0]
        ended = self.ok_json(*common, "-n", 200)
        self.assertEqual(ended["finish_reason"], "stop")
        self.assertIn("Paris", ended["text"])
        on = self.ok_json(*common, "-n", 200, "--ignore-eos")
        self.assertEqual((on["finish_reason"], on["generated_tokens"]), ("length", 200))
        self.assertNotIn(2, on["tokens"])

    def test_system_prompt(self):
        default = self.ok_json("run", "-m", MODEL, "--chat", "-p", "Hi", "-n", 1)
        own = self.ok_json("run", "-m", MODEL, "--chat", "-sys", "Be brief.", "-p", "Hi", "-n", 1)
        self.assertLess(own["prompt_tokens"], default["prompt_tokens"])

    def test_context_is_filled_and_no_more(self):
        result = self.run_json(CAPITAL, -1, "-c", 40, "--ignore-eos")
        self.assertEqual((result["finish_reason"], result["generated_tokens"]), ("context", 35))
        exact = self.run_json(CAPITAL, -1, "-c", 5)
        self.assertEqual((exact["finish_reason"], exact["generated_tokens"]), ("context", 0))

    def test_budget_ends_generation(self):
        result = self.run_json(CAPITAL, 200, "--ignore-eos", "--kv-budget-mb", 2 * PAGE_BYTES / 1e6)
        self.assertEqual((result["finish_reason"], result["generated_tokens"]), ("kv_budget", 128 - 5 + 1))
        self.assertLessEqual(result["kv_bytes"], 2 * PAGE_BYTES)

    def test_escapes_only_when_asked(self):
        text = r"a\n\n\n\nb"
        self.assertGreater(self.run_json(text, 1)["prompt_tokens"], self.run_json(text, 1, "-e")["prompt_tokens"])

    def test_any_bytes_are_a_prompt(self):
        path = self.folder / "binary"
        path.write_bytes(bytes(range(256)) * 4)
        self.ok("run", "-m", MODEL, "-f", path, "-n", 2)

    def test_closed_stdout_ends_quietly(self):
        command = [str(QUIRE), "run", "-m", str(MODEL), "-p", "Once", "-n", "300", "--ignore-eos"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            process.stdout.read(1)
            process.stdout.close()
            error = process.stderr.read()
        self.assertEqual((process.returncode, error), (1, b""))

    def test_full_stdout_is_a_sentence(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([str(QUIRE), "run", "-m", str(MODEL), "-p", "Once", "-n", "2"], stdout=full,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"stdout cannot be written: No space left on device", done.stderr)

    def test_interrupt_keeps_what_was_made(self):
        command = [str(QUIRE), "run", "-m", str(MODEL), "-p", "Once upon a time", "-n", "-1", "--ignore-eos"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            os.read(process.stdout.fileno(), 1)
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            error = process.stderr.read().decode()
        self.assertEqual(process.returncode, 130)
        self.assertIn("generated", error)

    def test_progress_only_on_a_terminal(self):
        path = self.folder / "long.txt"
        path.write_text(prose(2200))  # above 512 tokens
        common = ["run", "-m", MODEL, "-f", path, "-n", 1]
        self.assertNotIn(b"reading", self.ok(*common).stderr)
        outer, inner = pty.openpty()
        with subprocess.Popen([str(QUIRE), *map(str, common)], stdout=subprocess.PIPE, stderr=inner, stdin=subprocess.DEVNULL) as process:
            process.stdout.read()
            process.wait()
            time.sleep(0.05)
            shown = os.read(outer, 65536)
        os.close(inner)
        os.close(outer)
        self.assertRegex(shown.decode(), r"reading \d+ tokens: \d+ %")


if __name__ == "__main__":
    main()
