// What cuda_attention_bench.py calls: kernels by plain functions, errors as text.
#include <string>

#include "base/error.h"
#include "format/turbo_panel.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/index.h"

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

}  // namespace

extern "C" {

// Shapes and pointers of one launch, as ctypes lays them out.
struct BenchAttention {
  int n_sequences, n_kv_heads, group, head_dim, table_stride, key_bits, value_bits;  // bits 16: bf16
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
    if (b->key_bits == 16) return cuda::attend_exact(attention, Format::kBF16, cuda_stream);
    cuda::attend_turbo(attention, b->key_bits, b->value_bits, cuda_stream);
  });
}

// A search of the index; planes and norms of a page and head lie together, as in nested pages.
struct BenchSearch {
  int n_sequences, n_kv_heads, group, head_dim, table_stride;
  const float* queries;
  const uint8_t* pages;  // [page][kv_head][head_dim / 8 * 64 of signs, then 128 of norms]
  const int32_t* page_table;
  const int32_t* n_tokens;
  const int32_t* n_wanted;
  uint64_t* words;
  int32_t* n_marked;
  void* workspace;
  float scale;
};

const char* bench_search(const BenchSearch* b, void* stream) {
  return guarded([&] {
    const int64_t sign_bytes = 8 * b->head_dim;
    const int64_t head_bytes = sign_bytes + 128;
    const int64_t page_bytes = head_bytes * b->n_kv_heads;
    cuda::search_index({b->n_sequences,
                        b->n_kv_heads,
                        b->group,
                        b->head_dim,
                        b->queries,
                        b->scale,
                        {b->pages, page_bytes, head_bytes},
                        {b->pages + sign_bytes, page_bytes, head_bytes},
                        b->page_table,
                        b->table_stride,
                        b->n_tokens,
                        0,
                        b->n_wanted,
                        b->words,
                        b->n_marked,
                        b->workspace},
                       static_cast<cuda::Stream>(stream));
  });
}

int64_t bench_search_workspace_bytes(int n_sequences, int n_kv_heads, int group, int table_stride) {
  return static_cast<int64_t>(cuda::index_workspace_bytes(n_sequences, n_kv_heads, group, table_stride));
}

int64_t bench_workspace_bytes(int n_sequences, int n_kv_heads, int group, int head_dim) {
  return static_cast<int64_t>(
      cuda::workspace_bytes(n_sequences, n_kv_heads, group, head_dim, cuda::block_count()));
}

// Of 64 rows of one KV head, keys or values.
int64_t bench_page_bytes(int bits, int head_dim) {
  if (bits == 16) return 2 * 64 * head_dim;
  const int sizes[] = {TurboPanel<2>::key_page_bytes(head_dim), TurboPanel<3>::key_page_bytes(head_dim),
                       TurboPanel<4>::key_page_bytes(head_dim)};
  return sizes[bits - 2];
}
}
