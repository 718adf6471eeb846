"""quire convert: files that other programs read, of the bytes they would write, in little memory."""

import os
import struct
import subprocess
from pathlib import Path

from quire_cli import CAPITAL, MODEL, QUIRE, SANITIZED, QuireTest, main

PYTHON = Path(__file__).parents[2] / ".venv/bin/python"  # has the package gguf (scripts/setup)
ORACLE = Path(__file__).with_name("convert_oracle.py")
MIB = 1 << 20


def peak_memory_bytes(*arguments) -> int:
    with subprocess.Popen([str(QUIRE), *map(str, arguments)], stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024


def write_zeros(path: Path, n_tensors: int, n_columns: int, n_rows: int) -> None:
    """A GGUF file of F32 matrices that takes no room on disk."""
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    header = b"GGUF" + struct.pack("<IQQ", 3, n_tensors, 1)
    header += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    n_bytes = 4 * n_columns * n_rows
    for i in range(n_tensors):
        header += text(f"blk.{i}.ffn_up.weight") + struct.pack("<IQQIQ", 2, n_columns, n_rows, 0, i * n_bytes)
    header += bytes(-len(header) % 32)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + n_tensors * n_bytes)


class Convert(QuireTest):
    def oracle(self, *arguments) -> None:
        if not PYTHON.exists():
            self.skipTest("there is no .venv with the package gguf; scripts/setup makes it")
        done = subprocess.run([PYTHON, ORACLE, *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_types_are_those_of_the_gguf_package(self):
        self.oracle("make", self.folder)
        for name in ("f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"):
            self.ok("convert", self.folder / "plain.gguf", self.folder / f"{name}.gguf", "--type", name, "-t", 2)
        self.oracle("check_types", self.folder)

    def test_folder(self):
        self.oracle("make", self.folder)
        out = self.folder / "llama.gguf"
        result = self.ok_json("convert", self.folder / "llama", out)
        self.assertEqual(result["tensors"], {"F32": 12})
        self.assertEqual(result["bytes"], out.stat().st_size)
        self.assertEqual(result["notes"], [])
        self.oracle("check_folder", self.folder)
        report = self.ok_json("inspect", self.folder / "llama")
        self.assertEqual(report["metadata"]["llama.block_count"]["value"], 1)
        texts = [self.ok_json("run", "-m", model, "-p", "the 12 things", "-n", 12, "--temp", 0, "--precise", "--ignore-eos")["tokens"]
                 for model in (self.folder / "llama", out)]
        self.assertEqual(texts[0], texts[1])
        (self.folder / "llama" / "tokenizer.json").unlink()
        result = self.ok_json("convert", self.folder / "llama", out)
        self.assertIn("no tokenizer.json", result["notes"][0])

    def test_as_is_changes_nothing(self):
        out = self.folder / "copy.gguf"
        self.ok("convert", MODEL, out)
        self.oracle("check_same", MODEL, out)
        again = self.folder / "again.gguf"
        self.ok("convert", out, again, "-t", 1)
        self.assertEqual(out.read_bytes(), again.read_bytes())

    def test_what_is_converted_runs(self):
        if SANITIZED:
            self.skipTest("the release build runs it")
        out = self.folder / "q8_0.gguf"
        done = self.ok("convert", MODEL, out, "--type", "q8_0")
        self.assertIn(b"tensors were quantized before", done.stderr)
        self.assertIn(b"wrote ", done.stderr)
        self.assertEqual(done.stdout, b"")
        text = self.ok_json("run", "-m", out, "-p", CAPITAL, "-n", 4, "--temp", 0)["text"]
        self.assertIn("Paris", text)

    def test_memory_is_that_of_a_tensor(self):
        if SANITIZED:
            self.skipTest("sanitizers need memory of their own")
        small, large, out = self.folder / "small.gguf", self.folder / "large.gguf", self.folder / "out.gguf"
        write_zeros(small, 1, 1024, 1)
        write_zeros(large, 25, 1024, 3072)  # 300 MiB of 12 MiB each
        base = peak_memory_bytes("convert", small, out, "--type", "q8_0", "-t", 2)
        peak = peak_memory_bytes("convert", large, out, "--type", "q8_0", "-t", 2)
        self.assertEqual(out.stat().st_size // MIB, 300 * 34 // 128)
        self.assertLess(peak - base, 24 * MIB)

    def test_bad_input(self):
        out = self.folder / "out.gguf"
        self.refused("convert", MODEL, out, "--type", "q4_2", says="there is no type 'q4_2'")
        self.refused("convert", MODEL, out, "--type", "as_is", says="did you mean 'as-is'?")
        self.refused("convert", MODEL, says="OUT")
        self.refused("convert", self.folder / "none", out, says="none")
        self.refused("convert", self.folder, out, says="config.json")
        self.refused("convert", MODEL, self.folder, says="it is a directory")
        self.refused("convert", MODEL, self.folder / "no" / "out.gguf", says="No such file or directory")
        self.refused("convert", MODEL, out, "-t", -1, says="--threads")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_file_of_the_model_is_not_written_over(self):
        path = self.folder / "same.gguf"
        write_zeros(path, 1, 64, 2)
        before = path.read_bytes()
        link = self.folder / "link.gguf"
        link.symlink_to(path)
        for out in (path, link):
            self.refused("convert", path, out, "--type", "q4_0", says="a file of the model that is to be converted")
        self.assertEqual(path.read_bytes(), before)
        self.oracle("make", self.folder)
        weights = next((self.folder / "llama").glob("*.safetensors"))
        before = weights.read_bytes()
        self.refused("convert", self.folder / "llama", weights, says="a file of the model that is to be converted")
        self.assertEqual(weights.read_bytes(), before)


if __name__ == "__main__":
    main()
