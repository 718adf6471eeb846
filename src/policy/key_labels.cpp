#include "policy/key_labels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/half.h"
#include "kernels/ops.h"
#include "policy/digest_half.h"

namespace quire {

namespace {

size_t width_of(size_t bits) { return bits <= 2 ? 2 : bits <= 4 ? 4 : 8; }

uint16_t to_half(float x) { return f32_to_f16(std::clamp(x, -kLargestDigestHalf, kLargestDigestHalf)); }

void put_code(const LabelLayout& layout, std::byte* codes, size_t token, unsigned code) {
  const size_t n_bytes = layout.channel_bytes();
  const size_t shift = token / n_bytes * layout.code_bits;
  const unsigned mask = ((1u << layout.code_bits) - 1) << shift;
  std::byte& to = codes[token % n_bytes];
  to = static_cast<std::byte>((static_cast<unsigned>(to) & ~mask) | code << shift);
}

// A channel's codes -> [64]. The width is known to the compiler, which makes registers of it.
template <size_t kBits>
void expand_codes(const std::byte* codes, float* values) {
  constexpr size_t kBytes = kTokensPerPage * kBits / 8;
  constexpr unsigned kMask = (1u << kBits) - 1;
  for (size_t part = 0; part < 8 / kBits; ++part) {
    for (size_t i = 0; i < kBytes; ++i) {
      const auto byte = static_cast<int>(codes[i]);
      values[part * kBytes + i] =
          static_cast<float>(byte >> static_cast<int>(part * kBits) & static_cast<int>(kMask));
    }
  }
}

void expand(const LabelLayout& layout, const std::byte* codes, float* values) {
  switch (layout.code_bits) {
    case 2: return expand_codes<2>(codes, values);
    case 4: return expand_codes<4>(codes, values);
    default: return expand_codes<8>(codes, values);
  }
}

// One row's channels [n] as a label.
void write_label(const LabelLayout& layout, const float* row, size_t token, std::byte* digest) {
  const auto [least, largest] = std::minmax_element(row, row + layout.n_channels);
  const auto most_code = static_cast<float>((1u << layout.bits) - 1);
  const uint16_t zero_half = to_half(*least);
  const uint16_t step_half = to_half((*largest - *least) / most_code);
  const float zero = f16_to_f32(zero_half);
  const float step = f16_to_f32(step_half);
  put_digest_half(digest, token, step_half);
  put_digest_half(digest + layout.zeros_offset(), token, zero_half);
  for (size_t j = 0; j < layout.n_channels; ++j) {
    // Not clamp(): what is no number becomes 0.
    const float code =
        step > 0 ? std::min(std::max(0.0f, std::nearbyint((row[j] - zero) / step)), most_code) : 0;
    put_code(layout, digest + layout.codes_offset() + j * layout.channel_bytes(), token,
             static_cast<unsigned>(code));
  }
}

}  // namespace

LabelLayout::LabelLayout(const PolicyChoice& choice, size_t head_dim_in)
    : head_dim(head_dim_in),
      n_channels(std::min(choice.number("channels"), head_dim)),
      bits(choice.number("bits")),
      code_bits(width_of(bits)),
      keeps_channels(choice.number("from") == 1) {}

void LabelLayout::put_channels(std::span<const uint16_t> channels, std::byte* digest) const {
  std::memcpy(digest + channels_offset(), channels.data(), channels.size_bytes());
}

std::vector<uint16_t> LabelLayout::take_channels(const std::byte* digest) const {
  std::vector<uint16_t> channels(n_channels);
  std::memcpy(channels.data(), digest + channels_offset(), n_channels * sizeof(uint16_t));
  const auto last = static_cast<uint16_t>(head_dim - 1);
  for (uint16_t& channel : channels) channel = std::min(channel, last);
  return channels;
}

std::vector<uint16_t> strongest_channels(std::span<const double> weights, size_t n) {
  std::vector<uint16_t> order(weights.size());
  std::iota(order.begin(), order.end(), uint16_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](uint16_t a, uint16_t b) { return weights[a] > weights[b]; });
  order.resize(std::min(n, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

void write_labels(const LabelLayout& layout, std::span<const uint16_t> channels, Format format,
                  const std::byte* keys, size_t first, size_t n, std::byte* digest) {
  std::vector<float> columns(channels.size() * kTokensPerPage + kSpareBytes / sizeof(float));
  for (size_t j = 0; j < channels.size(); ++j) {
    ops().unpack[static_cast<size_t>(format)](keys + row_bytes(format, channels[j] * kTokensPerPage),
                                              kTokensPerPage, columns.data() + j * kTokensPerPage);
  }
  std::vector<float> row(channels.size());
  for (size_t token = first; token < first + n; ++token) {
    for (size_t j = 0; j < row.size(); ++j) row[j] = columns[j * kTokensPerPage + token];
    write_label(layout, row.data(), token, digest);
  }
}

void clear_labels(const LabelLayout& layout, size_t first, std::byte* digest) {
  for (size_t token = first; token < kTokensPerPage; ++token) {
    put_digest_half(digest, token, 0);
    put_digest_half(digest + layout.zeros_offset(), token, 0);
    for (size_t j = 0; j < layout.n_channels; ++j) {
      put_code(layout, digest + layout.codes_offset() + j * layout.channel_bytes(), token, 0);
    }
  }
}

// q . (zero + step * codes) = zero * sum of q + step * (q . codes)
void score_labels(const LabelLayout& layout, const float* q, size_t group, const std::byte* digest,
                  std::vector<float>& room, float* scores) {
  const size_t n_codes = layout.n_channels * kTokensPerPage;
  room.resize(n_codes + 2 * kTokensPerPage + kSpareBytes / sizeof(float));
  float* steps = room.data() + n_codes;
  float* zeros = steps + kTokensPerPage;
  for (size_t j = 0; j < layout.n_channels; ++j) {
    expand(layout, digest + layout.codes_offset() + j * layout.channel_bytes(),
           room.data() + j * kTokensPerPage);
  }
  ops().unpack[static_cast<size_t>(Format::kF16)](digest, 2 * kTokensPerPage, steps);
  ops().score[static_cast<size_t>(Format::kF32)](q, layout.n_channels, static_cast<int>(group),
                                                 static_cast<int>(layout.n_channels), room.data(), scores,
                                                 nullptr);
  for (size_t h = 0; h < group; ++h, q += layout.n_channels, scores += kTokensPerPage) {
    const float sum = std::accumulate(q, q + layout.n_channels, 0.0f);
    for (size_t t = 0; t < kTokensPerPage; ++t) scores[t] = zeros[t] * sum + steps[t] * scores[t];
  }
}

}  // namespace quire
