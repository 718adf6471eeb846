// Labels of DoubleSparse (Yang et al., arXiv 2408.07092): a few channels of every key, the ones that count
// most for scores, at few bits, from which the scores of all rows are estimated.
//
// A row has the codes of r channels and what they are multiples of: channel c = zero + step * code, with
// code 0..2^bits - 1 and zero the least of the row's channels. In the digest of a page and KV head:
//
//   | steps f16 [64] | zeros f16 [64] | codes [r][64] | channels u16 [r], if the prompt chose them |
//
// A code takes 2, 4 or 8 bits, whichever holds it. Of a channel's W-bit codes, byte i of 8 W holds those of
// the tokens i, i + 8 W, i + 16 W, ..., the first in the lowest bits:
//
//   4 bits, byte i   | token i + 32 | token i |
//   2 bits, byte i   | token i + 48 | token i + 32 | token i + 16 | token i |
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/policy_choice.h"
#include "store/store.h"

namespace quire {

struct LabelLayout {
  LabelLayout(const PolicyChoice& choice, size_t head_dim_in);

  size_t head_dim;
  size_t n_channels;
  size_t bits;
  size_t code_bits;     // 2, 4, 8
  bool keeps_channels;  // in the digest, as the prompt chose them

  size_t zeros_offset() const { return kTokensPerPage * sizeof(uint16_t); }
  size_t codes_offset() const { return 2 * zeros_offset(); }
  size_t channel_bytes() const { return kTokensPerPage * code_bits / 8; }
  size_t channels_offset() const { return codes_offset() + n_channels * channel_bytes(); }
  size_t digest_bytes() const {
    return channels_offset() + (keeps_channels ? n_channels * sizeof(uint16_t) : 0);
  }
  // Of a row's own codes, step and zero; rounded up.
  size_t row_label_bytes() const { return 2 * sizeof(uint16_t) + (n_channels * code_bits + 7) / 8; }

  void put_channels(std::span<const uint16_t> channels, std::byte* digest) const;
  // All of them below head_dim, whatever a file has put into the digest.
  std::vector<uint16_t> take_channels(const std::byte* digest) const;
};

// The n channels with the largest weights, rising; of equal ones the first.
std::vector<uint16_t> strongest_channels(std::span<const double> weights, size_t n);

// keys: of a page [head_dim][64] in `format`; labels its tokens first..first + n - 1.
void write_labels(const LabelLayout& layout, std::span<const uint16_t> channels, Format format,
                  const std::byte* keys, size_t first, size_t n, std::byte* digest);

// Labels of the tokens from `first` on become zeros; the channels stay.
void clear_labels(const LabelLayout& layout, size_t first, std::byte* digest);

// The estimate of q . k by the channels alone, for all 64 lanes: q [group][n_channels] -> scores [group][64].
// `room` is scratch.
void score_labels(const LabelLayout& layout, const float* q, size_t group, const std::byte* digest,
                  std::vector<float>& room, float* scores);

}  // namespace quire
