"""quire train-butler: what it writes, and that nothing shows where it was interrupted."""

import json
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
        return ["train-butler", "-m", MODEL, "-f", self.text, "-o", self.folder / output, "--seq", 96, "--rows", 16,
                "--steps", STEPS, "--local", 8, "--hidden", 16, "--start-seqs", 1, "--val-seqs", 1, "--validate-every", 4,
                "--save-every", 1, *more]

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

    def test_interrupted_and_resumed_is_the_same(self):
        self.ok(*self.arguments("whole.safetensors", "-t", 1))
        command = [str(word) for word in (QUIRE, *self.arguments("parts.safetensors", "-t", 2))]
        state = self.folder / "parts.state"
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            deadline = time.monotonic() + 120
            while not state.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            process.send_signal(signal.SIGINT)
            output, error = process.communicate(timeout=120)
        self.assertEqual((process.returncode, output), (130, b""), error)
        self.assertRegex(error.decode(), rf"stopped after \d of {STEPS} steps; the same command with --resume goes on\n\Z")
        self.refused(*self.arguments("parts.safetensors"), says="--resume")
        self.refused(*self.arguments("parts.safetensors", "--resume", "--lr", 0.01), says="other options")
        done = self.ok(*self.arguments("parts.safetensors", "--resume", "-t", 1))
        self.assertIn(b"going on after step ", done.stderr)
        self.assertFalse(state.exists())
        for suffix in ("safetensors", "jsonl", "svg"):
            self.assertEqual((self.folder / f"parts.{suffix}").read_bytes(),
                             (self.folder / f"whole.{suffix}").read_bytes(), suffix)

    def test_bad_input(self):
        command = self.arguments("b.safetensors")
        self.refused(*command, "--val", self.folder / "none", says="none")
        self.refused(*command, "--lr", 0, says="--lr")
        self.refused(*command, "--rows", 0, says="--rows")
        self.refused(*command, "--start", "nowhere", says="nowhere")
        self.refused(*command[:5], says="--output")
        self.refused(*self.arguments("none/b.safetensors"), says="cannot write")
        self.refused(*command, "--stride", 30, says="stride")
        self.refused(*command, "--seq", 9000, says="context of 8192")
        self.text.write_text("too short")
        self.refused(*command, says="a sequence needs 96")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["text"])


if __name__ == "__main__":
    main()
