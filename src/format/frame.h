// The frame that rows are coded in: centred, keys balanced against the queries, rotated by an orthogonal R.
//
//   key    k' = R ((k - mean) / balance)
//   query  q' = R (q o balance)                      so  <q, k> = <q', k'> + <q, mean>,  o value by value
//   value  v' = R (v - mean)                         balance is for keys only
//   output sum_i p_i v_i = R^T (sum_i p_i v'_i) + (sum_i p_i) mean
//
// The rotation is what TurboQuant (arXiv 2504.19874) asks for, as a randomised Hadamard transform, for any
// head size:
//
//   R = H s                    head_dim a power of two
//   R = H_first s' H_last s    otherwise
//
// s flips random signs. H is the Walsh-Hadamard matrix / sqrt(size), its own inverse. For other sizes, H_last
// acts on the last 2^k values and H_first on the first 2^k, 2^k the largest power of two below head_dim: the
// two overlap, so a large value anywhere reaches all others, and its largest part stays flat. (Blocks side by
// side, 100 = 64 + 32 + 4, leave it within the last, small block; a second pass over such blocks makes it
// ragged.) s' flips the first 2^k values by the signs of s in reverse order.
//
// Centring keys takes the same <q, mean> off every score, which no softmax sees as long as all its keys are
// centred alike.
#pragma once

#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "format/code_parts.h"

namespace quire {

// Views of what calibration (or nothing) gave one layer and KV head; each of [head_dim] or null.
struct Frame {
  int head_dim;
  const float* mean;
  const float* balance;  // positive; keys are divided by it, queries multiplied
  const float* signs;    // +1 or -1; null: no rotation at all
};

enum class FrameSide : uint8_t { kKey, kValue };

QUIRE_INLINE uint64_t splitmix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// The seed of the signs of one layer, KV head and side; every cache ever written depends on it.
QUIRE_INLINE uint64_t frame_seed(uint32_t layer, uint32_t kv_head, FrameSide side) {
  return splitmix64((uint64_t)layer << 33 | (uint64_t)kv_head << 1 | (uint64_t)side);
}

// Sign j is bit j mod 64 of the (j div 64)-th number of the SplitMix64 sequence of the seed: 1 is +1.
QUIRE_INLINE void frame_signs(uint64_t seed, int head_dim, float* signs) {
  uint64_t word = 0;
  for (int j = 0; j < head_dim; ++j) {
    if (j % 64 == 0) word = splitmix64(seed + (uint64_t)(j / 64) * 0x9e3779b97f4a7c15ull);
    signs[j] = (word >> (j % 64)) & 1 ? 1.0f : -1.0f;
  }
}

// In place; n a power of two.
QUIRE_INLINE void hadamard_block(float* x, int n) {
  for (int half = 1; half < n; half *= 2) {
    for (int start = 0; start < n; start += 2 * half) {
      for (int i = start; i < start + half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  const float scale = __builtin_sqrtf(1.0f / (float)n);
  for (int i = 0; i < n; ++i) x[i] *= scale;
}

QUIRE_INLINE int largest_block(int head_dim) {
  int block = 1;
  while (2 * block <= head_dim) block *= 2;
  return block;
}

QUIRE_INLINE void flip(const float* signs, int n, float* x) {
  for (int j = 0; j < n; ++j) x[j] *= signs[j];
}

// s' of the first `block` values.
QUIRE_INLINE void flip_reversed(const Frame& frame, int block, float* x) {
  for (int j = 0; j < block; ++j) x[j] *= frame.signs[frame.head_dim - 1 - j];
}

QUIRE_INLINE void rotate(const Frame& frame, float* x) {
  if (frame.signs == nullptr) return;
  const int block = largest_block(frame.head_dim);
  flip(frame.signs, frame.head_dim, x);
  if (block != frame.head_dim) {
    hadamard_block(x + frame.head_dim - block, block);
    flip_reversed(frame, block, x);
  }
  hadamard_block(x, block);
}

// The inverse of rotate().
QUIRE_INLINE void rotate_back(const Frame& frame, float* x) {
  if (frame.signs == nullptr) return;
  const int block = largest_block(frame.head_dim);
  hadamard_block(x, block);
  if (block != frame.head_dim) {
    flip_reversed(frame, block, x);
    hadamard_block(x + frame.head_dim - block, block);
  }
  flip(frame.signs, frame.head_dim, x);
}

// A key or value row into the frame; out may be row.
QUIRE_INLINE void to_frame(const Frame& frame, const float* row, float* out) {
  for (int j = 0; j < frame.head_dim; ++j) {
    const float centred = frame.mean != nullptr ? row[j] - frame.mean[j] : row[j];
    out[j] = frame.balance != nullptr ? centred / frame.balance[j] : centred;
  }
  rotate(frame, out);
}

// out may be q.
QUIRE_INLINE void query_to_frame(const Frame& frame, const float* q, float* out) {
  for (int j = 0; j < frame.head_dim; ++j) {
    out[j] = frame.balance != nullptr ? q[j] * frame.balance[j] : q[j];
  }
  rotate(frame, out);
}

// What centring took off the product of this query with every key.
QUIRE_INLINE float query_bias(const Frame& frame, const float* q) {
  return frame.mean != nullptr ? dot_fixed(q, frame.mean, frame.head_dim) : 0.0f;
}

// The weighted sum o of value rows in the frame, of weights that sum to l, as it is outside; out may be o.
QUIRE_INLINE void output_from_frame(const Frame& frame, const float* o, float l, float* out) {
  for (int j = 0; j < frame.head_dim; ++j) out[j] = o[j];
  rotate_back(frame, out);
  if (frame.mean != nullptr) {
    for (int j = 0; j < frame.head_dim; ++j) out[j] += l * frame.mean[j];
  }
}

// A decoded key or value row as it was outside (for exact copies of coded rows, and tests); out may be y.
QUIRE_INLINE void row_from_frame(const Frame& frame, const float* y, float* out) {
  for (int j = 0; j < frame.head_dim; ++j) out[j] = y[j];
  rotate_back(frame, out);
  for (int j = 0; j < frame.head_dim; ++j) {
    if (frame.balance != nullptr) out[j] *= frame.balance[j];
    if (frame.mean != nullptr) out[j] += frame.mean[j];
  }
}

}  // namespace quire
