#include "policy/projected_keys.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/ops.h"
#include "policy/digest_half.h"

namespace quire {

namespace {

constexpr float kLargestCode = 127.0f;
constexpr float kLargestBF16 = 0x1.fep127f;

// As rows of the cache are rounded: what would round up to infinity does not, and no number stays none.
uint16_t to_bf16(float x) {
  return f32_to_bf16(x > kLargestBF16 ? kLargestBF16 : x < -kLargestBF16 ? -kLargestBF16 : x);
}

// A few values of one row: keys [head_dim][64], of which one lane counts, times projection
// [head_dim][dim]. A product and a sum at a time, in order: src/CMakeLists.txt keeps the compiler from fusing
// them.
template <size_t kLanes>
void project(const float* keys, const float* projection, size_t head_dim, size_t dim, float* values) {
  float sums[kLanes] = {};
  for (size_t d = 0; d < head_dim; ++d, projection += dim) {
    const float key = keys[d * kTokensPerPage];
    for (size_t j = 0; j < kLanes; ++j) sums[j] += key * projection[j];
  }
  std::copy_n(sums, kLanes, values);
}

void project_row(const float* keys, const float* projection, size_t head_dim, size_t dim, float* values) {
  size_t j = 0;
  for (; j + 16 <= dim; j += 16) project<16>(keys, projection + j, head_dim, dim, values + j);
  for (; j + 4 <= dim; j += 4) project<4>(keys, projection + j, head_dim, dim, values + j);
  for (; j < dim; ++j) project<1>(keys, projection + j, head_dim, dim, values + j);
}

void put_bf16(const ProjectedLayout& layout, const float* values, size_t token, std::byte* digest) {
  for (size_t j = 0; j < layout.dim; ++j)
    put_digest_half(digest, j * kTokensPerPage + token, to_bf16(values[j]));
}

void put_int8(const ProjectedLayout& layout, const float* values, size_t token, std::byte* digest) {
  float most = 0;
  for (size_t j = 0; j < layout.dim; ++j) most = std::max(most, std::fabs(values[j]));
  const uint16_t scale_half = f32_to_f16(std::min(most / kLargestCode, kLargestDigestHalf));
  const float scale = f16_to_f32(scale_half);
  put_digest_half(digest, token, scale_half);
  for (size_t j = 0; j < layout.dim; ++j) {
    // Not clamp(): what is no number becomes a code too.
    const float x = scale > 0 ? std::nearbyint(values[j] / scale) : 0;
    const float code = std::min(std::max(-kLargestCode, x), kLargestCode);
    const auto byte = static_cast<int8_t>(code);
    std::memcpy(digest + layout.keys_offset() + j * kTokensPerPage + token, &byte, 1);
  }
}

}  // namespace

ProjectedLayout::ProjectedLayout(const PolicyChoice& choice)
    : dim(choice.number("dim")),
      is_int8(choice.number("keys") == 1),
      batch(std::bit_floor(std::min(choice.number("local"), kTokensPerPage))) {}

void project_keys(const ProjectedLayout& layout, const float* projection, size_t head_dim, Format format,
                  const std::byte* keys, size_t first, size_t n, std::vector<float>& room,
                  std::byte* digest) {
  const size_t n_values = head_dim * kTokensPerPage;
  room.resize(n_values + layout.dim + kSpareBytes / sizeof(float));
  ops().unpack[static_cast<size_t>(format)](keys, n_values, room.data());
  float* values = room.data() + n_values;
  for (size_t token = first; token < first + n; ++token) {
    project_row(room.data() + token, projection, head_dim, layout.dim, values);
    (layout.is_int8 ? put_int8 : put_bf16)(layout, values, token, digest);
  }
}

void clear_projected(const ProjectedLayout& layout, size_t n_rows, std::byte* digest) {
  const size_t first = layout.n_projected(n_rows);
  const size_t n = kTokensPerPage - first;
  if (layout.is_int8) std::memset(digest + first * sizeof(uint16_t), 0, n * sizeof(uint16_t));
  for (size_t j = 0; j < layout.dim; ++j) {
    std::memset(digest + layout.keys_offset() + (j * kTokensPerPage + first) * layout.value_bytes(), 0,
                n * layout.value_bytes());
  }
}

void score_projected(const ProjectedLayout& layout, const float* q, size_t group, const std::byte* digest,
                     const std::byte* next, std::vector<float>& room, float* scores) {
  const auto n = static_cast<int>(group);
  const auto dim = static_cast<int>(layout.dim);
  if (!layout.is_int8) {
    ops().score[static_cast<size_t>(Format::kBF16)](q, layout.dim, n, dim, digest, scores, next);
    return;
  }
  const size_t n_codes = layout.dim * kTokensPerPage;
  room.resize(n_codes + kTokensPerPage + kSpareBytes / sizeof(float));
  const auto* codes = reinterpret_cast<const int8_t*>(digest + layout.keys_offset());
  for (size_t i = 0; i < n_codes; ++i) room[i] = static_cast<float>(codes[i]);
  float* scales = room.data() + n_codes;
  ops().unpack[static_cast<size_t>(Format::kF16)](digest, kTokensPerPage, scales);
  ops().score[static_cast<size_t>(Format::kF32)](q, layout.dim, n, dim, room.data(), scores, nullptr);
  for (size_t h = 0; h < group; ++h, scores += kTokensPerPage) {
    for (size_t t = 0; t < kTokensPerPage; ++t) scores[t] *= scales[t];
  }
}

}  // namespace quire
