// What a cache keeps beside its rows when the recipe promotes pages: the policy, and the attention that its
// steps have seen.
#pragma once

#include <cstddef>
#include <vector>

#include "attention/partial_state.h"
#include "attention/sparse_head.h"
#include "cache/recipe.h"
#include "policy/hot_pages.h"
#include "store/store.h"

namespace quire {

// So many last queries of a prompt say what it liked. They all see every token that is coded then, unless the
// tail is shorter.
constexpr size_t kObservedQueries = 64;

// Limits of a decode step that reads cold rows: budgets are of these alone, as the window by itself is more
// than most of them.
SparseLimits hot_limits(const IndexBudget& budget, size_t n_coded);

// Its policy goes with a fork, the rest is of the step under way. What members write is parted by KV head
// and page.
class HotRows {
 public:
  HotRows(const Recipe& recipe, const Store& store);

  HotPages policy;

  bool reads_index() const { return policy.settings().trigger != ColdTrigger::kOff; }

  // Of a layer that is read through its index, in this order.
  void begin_layer(const LayerView& view, size_t group);
  // Weights [group][64] of page `at` beside the sealed ones, relative to the state's maxima.
  void take_copies(const LayerView& view, size_t kv_head, size_t at, const float* weights,
                   const PartialState& state);
  // total: of all that the head read.
  void score_pages(const LayerView& view, size_t kv_head, const PartialState& total,
                   const SparseHead& sparse);
  void end_layer(const LayerView& view, StepStats& stats) const;

  // A step that is a prompt or a piece of one, and long enough to say what was liked.
  bool observes(size_t step_tokens) const { return step_tokens >= kObservedQueries; }
  // Tokens first..first + n - 1 of the step, of one layer: those among the last kObservedQueries are kept.
  void save_queries(size_t step_tokens, size_t first, size_t n, const float* q, size_t ldq, size_t width);

  std::vector<float> queries;     // [kObservedQueries][n_heads * head_dim]
  std::vector<double> log_sums;   // [kv_head][part][row] of an observed layer; part 0 then has all of them
  std::vector<float> token_sums;  // [kv_head][token] over its observed queries, each a mean over queries

 private:
  float* slot_sums(size_t kv_head, size_t at) {
    return slot_sums_.data() + (kv_head * n_copy_pages_ + at) * group_ * slots_per_page_;
  }
  float* tops(size_t kv_head, size_t at) { return tops_.data() + (kv_head * n_copy_pages_ + at) * group_; }

  size_t group_ = 0;
  size_t n_pages_ = 0;  // of the policy's size, of the sealed rows
  size_t n_copy_pages_ = 0;
  size_t slots_per_page_ = 0;
  std::vector<float> slot_sums_;    // [kv_head][page of copies][group][slot]
  std::vector<float> tops_;         // [kv_head][page of copies][group]
  std::vector<float> page_scores_;  // [kv_head][page]
};

}  // namespace quire
