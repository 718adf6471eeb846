// Decoding of weight blocks, one function per type. The order of the f32 operations is ggml's (scale by d
// first, then by the quant) so that results are equal bit for bit; kernels are tested against this file.
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "weights/tensor_type.h"

namespace quire {
namespace {

uint16_t load_u16(const uint8_t* bytes) {
  uint16_t value;
  memcpy(&value, bytes, sizeof value);
  return value;
}

uint32_t load_u32(const uint8_t* bytes) {
  uint32_t value;
  memcpy(&value, bytes, sizeof value);
  return value;
}

float load_f16(const uint8_t* bytes) { return f16_to_f32(load_u16(bytes)); }

void decode_f32(const uint8_t* value, float* out) { memcpy(out, value, sizeof *out); }

void decode_f16(const uint8_t* value, float* out) { *out = load_f16(value); }

void decode_bf16(const uint8_t* value, float* out) { *out = bf16_to_f32(load_u16(value)); }

// The 32-value types hold value i in the low nibble of byte i and value i + 16 in its high nibble.

// | d f16 | 16 bytes of nibbles |
void decode_q4_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint8_t* nibbles = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>((nibbles[i] & 15) - 8) * d;
    out[i + 16] = static_cast<float>((nibbles[i] >> 4) - 8) * d;
  }
}

// | d f16 | m f16 | 16 bytes of nibbles |
void decode_q4_1(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  const uint8_t* nibbles = block + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(nibbles[i] & 15) * d + m;
    out[i + 16] = static_cast<float>(nibbles[i] >> 4) * d + m;
  }
}

// Value i of a 5-bit block: nibble as above, fifth bit from bit i of `high`.
int quant_5_bit(const uint8_t* nibbles, uint32_t high, int i) {
  const int nibble = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
  return nibble | static_cast<int>((high >> i & 1) << 4);
}

// | d f16 | fifth bits u32 | 16 bytes of nibbles |
void decode_q5_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint32_t high = load_u32(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(quant_5_bit(block + 6, high, i) - 16) * d;
}

// | d f16 | m f16 | fifth bits u32 | 16 bytes of nibbles |
void decode_q5_1(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  const uint32_t high = load_u32(block + 4);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(quant_5_bit(block + 8, high, i)) * d + m;
}

// | d f16 | 32 x i8 |
void decode_q8_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
}

struct ScaleMin {
  float scale;
  float min;
};

// Scale and min of group j (32 values) of a _K block, 6 bits each, packed in 12 bytes: groups 0 to 3 in
// the low 6 bits of bytes j and j + 4; groups 4 to 7 have their low 4 bits in the nibbles of byte j + 4
// and their high 2 bits in the top of bytes j - 4 (scale) and j (min).
ScaleMin scale_min_k4(const uint8_t* packed, int j) {
  if (j < 4) {
    return {static_cast<float>(packed[j] & 63), static_cast<float>(packed[j + 4] & 63)};
  }
  return {static_cast<float>((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4),
          static_cast<float>((packed[j + 4] >> 4) | (packed[j] >> 6) << 4)};
}

// | d f16 | dmin f16 | 12 bytes of scales | 128 bytes of nibbles |; value = d*scale*q - dmin*min.
// Bytes 32p to 32p + 31 hold group 2p in their low nibbles and group 2p + 1 in their high ones.
void decode_q4_k(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  const uint8_t* nibbles = block + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = scale_min_k4(block + 4, group);
    const float scale = d * packed.scale;
    const float min = dmin * packed.min;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      out[group * 32 + i] = scale * static_cast<float>(nibbles[group / 2 * 32 + i] >> shift & 15) - min;
    }
  }
}

// | d f16 | dmin f16 | 12 bytes of scales | 32 bytes of fifth bits | 128 bytes of nibbles |
// The fifth bit of value i of group g is bit g of byte i; the rest is as in Q4_K.
void decode_q5_k(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  const uint8_t* high = block + 16;
  const uint8_t* nibbles = block + 48;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = scale_min_k4(block + 4, group);
    const float scale = d * packed.scale;
    const float min = dmin * packed.min;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int q = (nibbles[group / 2 * 32 + i] >> shift & 15) | (high[i] >> group & 1) << 4;
      out[group * 32 + i] = scale * static_cast<float>(q) - min;
    }
  }
}

// | 128 bytes of low nibbles | 64 bytes of high bit pairs | 16 x i8 scales, one per 16 values | d f16 |
// Each half of 128 values is four runs of 32; run r has its nibbles in byte i + 32*(r % 2), low ones for
// runs 0 and 1, and its bit pair in bits 2r of byte i. Value = d*scale*(q - 32).
void decode_q6_k(const uint8_t* block, float* out) {
  const float d = load_f16(block + 208);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + group]));
    const int half = group / 8;
    const int run = group % 8 / 2;
    const uint8_t* low = block + half * 64 + run % 2 * 32 + group % 2 * 16;
    const uint8_t* high = block + 128 + half * 32 + group % 2 * 16;
    for (int i = 0; i < 16; ++i) {
      const int q = (low[i] >> (run / 2 * 4) & 15) | (high[i] >> (run * 2) & 3) << 4;
      out[group * 16 + i] = scale * static_cast<float>(q - 32);
    }
  }
}

// Decode is a template argument so that each type gets a loop with its block inlined.
template <void (*Decode)(const uint8_t*, float*)>
void decode_row(TensorType type, const void* blocks, float* out, uint64_t n_values) {
  const uint32_t n_bytes = block_bytes(type);
  const uint32_t n_block = block_values(type);
  const auto* block = static_cast<const uint8_t*>(blocks);
  for (uint64_t i = 0; i < n_values; i += n_block, block += n_bytes) Decode(block, out + i);
}

}  // namespace

void dequantize_row(TensorType type, const void* blocks, float* out, uint64_t n_values) {
  QUIRE_DCHECK(n_values % block_values(type) == 0);
  switch (type) {
    case TensorType::F32: return decode_row<decode_f32>(type, blocks, out, n_values);
    case TensorType::F16: return decode_row<decode_f16>(type, blocks, out, n_values);
    case TensorType::Q4_0: return decode_row<decode_q4_0>(type, blocks, out, n_values);
    case TensorType::Q4_1: return decode_row<decode_q4_1>(type, blocks, out, n_values);
    case TensorType::Q5_0: return decode_row<decode_q5_0>(type, blocks, out, n_values);
    case TensorType::Q5_1: return decode_row<decode_q5_1>(type, blocks, out, n_values);
    case TensorType::Q8_0: return decode_row<decode_q8_0>(type, blocks, out, n_values);
    case TensorType::Q4_K: return decode_row<decode_q4_k>(type, blocks, out, n_values);
    case TensorType::Q5_K: return decode_row<decode_q5_k>(type, blocks, out, n_values);
    case TensorType::Q6_K: return decode_row<decode_q6_k>(type, blocks, out, n_values);
    case TensorType::BF16: return decode_row<decode_bf16>(type, blocks, out, n_values);
  }
  QUIRE_CHECK(!"a TensorType");
}

}  // namespace quire
