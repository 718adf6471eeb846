"""select=butler with a predictor that was made up: what it changes, files of it, and the co-reference task."""

import array
import json
import random
import struct

from quire_cli import MODEL, QuireTest, main, prose

SHAPE = {"n_layers": 30, "n_heads": 9, "n_kv_heads": 3, "head_dim": 64, "width": 576, "stride": 4, "dim": 16, "hidden": 8}


def predictor(fingerprint: str, seed: int = 1, **changed) -> bytes:
    """A file of random weights, as engine/butler_file.h describes it."""
    shape = {**SHAPE, **changed}
    chance = random.Random(seed)
    header = {"__metadata__": {"format": "quire.butler", "version": "1", "model": fingerprint,
                               **{name: str(value) for name, value in shape.items()}}}
    data = bytearray()

    def add(name: str, dims: list[int], middle: float, scale: float):
        n = 1
        for dim in dims:
            n *= dim
        begin = len(data)
        data.extend(array.array("f", (chance.gauss(middle, scale) for _ in range(n))).tobytes())
        header[name] = {"dtype": "F32", "shape": dims, "data_offsets": [begin, len(data)]}

    layers, stride, hidden = shape["n_layers"], shape["stride"], shape["hidden"]
    for p in range((layers - 2) // stride + 1):
        slots = min(stride, layers - p * stride - 1)
        add(f"producer.{p}.norm_weight", [shape["width"]], 1, 0.1)
        add(f"producer.{p}.norm_bias", [shape["width"]], 0, 0.1)
        add(f"producer.{p}.in", [hidden, shape["width"]], 0, 0.1)
        add(f"producer.{p}.out", [slots, shape["n_heads"], shape["dim"], hidden], 0, 1)
    for layer in range(1, layers):
        add(f"layer.{layer}.projection", [shape["n_kv_heads"], shape["head_dim"], shape["dim"]], 0, 0.1)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


class Butler(QuireTest):
    def setUp(self):
        super().setUp()
        self.fingerprint = self.ok_json("inspect", "-m", MODEL)["fingerprint"]
        self.file = self.folder / "butler.safetensors"
        self.file.write_bytes(predictor(self.fingerprint))
        self.text = self.folder / "text"
        self.text.write_text(prose(1600))

    def go(self, n: int, *arguments) -> dict:
        return self.ok_json("run", "-m", MODEL, "-f", self.text, "-n", n, "--temp", 0, "--ignore-eos", *arguments)

    def butler(self, n: int, recipe: str, *arguments) -> dict:
        return self.go(n, "--kv", recipe, "--butler", self.file, *arguments)

    def test_reads_what_is_named(self):
        full = self.go(24)
        self.assertEqual(self.butler(24, "butler(budget=100%)")["tokens"], full["tokens"])
        little = self.butler(24, "butler(budget=90)")
        self.assertEqual(little["recipe"], "butler(budget=90)")
        self.assertGreater(little["kv_bytes"], full["kv_bytes"])
        self.assertLess(little["kv_bytes"], 1.15 * full["kv_bytes"])
        often, seldom = (self.butler(24, f"butler(budget=90,interval={i})") for i in (1, 16))
        self.assertLess(seldom["bytes_read_per_token"], often["bytes_read_per_token"])
        coded = self.butler(24, "turbo4(select=butler(budget=90,keys=int8,neighbours=on,interval=4))")
        self.assertLess(coded["kv_bytes"], 0.6 * full["kv_bytes"])
        self.assertEqual(coded["generated_tokens"], 24)

    def test_threads_do_not_matter(self):
        one, two = (self.butler(16, "butler(budget=90,interval=3)", "-t", n)["tokens"] for n in (1, 2))
        self.assertEqual(one, two)

    def test_goes_on_from_a_file(self):
        recipe = "butler(budget=90,interval=7,neighbours=on)"
        whole = self.butler(30, recipe)
        kv = self.folder / "a.kv"
        first = self.butler(12, recipe, "--save-kv", kv)
        rest = self.ok_json("run", "-m", MODEL, "--load-kv", kv, "--butler", self.file, "-n", 18, "--temp", 0,
                            "--ignore-eos", "--kv", recipe)
        self.assertEqual(first["tokens"] + rest["tokens"], whole["tokens"])
        other = self.folder / "other.safetensors"
        other.write_bytes(predictor(self.fingerprint, seed=2))
        self.refused("run", "-m", MODEL, "--load-kv", kv, "--butler", other, "-n", 1, "--kv", recipe,
                     says="another predictor")

    def test_refusals(self):
        run = ["run", "-m", MODEL, "-p", "text", "-n", 1, "--kv", "butler"]
        self.refused(*run, "--butler", self.folder / "none", says="No such file")
        strange = self.folder / "strange"
        strange.write_bytes(predictor("0" * 16))
        self.refused(*run, "--butler", strange, says="another model")
        strange.write_bytes(predictor(self.fingerprint, width=512))
        self.refused(*run, "--butler", strange, says="width")
        strange.write_bytes(predictor(self.fingerprint, dim=8))
        self.refused(*run, "--butler", strange, says="dim=16")
        self.refused("run", "-m", MODEL, "-p", "text", "--kv", "butler(keep=h2o)", says="keep=h2o")

    def test_kl_counts_calls(self):
        result = self.ok_json("eval", "kl", "-m", MODEL, "-f", self.text, "--butler", self.file, "--prompt-tokens", 250,
                              "--eval-tokens", 33, "--kv",
                              "butler(budget=90),butler(budget=90,interval=16,neighbours=on),random(budget=90)")
        every, sixteenth, chance = result["rows"]
        calls = [row["predictor_calls_per_token"] * 33 for row in (every, sixteenth, chance)]
        self.assertEqual([round(n) for n in calls], [8 * 32, 8 * 2, 0])  # the first token reads everything
        self.assertEqual(every["neighbour_rows_per_token"], 0)
        self.assertGreater(sixteenth["neighbour_rows_per_token"], 0)
        self.assertLess(every["mass"], 1)

    def test_coref(self):
        recipes = ["full", "butler(budget=90,local=16)", "random(budget=90)", "oracle(budget=90)", "streaming(window=86)"]
        result = self.ok_json("eval", "coref", "-m", MODEL, "--butler", self.file, "--items", 2, "--most-tokens", 300,
                              "--kv", ",".join(recipes))
        rows = result["rows"]
        self.assertEqual([row["recipe"] for row in rows], recipes)
        full, butler, chance, oracle, streaming = rows
        self.assertEqual((full["accuracy"], full["coverage"], full["read"]), (1, 1, 1))
        self.assertEqual(full["rank"], full["rank_full"])
        self.assertLess(full["nll"], 2)  # the model finds the name
        self.assertEqual(streaming["coverage"], 0)
        self.assertLess(chance["coverage"], oracle["coverage"])
        self.assertLess(butler["read"], 0.5)
        self.assertLess(result["tokens"], 512)
        out = self.ok("eval", "coref", "-m", MODEL, "--items", 1, "--most-tokens", 200, "--kv", "full").stdout.decode()
        self.assertRegex(out, r"\Arecipe +accuracy +coverage +read +rank +nll\nfull +1\.000 +1\.000 +100\.0 % ")
        self.refused("eval", "coref", "-m", MODEL, "--kv", "full", "--most-tokens", 20, says="more than 20 tokens")
        self.refused("eval", "coref", "-m", MODEL, "--kv", "full", "--most-tokens", 512, says="--most-tokens")
        self.refused("eval", "coref", "-m", MODEL, says="--kv")


if __name__ == "__main__":
    main()
