"""The files of frozen next-token distributions, and the divergence from them. README.md draws the layout."""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MAGIC = b"QGOLD1\0\0"
HEADER = struct.Struct("<8s6I")  # magic, n_vocab, n_tokens, n_positions, n_top, n_buckets, zero
N_TOP = 1024
N_BUCKETS = 64


def buckets_of(log_p: np.ndarray, top_ids: np.ndarray) -> np.ndarray:
    """Log mass [N_BUCKETS] of all tokens outside top_ids, token t falling in bucket t mod N_BUCKETS."""
    p = np.exp(log_p)
    p[top_ids] = 0.0
    mass = np.bincount(np.arange(len(p)) % N_BUCKETS, weights=p, minlength=N_BUCKETS)
    with np.errstate(divide="ignore"):
        return np.log(mass)


@dataclass
class Golden:
    """One prompt and the reference's distribution after chosen positions of it."""

    n_vocab: int
    tokens: np.ndarray  # u16 [n_tokens]
    positions: np.ndarray  # u32 [n_positions], rising
    margins: np.ndarray  # f32 [n_positions], logit of the top token minus that of the second
    top_ids: np.ndarray  # u16 [n_positions, n_top], most probable first
    top_log_p: np.ndarray  # f32 [n_positions, n_top]
    bucket_log_p: np.ndarray  # f32 [n_positions, n_buckets]

    @staticmethod
    def of_log_p(tokens: list[int], positions: list[int], log_p: np.ndarray) -> "Golden":
        """Freezes log_p [positions, n_vocab]."""
        top = np.argsort(-log_p, axis=1, kind="stable")[:, :N_TOP]
        top_log_p = np.take_along_axis(log_p, top, axis=1)
        return Golden(
            n_vocab=log_p.shape[1],
            tokens=np.asarray(tokens, dtype="<u2"),
            positions=np.asarray(positions, dtype="<u4"),
            margins=(top_log_p[:, 0] - top_log_p[:, 1]).astype("<f4"),
            top_ids=top.astype("<u2"),
            top_log_p=top_log_p.astype("<f4"),
            bucket_log_p=np.stack([buckets_of(row, ids) for row, ids in zip(log_p, top)]).astype("<f4"),
        )

    def save(self, path: Path) -> None:
        """Writes the file."""
        sizes = (self.n_vocab, len(self.tokens), len(self.positions), N_TOP, N_BUCKETS, 0)
        arrays = (self.tokens, self.positions, self.margins, self.top_ids, self.top_log_p, self.bucket_log_p)
        path.write_bytes(HEADER.pack(MAGIC, *sizes) + b"".join(a.tobytes() for a in arrays))

    @staticmethod
    def load(path: Path) -> "Golden":
        """Reads the file."""
        data = path.read_bytes()
        magic, n_vocab, n_tokens, n_positions, n_top, n_buckets, _ = HEADER.unpack_from(data)
        if magic != MAGIC:
            raise ValueError(f"{path}: not a file of frozen distributions")
        at, arrays = HEADER.size, []
        for kind, shape in (
            ("<u2", (n_tokens,)),
            ("<u4", (n_positions,)),
            ("<f4", (n_positions,)),
            ("<u2", (n_positions, n_top)),
            ("<f4", (n_positions, n_top)),
            ("<f4", (n_positions, n_buckets)),
        ):
            count = int(np.prod(shape))
            arrays.append(np.frombuffer(data, kind, count, at).reshape(shape))
            at += arrays[-1].nbytes
        if at != len(data):
            raise ValueError(f"{path}: {len(data)} bytes, not {at}")
        return Golden(n_vocab, *arrays)

    def kl(self, log_q: np.ndarray, index: int) -> float:
        """KL(reference || q) in nats over the partition of position `index`; log_q [n_vocab].

        The frozen f32 logs are scaled to sum to one first, so that their rounding enters squared only and the
        divergence is never negative.
        """
        ids = self.top_ids[index].astype(np.int64)
        log_p = np.concatenate([self.top_log_p[index], self.bucket_log_p[index]]).astype(np.float64)
        log_p -= np.log(np.exp(log_p).sum())
        parts_q = np.concatenate([log_q[ids], buckets_of(log_q, ids)])
        p = np.exp(log_p)
        return float(np.sum(p[p > 0] * (log_p - parts_q)[p > 0]))
