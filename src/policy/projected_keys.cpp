#include "policy/projected_keys.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/ops.h"

namespace quire {

namespace {

constexpr float kLargestCode = 127.0f;
constexpr float kLargestHalf = 65504.0f;

void put_half(std::byte* at, size_t i, uint16_t half) {
  std::memcpy(at + i * sizeof half, &half, sizeof half);
}

// values [dim][64], of which one row is written.
void put_int8(const ProjectedLayout& layout, const float* values, size_t token, std::byte* digest) {
  float most = 0;
  for (size_t j = 0; j < layout.dim; ++j)
    most = std::max(most, std::fabs(values[j * kTokensPerPage + token]));
  const uint16_t scale_half = f32_to_f16(std::min(most / kLargestCode, kLargestHalf));
  const float scale = f16_to_f32(scale_half);
  put_half(digest, token, scale_half);
  for (size_t j = 0; j < layout.dim; ++j) {
    // Not clamp(): what is no number becomes a code too.
    const float x = scale > 0 ? std::nearbyint(values[j * kTokensPerPage + token] / scale) : 0;
    const float code = std::min(std::max(-kLargestCode, x), kLargestCode);
    const auto byte = static_cast<int8_t>(code);
    std::memcpy(digest + layout.keys_offset() + j * kTokensPerPage + token, &byte, 1);
  }
}

}  // namespace

ProjectedLayout::ProjectedLayout(const PolicyChoice& choice)
    : dim(choice.number("dim")), is_int8(choice.number("keys") == 1) {}

// The columns of the projection are to the page's keys what queries are.
void project_keys(const ProjectedLayout& layout, const float* projection, size_t head_dim, Format format,
                  const std::byte* keys, size_t first, size_t n, std::vector<float>& room,
                  std::byte* digest) {
  room.resize(layout.dim * kTokensPerPage);
  ops().score[static_cast<size_t>(format)](projection, head_dim, static_cast<int>(layout.dim),
                                           static_cast<int>(head_dim), keys, room.data(), nullptr);
  if (layout.is_int8) {
    for (size_t token = first; token < first + n; ++token) put_int8(layout, room.data(), token, digest);
    return;
  }
  for (size_t j = 0; j < layout.dim; ++j) {
    for (size_t token = first; token < first + n; ++token) {
      const size_t i = j * kTokensPerPage + token;
      put_half(digest, i, f32_to_bf16(room[i]));
    }
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
