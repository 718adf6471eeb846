// A group of values gets the scale (and least value) that a few trials and a weighted least-squares fit of
// each find best; the scales of a block are then quantized themselves, and the codes are taken anew from what
// was stored. The layouts are drawn in dequantize.cpp.
#include "weights/quantize_k.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"

namespace quire {
namespace {

constexpr int kBlock = 256;
constexpr float kNothing = 1e-15f;  // scales below are those of groups of zeros

int nearest(float value) { return static_cast<int>(std::lrint(value)); }

// Cut before it is rounded, as a tiny scale makes quotients as large as can be.
int clamped(float value, int low, int high) {
  return nearest(std::clamp(value, static_cast<float>(low), static_cast<float>(high)));
}

// Values so large that a scale would not fit f16 are far beyond weights; the sums below stay finite for
// these.
bool all_fit(const float* values) {
  for (int i = 0; i < kBlock; ++i) {
    if (!(std::fabs(values[i]) < 65504.0f)) return false;
  }
  return true;
}

float put_f16(float value, uint8_t* out) {  // what was stored
  const uint16_t half = f32_to_f16(value);
  std::memcpy(out, &half, sizeof half);
  return f16_to_f32(half);
}

// ---- Q6_K: value = d * scale * (code - 32), one scale for 16 values

constexpr int kGroup6 = 16;

// Sums of a trial: of the weighted products of values and codes, and of squared codes.
struct Fit {
  float values_codes = 0;
  float codes_codes = 0;

  float scale() const { return codes_codes > 0 ? values_codes / codes_codes : 0; }
};

Fit fit_signed(const float* values, float inverse_scale) {
  Fit fit;
  for (int i = 0; i < kGroup6; ++i) {
    const auto code = static_cast<float>(clamped(inverse_scale * values[i], -32, 31));
    const float weight = values[i] * values[i];
    fit.values_codes += weight * values[i] * code;
    fit.codes_codes += weight * code * code;
  }
  return fit;
}

// The best scale of a group. The farthest value gets a code about -32; trials vary that by up to 0.9.
float search_signed_scale(const float* values) {
  float most = 0, farthest = 0;
  for (int i = 0; i < kGroup6; ++i) {
    if (std::fabs(values[i]) > most) {
      most = std::fabs(values[i]);
      farthest = values[i];
    }
  }
  if (most < kNothing) return 0;
  Fit best = fit_signed(values, -32.0f / farthest);
  float best_gain = best.scale() * best.values_codes;
  for (int step = -9; step <= 9; ++step) {
    const Fit fit = fit_signed(values, -(32.0f + 0.1f * static_cast<float>(step)) / farthest);
    if (fit.codes_codes > 0 && fit.values_codes * fit.values_codes > best_gain * fit.codes_codes) {
      best = fit;
      best_gain = fit.scale() * fit.values_codes;
    }
  }
  return best.scale();
}

void put_codes6(const uint8_t* codes, uint8_t* low, uint8_t* high) {
  for (int half = 0; half < 2; ++half, codes += 128, low += 64, high += 32) {
    for (int i = 0; i < 32; ++i) {
      const uint8_t a = codes[i], b = codes[i + 32], c = codes[i + 64], d = codes[i + 96];
      low[i] = static_cast<uint8_t>((a & 15) | (c & 15) << 4);
      low[i + 32] = static_cast<uint8_t>((b & 15) | (d & 15) << 4);
      high[i] = static_cast<uint8_t>(a >> 4 | (b >> 4) << 2 | (c >> 4) << 4 | (d >> 4) << 6);
    }
  }
}

// ---- Q4_K and Q5_K: value = d * scale * code - dmin * min, a scale and a min for 32 values

constexpr int kGroup = 32;
constexpr int kGroups = kBlock / kGroup;

struct Range {
  float scale = 0;
  float min = 0;  // what is subtracted, not negative
};

struct Search {
  int top;            // greatest code
  float first_trial;  // added to `top`
  int n_trials;       // 0.1 apart
};

// The error of a scale and an offset with the codes of a trial.
float error_of(const float* values, const float* weights, const uint8_t* codes, float scale, float offset) {
  float error = 0;
  for (int i = 0; i < kGroup; ++i) {
    const float off = scale * static_cast<float>(codes[i]) + offset - values[i];
    error += weights[i] * off * off;
  }
  return error;
}

void trial_codes(const float* values, float least, float inverse_scale, int top, uint8_t* codes) {
  for (int i = 0; i < kGroup; ++i) {
    codes[i] = static_cast<uint8_t>(clamped(inverse_scale * (values[i] - least), 0, top));
  }
}

// Weighted least squares of scale and offset for given codes; false where they do not determine one.
bool fit_range(const float* values, const float* weights, const uint8_t* codes, float& scale, float& offset) {
  float w = 0, wx = 0, wl = 0, wll = 0, wlx = 0;
  for (int i = 0; i < kGroup; ++i) {
    const auto code = static_cast<float>(codes[i]);
    w += weights[i];
    wx += weights[i] * values[i];
    wl += weights[i] * code;
    wll += weights[i] * code * code;
    wlx += weights[i] * code * values[i];
  }
  const float determinant = w * wll - wl * wl;
  if (!(determinant > 0)) return false;
  scale = (w * wlx - wx * wl) / determinant;
  offset = (wll * wx - wl * wlx) / determinant;
  if (offset > 0) {  // the format cannot add
    offset = 0;
    scale = wlx / wll;
  }
  return true;
}

Range search_range(const float* values, const Search& search) {
  float squares = 0, greatest = values[0], least = 0;
  for (int i = 0; i < kGroup; ++i) {
    squares += values[i] * values[i];
    greatest = std::max(greatest, values[i]);
    least = std::min(least, values[i]);
  }
  if (greatest - least < kNothing) return {0, -least};
  const float mean = std::sqrt(squares / kGroup);
  float weights[kGroup];
  for (int i = 0; i < kGroup; ++i) weights[i] = mean + std::fabs(values[i]);
  const float span = greatest - least;
  const auto top = static_cast<float>(search.top);
  uint8_t codes[kGroup];
  trial_codes(values, least, top / span, search.top, codes);
  float best_scale = span / top, best_offset = least;
  float best_error = error_of(values, weights, codes, best_scale, best_offset);
  for (int step = 0; step <= search.n_trials; ++step) {
    const float reach = top + search.first_trial + 0.1f * static_cast<float>(step);
    trial_codes(values, least, reach / span, search.top, codes);
    float scale = 0, offset = 0;
    if (!fit_range(values, weights, codes, scale, offset)) continue;
    const float error = error_of(values, weights, codes, scale, offset);
    if (error < best_error) {
      best_error = error;
      best_scale = scale;
      best_offset = offset;
    }
  }
  return {best_scale, -best_offset};
}

// Six bits each; where they lie is told at scale_min_k4 in dequantize.cpp.
void put_scales(const uint8_t* scales, const uint8_t* mins, uint8_t* packed) {
  for (int j = 0; j < 4; ++j) {
    packed[j] = static_cast<uint8_t>(scales[j] | (scales[j + 4] >> 4) << 6);
    packed[j + 4] = static_cast<uint8_t>(mins[j] | (mins[j + 4] >> 4) << 6);
    packed[j + 8] = static_cast<uint8_t>((scales[j + 4] & 15) | (mins[j + 4] & 15) << 4);
  }
}

// Head (d, dmin, scales) and the codes of a block of either type.
void encode_ranges(const float* values, const Search& search, uint8_t* block, uint8_t* codes) {
  Range ranges[kGroups];
  float most_scale = 0, most_min = 0;
  for (int j = 0; j < kGroups; ++j) {
    ranges[j] = search_range(values + j * kGroup, search);
    most_scale = std::max(most_scale, ranges[j].scale);
    most_min = std::max(most_min, ranges[j].min);
  }
  const float d = put_f16(most_scale / 63.0f, block);
  const float dmin = put_f16(most_min / 63.0f, block + 2);
  const float inverse_scale = most_scale > 0 ? 63.0f / most_scale : 0;
  const float inverse_min = most_min > 0 ? 63.0f / most_min : 0;
  uint8_t scales[kGroups], mins[kGroups];
  for (int j = 0; j < kGroups; ++j) {
    scales[j] = static_cast<uint8_t>(clamped(inverse_scale * ranges[j].scale, 0, 63));
    mins[j] = static_cast<uint8_t>(clamped(inverse_min * ranges[j].min, 0, 63));
    const float scale = d * static_cast<float>(scales[j]);
    const float min = dmin * static_cast<float>(mins[j]);
    for (int i = j * kGroup; i < (j + 1) * kGroup; ++i) {
      codes[i] = scale > 0 ? static_cast<uint8_t>(clamped((values[i] + min) / scale, 0, search.top)) : 0;
    }
  }
  put_scales(scales, mins, block + 4);
}

void put_nibbles(const uint8_t* codes, uint8_t* out) {
  for (int pair = 0; pair < kGroups / 2; ++pair, codes += 2 * kGroup, out += kGroup) {
    for (int i = 0; i < kGroup; ++i) {
      out[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + kGroup] & 15) << 4);
    }
  }
}

}  // namespace

bool encode_q6_k(const float* values, uint8_t* block) {
  if (!all_fit(values)) return false;
  float scales[kBlock / kGroup6];
  float most = 0, farthest = 0;
  for (int j = 0; j < kBlock / kGroup6; ++j) {
    scales[j] = search_signed_scale(values + j * kGroup6);
    if (std::fabs(scales[j]) > most) {
      most = std::fabs(scales[j]);
      farthest = scales[j];
    }
  }
  uint8_t codes[kBlock];
  std::memset(codes, 32, sizeof codes);
  std::memset(block, 0, 210);
  if (most < kNothing) {
    put_codes6(codes, block, block + 128);
    return true;
  }
  const float inverse_d = -128.0f / farthest;
  const float d = put_f16(1.0f / inverse_d, block + 208);
  for (int j = 0; j < kBlock / kGroup6; ++j) {
    const int scale_code = clamped(inverse_d * scales[j], -128, 127);
    block[192 + j] = static_cast<uint8_t>(static_cast<int8_t>(scale_code));
    const float scale = d * static_cast<float>(scale_code);
    for (int i = j * kGroup6; scale != 0 && i < (j + 1) * kGroup6; ++i) {
      codes[i] = static_cast<uint8_t>(32 + clamped(values[i] / scale, -32, 31));
    }
  }
  put_codes6(codes, block, block + 128);
  return true;
}

bool encode_q4_k(const float* values, uint8_t* block) {
  if (!all_fit(values)) return false;
  uint8_t codes[kBlock];
  encode_ranges(values, {15, -1.0f, 20}, block, codes);
  put_nibbles(codes, block + 16);
  return true;
}

bool encode_q5_k(const float* values, uint8_t* block) {
  if (!all_fit(values)) return false;
  uint8_t codes[kBlock];
  encode_ranges(values, {31, -0.5f, 15}, block, codes);
  uint8_t* high = block + 16;
  std::memset(high, 0, kGroup);
  for (int i = 0; i < kBlock; ++i) {
    high[i % kGroup] = static_cast<uint8_t>(high[i % kGroup] | (codes[i] >> 4) << (i / kGroup));
  }
  put_nibbles(codes, block + 48);
  return true;
}

}  // namespace quire
