#!/usr/bin/env python3
"""Decode attention on a GPU: our kernels beside torch's dense attention, in one process, taking turns.

usage: cuda_attention_bench.py LIBRARY [-o FILE.jsonl] [--shapes 1x128,32x32] [--formats bf16,turbo4] [--no-peer]

LIBRARY is libcuda_attention_bench.so of the cuda build; the peer is scaled_dot_product_attention of torch, cuDNN's
kernel, with enable_gqa. Shapes are batch x thousands (1024) of tokens, of a layer of Llama-3.1-8B: 32 query heads, 8 KV
heads of 128. Data is N(0, 1), pages lie in random order. Each kernel is captured in a CUDA graph of calls over slices of
2 GiB or more of bf16 rows (ours over as many bytes of its own, at most 64 slices), so that nothing stays in the cache;
graphs take turns, and the median of 50 replays over the calls of one is the time. Bytes are those of keys and values."""

import argparse
import ctypes
import json
import math
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

N_KV_HEADS, GROUP, HEAD_DIM = 8, 4, 128
READ_CEILING = 4.59e12  # bytes a second of an H200, measured by the bulk copy engine
# Of keys and values, numbers of the enumeration Code; -1: bf16, -2: fp8.
FORMATS = {"bf16": (-1, -1), "fp8": (-2, -2), "turbo4": (2, 2), "turbo3": (1, 1), "turbo2": (0, 0), "turbo43": (2, 1), "turbo32": (1, 0),
           "q8": (6, 6), "q4": (7, 7), "kivi2": (8, 8), "kivi4": (9, 9)}
SLICE_BYTES = 2 << 30
REPLAYS = 50


class Attention(ctypes.Structure):
    """BenchAttention of cuda_attention_bench.cpp."""
    _fields_ = ([(name, ctypes.c_int) for name in
                 ("n_sequences", "n_kv_heads", "group", "head_dim", "table_stride", "key_format", "value_format")] +
                [("queries", ctypes.c_void_p), ("pages", ctypes.c_void_p), ("key_bytes", ctypes.c_int64),
                 ("value_bytes", ctypes.c_int64)] +
                [(name, ctypes.c_void_p) for name in ("page_table", "n_tokens", "out", "log_sums", "workspace")] +
                [("scale", ctypes.c_float)])


class Sparse(ctypes.Structure):
    """BenchSparse of cuda_attention_bench.cpp."""
    _fields_ = ([(name, ctypes.c_int) for name in
                 ("n_sequences", "n_kv_heads", "group", "head_dim", "table_stride", "cluster_blocks", "n_warps")] +
                [(name, ctypes.c_void_p) for name in
                 ("queries", "pages", "page_table", "n_tokens", "exact", "tails", "n_exact", "sinks", "signs", "out",
                  "log_sums", "n_read", "workspace")] +
                [("share", ctypes.c_double), ("mass", ctypes.c_double), ("scale", ctypes.c_float)])


class SignVq(ctypes.Structure):
    """BenchSignVq of cuda_attention_bench.cpp."""
    _fields_ = ([(name, ctypes.c_int) for name in ("n_sequences", "n_kv_heads", "group", "head_dim", "table_stride")] +
                [(name, ctypes.c_void_p) for name in
                 ("queries", "pages", "page_table", "n_tokens", "mean", "balance", "codebook", "kept", "exact", "tails",
                  "n_exact", "kept_pages", "out", "log_sums", "n_read", "workspace")] +
                [("share", ctypes.c_double), ("scale", ctypes.c_float)])


def load(path):
    library = ctypes.CDLL(path)
    library.bench_attend.restype = ctypes.c_char_p
    library.bench_attend.argtypes = [ctypes.POINTER(Attention), ctypes.c_void_p]
    library.bench_sparse.restype = ctypes.c_char_p
    library.bench_sparse.argtypes = [ctypes.POINTER(Sparse), ctypes.c_void_p]
    library.bench_sparse_workspace_bytes.restype = ctypes.c_int64
    library.bench_sparse_workspace_bytes.argtypes = [ctypes.POINTER(Sparse)]
    for count in (library.bench_sparse_blocks, library.bench_sparse_warps):
        count.argtypes = [ctypes.POINTER(Sparse)]
    library.bench_signvq.restype = ctypes.c_char_p
    library.bench_signvq.argtypes = [ctypes.POINTER(SignVq), ctypes.c_void_p]
    library.bench_signvq_workspace_bytes.restype = ctypes.c_int64
    library.bench_signvq_workspace_bytes.argtypes = [ctypes.POINTER(SignVq)]
    library.bench_signvq_blocks.argtypes = [ctypes.POINTER(SignVq)]
    library.bench_workspace_bytes.restype = ctypes.c_int64
    library.bench_page_bytes.restype = ctypes.c_int64
    return library


def random_codes(memory):
    """Any bits are codes; norms at random places of these bits would not be, so the bytes of f16 infinities go."""
    for part in memory.split(1 << 28):
        part.random_(0, 256)
        part.bitwise_and_(0x3b)  # no byte pair is an infinity, a NaN or negative as f16


class Ours:
    """One format at one shape: graphs of launches over slices of pages of its own."""

    def __init__(self, library, batch, n_tokens, name, pool, in_order=False):
        self.name = name
        key_format, value_format = FORMATS[name]
        key_bytes = library.bench_page_bytes(key_format, 1, HEAD_DIM)
        value_bytes = library.bench_page_bytes(value_format, 0, HEAD_DIM)
        pages_each = (n_tokens + 63) // 64
        self.bytes = batch * pages_each * N_KV_HEADS * (key_bytes + value_bytes)
        n_slices = max(1, min(64, pool.numel() // self.bytes, -(-SLICE_BYTES // self.bytes)))
        order = torch.arange if in_order else torch.randperm
        self.table = order(batch * pages_each, device="cuda").to(torch.int32)
        self.lengths = torch.full((batch,), n_tokens, dtype=torch.int32, device="cuda")
        n_heads = N_KV_HEADS * GROUP
        self.queries = torch.randn(batch, n_heads, HEAD_DIM, device="cuda")
        self.out = torch.full((batch, n_heads, HEAD_DIM), math.nan, device="cuda")
        self.sums = torch.empty(batch, n_heads, device="cuda")
        self.workspace = torch.zeros(library.bench_workspace_bytes(batch, N_KV_HEADS, GROUP, HEAD_DIM),
                                     dtype=torch.uint8, device="cuda")
        self.library = library
        self.slices = [Attention(batch, N_KV_HEADS, GROUP, HEAD_DIM, pages_each, key_format, value_format,
                                 self.queries.data_ptr(), pool.data_ptr() + i * self.bytes, key_bytes, value_bytes,
                                 self.table.data_ptr(), self.lengths.data_ptr(), self.out.data_ptr(),
                                 self.sums.data_ptr(), self.workspace.data_ptr(), 1 / math.sqrt(HEAD_DIM))
                       for i in range(n_slices)]

    def calls(self):
        return [lambda s=s: self.call(s) for s in self.slices]

    def call(self, attention):
        if trouble := self.library.bench_attend(attention, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError(trouble.decode())


# Of a page and head: nested4 keys, nested3 values, as lay_sparse_pages() leaves them.
INDEX_BYTES, KEY_BYTES, VALUE_BYTES = 64 * 18, 64 * 64, 64 * 64 + 128
NESTED_BYTES = INDEX_BYTES + KEY_BYTES + VALUE_BYTES


def random_nested(memory):
    """Any bits are codes; norms are those of N(0, 1) rows."""
    pages = memory[:memory.numel() // NESTED_BYTES * NESTED_BYTES].view(-1, NESTED_BYTES)
    for part in pages.split(1 << 15):
        part.random_(0, 256)
        norms = (torch.randn(part.shape[0], 128, device="cuda") * 0.7 + math.sqrt(HEAD_DIM)).half().view(torch.uint8)
        part[:, INDEX_BYTES - 128:INDEX_BYTES] = norms[:, :128]
        values = part[:, INDEX_BYTES + KEY_BYTES:]
        values[:, :64 * 64].view(-1, 64, 8, 8)[..., 6:] = norms[:, 128:].view(-1, 64, 1, 2)
        values[:, 64 * 64:] = norms[:, 128:]


class Quire:
    """A whole sparse step: index, candidates, scores, rows kept, attention, 4 sinks and a tail of 32 exact rows. Bytes
    are those of the index and of 64 for each candidate and value kept."""

    def __init__(self, library, batch, n_tokens, name, pool):
        self.name = name
        self.library = library
        n_pages = n_tokens // 64
        pool_bytes = batch * n_pages * N_KV_HEADS * NESTED_BYTES
        n_slices = max(1, min(256, pool.numel() // pool_bytes, -(-SLICE_BYTES // pool_bytes)))
        n_heads = N_KV_HEADS * GROUP
        self.table = torch.randperm(batch * n_pages, device="cuda").to(torch.int32)
        self.lengths = torch.full((batch,), n_tokens, dtype=torch.int32, device="cuda")
        self.queries = torch.randn(batch, n_heads, HEAD_DIM, device="cuda")
        self.exact = torch.randn(2 * batch, N_KV_HEADS, 2, 64, HEAD_DIM, device="cuda").bfloat16()
        self.tails = torch.arange(batch, device="cuda", dtype=torch.int32)
        self.sinks = self.tails + batch
        self.n_exact = torch.full((batch,), 32, dtype=torch.int32, device="cuda")
        self.signs = torch.randint(0, 2, (N_KV_HEADS, HEAD_DIM), device="cuda").float() * 2 - 1
        self.out = torch.full((batch, n_heads, HEAD_DIM), math.nan, device="cuda")
        self.sums = torch.empty(batch, n_heads, device="cuda")
        self.n_read = torch.zeros(batch, N_KV_HEADS, 2, dtype=torch.int32, device="cuda")
        blocks, _, warps = name.removeprefix("quire").removeprefix("mass").partition("/")  # 0: as planned
        share, mass = (0, 0.9) if "mass" in name else (0.075, 0)
        self.slices = [Sparse(batch, N_KV_HEADS, GROUP, HEAD_DIM, n_pages, int(blocks or 0), int(warps or 0), self.queries.data_ptr(),
                              pool.data_ptr() + i * pool_bytes, self.table.data_ptr(), self.lengths.data_ptr(),
                              self.exact.data_ptr(), self.tails.data_ptr(), self.n_exact.data_ptr(),
                              self.sinks.data_ptr(), self.signs.data_ptr(), self.out.data_ptr(), self.sums.data_ptr(),
                              self.n_read.data_ptr(), None, share, mass, 1 / math.sqrt(HEAD_DIM))
                       for i in range(n_slices)]
        n_bytes = library.bench_sparse_workspace_bytes(self.slices[0])
        self.workspace = torch.zeros(max(1, n_bytes), dtype=torch.uint8, device="cuda")
        for step in self.slices:
            step.workspace = self.workspace.data_ptr()
        self.call(self.slices[0])
        torch.cuda.synchronize()
        candidates, kept = self.n_read.sum((0, 1)).tolist()
        self.bytes = batch * n_pages * N_KV_HEADS * INDEX_BYTES + 64 * (candidates + kept)
        self.name += f" ({library.bench_sparse_blocks(self.slices[0])}x{library.bench_sparse_warps(self.slices[0])})"

    def calls(self):
        return [lambda s=s: self.call(s) for s in self.slices]

    def call(self, step):
        if trouble := self.library.bench_sparse(step, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError(trouble.decode())


# Of a page and head: index and rows of signvq codes, as lay_signvq_pages() leaves them.
SIGN_BYTES, ROW_BYTES = 64 * 16, 128
SIGNVQ_BYTES = SIGN_BYTES + 64 * ROW_BYTES


def random_signvq(memory):
    """Any bits are codes; scales and zeros are those of sizes in [0, 1] and of values that are N(0, 1)."""
    pages = memory[:memory.numel() // SIGNVQ_BYTES * SIGNVQ_BYTES].view(-1, SIGNVQ_BYTES)
    for part in pages.split(1 << 15):
        part.random_(0, 256)
        rows = part[:, SIGN_BYTES:].view(-1, 64, ROW_BYTES)

        def put(at, size):
            numbers = torch.tensor([size, -1.5 * size if size > 0.5 else 0.02], device="cuda").half().view(torch.uint8)
            rows[..., at:at + 4] = numbers

        for group in range(4):
            put(16 * group + 12, 0.25)
        for unit in range(8):
            put(64 + 8 * unit + 4, 1.4)


class SelfIndex:
    """A whole step over signvq codes: scan, threshold, attention, 64 kept rows and a tail of 32. Bytes are those of the
    index, twice the byte of a row, and 128 for each row read."""

    def __init__(self, library, batch, n_tokens, name, pool):
        self.name = name
        self.library = library
        n_pages = n_tokens // 64
        n_pairs = batch * N_KV_HEADS
        pool_bytes = n_pairs * n_pages * SIGNVQ_BYTES
        n_slices = max(1, min(256, pool.numel() // pool_bytes, -(-SLICE_BYTES // pool_bytes)))
        n_heads = N_KV_HEADS * GROUP
        device = {"device": "cuda"}
        self.table = torch.randperm(batch * n_pages, **device).to(torch.int32)
        self.lengths = torch.full((batch,), n_tokens, dtype=torch.int32, **device)
        self.queries = torch.randn(batch, n_heads, HEAD_DIM, **device)
        self.mean = torch.randn(n_pairs, HEAD_DIM, **device) * 0.1
        self.balance = torch.rand(n_pairs, HEAD_DIM, **device) + 3.5
        signs = torch.tensor([[1 if word >> j & 1 else -1 for j in range(4)] for word in range(16)], **device)
        self.codebook = signs * (0.15 + 0.1 * torch.rand(n_slices, n_pairs, HEAD_DIM // 4, 16, 4, **device))
        self.kept = torch.stack([torch.randperm(n_tokens, **device)[:64].sort().values for _ in range(n_pairs)])
        self.kept = self.kept.to(torch.int32).contiguous()
        self.exact = torch.randn(2 * batch, N_KV_HEADS, 2, 64, HEAD_DIM, **device).bfloat16()
        self.tails = torch.arange(batch, dtype=torch.int32, **device)
        self.kept_pages = self.tails + batch
        self.n_exact = torch.full((batch,), 32, dtype=torch.int32, **device)
        self.out = torch.full((batch, n_heads, HEAD_DIM), math.nan, **device)
        self.sums = torch.empty(batch, n_heads, **device)
        self.n_read = torch.zeros(n_pairs, dtype=torch.int32, **device)
        self.slices = [SignVq(batch, N_KV_HEADS, GROUP, HEAD_DIM, n_pages, self.queries.data_ptr(),
                              pool.data_ptr() + i * pool_bytes, self.table.data_ptr(), self.lengths.data_ptr(),
                              self.mean.data_ptr(), self.balance.data_ptr(), self.codebook[i].data_ptr(),
                              self.kept.data_ptr(), self.exact.data_ptr(), self.tails.data_ptr(),
                              self.n_exact.data_ptr(), self.kept_pages.data_ptr(), self.out.data_ptr(),
                              self.sums.data_ptr(), self.n_read.data_ptr(), None, 0.075, 1 / math.sqrt(HEAD_DIM))
                       for i in range(n_slices)]
        self.workspace = torch.zeros(library.bench_signvq_workspace_bytes(self.slices[0]), dtype=torch.uint8, **device)
        for step in self.slices:
            step.workspace = self.workspace.data_ptr()
        self.call(self.slices[0])
        torch.cuda.synchronize()
        n_rows = int(self.n_read.sum())
        self.bytes = n_pairs * n_pages * (SIGN_BYTES + 128) + ROW_BYTES * n_rows
        self.name += f" ({library.bench_signvq_blocks(self.slices[0])} blocks, {n_rows // n_pairs} rows)"

    def calls(self):
        return [lambda s=s: self.call(s) for s in self.slices]

    def call(self, step):
        if trouble := self.library.bench_signvq(step, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError(trouble.decode())


class Peer:
    """torch's cuDNN attention over contiguous rows, [batch, KV heads, tokens, dims]."""

    def __init__(self, batch, n_tokens, pool):
        self.name = "SDPA cuDNN bf16"
        n = batch * N_KV_HEADS * n_tokens * HEAD_DIM
        self.bytes = 4 * n
        rows = pool.view(torch.bfloat16)
        n_slices = max(1, min(64, rows.numel() // (2 * n), -(-SLICE_BYTES // self.bytes)))
        shape = (batch, N_KV_HEADS, n_tokens, HEAD_DIM)
        self.q = torch.randn(batch, N_KV_HEADS * GROUP, 1, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
        self.slices = [(rows[2 * i * n:(2 * i + 1) * n].view(shape), rows[(2 * i + 1) * n:(2 * i + 2) * n].view(shape))
                       for i in range(n_slices)]

    def calls(self):
        return [lambda k=k, v=v: self.call(k, v) for k, v in self.slices]

    def call(self, k, v):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(self.q, k, v, enable_gqa=True)


class Graph:
    def __init__(self, kernel):
        self.kernel = kernel
        calls = kernel.calls()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                calls[0]()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.n_calls = len(calls)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.kept = [call() for call in calls]
        self.times = []

    def replay(self, keep):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        if keep:
            self.times.append(begin.elapsed_time(end) * 1e3 / self.n_calls)


def measure(kernels):
    """Median microseconds of a call of each, replayed in turn."""
    graphs = [Graph(kernel) for kernel in kernels]
    for i in range(REPLAYS + 3):
        for graph in graphs:
            graph.replay(i >= 3)
        if sum(graph.times[-1] * graph.n_calls for graph in graphs if graph.times) > 4e5 and i > 12:
            break
    return [statistics.median(graph.times) for graph in graphs]


def check_bf16(library, pool):
    """Relative error against float32 over the same rows."""
    ours = Ours(library, 2, 4096, "bf16", pool)
    ours.call(ours.slices[0])
    pages = pool[:ours.bytes].view(torch.bfloat16).view(-1, N_KV_HEADS, 2, 64, HEAD_DIM)[ours.table.long()].float()
    k, v = (pages[:, :, side].view(2, 64, N_KV_HEADS, 64, HEAD_DIM).transpose(1, 2).reshape(2, N_KV_HEADS, 4096, HEAD_DIM)
            for side in (0, 1))
    q = ours.queries.view(2, N_KV_HEADS, GROUP, HEAD_DIM)
    p = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM), -1)
    wanted = (p @ v).reshape(ours.out.shape)
    return float((ours.out - wanted).norm() / wanted.norm())


def report(results, shape, out):
    base = results[0][1]
    for kernel, us in results:
        rate = kernel.bytes / us * 1e6
        row = {"kernel": kernel.name, "batch": shape[0], "tokens": shape[1], "us": round(us, 2), "bytes": kernel.bytes,
               "GBs": round(rate / 1e9), "share": round(rate / READ_CEILING, 3), "times": round(base / us, 3)}
        print(f"{row['kernel']:<16} {shape[0]:>3} x {shape[1] // 1024:>4}K {us:>9.1f} us {row['GBs']:>6} GB/s "
              f"{100 * row['share']:>5.1f} %  {row['times']:>6.2f} x", flush=True)
        if out:
            out.write(json.dumps(row) + "\n")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("library")
    parser.add_argument("-o", "--out", type=argparse.FileType("w"))
    parser.add_argument("--shapes", default="1x4,1x32,1x128,1x1024,8x4,8x32,8x128,32x4,32x32,32x128")
    parser.add_argument("--formats", default="bf16,turbo4,turbo3,turbo2,turbo43,quire,selfindex")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--in-order", action="store_true", help="pages in the order of the tokens")
    options = parser.parse_args()
    library = load(options.library)
    shapes = [tuple(int(x) for x in shape.split("x")) for shape in options.shapes.split(",")]
    shapes = [(batch, 1024 * thousands) for batch, thousands in shapes]
    n_bytes = max(max(4 * batch * n * N_KV_HEADS * HEAD_DIM for batch, n in shapes), SLICE_BYTES + (1 << 28))
    rows = torch.empty(n_bytes // 2, dtype=torch.bfloat16, device="cuda")
    for part in rows.split(1 << 28):
        part.normal_()
    rows = rows.view(torch.uint8)
    codes = torch.empty(n_bytes // 2, dtype=torch.uint8, device="cuda")
    random_codes(codes)
    formats = options.formats.split(",")

    def sparse_pool(prefix, fill):
        pool = None
        if any(name.startswith(prefix) for name in formats):
            pool = torch.empty(n_bytes // 16 * 5, dtype=torch.uint8, device="cuda")
            fill(pool)
        return pool

    nested = sparse_pool("quire", random_nested)
    signvq = sparse_pool("selfindex", random_signvq)
    print(f"bf16 against float32: {check_bf16(library, rows):.4f}", flush=True)
    for batch, n_tokens in shapes:
        kernels = [] if options.no_peer else [Peer(batch, n_tokens, rows)]
        kernels += [Quire(library, batch, n_tokens, name, nested) if name.startswith("quire") else
                    SelfIndex(library, batch, n_tokens, name, signvq) if name == "selfindex" else
                    Ours(library, batch, n_tokens, name, rows if name == "bf16" else codes, options.in_order)
                    for name in formats]
        report(list(zip(kernels, measure(kernels))), (batch, n_tokens), options.out)


if __name__ == "__main__":
    main()
