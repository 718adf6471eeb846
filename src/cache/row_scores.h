// The true scores of all rows of a KV head, through whatever format they are stored in.
#pragma once

#include <cstddef>
#include <vector>

#include "attention/attend.h"

namespace quire {

// Of queries of one token: scores [page][group][64] by the tokens' places, -inf where there is none.
void score_all_rows(const LayerView& view, size_t kv_head, const QueryRows& queries, const HeadFrames* frames,
                    AttendScratch& scratch, std::vector<float>& scores);

// log of the sum of exp(score) of all rows, for each query head.
std::vector<double> log_sums_of_all(const LayerView& view, size_t kv_head, const QueryRows& queries,
                                    const HeadFrames* frames, AttendScratch& scratch);

}  // namespace quire
