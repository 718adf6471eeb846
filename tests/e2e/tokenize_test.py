"""quire tokenize: ids, pieces and back."""

from quire_cli import CAPITAL, CAPITAL_TOKENS, MODEL, QuireTest, main

MARKER_AS_TEXT = [44, 108, 306, 79, 486, 108, 46]


class Tokenize(QuireTest):
    def tokens(self, *arguments, **more) -> list[int]:
        return self.ok_json("tokenize", "-m", MODEL, *arguments, **more)["tokens"]

    def test_golden(self):
        result = self.ok_json("tokenize", "-m", MODEL, "-p", CAPITAL)
        self.assertEqual(result["tokens"], CAPITAL_TOKENS)
        self.assertEqual("".join(result["pieces"]), CAPITAL)

    def test_forms(self):
        lines = self.ok("tokenize", "-m", MODEL, "-p", "a\nb").stdout.decode()
        self.assertEqual(lines.splitlines()[1].split()[1], r"'\n'")
        ids = self.ok("tokenize", "-m", MODEL, "-p", CAPITAL, "--ids").stdout.decode()
        self.assertEqual(ids, "[504, 3575, 282, 4649, 314]\n")

    def test_control_tokens(self):
        self.assertEqual(self.tokens("-p", "<|im_end|>"), [2])
        self.assertEqual(self.tokens("-p", "<|im_end|>", "--no-parse-special"), MARKER_AS_TEXT)

    def test_sources_keep_every_byte(self):
        text = "  two lines\n\n"
        path = self.folder / "text"
        path.write_text(text)
        expected = self.tokens("-p", text)
        self.assertEqual(self.tokens("-f", path), expected)
        self.assertEqual(self.tokens(stdin=text), expected)

    def test_round_trip(self):
        text = "Zwölf Boxkämpfer 👩‍👩‍👧 jagen\n\t東京 <|im_end|>"
        ids = self.tokens("-p", text)
        self.assertEqual(self.ok("tokenize", "-m", MODEL, "--decode", *ids).stdout.decode(), text)
        joined = ",".join(map(str, ids))
        self.assertEqual(self.ok_json("tokenize", "-m", MODEL, "--decode", joined)["text"], text)

    def test_empty_text(self):
        self.assertEqual(self.tokens("-p", ""), [])

    def test_bad_ids(self):
        self.refused("tokenize", "-m", MODEL, "--decode", 49152, says="49152")
        self.refused("tokenize", "-m", MODEL, "--decode", "x")


if __name__ == "__main__":
    main()
