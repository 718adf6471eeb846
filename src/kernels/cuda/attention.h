// Decode attention on the device: one new token of every sequence of a batch against the pages of one layer.
//
// Everything a launch reads but its shape lies on the device: lengths and page tables may change between
// launches of one captured graph. Nothing waits for the host.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "format/row_format.h"

struct CUstream_st;

namespace quire {
enum class Code : uint8_t;  // format/code_catalogue.h
}

namespace quire::cuda {

using Stream = CUstream_st*;  // nullptr: the default stream

// Where the keys or the values of a layer's pages lie: those of KV head h in page p begin at
// data + p * page_stride + h * head_stride. 16-byte aligned, all three.
struct RowPlane {
  const uint8_t* data;
  int64_t page_stride;  // bytes
  int64_t head_stride;
};

// Head sizes that kernels are built for.
constexpr bool has_kernels(int head_dim) {
  return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

// Query heads that one warp attends with; a KV head with more of them is read more than once.
constexpr int kTileHeads = 8;

// Pointers are to device memory.
struct DecodeAttention {
  int n_sequences;  // at most kMaxSequences
  int n_kv_heads;
  int group;  // query heads of a KV head, any number
  int head_dim;
  const float* queries;  // [n_sequences][n_kv_heads * group][head_dim]
  float scale;           // of scores, as 1 / sqrt(head_dim)
  RowPlane keys;
  RowPlane values;
  const int32_t* page_table;  // [n_sequences][page_table_stride], numbers of pages in token order
  int page_table_stride;
  const int32_t* n_tokens;  // [n_sequences]
  int first_token;          // those before are read elsewhere: exact sinks of a coded page
  float* out;               // [n_sequences][n_kv_heads * group][head_dim]; zeros where nothing was read
  float* log_sums;          // the same heads: log of the sum of exp(score), -inf where nothing was read
  void* workspace;  // workspace_bytes(); zeros before the first launch, and left so that the next may follow
  int window =
      0;  // above 0: of each sequence only the last so many tokens are seen, no page before them read
  float score_cap = 0;  // c: c tanh(s / c) takes the place of a score s; 0: the score itself
  const float* score_bias =
      nullptr;  // [n_sequences][heads] added to scores before they are capped, or nullptr
};
constexpr int kMaxSequences = 1024;

// Of one launch. `n_blocks`: block_count() of the device.
size_t workspace_bytes(int n_sequences, int n_kv_heads, int group, int head_dim, int n_blocks);
// Multiprocessors of the current device.
int block_count();

// Pages of exact rows, f16, bf16 or fp8, keys and values as [64 tokens][head_dim]. Throws Error when the
// launch is refused or there is no kernel of these sizes.
void attend_exact(const DecodeAttention& attention, Format format, Stream stream);

// Sealed pages of turbo codes, in the bytes of format/turbo_panel.h. Queries and outputs are in the frame.
// Bits of keys and values: equal, or values one bit less (2..4).
void attend_turbo(const DecodeAttention& attention, int key_bits, int value_bits, Stream stream);

// Sealed pages of q8, q4, kivi2 or kivi4, keys and values alike, in the bytes of format/group_codes.h and
// format/kivi.h; the same otherwise. Numbers are rounded to f16 when they are decoded, and must be in its
// range.
void attend_panels(const DecodeAttention& attention, Code code, Stream stream);

// Attention over both of two disjoint sets of tokens: `out` and `log_sums` of n_heads heads take in the
// others'.
void merge_attention(float* out, float* log_sums, const float* other_out, const float* other_log_sums,
                     int n_heads, int head_dim, Stream stream);

}  // namespace quire::cuda
