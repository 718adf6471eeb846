"""quire inspect: what is in the file, and predictions that hold (case U38)."""

import struct

from quire_cli import MODEL, QuireTest, main, prose

U32, F32, STRING, ARRAY = 4, 6, 8, 9


def write_gguf(path, entries, tensors={}, floats={}):
    """A file of metadata {key: int, str or list of int}, {key: float} and f32 tensors, those of 16 as 4 x 4."""

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
    for key, value in floats.items():
        body += string(key) + struct.pack("<If", F32, value)
    data = b""
    for name, values in tensors.items():
        shape = (4, 4) if len(values) == 16 else (len(values),)
        body += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += struct.pack(f"<{len(values)}f", *values).ljust(64, b"\0")
    start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries) + len(floats)) + body
    path.write_bytes(start + b"\0" * (-len(start) % 32) + data)


def write_biased(path, key_biases):
    """A Llama model of one head of 4 on each layer, all weights 1, with these key biases."""
    entries = {"block_count": len(key_biases), "context_length": 64, "embedding_length": 4, "feed_forward_length": 4,
               "attention.head_count": 1}
    tensors = {"token_embd.weight": [1] * 16, "output_norm.weight": [1] * 4}
    for layer, bias in enumerate(key_biases):
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{layer}.{name}.weight"] = [1] * 4
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            tensors[f"blk.{layer}.{name}.weight"] = [1] * 16
        tensors[f"blk.{layer}.attn_k.bias"] = bias
    head = {"general.architecture": "llama", **{f"llama.{key}": value for key, value in entries.items()}}
    write_gguf(path, head, tensors, {"llama.attention.layer_norm_rms_epsilon": 1e-5})


class Inspect(QuireTest):
    def test_report(self):
        report = self.ok_json("inspect", MODEL)
        self.assertEqual(report["metadata"]["general.architecture"]["value"], "llama")
        self.assertEqual(report["metadata"]["tokenizer.ggml.tokens"]["value"]["length"], 49152)
        self.assertEqual(len(report["tensors"]), 272)
        per_token = report["kv_bytes_per_token"]
        self.assertEqual({name: per_token[name] for name in ("f32", "f16", "bf16", "fp8")},
                         {"f32": 46080, "f16": 23040, "bf16": 23040, "fp8": 11520})
        # Keys and values of 64 on 30 layers of 3 heads: 68, 52 and 48 bytes (algorithms.md, 8.1).
        self.assertEqual((per_token["turbo4"], per_token["turbo3"], per_token["kivi2"]), (68 * 90, 52 * 90, 48 * 90))
        self.assertEqual(report["key_bias"], {"layers": []})
        self.assertEqual(report["layers"], [{"layer": i, "window_tokens": None, "keys": "f16", "values": "f16", "key_frame": None,
                                             "key_bias_risk": 0, "key_bias_taken_off": False} for i in range(30)])
        coded = self.ok_json("inspect", MODEL, "--kv", "k=turbo4,v=turbo3")["layers"]
        self.assertEqual({(layer["keys"], layer["values"], layer["key_frame"]) for layer in coded},
                         {("turbo4", "turbo3", "calibrated")})
        self.assertTrue(report["runs"])
        self.assertEqual(report["predicted_memory"]["context_tokens"], 8192)

    def test_text(self):
        text = self.ok("inspect", MODEL, "-c", 100).stdout.decode()
        for part in ("llama.block_count", "blk.29.ffn_down.weight", "Q4_1", "context of 100 tokens", "key bias: none", "can run",
                     "0-29 see every token: keys f16, values f16"):
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

    def test_key_biases(self):
        path = self.folder / "biased.gguf"
        write_biased(path, [[300, 0, 0, 400], [0.25, 0, 0, 0], [0, 0, 0, 0], [0, 0, 90, 0]])
        report = self.ok_json("inspect", path)["key_bias"]
        self.assertEqual([(layer["layer"], layer["norm"], layer["frame"]) for layer in report["layers"]],
                         [(0, 500, "bias"), (1, 0.25, "plain"), (3, 90, "bias")])
        self.assertEqual(report["layers"][0]["risk"], 500 / report["layers"][0]["key_norm"])
        text = self.ok("inspect", path).stdout.decode()
        self.assertIn("layers 0, 3: norm up to 500, coded in the bias frame", text)
        self.assertIn("layers 1: norm up to 0.25, too small", text)
        coded = self.ok_json("inspect", path, "--kv", "k=q8,v=q4")["layers"]
        self.assertEqual([layer["key_bias_taken_off"] for layer in coded], [True, False, False, True])
        self.assertEqual([layer["key_bias_risk"] for layer in coded][0], report["layers"][0]["risk"])
        self.assertEqual([layer["key_bias_taken_off"] for layer in self.ok_json("inspect", path)["layers"]], [False] * 4)
        text = self.ok("inspect", path, "--kv", "k=q8,v=q4").stdout.decode()
        self.assertIn("0, 3 see every token: keys q8 (frame plain, bias taken off), values q4; key bias up to ", text)
        self.assertIn("1-2 see every token: keys q8 (frame plain), values q4; key bias up to ", text)
        write_biased(path, [[1, 2, 3]])
        self.assertIn("blk.0.attn_k.bias", self.ok_json("inspect", path)["obstacles"]["model"])

    def test_absurd_metadata_are_said(self):
        path = self.folder / "absurd.gguf"
        for layers in (0, 2**32 - 1):
            write_gguf(path, {"general.architecture": "llama", "llama.block_count": layers, "llama.attention.head_count": 1})
            report = self.ok_json("inspect", path)
            self.assertIn("block_count", report["kv_bytes_per_token"]["error"])
        write_gguf(path, {})
        self.assertIn("general.architecture", self.ok_json("inspect", path)["predicted_memory"]["error"])

    def test_bad_input(self):
        self.refused("inspect", says="FILE")
        self.refused("inspect", MODEL, "-c", 0, says="--ctx-size")
        self.refused("inspect", MODEL, "-m", MODEL)


if __name__ == "__main__":
    main()
