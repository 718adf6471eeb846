"""quire inspect: what is in the file, and predictions that hold (case U38)."""

import struct

from quire_cli import MODEL, QuireTest, main, prose

U32, STRING, ARRAY = 4, 8, 9


def write_gguf(path, entries):
    """A file of metadata without tensors: {key: int, str or list of int}."""

    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()

    body = b""
    for key, value in entries.items():
        body += string(key)
        if isinstance(value, str):
            body += struct.pack("<I", STRING) + string(value)
        elif isinstance(value, list):
            body += struct.pack("<IIQ", ARRAY, U32, len(value)) + struct.pack(f"<{len(value)}I", *value)
        else:
            body += struct.pack("<II", U32, value)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + body)


class Inspect(QuireTest):
    def test_report(self):
        report = self.ok_json("inspect", MODEL)
        self.assertEqual(report["metadata"]["general.architecture"]["value"], "llama")
        self.assertEqual(report["metadata"]["tokenizer.ggml.tokens"]["value"]["length"], 49152)
        self.assertEqual(len(report["tensors"]), 272)
        per_token = report["kv_bytes_per_token"]
        self.assertEqual({name: per_token[name] for name in ("f32", "f16", "bf16")},
                         {"f32": 46080, "f16": 23040, "bf16": 23040})
        # Keys and values of 64 on 30 layers of 3 heads: 68, 52 and 48 bytes (algorithms.md, 8.1).
        self.assertEqual((per_token["turbo4"], per_token["turbo3"], per_token["kivi2"]), (68 * 90, 52 * 90, 48 * 90))
        self.assertTrue(report["runs"])
        self.assertEqual(report["predicted_memory"]["context_tokens"], 8192)

    def test_text(self):
        text = self.ok("inspect", MODEL, "-c", 100).stdout.decode()
        for part in ("llama.block_count", "blk.29.ffn_down.weight", "Q4_1", "context of 100 tokens", "can run"):
            self.assertIn(part, text)
        self.assertLess(max(map(len, text.splitlines())), 200)

    def test_prediction_against_a_real_run(self):
        path = self.folder / "prompt"
        path.write_text(prose(3000))
        for kv in ("full", "q8", "k=turbo4,v=turbo3,frame=rotated,tail=100"):
            result = self.ok_json("run", "-m", MODEL, "-f", path, "-n", 1, "--kv", kv)
            predicted = self.ok_json("inspect", "-m", MODEL, "-c", result["prompt_tokens"], "--kv", kv)
            memory = predicted["predicted_memory"]
            self.assertEqual(memory["kv_bytes"], result["kv_bytes"], kv)
            total = memory["weight_bytes"] + memory["kv_peak_bytes"] + memory["workspace_bytes"]
            self.assertEqual(memory["total_bytes"], total)
            # The peak fits a budget, and what is less is refused with both numbers.
            peak = memory["kv_peak_bytes"]
            self.ok("run", "-m", MODEL, "-f", path, "-n", 1, "--kv", kv, "--kv-budget-mb", (peak + 1) / 1e6)
            error = self.refused("run", "-m", MODEL, "-f", path, "-n", 1, "--kv", kv, "--kv-budget-mb", (peak - 1) / 1e6,
                                 says=str(peak))
            self.assertIn("budget", error)

    def test_heads_that_differ_by_layer(self):
        path = self.folder / "odd.gguf"
        arch = "openelm"
        write_gguf(path, {"general.architecture": arch, f"{arch}.block_count": 4, f"{arch}.context_length": 1000,
                          f"{arch}.embedding_length": 576, f"{arch}.attention.head_count": [12, 12, 16, 16],
                          f"{arch}.attention.head_count_kv": [3, 1, 3, 0], f"{arch}.attention.key_length": 96,
                          f"{arch}.attention.value_length": 64})
        report = self.ok_json("inspect", path, "-c", 65)
        self.assertEqual(report["kv_bytes_per_token"]["f16"], 7 * (96 + 64) * 2)
        self.assertEqual(report["predicted_memory"]["kv_bytes"], 128 * 7 * (96 + 64) * 2)
        self.assertNotIn("q8", report["kv_bytes_per_token"], "keys longer than values cannot be coded")
        coded = self.ok_json("inspect", path, "-c", 65, "--kv", "q8")["predicted_memory"]
        self.assertIn("as long as", coded["error"])
        self.assertFalse(report["runs"])
        self.assertIn(arch, report["obstacles"]["model"])
        self.assertIn("cannot run", self.ok("inspect", path).stdout.decode())

    def test_absurd_metadata_are_said(self):
        path = self.folder / "absurd.gguf"
        for layers in (0, 2**32 - 1):
            write_gguf(path, {"general.architecture": "llama", "llama.block_count": layers, "llama.attention.head_count": 1})
            report = self.ok_json("inspect", path)
            self.assertIn("block_count", report["kv_bytes_per_token"]["error"])
        write_gguf(path, {})
        self.assertIn("general.architecture", self.ok_json("inspect", path)["predicted_memory"]["error"])

    def test_bad_input(self):
        self.refused("inspect", says="file")
        self.refused("inspect", MODEL, "-c", 0, says="--ctx-size")
        self.refused("inspect", MODEL, "-m", MODEL)


if __name__ == "__main__":
    main()
