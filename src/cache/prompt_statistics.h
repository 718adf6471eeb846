// Statistics of a sequence's own first tokens, for recipes that code rows by them: made once per layer, when
// its first pages are coded, and kept by the sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/recipe.h"
#include "store/store.h"

namespace quire {

// No page is coded before a layer holds so many tokens. Beyond that the statistics are of the first step that
// codes: the whole prompt, if it is computed in one.
constexpr size_t kStatisticsTokens = 512;

// Of one layer; [kv_head][head_dim] each, empty where the recipe's frames do not want it.
struct LayerStatistics {
  std::vector<float> key_mean;
  std::vector<float> key_balance;  // keys are divided by it
  std::vector<float> value_mean;
  std::vector<float> codebook;  // of signvq keys: [kv_head][2 ceil(head_dim / 8) groups][16][4], in the frame

  uint64_t size_bytes() const {
    return (key_mean.size() + key_balance.size() + value_mean.size() + codebook.size()) * sizeof(float);
  }
  // The frames of one head, given those of the recipe.
  HeadFrames apply(HeadFrames frames, size_t kv_head, size_t head_dim) const;
};

// With room for what the recipe wants, all 0.
LayerStatistics sized_statistics(const Recipe& recipe, size_t n_kv_heads, size_t head_dim);

// The queries that a layer has seen, and what came of them.
struct PromptObserver {
  std::vector<double> query_squares;  // [kv_head][head_dim] summed over queries
  std::vector<float> last_query;      // [kv_head][head_dim] mean over the group
  size_t n_queries = 0;
  std::shared_ptr<const LayerStatistics> made;
};

// Adds n tokens' queries q [n][ldq] of one KV head, which are `group` heads from column kv_head * group on.
void observe_head(const float* q, size_t ldq, size_t n, size_t kv_head, size_t group, size_t head_dim,
                  PromptObserver& observer);

// One head's statistics of the n_tokens first tokens of a layer, of which `view` has exact rows, into
// `statistics` (sized before). kept: where rows stay exact, their positions [full_rows], rising, all before
// n_due; sinks are left out of everything. Statistics are of keys without their bias (if they have one), as
// they will be coded.
class HeadStatistics {
 public:
  HeadStatistics(const Recipe& recipe, const LayerView& view, size_t kv_head, const KeyBias* key_bias);

  void measure(const PromptObserver& observer, size_t n_due, uint32_t* kept, size_t n_kept,
               LayerStatistics& statistics);

 private:
  void measure_means(LayerStatistics& statistics);
  void balance(const PromptObserver& observer, LayerStatistics& statistics) const;
  void choose_rows(const PromptObserver& observer, size_t n_due, uint32_t* kept, size_t n_kept) const;
  void take_off_bias();
  void measure_signs(const uint32_t* kept, size_t n_kept, LayerStatistics& statistics) const;
  const float* key(size_t token) const { return keys_.data() + token * dim_; }

  const Recipe& recipe_;
  const LayerView& view_;
  size_t kv_head_;
  const KeyBias* key_bias_;
  size_t dim_;
  std::vector<float> keys_;    // [token][head_dim]
  std::vector<float> values_;  // the same, where they are needed
};

}  // namespace quire
