// Codes of the 64 rows of a page in shared memory, and their way into the page's bytes. Each `Pages` codes
// one side of one format by a whole block; what a single number or group becomes is said in format/.
#pragma once

#include "kernels/cuda/device/frame.cuh"

#include "format/code_catalogue.h"

namespace quire::cuda {

// What a block works with.
struct PageRows {
  const float* rows;  // [64][stride]
  uint8_t* codes;     // [64][kMaxHeadDim], zeros behind head_dim
  int stride;
  int head_dim;

  __device__ const float* row(int t) const { return rows + t * stride; }
  __device__ uint8_t* code_row(int t) const { return codes + t * kMaxHeadDim; }
};

__device__ inline float sum_of_row_lanes(float x) {
  // dot_fixed(): lanes l and l + 8, then l + 4, ...; whatever the upper lanes get is not looked at.
  for (int half = 8; half > 0; half /= 2) x += __shfl_down_sync(kAllLanes, x, half, kRowLanes);
  return __shfl_sync(kAllLanes, x, 0, kRowLanes);
}

__device__ inline int count_of_row_lanes(int n) {
  for (int half = 8; half > 0; half /= 2) n += __shfl_xor_sync(kAllLanes, n, half);
  return n;
}

// turbo_code_row() and the norm to store, of a row by half a warp: codes (sign and magnitude) to code_row.
template <int kBits>
__device__ uint16_t turbo_codes(const PageRows& page, int t, const Codebook& book) {
  constexpr int half = 1 << (kBits - 1);
  const float* x = page.row(t);
  uint32_t largest = 0;
  for (int j = row_lane(); j < page.head_dim; j += kRowLanes) {
    largest = max(largest, float_to_bits(x[j]) & 0x7fffffffu);
  }
  for (int lanes = 8; lanes > 0; lanes /= 2)
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
  const uint32_t exponent = min(max(largest >> 23, 1u), 253u);  // scale_row()
  const float power = bits_to_float((254 - exponent) << 23);
  float squares = 0.0f;
  for (int j = row_lane(); j < page.head_dim; j += kRowLanes) {
    const float scaled = x[j] * power;
    squares += scaled * scaled;
  }
  const float norm = sqrtf(sum_of_row_lanes(squares));
  int above[half + 1];
  above[0] = page.head_dim;
  above[half] = 0;
#pragma unroll
  for (int m = 1; m < half; ++m) above[m] = 0;
  for (int j = row_lane(); j < page.head_dim; j += kRowLanes) {
    const float scaled = x[j] * power;
    int code = scaled < 0.0f ? 0 : half;
#pragma unroll
    for (int m = 1; m < half; ++m) {
      const int over = fabsf(scaled) > book.thresholds[m - 1] * norm;
      code += over;
      above[m] += over;
    }
    page.code_row(t)[j] = (uint8_t)code;
  }
#pragma unroll
  for (int m = 1; m < half; ++m) above[m] = count_of_row_lanes(above[m]);
  float sum = 0.0f;
#pragma unroll
  for (int m = 0; m < half; ++m) {
    const float centroid = book.centroids[half + m];
    sum += (float)(above[m] - above[m + 1]) * (centroid * centroid);
  }
  return saturated_half(norm / sqrtf(sum) * bits_to_float(exponent << 23));
}

// Codes of the page's rows; norms f16 [64], `stride` bytes apart.
template <int kBits>
__device__ void code_turbo_rows(const PageRows& page, const Codebook& book, uint8_t* norms, int stride = 2) {
  for (int t = (int)threadIdx.x / kRowLanes; t < kPageRows; t += (int)blockDim.x / kRowLanes) {
    const uint16_t norm = turbo_codes<kBits>(page, t, book);
    if (row_lane() == 0) put_half(norms + stride * t, norm);
  }
  __syncthreads();
}

// put_pack() byte by byte: `code` gives the code of a step and position.
template <int kBits, class Code>
__device__ void put_packs(int n_bytes, uint8_t* packs, const Code& code) {
  using Panel = PanelCodes<kBits>;
  constexpr int kPackBytes = Panel::kPackBytes;
  constexpr int shift = kBits == 3 ? 2 : kBits;
  for (int at = (int)threadIdx.x; at < n_bytes; at += (int)blockDim.x) {
    const int step = at / kPackBytes * Panel::kSteps;
    const int within = at % kPackBytes;
    int byte = 0;
    if (within < 64) {
#pragma unroll
      for (int i = 0; i < Panel::kSteps; ++i) byte |= (code(step + i, within) >> (kBits == 3)) << (shift * i);
    } else {
      for (int j = 0; j < 8; ++j)
        byte |= (code(step + (within - 64) / 8, (within - 64) % 8 * 8 + j) & 1) << j;
    }
    packs[at] = (uint8_t)byte;
  }
}

// PanelCodes::put_keys() and put_values().
template <int kBits>
__device__ void put_key_packs(const PageRows& page, int quads, uint8_t* packs) {
  const uint8_t* codes = page.codes;
  const int steps = 4 * quads;
  put_packs<kBits>(steps / PanelCodes<kBits>::kSteps * PanelCodes<kBits>::kPackBytes, packs,
                   [=](int step, int p) {
                     return (int)codes[(step / quads * 16 + p / 4) * kMaxHeadDim + step % quads * 4 + p % 4];
                   });
}
template <int kBits>
__device__ void put_value_packs(const PageRows& page, uint8_t* packs) {
  const uint8_t* codes = page.codes;
  const int steps = (page.head_dim + 15) / 16 * 16;
  put_packs<kBits>(steps / PanelCodes<kBits>::kSteps * PanelCodes<kBits>::kPackBytes, packs,
                   [=](int step, int p) {
                     return (int)codes[(step % 16 * 4 + p % 4) * kMaxHeadDim + step / 16 * 16 + p / 4];
                   });
}
__device__ inline int rounded_quads(int head_dim, int steps) {
  return ((head_dim + 3) / 4 + steps - 1) / steps * steps;
}

// Panels by side: codes, then packs behind `offset`.
template <int kBits, bool kKeys>
__device__ void put_panel(const PageRows& page, uint8_t* packs) {
  __syncthreads();
  if constexpr (kKeys) {
    put_key_packs<kBits>(page, rounded_quads(page.head_dim, PanelCodes<kBits>::kSteps), packs);
  } else {
    put_value_packs<kBits>(page, packs);
  }
}

template <class Format, bool kKeys>
struct SealedSide;  // static void seal(const PageRows&, const Codebook&, uint8_t* page)

template <int kBits, bool kKeys>
struct SealedSide<TurboPanel<kBits>, kKeys> {
  static __device__ void seal(const PageRows& page, const Codebook& book, uint8_t* to) {
    code_turbo_rows<kBits>(page, book, to);
    for (int i = (int)threadIdx.x; i < kPageRows * page.head_dim; i += (int)blockDim.x) {
      uint8_t& code = page.code_row(i / page.head_dim)[i % page.head_dim];
      code = (uint8_t)rank_of<kBits>(code);
    }
    put_panel<kBits, kKeys>(page, to + 2 * kPageRows);
  }
};

// Planes: a byte is one bit of eight codes.
template <int kBits, bool kKeys>
struct SealedSide<Turbo<kBits>, kKeys> {
  static __device__ void seal(const PageRows& page, const Codebook& book, uint8_t* to) {
    const int n_bytes = plane_bytes(page.head_dim);
    const int value_row_bytes = Turbo<kBits>::value_row_bytes(page.head_dim);
    code_turbo_rows<kBits>(page, book, to + (kKeys ? kPageRows * n_bytes : 0), kKeys ? 2 : value_row_bytes);
    for (int i = (int)threadIdx.x; i < kPageRows * n_bytes; i += (int)blockDim.x) {
      const int t = i / n_bytes;
      const int g = i % n_bytes;
      uint8_t planes[kBits];
      for (int b = 0; b < kBits; ++b) {
        int byte = 0;
        for (int j = 0; j < 8; ++j) byte |= (page.code_row(t)[8 * g + j] >> (kBits - 1 - b) & 1) << j;
        planes[b] = (uint8_t)byte;
      }
      put_planes(planes, t, g, n_bytes, to);
    }
  }
  // Layouts: format/turbo.h.
  static __device__ void put_planes(const uint8_t (&planes)[kBits], int t, int g, int n_bytes, uint8_t* to) {
    if constexpr (kKeys) {
      to[g * kPageRows + t] = planes[0];
      uint8_t* rows = to + kPageRows * n_bytes + 2 * kPageRows;
      for (int b = 1; b < kBits; ++b) rows[(t * (kBits - 1) + b - 1) * n_bytes + g] = planes[b];
    } else {
      uint8_t* row = to + t * (2 + kBits * n_bytes) + 2;
      for (int b = 0; b < kBits; ++b) row[b * n_bytes + g] = planes[b];
    }
  }
};

// q8 and q4: a thread codes a group of a row.
template <class Group, bool kKeys>
__device__ void seal_groups(const PageRows& page, uint8_t* to) {
  const int n_groups = group_count(page.head_dim);
  for (int i = (int)threadIdx.x; i < kPageRows * n_groups; i += (int)blockDim.x) {
    const int t = i % kPageRows;
    const int start = i / kPageRows * kGroupValues;
    const float scale =
        Group::encode(page.row(t) + start, group_size(page.head_dim, start), page.code_row(t) + start);
    put_half(to + 2 * i, saturated_half(scale));
  }
  put_panel<Group::kBits, kKeys>(page, to + 2 * kPageRows * n_groups);
}
template <bool kKeys>
struct SealedSide<Q8, kKeys> {
  static __device__ void seal(const PageRows& page, const Codebook&, uint8_t* to) {
    seal_groups<Q8Group, kKeys>(page, to);
  }
};
template <bool kKeys>
struct SealedSide<Q4, kKeys> {
  static __device__ void seal(const PageRows& page, const Codebook&, uint8_t* to) {
    seal_groups<Q4Group, kKeys>(page, to);
  }
};

// Keys: a thread codes a channel of 32 tokens.
template <int kBits>
struct SealedSide<Kivi<kBits>, true> {
  static __device__ void seal(const PageRows& page, const Codebook&, uint8_t* to) {
    const int d = page.head_dim;
    for (int i = (int)threadIdx.x; i < kPageRows / 32 * d; i += (int)blockDim.x) {
      const int first = i / d * 32;
      const int j = i % d;
      const float* channel = page.row(first) + j;
      const KiviRange range = kivi_range<kBits>(channel, 32, page.stride);
      uint8_t* scales = to + i / d * 4 * d;
      put_half(scales + 2 * j, range.scale);
      put_half(scales + 2 * (d + j), range.zero);
      for (int t = 0; t < 32; ++t) {
        page.code_row(first + t)[j] = (uint8_t)kivi_code<kBits>(channel[t * page.stride], range);
      }
    }
    put_panel<kBits, true>(page, to + kPageRows / 32 * 4 * d);
  }
};
// Values: a group of a row.
template <int kBits>
struct SealedSide<Kivi<kBits>, false> {
  static __device__ void seal(const PageRows& page, const Codebook&, uint8_t* to) {
    const int n_groups = group_count(page.head_dim);
    for (int i = (int)threadIdx.x; i < kPageRows * n_groups; i += (int)blockDim.x) {
      const int t = i % kPageRows;
      const int start = i / kPageRows * 32;
      const int n = group_size(page.head_dim, start);
      const float* x = page.row(t) + start;
      const KiviRange range = kivi_range<kBits>(x, n, 1);
      put_half(to + 2 * i, range.scale);
      put_half(to + 2 * kPageRows * n_groups + 2 * i, range.zero);
      for (int j = 0; j < n; ++j) page.code_row(t)[start + j] = (uint8_t)kivi_code<kBits>(x[j], range);
    }
    put_panel<kBits, false>(page, to + 4 * kPageRows * n_groups);
  }
};

// A thread codes a group of a row: its range, and four (or fewer) bytes of each plane.
template <bool kKeys>
struct SealedSide<SignVq, kKeys> {
  static __device__ void seal(const PageRows& page, const Codebook&, uint8_t* to) {
    const int n_groups = group_count(page.head_dim);
    const int n_bytes = plane_bytes(page.head_dim);
    uint8_t* rows = to + (kKeys ? kPageRows * n_bytes : 0);
    for (int i = (int)threadIdx.x; i < kPageRows * n_groups; i += (int)blockDim.x) {
      const int t = i / n_groups;
      const int group = i % n_groups;
      const int n = group_size(page.head_dim, group * kGroupValues);
      float sizes[kGroupValues];
      uint32_t signs = 0;
      for (int j = 0; j < n; ++j) {
        const float x = page.row(t)[group * kGroupValues + j];
        sizes[j] = kKeys ? fabsf(x) : x;
        signs |= (uint32_t) !(x < 0.0f) << j;
      }
      const KiviRange range = kivi_range<2>(sizes, n, 1);
      uint32_t upper = 0, lower = 0;
      for (int j = 0; j < n; ++j) {
        const uint32_t code = (uint32_t)kivi_code<2>(sizes[j], range);
        upper |= (code >> 1) << j;
        lower |= (code & 1) << j;
      }
      uint8_t* row = rows + t * (4 * n_groups + 2 * n_bytes);
      put_half(row + 4 * group, range.scale);
      put_half(row + 4 * group + 2, range.zero);
      for (int b = 0; b < (n + 7) / 8; ++b) {
        const int g = 4 * group + b;
        row[4 * n_groups + g] = (uint8_t)(upper >> (8 * b));
        row[4 * n_groups + n_bytes + g] = (uint8_t)(lower >> (8 * b));
        if (kKeys) to[g * kPageRows + t] = (uint8_t)(signs >> (8 * b));
      }
    }
  }
};

}  // namespace quire::cuda
