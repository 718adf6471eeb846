"""quire chat: turns reuse the cache (case U19), commands, a full context."""

import os
import re
import signal
import subprocess

from quire_cli import MODEL, QUIRE, QuireTest, main

NOTE = re.compile(r"\[(\d+) new tokens, (\d+) reused · answer (\d+) tokens [\d.]+ tokens/s · context (\d+) of (\d+)( · ended by (\w+))?\]")
MESSAGES = ["My name is Ada.", "What is 2+2?", "Tell me a joke about ships.", "Thanks! Another one, about the sea?", "Goodbye."]


class Chat(QuireTest):
    def talk(self, lines: list[str], *arguments):
        stdin = "".join(line + "\n" for line in lines)
        done = self.ok("chat", "-m", MODEL, "--temp", 0, *arguments, stdin=stdin)
        return done.stdout.decode(), done.stderr.decode()

    def count(self, text: str, *flags) -> int:
        return len(self.ok_json("tokenize", "-m", MODEL, "-p", text, *flags)["tokens"])

    def test_five_turns_compute_only_what_is_new(self):
        _, notes = self.talk(MESSAGES, "-n", 30)
        turns = [list(map(int, m.groups()[:5])) + [m.group(7)] for m in NOTE.finditer(notes)]
        self.assertEqual(len(turns), len(MESSAGES), notes)
        in_cache, context = 0, 0
        for i, (new, reused, answer, after, _, ended_by) in enumerate(turns):
            turn = f"<|im_start|>user\n{MESSAGES[i]}<|im_end|>\n<|im_start|>assistant\n"
            if i == 0:
                turn = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n" + turn)
            else:
                turn = "<|im_end|>\n" + turn
            # An answer cut by -n leaves its last token to be computed with the next turn.
            pending = context - in_cache
            self.assertLessEqual(pending, 1)
            self.assertEqual(new, self.count(turn) + pending, f"turn {i + 1}")
            self.assertEqual(reused, in_cache, f"turn {i + 1}")
            self.assertEqual(after, new + reused + answer)
            context = after
            in_cache = after - (1 if ended_by == "length" else 0)

    def test_remembers_and_forgets(self):
        first, notes = self.talk(["Hi.", "/clear", "Hi."], "-n", 20)
        answers = first.split("\n")
        self.assertIn("forgotten", notes)
        reused = [int(m.group(2)) for m in NOTE.finditer(notes)]
        self.assertEqual(reused, [0, 0])
        half = len(answers) // 2
        self.assertEqual(answers[:half], answers[half : 2 * half])

    def test_commands(self):
        out, notes = self.talk(["/help", "", "/exit", "never reached"], "-n", 5)
        self.assertEqual(out, "")
        self.assertIn("/clear", notes)
        self.assertIsNone(NOTE.search(notes))

    def test_first_message(self):
        _, notes = self.talk(["And now?"], "-n", 5, "-p", "Hello", "--system-prompt", "Be brief.")
        self.assertEqual(len(NOTE.findall(notes)), 2)

    def test_control_tokens_typed_by_a_user_stay_text(self):
        """Case U35: the marker typed is 7 tokens, not one."""
        _, plain = self.talk(["say now"], "-n", 1)
        _, marked = self.talk(["say <|im_end|> now"], "-n", 1)
        new = [int(NOTE.search(notes).group(1)) for notes in (plain, marked)]
        self.assertGreaterEqual(new[1] - new[0], 7)

    def test_other_templates(self):
        """A file, a text, a name; what is wrong with one is said with its line."""
        plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}bot:"
        file = self.folder / "plain.jinja"
        file.write_text(plain)
        news = []
        for flags in (("--chat-template", plain), ("--chat-template", file), ("--chat-template-file", file), ("--chat-template", "chatml")):
            _, notes = self.talk(["Hello there", "Again"], "-n", 4, *flags)
            news.append([int(m.group(1)) for m in NOTE.finditer(notes)])
        self.assertEqual(news[0], news[1])
        self.assertEqual(news[0], news[2])
        self.assertEqual(news[0][0], self.count("user: Hello there\nbot:"))
        self.assertEqual(news[3][0], self.count("<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n"))
        for template, says in (("{{ x", "line 1"), ("a\n{% nope %}", "line 2: the tag 'nope'"), (self.folder / "gone", "No such file")):
            self.refused("chat", "-m", MODEL, "--chat-template", template, stdin="Hi\n", says=says)
        refusing = "{{ raise_exception('not today') }}"
        self.refused("run", "-m", MODEL, "--chat", "-p", "x", "--chat-template", refusing, says="refuses the conversation: 'not today'")
        self.refused("run", "-m", MODEL, "-p", "x", "--chat-template", refusing, says="needs --chat")

    def test_templates_that_change_earlier_turns(self):
        """What a template no longer prints is cut from the cache; the text is that of a fresh rendering."""
        forgetful = "{{ messages[-1].content }} =>"
        out, notes = self.talk(["One and two", "One and three", "One and two"], "-n", 6, "--chat-template", forgetful)
        turns = [list(map(int, m.groups()[:3])) for m in NOTE.finditer(notes)]
        self.assertEqual([turn[1] for turn in turns], [0, self.count("One and"), self.count("One and")])
        alone, _ = self.talk(["One and two"], "-n", 6, "--chat-template", forgetful)
        self.assertTrue(out.startswith(alone) and out.endswith(alone), (out, alone))

    def test_a_stop_string_does_not_stay(self):
        """The next turn keeps the answer up to the stop string at most, and says what a fresh chat would."""
        first = "Count from one to ten."
        free, _ = self.talk([first], "-n", 24)
        answer = free.rstrip("\n")
        stop = answer[len(answer) // 2 : len(answer) // 2 + 6]
        kept = answer[: answer.find(stop)]
        out, notes = self.talk([first, "Go on."], "-n", 24, "--stop", stop)
        self.assertTrue(out.startswith(kept + "\n"), (kept, out))
        turns = list(NOTE.finditer(notes))
        self.assertEqual(turns[0].group(7), "stop_string")
        turn = "<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n"
        before = int(turns[0].group(1)) + self.count(kept)
        new, reused = int(turns[1].group(1)), int(turns[1].group(2))
        self.assertEqual(new + reused, before + self.count(turn))
        self.assertLessEqual(reused, before)

    def test_trouble_begins_on_its_own_line(self):
        """A disk that gets full in the midst of an answer: its rows cannot be read again, so nothing can be saved."""
        kv = self.folder / "talk.kv"
        recipe = f"turbo4(frame=rotated,tail=64),place=disk(path={self.folder},size=500K)"
        done = subprocess.run([QUIRE, "chat", "-m", MODEL, "--temp", "0", "--ignore-eos", "-n", "400", "--kv", recipe, "--save-kv", kv],
                              input=b"Tell me a long story of a ship and its crew.\n", capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertTrue(done.stdout.endswith(b"\n"))
        self.assertGreater(len(done.stdout), 20)
        error = done.stderr.decode()
        self.assertRegex(error, r"quire: [^\n]*500000 bytes \(size=\)[^\n]*\n\Z")
        self.assertIn("is not saved", error)
        self.assertFalse(kv.exists())

    def test_full_context(self):
        out, notes = self.talk(["Tell me a long story.", "Go on.", "/clear", "Hi."], "-c", 80, "--ignore-eos", "-n", 40)
        self.assertIn("of 80", notes)
        self.assertIn("/clear begins a new conversation", notes)
        self.assertEqual(NOTE.findall(notes)[-1][1], "0")
        self.assertTrue(out)

    def test_interrupt_stops_the_answer_and_not_the_program(self):
        command = [str(QUIRE), "chat", "-m", str(MODEL), "--temp", "0", "--ignore-eos"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdin.write(b"Tell me a story.\n")
            process.stdin.flush()
            os.read(process.stdout.fileno(), 1)
            process.send_signal(signal.SIGINT)
            first = process.stderr.readline().decode()
            process.stdin.write(b"/help\n")
            process.stdin.close()
            process.stdout.read()
            rest = process.stderr.read().decode()
        self.assertEqual(NOTE.search(first).group(7), "interrupted")
        self.assertIn("/clear", rest)
        self.assertEqual(process.returncode, 0)

    def test_same_answer_as_run(self):
        out, _ = self.talk(["What is the capital of France?"], "-n", 30)
        run = self.ok_json("run", "-m", MODEL, "--chat", "-p", "What is the capital of France?", "-n", 30, "--temp", 0)
        self.assertEqual(out.rstrip("\n"), run["text"].rstrip("\n"))


if __name__ == "__main__":
    main()
