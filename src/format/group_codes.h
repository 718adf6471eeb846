// q8 and q4: groups of 32 values of a row with one f16 scale each, as llama.cpp stores q8_0 and q4_0.
//
// A row is its groups one after another. A group of n values (32; the last one n = head_dim mod 32):
//
//   q8   scale f16 | code int8 [n]              x^ = scale code,        scale = max|x| / 127
//   q4   scale f16 | [ceil(n / 2)] bytes        x^ = scale (code - 8),  scale = m / -8, m the value of
//   largest
//        byte j: code j low, code j + ceil(n/2) high                    size (the first of them), sign kept
//
// A full q4 group has the bytes of a ggml block_q4_0, a q8 group those of block_q8_0 but for halves, which
// ggml's portable code rounds away from zero and we, like its vector code, to even. Unlike ggml, scales
// beyond f16 saturate at 65504, and a scale that f16 rounds to zero makes a group of zeros.
//
// Size: 2 + n (q8) or 2 + ceil(n / 2) (q4) bytes a group; 34 and 18 for 32 values. Error: at most scale / 2 a
// value (q4: one scale at the end away from m), and what f16 takes off the scale.
#pragma once

#include <stdint.h>

#include "format/code_format.h"
#include "format/code_parts.h"
#include "format/row_pages.h"

namespace quire {

constexpr int kGroupValues = 32;

QUIRE_INLINE constexpr int group_size(int head_dim, int start) {
  return head_dim - start < kGroupValues ? head_dim - start : kGroupValues;
}

// 1 / scale, or 0 where f16 makes the scale 0.
QUIRE_INLINE float inverse_scale(float scale) {
  return (f32_to_f16(scale) & 0x7fffu) == 0 ? 0.0f : 1.0f / scale;
}

// The first value of the largest size.
QUIRE_INLINE float largest_value(const float* x, int n) {
  float size = 0.0f;
  float value = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (__builtin_fabsf(x[i]) > size) {
      size = __builtin_fabsf(x[i]);
      value = x[i];
    }
  }
  return value;
}

struct Q8Row {
  QUIRE_INLINE constexpr int row_bytes(int head_dim) {
    return head_dim + 2 * ((head_dim + kGroupValues - 1) / kGroupValues);
  }

  QUIRE_INLINE void encode(const float* x, int head_dim, const Codebook&, uint8_t* bytes) {
    for (int start = 0; start < head_dim; start += kGroupValues) {
      const int n = group_size(head_dim, start);
      const float scale = __builtin_fabsf(largest_value(x + start, n)) / 127.0f;
      const float inverse = inverse_scale(scale);
      put_half(bytes, saturated_half(scale));
      for (int i = 0; i < n; ++i) {
        const float code = clamp_to(__builtin_rintf(x[start + i] * inverse), -127.0f, 127.0f);
        bytes[2 + i] = (uint8_t)(int8_t)code;
      }
      bytes += 2 + n;
    }
  }

  QUIRE_INLINE void decode(const uint8_t* bytes, int head_dim, const Codebook&, float* out) {
    for (int start = 0; start < head_dim; start += kGroupValues) {
      const int n = group_size(head_dim, start);
      const float scale = get_half(bytes);
      for (int i = 0; i < n; ++i) out[start + i] = scale * (float)(int8_t)bytes[2 + i];
      bytes += 2 + n;
    }
  }
};

struct Q4Row {
  QUIRE_INLINE constexpr int row_bytes(int head_dim) {
    const int last = head_dim % kGroupValues;
    return (head_dim / kGroupValues) * (2 + kGroupValues / 2) + (last > 0 ? 2 + (last + 1) / 2 : 0);
  }

  QUIRE_INLINE void encode(const float* x, int head_dim, const Codebook&, uint8_t* bytes) {
    for (int start = 0; start < head_dim; start += kGroupValues) {
      const int n = group_size(head_dim, start);
      const int half = (n + 1) / 2;
      const float scale = largest_value(x + start, n) / -8.0f;
      const float inverse = inverse_scale(scale);
      put_half(bytes, saturated_half(scale));
      for (int j = 0; j < half; ++j) {
        const uint8_t low = code_of(x[start + j], inverse);
        const uint8_t high = half + j < n ? code_of(x[start + half + j], inverse) : 0;
        bytes[2 + j] = (uint8_t)(low | (high << 4));
      }
      bytes += 2 + half;
    }
  }

  QUIRE_INLINE void decode(const uint8_t* bytes, int head_dim, const Codebook&, float* out) {
    for (int start = 0; start < head_dim; start += kGroupValues) {
      const int n = group_size(head_dim, start);
      const int half = (n + 1) / 2;
      const float scale = get_half(bytes);
      for (int j = 0; j < half; ++j) out[start + j] = scale * (float)((bytes[2 + j] & 15) - 8);
      for (int j = 0; half + j < n; ++j) out[start + half + j] = scale * (float)((bytes[2 + j] >> 4) - 8);
      bytes += 2 + half;
    }
  }

 private:
  // Truncation of x / scale + 8.5, as ggml rounds.
  QUIRE_INLINE uint8_t code_of(float x, float inverse) {
    return (uint8_t)clamp_to(x * inverse + 8.5f, 0.0f, 15.0f);
  }
};

struct Q8 : RowPages<Q8Row> {
  static constexpr CodeInfo kInfo = {"q8", 8, 8, 3e-5, 3e-5, false, "ggml q8_0 (llama.cpp)"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kNone, 0};
};

struct Q4 : RowPages<Q4Row> {
  static constexpr CodeInfo kInfo = {"q4", 4, 4, 0.0077, 0.0077, false, "ggml q4_0 (llama.cpp)"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kNone, 0};
};

}  // namespace quire
