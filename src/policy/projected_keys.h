// Keys as a learned predictor sees them (policy/butler.h): k P, a few values of every key, from which the
// scores of all rows are estimated. They lie in the digest of a page and KV head:
//
//   bf16   | keys bf16 [dim][64] |
//   int8   | scales f16 [64] | keys int8 [dim][64] |
//
// Dimension-major like the keys of a page, so that the kernel that scores keys scores these. Of int8 a value
// is scale * code with code -127..127 and a scale of each row's own: a row's bytes depend on the row and the
// model alone. (Published: a scale of the layer and head, fixed by the prompt.)
#pragma once

#include <cstddef>
#include <vector>

#include "policy/policy_choice.h"
#include "store/store.h"

namespace quire {

struct ProjectedLayout {
  explicit ProjectedLayout(const PolicyChoice& choice);

  size_t dim;  // d'
  bool is_int8;
  // Rows whose keys are projected together, a whole batch at a time: a power of two that divides a page, and
  // that `local` rows cover.
  size_t batch;

  size_t keys_offset() const { return is_int8 ? kTokensPerPage * sizeof(uint16_t) : 0; }
  size_t value_bytes() const { return is_int8 ? 1 : 2; }
  size_t digest_bytes() const { return keys_offset() + kTokensPerPage * dim * value_bytes(); }
  // Of one row's own values and scale.
  size_t row_bytes() const { return digest_bytes() / kTokensPerPage; }
  // Of so many tokens, those whose batch is whole.
  size_t n_projected(size_t n_tokens) const { return n_tokens / batch * batch; }
};

// keys: of an open page [head_dim][64] in `format`; its tokens first..first + n - 1 times projection
// [head_dim][dim] -> the digest. `room` is scratch. A value is a plain sum in the order of the channels, so
// that the bytes are the same on every instruction set.
void project_keys(const ProjectedLayout& layout, const float* projection, size_t head_dim, Format format,
                  const std::byte* keys, size_t first, size_t n, std::vector<float>& room, std::byte* digest);

// Of a page that holds n_rows rows: keys of batches that these do not fill become zeros.
void clear_projected(const ProjectedLayout& layout, size_t n_rows, std::byte* digest);

// q [group][dim] -> scores [group][64] of all lanes. `next`: the digest read after this one, a hint.
void score_projected(const ProjectedLayout& layout, const float* q, size_t group, const std::byte* digest,
                     const std::byte* next, std::vector<float>& room, float* scores);

}  // namespace quire
