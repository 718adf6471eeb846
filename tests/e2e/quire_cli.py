"""Calls the program as a person would; shared by the tests of this folder.

A test file is run as `NAME_test.py QUIRE MODEL` and exits 77, which ctest counts as skipped, without the model.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

QUIRE = Path(sys.argv[1]) if len(sys.argv) > 2 else Path("build/release/quire")
MODEL = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("models/SmolLM2-135M-Instruct.Q4_1.gguf")
SKIPPED = 77
TIMEOUT_S = 300

# Sanitizers make the program many times slower: tests that repeat long runs take shorter ones there.
SANITIZED = QUIRE.exists() and any(mark in QUIRE.read_bytes() for mark in (b"__asan_init", b"__tsan_init"))

CAPITAL = "The capital of France is"
CAPITAL_TOKENS = [504, 3575, 282, 4649, 314]


def prose(n_characters: int) -> str:
    """Text that does not repeat itself, about 4 characters a token."""
    subjects = ["The river", "A tall ship", "My neighbour", "The old clock", "Every child", "The harbour master"]
    verbs = ["remembers", "carries", "forgets", "follows", "counts", "paints"]
    objects = ["the winter of 18{}", "{} silver coins", "a letter from street {}", "the {} bells", "page {} of the book"]
    sentences, i = [], 0
    while sum(map(len, sentences)) < n_characters:
        sentences.append(f"{subjects[i % 6]} {verbs[(i // 6 + i) % 6]} {objects[i % 5].format(i)}. ")
        i += 1
    return "".join(sentences)[:n_characters]


def call(*arguments, stdin: bytes | str = b"", env: dict | None = None) -> subprocess.CompletedProcess:
    """Runs quire; stdout and stderr are bytes."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    command = [str(QUIRE), *map(str, arguments)]
    return subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_S, check=False,
                          env={**os.environ, **(env or {})})


class QuireTest(unittest.TestCase):
    """Assertions on calls."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def ok(self, *arguments, **more) -> subprocess.CompletedProcess:
        done = call(*arguments, **more)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stderr.decode(errors='replace')}")
        return done

    def ok_json(self, *arguments, **more) -> dict:
        """The one JSON object that is all of stdout."""
        done = self.ok(*arguments, "--json", **more)
        self.assertEqual(done.stdout.count(b"\n"), 1, "one line on stdout")
        return json.loads(done.stdout)

    def run_json(self, prompt: str, n: int, *arguments, **more) -> dict:
        return self.ok_json("run", "-m", MODEL, "-p", prompt, "-n", n, "--temp", 0, *arguments, **more)

    def refused(self, *arguments, says: str = "", code: int = 2, **more) -> str:
        """Bad input: exit code, one line on stderr that begins `quire: `, nothing on stdout."""
        done = call(*arguments, **more)
        error = done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, code, f"{arguments}: {error}")
        self.assertEqual(done.stdout, b"", arguments)
        self.assertRegex(error, r"\Aquire: [^\n]+\n\Z", arguments)
        self.assertIn(says, error, arguments)
        return error


def main() -> None:
    """Runs the tests of the calling file."""
    if not MODEL.exists():
        print(f"skipped: there is no model at {MODEL}; scripts/fetch-model fetches it")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)
