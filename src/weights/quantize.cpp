// One function per type, each the inverse of one in dequantize.cpp, where the layouts are drawn. The order of
// the f32 operations matters to the last bit: this file is built without contraction to fused multiply-adds.
// What the _K types do, which search for their scales, is in quantize_k.cpp.
#include "weights/quantize.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "weights/quantize_k.h"

namespace quire {
namespace {

constexpr int kBlock = 32;

bool fits_f16(float value) { return std::fabs(value) < 65520.0f; }  // also false for NaN

void put_f16(float value, uint8_t* out) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(out, &half, sizeof half);
}

bool encode_f32(const float* values, uint8_t* out) {
  std::memcpy(out, values, sizeof *values);
  return true;
}

bool encode_bf16(const float* values, uint8_t* out) {
  const uint16_t half = f32_to_bf16(*values);
  std::memcpy(out, &half, sizeof half);
  return true;
}

// Infinities and NaN of the source stay what they are; only a finite value can be too large.
bool encode_f16(const float* values, uint8_t* out) {
  put_f16(*values, out);
  return fits_f16(*values) || !std::isfinite(*values);
}

bool all_finite(const float* values) {
  float sum = 0;
  for (int i = 0; i < kBlock; ++i) sum += values[i] * 0.0f;  // NaN if any is not finite
  return sum == 0;
}

// The value that is farthest from zero, with its sign; the first of equals.
float farthest(const float* values) {
  float most = 0, found = 0;
  for (int i = 0; i < kBlock; ++i) {
    if (std::fabs(values[i]) > most) {
      most = std::fabs(values[i]);
      found = values[i];
    }
  }
  return found;
}

// 0 for a d of which the block's f16 is 0, so that all codes would mean the same.
float inverse(float d) {
  const float inverted = 1.0f / d;
  return std::isfinite(inverted) ? inverted : 0.0f;
}

// Codes 0 to top of values that are centred on `offset`: x * inverse_d + (offset + 0.5), cut. The farthest
// value gets code 0 and defines d = farthest / -offset, so that one side reaches farther than the other.
bool signed_codes(const float* values, int offset, uint8_t* codes, float& d) {
  d = farthest(values) / static_cast<float>(-offset);
  if (!fits_f16(d)) return false;
  const float inverse_d = inverse(d);
  const float shift = static_cast<float>(offset) + 0.5f;
  for (int i = 0; i < kBlock; ++i) {
    const float scaled = values[i] * inverse_d + shift;
    const int code = static_cast<int>(scaled);
    codes[i] = static_cast<uint8_t>(code > 2 * offset - 1 ? 2 * offset - 1 : code);
  }
  return true;
}

// Codes 0 to top from the least value to the greatest.
bool ranged_codes(const float* values, int top, uint8_t* codes, float& d, float& least) {
  float greatest = values[0];
  least = values[0];
  for (int i = 1; i < kBlock; ++i) {
    least = values[i] < least ? values[i] : least;
    greatest = values[i] > greatest ? values[i] : greatest;
  }
  d = (greatest - least) / static_cast<float>(top);
  if (!fits_f16(d) || !fits_f16(least)) return false;
  const float inverse_d = inverse(d);
  for (int i = 0; i < kBlock; ++i) {
    const float scaled = (values[i] - least) * inverse_d + 0.5f;
    const int code = static_cast<int>(scaled);
    codes[i] = static_cast<uint8_t>(code > top ? top : code);
  }
  return true;
}

void put_nibbles(const uint8_t* codes, uint8_t* out) {
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + kBlock / 2] & 15) << 4);
  }
}

void put_fifth_bits(const uint8_t* codes, uint8_t* out) {
  uint32_t bits = 0;
  for (int i = 0; i < kBlock; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4) << i;
  std::memcpy(out, &bits, sizeof bits);
}

// Codes of 4 bits, or of 5, whose fifth ones come first.
template <int kBits>
void put_codes(const uint8_t* codes, uint8_t* out) {
  if constexpr (kBits == 5) {
    put_fifth_bits(codes, out);
    out += sizeof(uint32_t);
  }
  put_nibbles(codes, out);
}

// Q4_0 and Q5_0: a scale.
template <int kBits>
bool encode_signed(const float* values, uint8_t* out) {
  uint8_t codes[kBlock];
  float d;
  if (!signed_codes(values, 1 << (kBits - 1), codes, d)) return false;
  put_f16(d, out);
  put_codes<kBits>(codes, out + 2);
  return true;
}

// Q4_1 and Q5_1: a scale and the least value.
template <int kBits>
bool encode_ranged(const float* values, uint8_t* out) {
  uint8_t codes[kBlock];
  float d, least;
  if (!ranged_codes(values, (1 << kBits) - 1, codes, d, least)) return false;
  put_f16(d, out);
  put_f16(least, out + 2);
  put_codes<kBits>(codes, out + 4);
  return true;
}

// Rounds to nearest, halves away from zero.
bool encode_q8_0(const float* values, uint8_t* out) {
  const float d = std::fabs(farthest(values)) / 127.0f;
  if (!fits_f16(d)) return false;
  const float inverse_d = inverse(d);
  put_f16(d, out);
  for (int i = 0; i < kBlock; ++i) {
    const float scaled = values[i] * inverse_d;
    const int whole = static_cast<int>(scaled);
    const float rest = scaled - static_cast<float>(whole);  // exact, so this is std::round without a call
    out[2 + i] = static_cast<uint8_t>(whole + (rest >= 0.5f) - (rest <= -0.5f));
  }
  return true;
}

template <bool (*Encode)(const float*, uint8_t*)>
bool encode_row(TensorType type, const float* values, void* blocks, uint64_t n_values) {
  const uint32_t n_bytes = block_bytes(type);
  const uint32_t n_block = block_values(type);
  auto* block = static_cast<uint8_t*>(blocks);
  bool fits = true;
  for (uint64_t i = 0; i < n_values; i += n_block, block += n_bytes) fits &= Encode(values + i, block);
  return fits;
}

// Blocks of 32 of values that are not finite have no meaning, and their conversion to whole numbers none
// either.
template <bool (*Encode)(const float*, uint8_t*)>
bool encode_finite(const float* values, uint8_t* out) {
  return all_finite(values) && Encode(values, out);
}

}  // namespace

bool quantize_row(TensorType type, const float* values, void* blocks, uint64_t n_values) {
  QUIRE_DCHECK(n_values % block_values(type) == 0);
  switch (type) {
    case TensorType::F32: return encode_row<encode_f32>(type, values, blocks, n_values);
    case TensorType::F16: return encode_row<encode_f16>(type, values, blocks, n_values);
    case TensorType::BF16: return encode_row<encode_bf16>(type, values, blocks, n_values);
    case TensorType::Q4_0: return encode_row<encode_finite<encode_signed<4>>>(type, values, blocks, n_values);
    case TensorType::Q4_1: return encode_row<encode_finite<encode_ranged<4>>>(type, values, blocks, n_values);
    case TensorType::Q5_0: return encode_row<encode_finite<encode_signed<5>>>(type, values, blocks, n_values);
    case TensorType::Q5_1: return encode_row<encode_finite<encode_ranged<5>>>(type, values, blocks, n_values);
    case TensorType::Q8_0: return encode_row<encode_finite<encode_q8_0>>(type, values, blocks, n_values);
    case TensorType::Q4_K: return encode_row<encode_q4_k>(type, values, blocks, n_values);
    case TensorType::Q5_K: return encode_row<encode_q5_k>(type, values, blocks, n_values);
    case TensorType::Q6_K: return encode_row<encode_q6_k>(type, values, blocks, n_values);
  }
  QUIRE_CHECK(!"a TensorType");
}

}  // namespace quire
