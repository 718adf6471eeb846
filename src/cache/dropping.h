// What a cache does whose recipe drops rows: it watches the attention that rows get and lets the policy
// choose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/attend.h"
#include "base/team.h"
#include "cache/geometry.h"
#include "policy/retention.h"
#include "store/store.h"

namespace quire {

// Copied with the cache when it forks. What begins with a Worker is called by all members of a team.
class Dropping {
 public:
  Dropping(std::shared_ptr<const Retention> retention, const Geometry& geometry);
  // Without the buffers.
  Dropping(const Dropping& other)
      : retention_(other.retention_), n_heads_(other.n_heads_), layers_(other.layers_) {}
  Dropping(Dropping&&) noexcept = default;
  Dropping& operator=(Dropping&&) noexcept = default;

  void begin_step(size_t n_members) { buffers_.resize(std::max(buffers_.size(), n_members)); }
  // Queries first..first + n - 1 of a step of n_step tokens have attended to the rows of the view, which ends
  // with theirs: q [n][ldq], heads side by side.
  void observe(Worker& worker, size_t layer, const LayerView& view, size_t first, size_t n, size_t n_step,
               const float* q, size_t ldq);
  // Bytes of keys that this reads, the second time in the step.
  uint64_t observed_bytes(const LayerView& view, size_t first, size_t n, size_t n_step) const;
  // After the layer's step: rows leave.
  void drop(Worker& worker, size_t layer, size_t n_step, Store& store);
  // The next step is the first one of the sequence.
  void clear();
  // For a sequence of which n_tokens have been seen, n_generated of them in steps of one: rows [layer][head].
  void restore(size_t n_tokens, size_t n_generated, std::vector<std::vector<HeadRows>> rows);
  size_t n_generated() const;
  // Bytes of what is known of the rows.
  uint64_t size_bytes() const;
  // Of a layer's KV head.
  const HeadRows& rows(size_t layer, size_t kv_head) const { return layers_[layer].heads[kv_head]; }

 private:
  struct Layer {
    std::vector<HeadRows> heads;
    size_t n_tokens = 0;     // that the layer has seen
    size_t n_generated = 0;  // of these in steps of one
  };
  struct Buffers {
    std::vector<float> q;       // [queries * group][head_dim]
    std::vector<float> scores;  // [page][queries * group][64]
    std::vector<float> once;    // of a page
    std::vector<float> row_max;
    std::vector<float> row_sum;
    std::vector<float> correction;
    std::vector<uint64_t> masks;
    std::vector<uint32_t> dropped;
  };

  void admit(Layer& layer, const LayerView& view);
  void observe_round(Worker& worker, size_t layer, const LayerView& view, const QueryRows& queries,
                     size_t ldq);
  void observe_block(const LayerView& view, size_t layer, size_t head, const QueryRows& queries,
                     Buffers& buffers, float* mass) const;
  void add_noise(const Observation& how, size_t layer, size_t head, size_t page, const QueryRows& queries,
                 float* scores) const;
  static void leave(const std::vector<uint32_t>& dropped, size_t layer, size_t head, HeadRows& rows,
                    Store& store);

  std::shared_ptr<const Retention> retention_;
  size_t n_heads_;
  std::vector<Layer> layers_;
  std::vector<Buffers> buffers_;     // [member]
  std::vector<float> block_masses_;  // [kv_head][block][row] of a round
};

}  // namespace quire
