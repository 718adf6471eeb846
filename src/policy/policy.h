// Policies: what a step reads, and what moves after it. Called once a step, never once a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "store/head_frames.h"
#include "store/selection.h"
#include "store/store.h"
#include "tier/tier_counts.h"

namespace quire {

class Worker;

// What naming rows ahead has cost and given.
struct PredictionCounts {
  uint64_t predictor_calls = 0;
  uint64_t neighbour_rows = 0;  // named for standing beside others, summed over layers and KV heads
  uint64_t weight_bytes = 0;    // of the predictor's weights that were read
};

// What a step saw, handed to the policies after it.
struct StepStats {
  uint64_t n_tokens = 0;   // in the cache after the step
  uint64_t rows_read = 0;  // key rows attended to, summed over layers and KV heads
  // Bytes of the cache that these rows and any index took, and of the weights of what names rows ahead.
  uint64_t bytes_read = 0;
  // Where a selection was measured (Cache::measure_mass): the share of the attention mass on the rows read,
  // summed over so many layers and query heads.
  double mass_sum = 0;
  uint64_t mass_count = 0;
  // Where pages are promoted (policy/hot_pages.h): probability that each page of the policy's size got in a
  // decode step, summed over query heads and so many layers; of the coded rows that were not read: 0.
  std::vector<float> page_scores = {};
  size_t scored_layers = 0;
  // The same of each token that is coded after a prompt, summed over so many layers: the mean over the last
  // queries that see it.
  std::vector<float> token_scores = {};
  size_t observed_layers = 0;
  // Where rows are named ahead of their layers (Selector::predict).
  PredictionCounts predictions = {};
  // Where rows lie in a tier: of the tier, whoever shares it.
  TierCounts tier = {};
};

// One KV head of a step of one token, which the view already holds.
struct HeadStep {
  const LayerView* view;
  size_t layer;
  size_t kv_head;
  size_t group;    // query heads
  const float* q;  // [group][head_dim], rotated by position and scaled
  // The same as coded keys want it (attention/attend.h), where pages are sealed.
  const float* framed = nullptr;
  const float* bias = nullptr;
  const HeadFrames* frames = nullptr;
};

// Chooses the tokens that one layer reads in a decode step, for each KV head by itself. What it knows of the
// keys beforehand lies in the digests of the pages and is written as the rows come, so it is shared, cut,
// saved and counted as the pages are. Functions with a kv_head may be called for different heads at once.
class Selector {
 public:
  virtual ~Selector() = default;
  // For a second sequence.
  virtual std::unique_ptr<Selector> copy() const = 0;
  // Whether a step of one token leaves out rows of a layer that holds n_tokens, the step's included.
  virtual bool selects(size_t layer, size_t n_tokens) const = 0;
  // Whether it leaves out rows of a layer that has not run yet: known at the beginning of a step.
  virtual bool may_select(size_t layer, size_t n_tokens) const { return selects(layer, n_tokens); }
  // Marks the rows that select() is going to mark, if they are known before the layer's queries: step.q is
  // not.
  virtual bool select_ahead(const HeadStep&, Selection&) { return false; }
  // The rows that it marks in the step at hand are those of the last step, but for the newest.
  virtual bool repeats() const { return false; }
  // Marks rows; where selects() says so.
  virtual void select(const HeadStep& step, Selection& selection) = 0;

  // Bytes of digests that select() reads, of one KV head.
  virtual uint64_t digest_bytes_read(const LayerView&) const { return 0; }
  // select() reads the stored keys of all rows.
  virtual bool reads_all_keys() const { return false; }

  // Rows first..first + n - 1 of a layer have been written to open pages.
  virtual void append(Store&, size_t /*layer*/, size_t /*kv_head*/, size_t /*first*/, size_t /*n*/) {}
  // Wants the queries of the step at hand, and end_layer() after it.
  virtual bool observes(const Store&) const { return false; }
  // The queries of the tokens from first on, q [n][ldq], of a KV head whose group begins at q.
  virtual void observe(const HeadStep& /*step*/, size_t /*first*/, size_t /*n*/, size_t /*ldq*/) {}
  virtual void end_layer(Store&, size_t /*layer*/, size_t /*kv_head*/, size_t /*n_tokens*/) {}

  // A step of n_new tokens begins, behind n_tokens that the sequence has.
  virtual void begin_step(size_t /*n_tokens*/, size_t /*n_new*/) {}
  // Wants to see what this layer's attention takes in, in the step of one token at hand: predict() is to be
  // called for it before rows of the layer are appended, by all members of a team. input [width]
  virtual bool predicts(size_t /*layer*/) const { return false; }
  virtual PredictionCounts predict(Worker&, const Store&, size_t /*layer*/, const float* /*input*/) {
    return {};
  }
  // What that has named, of the layers that follow `layer`; whatever is read in any case is not among it.
  virtual std::span<const Selection> predicted(size_t /*layer*/) const { return {}; }
  // What a sequence must know beside its pages to go on as if it had never been kept elsewhere.
  virtual std::vector<uint64_t> state(size_t /*n_tokens*/) const { return {}; }
  virtual void restore_state(size_t /*n_tokens*/, std::span<const uint64_t>) {}
  // Bytes that it holds for the sequence beside its pages, from one step to the next.
  virtual uint64_t size_bytes() const { return 0; }
  // The most that it holds during a step of one token, its scratch included: n_tokens then, the step's among
  // them, and a team of so many members.
  virtual uint64_t step_bytes(size_t /*n_tokens*/, size_t /*n_members*/) const { return 0; }
  // Rows lie elsewhere than in the last step.
  virtual void rows_moved() {}
};

// Reads everything.
class SelectAll : public Selector {
 public:
  std::unique_ptr<Selector> copy() const override { return std::make_unique<SelectAll>(); }
  bool selects(size_t, size_t) const override { return false; }
  void select(const HeadStep&, Selection&) override {}
};

// Decides after a step what moves (store/row_copies.h). The recipe `full` never moves anything.
class Placement {
 public:
  virtual ~Placement() = default;
  virtual std::vector<Move> plan(const Store& store, const StepStats& stats) = 0;
};

class StayInPlace : public Placement {
 public:
  std::vector<Move> plan(const Store&, const StepStats&) override { return {}; }
};

}  // namespace quire
