// Formats of exact rows: how the numbers of a key or value row become bytes when nothing is coded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// The formats there are, in the order of the kernels' tables (kernels/ops.h).
enum class Format : uint8_t { kF32, kF16, kBF16, kFP8 };

// What every format declares about itself.
struct FormatInfo {
  Format format;
  const char* name;
  size_t value_bytes;
  // Largest error of a stored value relative to its size, for normal values within range.
  double relative_error;
  // Values beyond are stored as the largest finite number, never as an infinity.
  double largest;
  const char* summary;
};

// The catalogue: one line a format.
inline constexpr FormatInfo kFormats[] = {
    {Format::kF32, "f32", 4, 0.0, 3.4028234663852886e38, "IEEE single precision, as computed"},
    {Format::kF16, "f16", 2, 1.0 / 2048, 65504.0, "IEEE half precision, 11 significant bits"},
    {Format::kBF16, "bf16", 2, 1.0 / 256, 3.3895313892515355e38, "bfloat16, 8 significant bits"},
    {Format::kFP8, "fp8", 1, 1.0 / 16, 448.0,
     "8-bit floats (e4m3), 4 significant bits, steps of 1/512 below 1/64"},
};

constexpr const FormatInfo& info(Format format) { return kFormats[static_cast<size_t>(format)]; }

// nullopt when there is no format of that name.
std::optional<Format> format_by_name(std::string_view name);

// Bytes of a row of n values.
constexpr size_t row_bytes(Format format, size_t n_values) { return info(format).value_bytes * n_values; }

}  // namespace quire
