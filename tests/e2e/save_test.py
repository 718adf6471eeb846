"""--save-kv and --load-kv: a sequence in a file goes on as if it had never been away."""

import json
import os
import resource
import signal
import subprocess

from quire_cli import CAPITAL, MODEL, QUIRE, QuireTest, SANITIZED, call, main, prose

KEEPING = ("streaming(window=150)", "h2o(budget=200)", "logquant(reserve=64)")  # rows move or leave
RECIPES = ("full", "k=bf16,v=bf16", "k=fp8,v=fp8", "turbo4", "k=turbo4,v=turbo3", "kivi4", *KEEPING)
# Where a sequence goes on from its prompt; formats two by two go on in the middle of a generation.
RECIPES_OF_PROMPTS = ("full", "turbo4", *KEEPING)
LONG = prose(800 if SANITIZED else 1100)  # ends inside a page; long enough that pages are coded


class Save(QuireTest):
    wholes: dict[str, dict] = {}

    def setUp(self):
        super().setUp()
        self.kv = self.folder / "a.kv"
        self.text = self.folder / "text"
        self.text.write_text(LONG)

    def go(self, n: int, *arguments, **more) -> dict:
        return self.ok_json("run", "-m", MODEL, "-n", n, "--temp", 0, "--ignore-eos", *arguments, **more)

    @classmethod
    def whole(cls, recipe: str) -> dict:
        """LONG and 40 tokens behind it, unbroken; of fewer the first are the same."""
        if recipe not in cls.wholes:
            done = call("run", "-m", MODEL, "-p", LONG, "-n", 40, "--temp", 0, "--ignore-eos", "--kv", recipe, "--json")
            cls.wholes[recipe] = json.loads(done.stdout)
        return cls.wholes[recipe]

    def load(self, n: int, *arguments, **more) -> tuple[dict, str]:
        """The result, and the note on stderr that says what became of the prompt."""
        done = self.ok("run", "-m", MODEL, "--load-kv", self.kv, "-n", n, "--temp", 0, "--ignore-eos", "--json",
                       *arguments, **more)
        note = done.stderr.decode()
        self.assertEqual(note.count("\n"), 1, note)
        self.assertTrue(note.startswith("loaded "), note)
        return json.loads(done.stdout), note

    def nothing_but(self, *names):
        self.assertEqual(sorted(os.listdir(self.folder)), sorted([*names, "text"]))

    # ---- the same text as an unbroken run

    def test_goes_on_in_the_middle_of_a_generation(self):
        for recipe in RECIPES:
            with self.subTest(recipe=recipe):
                whole = self.whole(recipe)
                first = self.go(17, "-f", self.text, "--kv", recipe, "--save-kv", self.kv)
                self.assertEqual(first["kv_file_bytes"], self.kv.stat().st_size)
                second, note = self.load(11, "--save-kv", self.kv)  # the same file, and on once more
                third, _ = self.load(12)
                self.assertIn("no prompt", note)
                self.assertEqual(second["recipe"], whole["recipe"])
                self.assertEqual((second["prompt_tokens"], second["loaded_tokens"]), (1, first["prompt_tokens"] + 17))
                self.assertEqual(first["tokens"] + second["tokens"] + third["tokens"], whole["tokens"])
                self.assertEqual(first["text"] + second["text"] + third["text"], whole["text"])

    def test_goes_on_from_a_prompt_without_computing(self):
        for recipe in RECIPES_OF_PROMPTS:
            with self.subTest(recipe=recipe):
                whole = self.whole(recipe)
                self.go(0, "-f", self.text, "--kv", recipe, "--save-kv", self.kv)
                ways = ((), ("-f", self.text), ("-p", LONG), ("--kv", recipe))
                for arguments in ways if recipe == "turbo4" else ways[1:2]:
                    again, _ = self.load(20, *arguments)
                    self.assertEqual((again["prompt_tokens"], again["reused_tokens"]), (0, whole["prompt_tokens"]))
                    self.assertEqual(again["tokens"], whole["tokens"][:20])
                self.nothing_but("a.kv")

    # ---- where a prompt joins

    def test_a_longer_text_is_computed_from_where_it_differs(self):
        whole = self.go(20, "-p", LONG + " And then, in spring, the captain")
        self.go(0, "-f", self.text, "--save-kv", self.kv)
        again, note = self.load(20, "-p", LONG + " And then, in spring, the captain")
        self.assertIn("begins like them", note)
        self.assertLess(again["prompt_tokens"], 15)
        self.assertEqual(again["tokens"], whole["tokens"])

    def test_another_end_of_the_same_text(self):
        one, two = (LONG + end for end in (" Who counted the bells? It was", " Which coins were carried? The"))
        expected = self.go(20, "-p", two)
        self.go(30, "-p", one, "--save-kv", self.kv)
        again, note = self.load(20, "-p", two)
        self.assertRegex(note, r"begins like them: \d+ tokens used again, \d+ new, \d+ dropped")
        self.assertLess(again["prompt_tokens"], 15)
        self.assertEqual(again["tokens"], expected["tokens"])

    def test_the_text_without_what_was_generated(self):
        for recipe in ("full", "turbo4"):
            expected = self.whole(recipe)["tokens"][:20]
            self.go(5, "-f", self.text, "--kv", recipe, "--save-kv", self.kv)
            again, note = self.load(20, "-f", self.text)
            self.assertIn("5 dropped", note)
            self.assertEqual(again["tokens"], expected)

    def test_a_cut_into_coded_pages_computes_everything_anew(self):
        expected = self.go(20, "-p", LONG[:600], "--kv", "turbo4")
        self.go(0, "-f", self.text, "--kv", "turbo4", "--save-kv", self.kv)
        again, note = self.load(20, "-p", LONG[:600])
        self.assertIn("anew", note)
        self.assertEqual((again["reused_tokens"], again["tokens"]), (0, expected["tokens"]))

    def test_a_cut_where_rows_have_moved_computes_everything_anew(self):
        for recipe in KEEPING:
            expected = self.whole(recipe)["tokens"][:20]
            self.go(5, "-f", self.text, "--kv", recipe, "--save-kv", self.kv)
            again, note = self.load(20, "-f", self.text)
            self.assertIn("anew", note)
            self.assertEqual((again["reused_tokens"], again["tokens"]), (0, expected), recipe)

    def test_another_text_comes_behind(self):
        question = "\n\nThe captain asked:"
        whole = self.go(20, "-p", LONG + question)
        self.go(0, "-f", self.text, "--save-kv", self.kv)
        again, note = self.load(20, "-p", question)
        self.assertIn("begins differently and comes behind them", note)
        self.assertEqual(again["tokens"], whole["tokens"])
        self.assertEqual(self.load(20, stdin=question)[0]["tokens"], whole["tokens"])
        twice, note = self.load(5, "-f", self.text, "--append")
        self.assertIn("the prompt comes behind them", note)
        self.assertEqual(twice["reused_tokens"], whole["prompt_tokens"] - again["prompt_tokens"])

    def test_chat(self):
        self.ok("run", "-m", MODEL, "--chat", "-p", "My name is Ada.", "-n", 40, "--temp", 0, "--save-kv", self.kv)
        size = self.kv.stat().st_size
        out = self.ok("chat", "-m", MODEL, "--load-kv", self.kv, "--save-kv", self.kv, "--temp", 0, "-n", 30,
                      stdin="What is 2+2?\n").stdout.decode()
        talk = self.ok("chat", "-m", MODEL, "--temp", 0, "-n", 40, stdin="My name is Ada.\nWhat is 2+2?\n").stdout.decode()
        self.assertTrue(talk.endswith(out), (talk, out))
        self.assertGreaterEqual(self.kv.stat().st_size, size)
        done = self.ok("run", "-m", MODEL, "--load-kv", self.kv, "--chat", "-p", "Tell me about ships.", "-n", 5, "--temp", 0)
        self.assertIn(b"begins differently and comes behind", done.stderr)
        done = self.ok("run", "-m", MODEL, "--load-kv", self.kv, "--chat", "-p", "My name is Ada.", "-n", 5, "--temp", 0)
        self.assertIn(b"begins like them", done.stderr)

    def test_chat_with_a_system_prompt(self):
        """It cannot be said to a conversation that has begun."""
        self.ok("run", "-m", MODEL, "--chat", "-p", "Hi.", "-n", 5, "--temp", 0, "--save-kv", self.kv)
        load = ("chat", "-m", MODEL, "--load-kv", self.kv, "--temp", 0, "-n", 5)
        plain = self.ok(*load, stdin="And?\n")
        given = self.ok(*load, "--system-prompt", "Be brief.", stdin="And?\n")
        self.assertEqual(given.stdout, plain.stdout)
        self.assertIn(b"--system-prompt counts after /clear", given.stderr)
        self.assertNotIn(b"--system-prompt", plain.stderr)

    # ---- what is refused, and leaves everything as it was

    def refuse_load(self, says: str, *arguments, path=None, **more):
        self.refused("run", "-m", MODEL, "--load-kv", path or self.kv, "-p", "x", "-n", 1, *arguments, says=says, **more)

    def test_files_that_are_none(self):
        self.refuse_load("directory", path=self.folder)
        self.refuse_load("No such file", path=self.folder / "none")
        self.refuse_load("regular", path="/dev/zero")
        self.refuse_load("no saved cache", path=MODEL)
        self.kv.write_bytes(b"")
        self.refuse_load("empty")
        self.refused("chat", "-m", MODEL, "--load-kv", self.kv, says="empty")
        if os.geteuid() != 0:
            self.kv.chmod(0)
            self.refuse_load("Permission")

    def test_damage(self):
        self.go(2, "-p", CAPITAL, "--save-kv", self.kv)
        whole = self.kv.read_bytes()
        for at in (0, 9, 17, 30, 200, len(whole) // 2, len(whole) - 1):
            self.kv.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            self.refuse_load(str(self.kv))
        for n in (1, 30, len(whole) // 2, len(whole) - 1):
            self.kv.write_bytes(whole[:n])
            self.refuse_load("a.kv")
        self.refuse_load(f"should have {len(whole)} bytes and has {len(whole) - 1}")
        self.kv.write_bytes(whole + b"x")
        self.refuse_load("followed by something else")

    def test_what_belongs_elsewhere(self):
        self.go(2, "-p", CAPITAL, "--kv", "turbo4", "--save-kv", self.kv)
        self.refuse_load("recipe turbo4, not full", "--kv", "full")
        self.refuse_load("7 tokens, but the context holds only 6", "-c", 6)
        self.refuse_load("1474560 bytes, but the budget is 1000000", "--kv-budget-mb", 1)
        other = self.folder / "calibration"
        self.ok("calibrate", "-m", MODEL, "-f", self.text, "-o", other)
        self.refuse_load("another calibration", "--calibration", other)
        model = self.folder / "model.gguf"
        data = bytearray(MODEL.read_bytes())
        at = data.index(b"Smollm2")
        data[at:at + 1] = b"s"
        model.write_bytes(data)
        self.refused("run", "-m", model, "--load-kv", self.kv, "-p", "x", says="another model")
        self.refused("run", "-m", MODEL, "-p", "x", "--append", says="--append needs --load-kv")

    def test_places_that_cannot_be_written_are_refused_at_once(self):
        for path in (self.folder, "/dev/full", self.folder / "none" / "a.kv"):
            self.refused("run", "-m", MODEL, "-p", CAPITAL, "-n", 1, "--save-kv", path, says="cannot write")
        self.nothing_but()

    def full_disk(self, limit_bytes: int, *arguments) -> subprocess.CompletedProcess:
        """As on a disk without room: files cannot grow beyond the limit."""
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
        return subprocess.run([str(QUIRE), *map(str, arguments)], capture_output=True, check=False, preexec_fn=limit,
                              stdin=subprocess.DEVNULL)

    def test_a_full_disk_keeps_the_text_and_the_old_file(self):
        self.go(1, "-p", CAPITAL, "--save-kv", self.kv)
        before = self.kv.read_bytes()
        command = ("run", "-m", MODEL, "-p", "Once upon", "-n", 5, "--temp", 0, "--save-kv", self.kv)
        done = self.full_disk(100_000, *command)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr.decode(), r"\nquire: cannot write [^\n]+a.kv: File too large\n\Z")
        self.assertEqual(done.stdout, self.ok(*command[:-2]).stdout)
        self.assertEqual(self.kv.read_bytes(), before)
        self.nothing_but("a.kv")
        done = self.full_disk(100_000, *command, "--json")
        self.assertEqual((done.returncode, done.stdout.count(b"\n")), (2, 1))

    def test_a_full_tmpfs(self):
        disk = self.folder / "disk"
        disk.mkdir()
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], capture_output=True, check=False)
        if mount.returncode != 0:
            self.skipTest("mounting is not allowed here")
        try:
            done = call("run", "-m", MODEL, "-p", CAPITAL, "-n", 1, "--temp", 0, "--save-kv", disk / "a.kv")
            self.assertEqual(done.returncode, 2)
            self.assertIn(b"No space left on device", done.stderr)
            self.assertEqual(os.listdir(disk), [])
        finally:
            subprocess.run(["umount", disk], check=False)


if __name__ == "__main__":
    main()
