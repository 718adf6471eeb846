// Quest (Tang et al., arXiv 2406.10774): of every short page, 16 tokens, the least and the largest key of
// each channel bound the scores of its rows from above; the pages with the highest bounds are read.
//
//   U = sum over j of max(q_j max_j, q_j min_j)  >=  q . k   for every key k of the page
//
// What is published gives each query head pages of its own. Here a KV head's rows are read for its whole
// group, so there are two ways, by `queries`:
//   group  the bounds of a head, taken as scores of a softmax over the pages, become shares, which are
//          comparable between heads; a page counts by its best share for any head of the group
//   head   each head chooses by its own bounds, as published, and the group reads the union of what its heads
//          chose: up to `group` times the budget
#pragma once

#include <memory>

#include "policy/policy.h"
#include "policy/policy_choice.h"

namespace quire {

// Of one short page: the largest key of each channel, then the least, as rows of the keys' own format, so
// that the bound is of the keys as they are stored. (Where pages are sealed to exact keys of fewer digits
// than open ones it is off by their rounding.)
constexpr size_t bound_bytes(Format key_format, size_t head_dim) {
  return row_bytes(key_format, 2 * head_dim);
}

// Of a digest: the bounds of short pages that n_rows rows do not fill become zeros.
void clear_bounds(size_t page_tokens, Format key_format, size_t head_dim, size_t n_rows, std::byte* digest);

// `page` has to divide 64.
std::unique_ptr<Selector> make_quest_selector(const PolicyChoice& choice);

// Bounds of short pages 0..n_bounds - 1, of which 64 / page_tokens have their digest in a page:
// scores [tile of 64 short pages][group][64]; what is behind the last is kNoScore.
void score_bounds(const HeadStep& step, size_t page_tokens, size_t n_bounds, std::vector<float>& scores);

}  // namespace quire
