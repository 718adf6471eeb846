"""Damaged copies of the real model file (cases U27 to U30): a sentence and exit code 2, whichever command."""

import resource
import struct
import subprocess

from quire_cli import MODEL, QUIRE, SANITIZED, QuireTest, main


class Hostile(QuireTest):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "hostile.gguf"
        self.data = MODEL.read_bytes()

    def refuse_all(self, says: str = ""):
        for arguments in (["run", "-m", self.path, "-p", "a", "-n", 1], ["inspect", self.path], ["tokenize", "-m", self.path, "-p", "a"]):
            self.refused(*arguments, says=says)

    def patch(self, offset: int, data: bytes):
        self.path.write_bytes(self.data[:offset] + data + self.data[offset + len(data) :])

    def tensor_info(self, name: bytes) -> int:
        """Offset of what follows the tensor's name."""
        key = struct.pack("<Q", len(name)) + name
        return self.data.index(key) + len(key)

    def metadata_value(self, key: bytes) -> int:
        """Offset of the value of a scalar entry, behind its type."""
        text = struct.pack("<Q", len(key)) + key
        return self.data.index(text) + len(text) + 4

    def test_truncated(self):
        size = len(self.data)
        for n in (0, 3, 4, 8, 23, 24, 40, 100, 1000, 4095, 100_000, 1_000_000, 1_900_000, size // 2, size - 1):
            with self.subTest(n=n):
                self.path.write_bytes(self.data[:n])
                self.refuse_all()

    def test_tensor_type(self):
        for name, number in ((b"blk.3.ffn_up.weight", 39), (b"output_norm.weight", 42), (b"blk.0.attn_q.weight", 2**32 - 1)):
            at = self.tensor_info(name)
            n_dims = struct.unpack_from("<I", self.data, at)[0]
            self.patch(at + 4 + 8 * n_dims, struct.pack("<I", number))
            self.refuse_all(says=name.decode())
            self.refused("inspect", self.path, says=str(number))

    def test_wrong_shape_is_refused_by_run(self):
        at = self.tensor_info(b"blk.3.attn_k.weight")
        self.patch(at + 4, struct.pack("<QQ", 192, 576))
        self.refused("run", "-m", self.path, "-p", "a", says="blk.3.attn_k.weight")

    def test_model_numbers(self):
        for key, value in ((b"llama.block_count", 0), (b"llama.block_count", 31), (b"llama.block_count", 513),
                           (b"llama.block_count", 2**32 - 1), (b"llama.attention.head_count", 0), (b"llama.attention.head_count", 7),
                           (b"llama.attention.head_count_kv", 2), (b"llama.embedding_length", 0), (b"llama.embedding_length", 2**31),
                           (b"llama.feed_forward_length", 1), (b"llama.context_length", 0), (b"llama.rope.dimension_count", 65),
                           (b"tokenizer.ggml.eos_token_id", 2**31)):
            with self.subTest(key=key, value=value):
                self.patch(self.metadata_value(key), struct.pack("<I", value))
                self.refused("run", "-m", self.path, "-p", "a", "-n", 1)

    def test_header(self):
        for offset, data, says in ((0, b"GGML", ""), (4, struct.pack(">I", 3), "big-endian"), (4, struct.pack("<I", 9), "9"),
                                   (8, struct.pack("<Q", 2**63), ""), (16, struct.pack("<Q", 2**64 - 1), "")):
            with self.subTest(offset=offset, data=data):
                self.patch(offset, data)
                self.refuse_all(says=says)

    def test_lfs_pointer(self):
        self.path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        self.refuse_all()

    def test_memory_is_bounded(self):
        """A file that claims huge counts is refused within little memory."""
        self.patch(8, struct.pack("<QQ", 2**40, 2**40))
        limit = 1 << 30
        if SANITIZED:
            self.skipTest("sanitizers reserve terabytes of address space")
        done = subprocess.run([str(QUIRE), "inspect", str(self.path)], capture_output=True, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    main()
