// The KV cache of one sequence: takes the keys and values of each layer and answers queries with attention
// output. It never hands out keys or values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/attend.h"
#include "base/team.h"
#include "cache/recipe.h"
#include "policy/policy.h"
#include "store/store.h"

namespace quire {

// What a cache must know of the model.
struct Geometry {
  size_t n_layers = 0;
  size_t n_heads = 0;     // a multiple of every layer's n_kv_heads
  size_t head_dim = 0;
  std::vector<size_t> n_kv_heads;  // one per layer

  // Bytes that a token takes, all layers, keys and values.
  uint64_t token_bytes(const Recipe& recipe) const;
  // Bytes of the pages that n tokens take.
  uint64_t cache_bytes(const Recipe& recipe, size_t n_tokens) const;
};

// A step is: begin_step(n); for every layer, append() then attend(), in pieces of the step's tokens in
// order; end_step(). Layers may be finished one after the other (layer-major) or the tokens in several
// steps (chunked): the result is the same. append() and attend() are called by all members of a team.
class Cache {
 public:
  Cache(const Recipe& recipe, const Geometry& geometry, PagePool& pool);
  Cache(Cache&&) noexcept;
  Cache& operator=(Cache&&) noexcept;
  ~Cache();

  const Recipe& recipe() const { return recipe_; }
  const Geometry& geometry() const { return geometry_; }
  size_t n_tokens() const { return store_.n_tokens(); }

  // Makes room for n_new tokens; throws Error, with nothing changed, when the pool's budget refuses.
  // n_members: size of the team that will call append() and attend().
  void begin_step(size_t n_new, int n_members);

  // Rows first..first + n - 1 of the step (0 is its first token) of one layer:
  // k and v [n][ld], the KV heads of a token side by side, keys rotated.
  void append(Worker& worker, size_t layer, size_t first, size_t n, const float* k, const float* v, size_t ld);

  // Attention of the same tokens' queries, rotated and scaled, q [n][ldq] -> out [n][ldo], heads side by
  // side. Query i sees every token of the cache up to its own.
  void attend(Worker& worker, size_t layer, size_t first, size_t n, const float* q, size_t ldq, float* out,
              size_t ldo);

  // The step's tokens are now part of the sequence.
  void end_step();

  // Forgets all tokens from n_tokens on.
  void crop(size_t n_tokens) { store_.crop(n_tokens); }
  // A second sequence with the same tokens; pages are shared until written.
  Cache fork() const;

  // Bytes allocated for the sequence, everything counted.
  uint64_t size_bytes() const { return store_.size_bytes(); }
  // Of the last step: summed over its tokens.
  const StepStats& last_step() const { return stats_; }

 private:
  struct Lane;  // what one member of the team works with

  void count_reads(const RowLayout& layout, size_t first, size_t n);
  void attend_tiles(Worker& worker, const LayerView& view, size_t first, size_t n, const float* q, size_t ldq,
                    float* out, size_t ldo);
  void attend_runs(Worker& worker, size_t layer, const LayerView& view, size_t first, size_t n, const float* q,
                   size_t ldq, float* out, size_t ldo);

  Recipe recipe_;
  Geometry geometry_;
  Store store_;
  std::unique_ptr<Selector> selector_;
  std::unique_ptr<Placement> placement_;
  size_t step_tokens_ = 0;
  StepStats stats_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<PartialState> run_states_;  // [kv_head][run] of attend_runs
  Selection selection_ = Selection::all();
};

}  // namespace quire
