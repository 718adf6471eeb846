#include "cache/row_scores.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/ops.h"
#include "store/page_count.h"

namespace quire {

namespace {

// Calls visit(kind, page, lanes that are rows), with their scores in the scratch, for all that is stored.
template <typename Visit>
void visit_scores(const LayerView& view, size_t kv_head, const QueryRows& queries, const HeadFrames* frames,
                  AttendScratch& scratch, const Visit& visit) {
  const Parts parts(view, view.n_tokens);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Parts::Part part = parts[i];
    for (size_t page = part.first_page; page < part.last_page; ++page) {
      const uint64_t rows = score_page(view, kv_head, part.kind, page, queries, frames, scratch);
      visit(part.kind, page, rows);
    }
  }
}

}  // namespace

void score_all_rows(const LayerView& view, size_t kv_head, const QueryRows& queries, const HeadFrames* frames,
                    AttendScratch& scratch, std::vector<float>& scores) {
  const size_t n_pages = pages_for(view.n_tokens);
  scores.assign(n_pages * queries.group * kTokensPerPage, -std::numeric_limits<float>::infinity());
  visit_scores(view, kv_head, queries, frames, scratch, [&](Parts::Kind kind, size_t page, uint64_t rows) {
    for (; rows != 0; rows &= rows - 1) {
      const auto lane = static_cast<size_t>(std::countr_zero(rows));
      const size_t token = kind == Parts::Kind::kKept ? view.kept->positions[kv_head * view.kept->n + lane]
                                                      : page * kTokensPerPage + lane;
      float* to = scores.data() + token / kTokensPerPage * queries.group * kTokensPerPage;
      for (size_t h = 0; h < queries.group; ++h) {
        to[h * kTokensPerPage + token % kTokensPerPage] = scratch.scores[h * kTokensPerPage + lane];
      }
    }
  });
}

std::vector<double> log_sums_of_all(const LayerView& view, size_t kv_head, const QueryRows& queries,
                                    const HeadFrames* frames, AttendScratch& scratch) {
  PartialState state(queries.group, 0);
  visit_scores(view, kv_head, queries, frames, scratch, [&](Parts::Kind, size_t, uint64_t rows) {
    std::fill_n(scratch.masks.begin(), queries.group, rows);
    ops().softmax(scratch.scores.data(), scratch.masks.data(), static_cast<int>(queries.group),
                  state.m.data(), state.l.data(), scratch.correction.data());
  });
  std::vector<double> sums;
  for (size_t h = 0; h < queries.group; ++h) sums.push_back(state.log_sum(h));
  return sums;
}

}  // namespace quire
