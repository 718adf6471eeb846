"""quire train-butler: what it writes, and that nothing shows where it was interrupted."""

import json
import os
import signal
import struct
import subprocess
import time

from quire_cli import MODEL, QUIRE, QuireTest, main, prose

STEPS = 6


class TrainButler(QuireTest):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text"
        self.text.write_text(prose(6000))

    def arguments(self, output, *more) -> list:
        """A short training; what `more` says stands for what is said here."""
        usual = {"--seq": 96, "--rows": 16, "--steps": STEPS, "--local": 8, "--hidden": 16, "--start-seqs": 1,
                 "--val-seqs": 1, "--validate-every": 4, "--save-every": 1}
        kept = [word for item in usual.items() if item[0] not in more for word in item]
        return ["train-butler", "-m", MODEL, "-f", self.text, "-o", self.folder / output, *kept, *more]

    def header(self, output) -> dict:
        data = (self.folder / output).read_bytes()
        return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])

    def test_result_and_record(self):
        done = self.ok_json(*self.arguments("b.safetensors"))
        self.assertEqual((done["steps"], done["file"]), (STEPS, str(self.folder / "b.safetensors")))
        self.assertTrue(0 < done["share_of_model"] < 0.01, done)
        for score in done["quality"]["budgets"].values():
            self.assertTrue(0 <= score["recall"] <= 1 and 0 < score["mass"] <= score["oracle_mass"] <= 1.001, done)
        header = self.header("b.safetensors")
        self.assertEqual(header["__metadata__"]["steps"], str(STEPS))
        self.assertRegex(header["__metadata__"]["training"], r"\A[0-9a-f]{16}\Z")
        self.assertIn(header["__metadata__"]["isa"], ("scalar", "avx2", "avx512"))
        self.assertEqual(header["__metadata__"]["model"], done["fingerprint"])
        self.assertEqual(header["__metadata__"]["n_layers"], "30")
        self.assertEqual(header["producer.7.out"], {**header["producer.7.out"], "dtype": "BF16", "shape": [1, 9, 16, 16]})
        lines = [json.loads(line) for line in (self.folder / "b.jsonl").read_text().splitlines()]
        self.assertEqual(lines[0]["parameters"], done["parameters"])
        self.assertEqual([line["step"] for line in lines[1:]], [0, 1, 2, 3, 4, 4, 5, 6, 6])
        checks = [line["validation"] for line in lines if "validation" in line]
        self.assertEqual(len(checks[-1]["budgets"]["10%"]["layers_mass"]), 29)
        self.assertTrue((self.folder / "b.svg").read_text().startswith("<svg"))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["b.jsonl", "b.safetensors", "b.svg", "text"])

    def interrupt(self, output, *more) -> str:
        """Trains until the first checkpoint; stderr."""
        command = [str(word) for word in (QUIRE, *self.arguments(output, *more))]
        state = (self.folder / output).with_suffix(".state")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            deadline = time.monotonic() + 120
            while not state.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            process.send_signal(signal.SIGINT)
            output, error = process.communicate(timeout=120)
        self.assertEqual((process.returncode, output), (130, b""), error)
        self.assertRegex(error.decode(), rf"stopped after \d of {STEPS} steps; the same command with --resume goes on\n\Z")
        return error.decode()

    def contents(self, stem) -> dict:
        return {path.name: path.read_bytes() for path in self.folder.glob(stem + ".*")}

    def test_interrupted_and_resumed_is_the_same(self):
        self.ok(*self.arguments("whole.safetensors", "-t", 1))
        self.interrupt("parts.safetensors", "-t", 2)
        state = self.folder / "parts.state"
        self.assertEqual(list(self.contents("parts")), ["parts.state"], "nothing unfinished under a final name")
        self.refused(*self.arguments("parts.safetensors"), says="--resume")
        self.refused(*self.arguments("parts.safetensors", "--resume", "--lr", 0.01), says="other options")
        done = self.ok(*self.arguments("parts.safetensors", "--resume", "-t", 1))
        self.assertIn(b"going on after step ", done.stderr)
        self.assertFalse(state.exists())
        for suffix in ("safetensors", "jsonl", "svg"):
            self.assertEqual((self.folder / f"parts.{suffix}").read_bytes(),
                             (self.folder / f"whole.{suffix}").read_bytes(), suffix)

    def test_finished_is_not_replaced_by_unfinished(self):
        done = self.ok(*self.arguments("b.safetensors", "--resume"))  # nothing is there yet
        self.assertIn(b"trained for 6 steps", done.stdout)
        before = self.contents("b")
        self.assertEqual(sorted(before), ["b.jsonl", "b.safetensors", "b.svg"])
        again = self.ok(*self.arguments("b.safetensors", "--resume"))
        self.assertIn(b"is finished: 6 steps with these options and texts", again.stdout)
        self.assertTrue(self.ok_json(*self.arguments("b.safetensors", "--resume"))["finished_before"])
        self.refused(*self.arguments("b.safetensors", "--resume", "--seed", 1), says="other options or texts")
        self.assertEqual(self.contents("b"), before)
        self.interrupt("b.safetensors", "--seed", 1)
        self.assertEqual({name: data for name, data in self.contents("b").items() if name != "b.state"}, before)
        self.ok(*self.arguments("b.safetensors", "--seed", 1, "--resume"))
        after = self.contents("b")
        self.assertEqual(sorted(after), sorted(before))
        for name, data in after.items():
            self.assertNotEqual(data, before[name], name)

    def test_a_predictor_that_does_not_say_its_training(self):
        self.ok(*self.arguments("b.safetensors"))
        path = self.folder / "b.safetensors"
        data = path.read_bytes()
        path.write_bytes(data.replace(b'"training":', b'"sraining":'))
        self.refused(*self.arguments("b.safetensors", "--resume"), says="does not say with which options")
        path.write_bytes(b"no predictor")
        self.refused(*self.arguments("b.safetensors", "--resume"), says="b.safetensors")
        self.assertEqual(path.read_bytes(), b"no predictor")

    def test_another_instruction_set_is_said(self):
        self.interrupt("b.safetensors")
        if self.header("b.state")["__metadata__"]["isa"] != "avx512":
            self.skipTest("the only other instruction set of this machine takes minutes")
        done = self.ok(*self.arguments("b.safetensors", "--resume"), env={"QUIRE_FORCE_ISA": "avx2"})
        self.assertIn(b"avx512+avx2", done.stderr)
        self.assertEqual(self.header("b.safetensors")["__metadata__"]["isa"], "avx512+avx2")

    def test_validation_says_what_it_keeps(self):
        done = self.ok(*self.arguments("b.safetensors", "--val-seqs", 9, "--steps", 1))
        said = done.stderr.decode()
        self.assertRegex(said, r"validation keeps [2-8] sequences of 96 tokens, [\d.]+ MB of the [\d.]+ MB")
        self.assertIn("more than these would overlap", said)

    def test_files_that_are_read_are_not_written(self):
        inputs = {self.text: self.text.read_bytes()}
        self.refused(*self.arguments("text"), says="same file")
        link = self.folder / "b.jsonl"
        link.symlink_to(self.text)
        self.refused(*self.arguments("b.safetensors"), says="same file")
        link.unlink()
        self.refused(*self.arguments("b.safetensors", "--val", self.text), says="--val")
        copy = self.folder / "copy"
        copy.write_bytes(self.text.read_bytes())
        self.refused(*self.arguments("b.safetensors", "--val", copy), says="what was trained on")
        self.refused(*self.arguments("copy", "--val", copy), says="same file")
        (self.folder / "b.svg").mkdir()
        self.refused(*self.arguments("b.safetensors"), says="it is a directory")
        self.assertEqual({path: path.read_bytes() for path in inputs}, inputs)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["b.svg", "copy", "text"])

    def test_nothing_is_validated_on_that_is_trained_on(self):
        text = self.text.read_text()
        (self.folder / "longer").write_text(text + "\n")
        (self.folder / "begin").write_text(text[:3000])
        seen = "validation would be on what was trained on"
        self.refused(*self.arguments("b.safetensors", "-f", f"{self.folder}/./text"), says="to be given once")
        self.refused(*self.arguments("b.safetensors", "-f", self.folder / "longer"), says=seen)
        self.refused(*self.arguments("b.safetensors", "--val", self.folder / "longer"), says=seen)
        self.refused(*self.arguments("b.safetensors", "--val", self.folder / "begin"), says=seen)

    def test_what_a_killed_training_left_is_removed(self):
        with subprocess.Popen(["true"]) as gone:
            pass
        stay = [f"b.state.new-{os.getpid()}-0", f"b.state.new-{gone.pid}-x", f"c.state.new-{gone.pid}-0"]
        for name in (*stay, f"b.state.new-{gone.pid}-0", f"b.safetensors.new-{gone.pid}-12"):
            (self.folder / name).write_text("half")
        (self.folder / "b.svg").mkdir()
        self.refused(*self.arguments("b.safetensors"), says="it is a directory")
        self.assertEqual({path.name for path in self.folder.iterdir()}, {*stay, "b.svg", "text"})

    def test_bad_input(self):
        command = self.arguments("b.safetensors")
        self.refused(*command, "--val", self.folder / "none", says="none")
        self.refused(*command, "--lr", 0, says="--lr")
        self.refused(*self.arguments("b.safetensors", "--rows", 0), says="--rows must be")
        self.refused(*command, "--start", "nowhere", says="nowhere")
        for flag in ("--val-seqs", "--batch", "--start-seqs", "--dim", "--hidden", "--stride"):
            self.refused(*self.arguments("b.safetensors", flag, 1_000_000), says=f"{flag} must be")
        if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 40e9:
            large = ("--batch", 1024, "--hidden", 16384, "--dim", 64)
            self.refused(*self.arguments("b.safetensors", *large), says="the machine has")
        self.refused(*command[:5], says="--output")
        self.refused(*self.arguments("none/b.safetensors"), says="cannot write")
        self.refused(*command, "--stride", 30, says="stride")
        self.refused(*self.arguments("b.safetensors", "--seq", 9000), says="context of 8192")
        self.text.write_text("too short")
        self.refused(*command, says="a sequence needs 96")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["text"])


if __name__ == "__main__":
    main()
