// What cuda_attention_bench.py calls: kernels by plain functions, errors as text.
#include <string>

#include "base/error.h"
#include "format/side_format.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/signvq_attention.h"
#include "kernels/cuda/sparse_attention.h"

namespace {

using namespace quire;

// The sentence of the last error of this thread, kept for the caller.
template <class F>
const char* guarded(F&& f) {
  thread_local std::string sentence;
  try {
    f();
    return nullptr;
  } catch (const std::exception& error) {
    sentence = error.what();
    return sentence.c_str();
  }
}

Format exact_format(int number) { return number == -1 ? Format::kBF16 : Format::kFP8; }

}  // namespace

extern "C" {

// Shapes and pointers of one launch, as ctypes lays them out.
struct BenchAttention {
  int n_sequences, n_kv_heads, group, head_dim, table_stride;
  int key_format, value_format;  // numbers of Code; -1: bf16, -2: fp8
  const float* queries;
  const uint8_t* pages;  // [page][kv_head] of key_bytes, then value_bytes
  int64_t key_bytes, value_bytes;
  const int32_t* page_table;
  const int32_t* n_tokens;
  float* out;
  float* log_sums;
  void* workspace;
  float scale;
};

const char* bench_attend(const BenchAttention* b, void* stream) {
  return guarded([&] {
    const int64_t head_bytes = b->key_bytes + b->value_bytes;
    const int64_t page_bytes = head_bytes * b->n_kv_heads;
    const cuda::DecodeAttention attention = {b->n_sequences,
                                             b->n_kv_heads,
                                             b->group,
                                             b->head_dim,
                                             b->queries,
                                             b->scale,
                                             {b->pages, page_bytes, head_bytes},
                                             {b->pages + b->key_bytes, page_bytes, head_bytes},
                                             b->page_table,
                                             b->table_stride,
                                             b->n_tokens,
                                             0,
                                             b->out,
                                             b->log_sums,
                                             b->workspace};
    const auto cuda_stream = static_cast<cuda::Stream>(stream);
    if (b->key_format < 0) return cuda::attend_exact(attention, exact_format(b->key_format), cuda_stream);
    const auto code = static_cast<Code>(b->key_format);
    if (code > Code::kTurbo4) return cuda::attend_panels(attention, code, cuda_stream);
    cuda::attend_turbo(attention, 2 + b->key_format, 2 + b->value_format, cuda_stream);
  });
}

// A sparse step of nested4 keys and nested3 values, of a page and head side by side: index, keys, values.
struct BenchSparse {
  int n_sequences, n_kv_heads, group, head_dim, table_stride, cluster_blocks, n_warps;
  const float* queries;
  const uint8_t* pages;
  const int32_t* page_table;
  const int32_t* n_tokens;
  const uint8_t* exact;  // bf16 pages [page][kv_head][keys, values][64][head_dim]: of tails, then of sinks
  const int32_t* tails;  // [n_sequences] a page each
  const int32_t* n_exact;
  const int32_t* sinks;  // [n_sequences]
  const float* signs;    // of the frames of keys and values
  float* out;
  float* log_sums;
  int32_t* n_read;
  void* workspace;
  double share, mass;
  float scale;
};

namespace {

cuda::SparseAttention sparse_attention(const BenchSparse& b) {
  const int index_bytes = cuda::sparse_index_bytes(b.head_dim);
  const int key_bytes = index_bytes + cuda::sparse_key_bytes(4, b.head_dim);
  const int64_t head_bytes = key_bytes + cuda::sparse_value_bytes(b.head_dim);
  const int64_t page_bytes = head_bytes * b.n_kv_heads;
  const int64_t side = 2 * 64 * b.head_dim;
  const cuda::SparseBudget budget = {b.share, 0, b.mass, b.mass > 0 ? 0.35 : 1.5};
  return {b.n_sequences,
          b.n_kv_heads,
          b.group,
          b.head_dim,
          b.queries,
          b.scale,
          {b.pages, page_bytes, head_bytes},
          {b.pages + index_bytes, page_bytes, head_bytes},
          {b.pages + key_bytes, page_bytes, head_bytes},
          b.page_table,
          b.table_stride,
          b.n_tokens,
          4,
          {nullptr, nullptr, b.signs},
          {nullptr, nullptr, b.signs},
          {Format::kBF16,
           {b.exact, 2 * side * b.n_kv_heads, 2 * side},
           {b.exact + side, 2 * side * b.n_kv_heads, 2 * side},
           b.tails,
           1,
           b.n_exact,
           b.sinks},
          budget,
          b.out,
          b.log_sums,
          b.n_read,
          nullptr,
          nullptr,
          b.workspace};
}

cuda::SparsePlan sparse_plan(const BenchSparse& b) {
  static const cuda::SparseDevice device = cuda::sparse_device();
  return cuda::plan_sparse(sparse_attention(b), 4, 3, device, b.cluster_blocks, b.n_warps);
}

}  // namespace

const char* bench_sparse(const BenchSparse* b, void* stream) {
  return guarded([&] {
    cuda::attend_sparse(sparse_attention(*b), 4, 3, sparse_plan(*b), static_cast<cuda::Stream>(stream));
  });
}

// -1: there is no plan.
int64_t bench_sparse_workspace_bytes(const BenchSparse* b) {
  int64_t n_bytes = -1;
  guarded([&] { n_bytes = static_cast<int64_t>(sparse_plan(*b).workspace_bytes); });
  return n_bytes;
}
int bench_sparse_blocks(const BenchSparse* b) { return sparse_plan(*b).cluster_blocks; }
int bench_sparse_warps(const BenchSparse* b) { return sparse_plan(*b).n_warps; }

// A step of selfindex over pages of index and rows, of a page and head side by side.
struct BenchSignVq {
  int n_sequences, n_kv_heads, group, head_dim, table_stride;
  const float* queries;
  const uint8_t* pages;
  const int32_t* page_table;
  const int32_t* n_tokens;
  const float* mean;
  const float* balance;
  const float* codebook;
  const int32_t* kept;
  const uint8_t*
      exact;  // bf16 pages [page][kv_head][keys, values][64][head_dim]: of tails, then of kept rows
  const int32_t* tails;  // [n_sequences] a page each
  const int32_t* n_exact;
  const int32_t* kept_pages;  // [n_sequences]
  float* out;
  float* log_sums;
  int32_t* n_read;
  void* workspace;
  double share;
  float scale;
};

namespace {

cuda::SignVqAttention signvq_attention(const BenchSignVq& b) {
  const int index_bytes = cuda::signvq_index_bytes(b.head_dim);
  const int64_t head_bytes = index_bytes + int64_t{64} * cuda::signvq_row_bytes(b.head_dim);
  const int64_t page_bytes = head_bytes * b.n_kv_heads;
  const int64_t side = int64_t{2} * 64 * b.head_dim;
  return {b.n_sequences,
          b.n_kv_heads,
          b.group,
          b.head_dim,
          b.queries,
          b.scale,
          {b.pages, page_bytes, head_bytes},
          {b.pages + index_bytes, page_bytes, head_bytes},
          b.page_table,
          b.table_stride,
          b.n_tokens,
          {b.mean, b.balance, b.codebook, b.kept},
          cuda::kMostKeptRows,
          Format::kBF16,
          {b.exact, 2 * side * b.n_kv_heads, 2 * side},
          {b.exact + side, 2 * side * b.n_kv_heads, 2 * side},
          b.tails,
          1,
          b.n_exact,
          b.kept_pages,
          {b.share, 0, 0, 1},
          b.out,
          b.log_sums,
          b.n_read,
          nullptr,
          nullptr,
          b.workspace};
}

cuda::SignVqPlan signvq_plan(const BenchSignVq& b) {
  return cuda::plan_signvq(signvq_attention(b), cuda::block_count());
}

}  // namespace

const char* bench_signvq(const BenchSignVq* b, void* stream) {
  return guarded(
      [&] { cuda::attend_signvq(signvq_attention(*b), signvq_plan(*b), static_cast<cuda::Stream>(stream)); });
}
int64_t bench_signvq_workspace_bytes(const BenchSignVq* b) {
  return static_cast<int64_t>(signvq_plan(*b).workspace_bytes);
}
int bench_signvq_blocks(const BenchSignVq* b) { return signvq_plan(*b).attend_blocks; }

int64_t bench_workspace_bytes(int n_sequences, int n_kv_heads, int group, int head_dim) {
  return static_cast<int64_t>(
      cuda::workspace_bytes(n_sequences, n_kv_heads, group, head_dim, cuda::block_count()));
}

// Of 64 rows of one KV head, keys or values.
int64_t bench_page_bytes(int format, int is_key, int head_dim) {
  if (format < 0)
    return static_cast<int64_t>(row_bytes(exact_format(format), 64 * static_cast<size_t>(head_dim)));
  const SideFormat side = SideFormat::of(static_cast<Code>(format));
  const auto d = static_cast<size_t>(head_dim);
  return static_cast<int64_t>(is_key != 0 ? key_page_bytes(side, d) : value_page_bytes(side, d));
}
}
