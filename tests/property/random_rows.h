// Random weight rows in the blocks of a GGUF file: every code bit is random, the scales are finite.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "property/random.h"
#include "weights/tensor_type.h"

namespace quire::test {

constexpr TensorType kTensorTypes[] = {
    TensorType::Q4_0, TensorType::Q4_1, TensorType::Q5_0, TensorType::Q5_1,
    TensorType::Q8_0, TensorType::Q4_K, TensorType::Q5_K, TensorType::Q6_K,
    TensorType::F32,  TensorType::F16,  TensorType::BF16,
};

inline bool is_quantized(TensorType type) { return block_values(type) > 1; }

enum class Scales {
  kModerate,  // weights up to about 1
  kCentred,   // weights around 0, as those of a model, so that sums stay well-conditioned
  kAny,       // any finite f16, subnormals and +-65504 included
};

struct RandomRows {
  std::vector<std::byte> bytes;
  // [row][block]: what scale * code and offset of a block can reach together; the size to which the rounding
  // of a kernel that works with scale, code and offset is relative.
  std::vector<double> largest;
};

// Where the one or two f16 scales of a block lie, and how far they reach.
struct BlockScales {
  int first_at;
  double first_reach;
  int second_at;  // -1: none
  double second_reach;
};

inline BlockScales block_scales(TensorType type) {
  switch (type) {
    case TensorType::Q4_0: return {0, 15 + 8, -1, 0};
    case TensorType::Q4_1: return {0, 15, 2, 1};
    case TensorType::Q5_0: return {0, 31 + 16, -1, 0};
    case TensorType::Q5_1: return {0, 31, 2, 1};
    case TensorType::Q8_0: return {0, 255 + 128, -1, 0};
    case TensorType::Q4_K: return {0, 63 * 15, 2, 63};
    case TensorType::Q5_K: return {0, 63 * 31, 2, 63};
    case TensorType::Q6_K: return {208, 128 * (63 + 32), -1, 0};
    default: return {-1, 1, -1, 0};
  }
}

inline uint16_t random_scale(Random& random, Scales scales, double reach) {
  if (scales != Scales::kAny) return f32_to_f16(static_cast<float>(random.normal() * 0.3 / reach));
  uint16_t half = 0;
  do {
    half = static_cast<uint16_t>(random.next());
  } while ((half & 0x7c00u) == 0x7c00u);  // infinities and NaN
  return half;
}

inline void put_scale(std::byte* block, int at, uint16_t scale) {
  std::memcpy(block + at, &scale, sizeof scale);
}

// The offset that puts the middle code at 0: added in the _1 types, subtracted in the _K types.
inline uint16_t centring_offset(TensorType type, float scale) {
  const bool four_bits = type == TensorType::Q4_1 || type == TensorType::Q4_K;
  const float middle = scale * (four_bits ? 7.5f : 15.5f);
  return f32_to_f16(block_values(type) == 256 ? middle : -middle);
}

// One quantized block; returns its reach.
inline double fill_block(Random& random, TensorType type, Scales scales, std::byte* block) {
  for (uint32_t i = 0; i < block_bytes(type); ++i) block[i] = static_cast<std::byte>(random.next());
  const BlockScales where = block_scales(type);
  const uint16_t first = random_scale(random, scales, where.first_reach);
  put_scale(block, where.first_at, first);
  double reach = std::fabs(f16_to_f32(first)) * where.first_reach;
  if (where.second_at >= 0) {
    uint16_t second = random_scale(random, scales, where.second_reach);
    if (scales == Scales::kCentred) second = centring_offset(type, f16_to_f32(first));
    put_scale(block, where.second_at, second);
    reach += std::fabs(f16_to_f32(second)) * where.second_reach;
  }
  return reach;
}

// One number of a plain type.
inline double fill_plain(Random& random, TensorType type, Scales scales, std::byte* to) {
  if (type == TensorType::F16) {
    const uint16_t half = random_scale(random, scales, 1.0);
    put_scale(to, 0, half);
    return std::fabs(f16_to_f32(half));
  }
  const double spread = scales == Scales::kAny ? std::exp2(random.uniform(-30, 30)) : 0.3;
  const auto value = static_cast<float>(random.normal() * spread);
  if (type == TensorType::BF16) {
    put_scale(to, 0, f32_to_bf16(value));
    return std::fabs(bf16_to_f32(f32_to_bf16(value)));
  }
  std::memcpy(to, &value, sizeof value);
  return std::fabs(value);
}

inline RandomRows random_rows(Random& random, TensorType type, size_t n_rows, size_t n_columns,
                              Scales scales = Scales::kModerate) {
  const size_t n_blocks = n_rows * n_columns / block_values(type);
  RandomRows rows;
  rows.bytes.resize(n_blocks * block_bytes(type));
  rows.largest.reserve(n_blocks);
  for (size_t i = 0; i < n_blocks; ++i) {
    std::byte* block = rows.bytes.data() + i * block_bytes(type);
    rows.largest.push_back(is_quantized(type) ? fill_block(random, type, scales, block)
                                              : fill_plain(random, type, scales, block));
  }
  return rows;
}

}  // namespace quire::test
