// Attention of a prompt's rows to themselves and those before: exact, causal, on tensor cores.
#pragma once

#include <cstdint>

#include "format/row_format.h"
#include "kernels/cuda/attention.h"

namespace quire::gpu {

// Queries of a prompt that are computed together: enough rows for products to be bound by arithmetic.
constexpr int kPromptChunk = 2048;

// Queries first .. first + n - 1 of a sequence. All on the device, 16-byte aligned, in one format.
struct PromptAttention {
  Format format;  // f16 or bf16
  int n;
  int first;
  int n_heads;
  int n_kv_heads;
  int head_dim;             // one that cuda::has_kernels()
  const uint16_t* queries;  // [n][n_heads][head_dim]
  const uint16_t* keys;     // [n_kv_heads][stride][head_dim]
  const uint16_t* values;   // the same
  int stride;
  float scale;          // of scores
  uint16_t* out;        // bf16 [n][n_heads][head_dim]
  int window = 0;       // above 0: a query sees so many tokens, its own the last; no row before these is read
  float score_cap = 0;  // as in cuda::DecodeAttention
};

void attend_prompt(const PromptAttention& attention, cuda::Stream stream);

}  // namespace quire::gpu
