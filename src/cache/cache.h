// The KV cache of one sequence: takes the keys and values of each layer and answers queries with attention
// output. It never hands out keys or values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "attention/attend.h"
#include "attention/sparse_head.h"
#include "base/team.h"
#include "cache/dropping.h"
#include "cache/geometry.h"
#include "cache/prompt_statistics.h"
#include "cache/read_observer.h"
#include "cache/recipe.h"
#include "cache/reserving.h"
#include "cache/statistics.h"
#include "policy/hot_pages.h"
#include "policy/policy.h"
#include "store/store.h"

namespace quire {

class FirmBytes;
class HotRows;
struct WantedPieces;

// Where the tokens are, and what has moved. Each is exact, coded or dropped: hot_tokens + cold_tokens +
// dropped_tokens is total_tokens.
struct Residency {
  uint64_t total_tokens = 0;
  uint64_t hot_tokens = 0;      // rows that are read in exact form: sinks, open pages, kept rows, copies
  uint64_t cold_tokens = 0;     // rows that are coded and have no copy
  uint64_t dropped_tokens = 0;  // rows that have left for good
  uint64_t outside_tokens = 0;  // of the hot and cold ones: rows that lie in a tier
  uint64_t sticky_tokens = 0;   // of the copies: those that stay
  uint64_t promotions = 0;      // see HotPages::Counters
  uint64_t page_ins = 0;
  uint64_t page_outs = 0;
};

// A step is: begin_step(n); for every layer begin_layer(), then append() and attend() in pieces of the step's
// tokens in order, then end_layer(); end_step(). Layers may be finished one after the other (layer-major) or
// the tokens in several steps (chunked): where no rows are coded, and no step is of one token of which a
// selector leaves rows out, the result is the same. A step attends to its own rows in exact form; coding
// takes place at the end of a layer. What begins with a Worker is called by all members of a team.
class Cache {
 public:
  // The pool outlives the cache. Throws Error where the recipe needs to know what the facts lack.
  Cache(const Recipe& recipe, const Geometry& geometry, PagePool& pool, ModelFacts facts = {});
  // The same with a tier that others may have too (cache/make_tier.h).
  Cache(const Recipe& recipe, const Geometry& geometry, PagePool& pool, ModelFacts facts,
        std::shared_ptr<Tier> tier);
  Cache(Cache&&) noexcept;
  Cache& operator=(Cache&&) noexcept;
  ~Cache();

  const Recipe& recipe() const { return recipe_; }
  const Geometry& geometry() const { return geometry_; }
  size_t n_tokens() const { return store_.n_tokens(); }
  // Rows of a layer that sees every token.
  CacheRows rows() const {
    return {n_tokens(),
            n_tokens() - (full_layer_ < geometry_.n_layers ? store_.left_tokens(full_layer_) : 0)};
  }

  // Makes room for n_new tokens; throws Error, with nothing changed, when the pool's budget refuses.
  // n_members: size of the team that will call append() and attend().
  void begin_step(size_t n_new, int n_members);

  void begin_layer(Worker& worker, size_t layer);
  // Codes the pages that are due.
  void end_layer(Worker& worker, size_t layer);

  // In a step of one token: whether the recipe wants to see what the layer's attention takes in (behind norm
  // and weight), input [width], by a call of predict() before append(). Rows of the layers behind are named.
  bool predicts(size_t layer) const { return selector_->predicts(layer); }
  void predict(Worker& worker, size_t layer, const float* input);

  // Rows first..first + n - 1 of the step (0 is its first token) of one layer:
  // k and v [n][ld], the KV heads of a token side by side, keys rotated.
  void append(Worker& worker, size_t layer, size_t first, size_t n, const float* k, const float* v,
              size_t ld);

  // Attention of the same tokens' queries, rotated and scaled, q [n][ldq] -> out [n][ldo], heads side by
  // side. Query i sees every token of the cache up to its own.
  void attend(Worker& worker, size_t layer, size_t first, size_t n, const float* q, size_t ldq, float* out,
              size_t ldo);

  // The step's tokens are now part of the sequence. Throws Error where a tier has failed: what attend() gave
  // is worth nothing then, and every further step throws too.
  void end_step();

  // So many first tokens are coded.
  size_t coded_tokens() const { return store_.coded_tokens(); }
  // A crop() to fewer tokens, other than to 0, is refused: they are coded, or rows that a layer's window
  // would need have left.
  size_t fixed_tokens() const { return store_.fixed_tokens(); }
  // Forgets all tokens from n_tokens on; throws Error below fixed_tokens().
  void crop(size_t n_tokens);
  // A step was begun and given up half-way, as where the system refuses memory: layers differ. Nothing but
  // crop(0) makes something of it again; begin_step() throws.
  bool is_broken() const { return is_broken_; }
  // A second sequence with the same tokens; pages are shared until written.
  Cache fork() const;

  // For a cache that is kept in a file (cache/cache_file.h).
  const Store& store() const { return store_; }
  const ModelFacts& facts() const { return statistics_->facts(); }
  const Selector& selector() const { return *selector_; }
  void restore_selector(std::span<const uint64_t> state) { selector_->restore_state(n_tokens(), state); }
  // See Store::restore().
  void restore(size_t n_tokens, std::span<const LayerContents> contents, const Store::Fill& fill);
  // Of a layer with coded pages, where the recipe has prompt statistics; else nullptr.
  const LayerStatistics* layer_statistics(size_t layer) const { return prompt_[layer].made.get(); }
  // What these will be made of, while no page of the layer is coded.
  const PromptObserver& observer(size_t layer) const { return prompt_[layer]; }
  void restore_observer(size_t layer, PromptObserver observer) { prompt_[layer] = std::move(observer); }
  void restore_statistics(size_t layer, LayerStatistics statistics) {
    prompt_[layer].made = std::make_shared<const LayerStatistics>(std::move(statistics));
  }

  // Of a recipe that drops rows, or brings those together that leave a reserve; else nullptr.
  const Dropping* dropping() const { return dropping_ ? &*dropping_ : nullptr; }
  const Reserving* reserving() const { return reserving_ ? &*reserving_ : nullptr; }
  // Into a cache whose rows have been restored: see Dropping::restore(), Reserving::restore().
  void restore_dropping(size_t n_generated, std::vector<std::vector<HeadRows>> rows) {
    dropping_->restore(n_tokens(), n_generated, std::move(rows));
  }
  void restore_reserving(std::vector<uint32_t> open);

  Residency residency() const;
  // Where the recipe promotes pages; else nullptr.
  const HotRows* hot_rows() const { return hot_.get(); }
  // Into a cache whose rows have been restored: the policy's pages and counters, and what lies in each slot
  // of the copies, which are made anew.
  void restore_hot(std::vector<HotPages::Page> pages, const HotPages::Counters& counters,
                   std::span<const uint32_t> slots);

  // Bytes allocated for the sequence, everything counted.
  uint64_t size_bytes() const;
  uint64_t statistics_bytes() const;  // of these, its own statistics
  // Firm bytes of the pool's account beside the pages': what the selector takes in the step at hand.
  uint64_t step_bytes() const;
  // How far back a step of n_new tokens attends at most, as positions count for the model.
  size_t span_tokens(size_t n_new) const;
  // Of the last step: summed over its tokens.
  const StepStats& last_step() const { return stats_; }
  // Who is told what steps of one token read, from now on; it outlives them. nullptr: nobody.
  void observe_reads(ReadObserver* observer) { observer_ = observer; }
  // From now on steps that read a selection also score all rows, to tell the share of the mass read.
  void measure_mass(bool on) { measures_mass_ = on; }

 private:
  // Query tokens attended together by one thread in a long prefill: with a group of 3 heads 96 rows, whose
  // scores and outputs of a page stay in the second-level cache beside the expanded page.
  static constexpr size_t kTileQueries = 32;

  friend class CachePages;  // tests look at the bytes of sealed pages
  struct Lane;              // what one member of the team works with
  class ExactParts;
  struct SparseStep;
  struct FramedQueries {
    std::vector<float> q;     // as frame_queries() says
    std::vector<float> bias;  // [rows]
  };
  // The queries of one KV head in a short step, made once for all parts.
  struct HeadQueries {
    std::vector<float> q;
    FramedQueries framed;
    QueryRows rows{};
  };

  Cache(std::shared_ptr<const CacheStatistics> statistics, std::unique_ptr<Selector> selector,
        const Recipe& recipe, const Geometry& geometry, PagePool& pool, std::shared_ptr<Tier> tier);
  void turn_to_sinks();
  const QueryRows& queries_of(const Parts::Part& part, const QueryRows& queries, Lane& lane,
                              QueryRows& turned) const;

  bool is_windowed(size_t layer) const { return geometry_.is_windowed(layer); }
  HeadFrames frames(size_t layer, size_t head) const;
  void watch_queries(Worker& worker, size_t layer, const LayerView& view, size_t first, size_t n,
                     const float* q, size_t ldq);
  void observe_queries(Worker& worker, size_t layer, size_t n, const float* q, size_t ldq);
  void make_statistics(Worker& worker, size_t layer, size_t n_total);
  bool extends_at_once(size_t n_new) const;
  void check_budget(size_t n_new) const;
  void charge_step(size_t n_new, size_t n_members);
  void count_reads(const LayerView& view, size_t n);
  // Layers whose queries see a window (windows.cpp).
  void count_window_reads(const LayerView& view, size_t n);
  void leave_window(Worker& worker, size_t layer);
  size_t due_pages() const;
  void arrange_rows(Worker& worker, size_t layer, size_t n_total);
  bool seal_pages(Worker& worker, size_t layer, size_t n_total);
  // A decoded token that reads what a selector chooses (attend_selected.cpp).
  bool selects(size_t layer, const LayerView& view) const;
  void observe_selector(Worker& worker, size_t layer, const LayerView& view, size_t first, size_t n,
                        const float* q, size_t ldq);
  void finish_digests(Worker& worker, size_t layer, size_t n_total);
  void begin_selection(const LayerView& view);
  void select_rows(size_t layer, const LayerView& view, size_t head);
  void measure_selection(Lane& lane, size_t layer, const LayerView& view, size_t head);
  void count_selection(const LayerView& view);
  uint64_t selected_bytes(const LayerView& view, size_t head, uint64_t& n_rows) const;
  QueryRows framed_queries(FramedQueries& framed, const Parts& parts, size_t layer, size_t head,
                           QueryRows queries) const;
  template <typename StateOf>
  void merge_parts(Lane& lane, const Parts& parts, size_t layer, size_t head, size_t n_rows,
                   const StateOf& state) const;
  void attend_tiles(Worker& worker, size_t layer, const LayerView& view, size_t n, const float* q, size_t ldq,
                    float* out, size_t ldo);
  void attend_parts(Worker& worker, size_t layer, const LayerView& view, size_t n, const float* q, size_t ldq,
                    float* out, size_t ldo);
  // Rows in a tier (fetch_ahead.cpp).
  static bool reads_in_tiles(size_t n) { return n > kTileQueries; }
  void begin_fetching();
  void look_ahead(size_t first);
  bool read_is_there() const;
  bool want_pieces(size_t layer, std::vector<WantedPieces> wanted);
  void want_rows(size_t layer, const LayerView& view, size_t n);
  void want_candidates(const LayerView& view, size_t head, const SparseHead& sparse) const;
  void end_fetching();
  // The way of a decoded token through an index (attend_sparse.cpp).
  std::optional<SparseLimits> sparse_limits(size_t layer, const LayerView& view, size_t n) const;
  void attend_sparse(Worker& worker, size_t layer, const LayerView& view, const SparseLimits& limits,
                     const float* q, float* out);
  void size_sparse(const LayerView& view, const ExactParts& exact);
  void begin_sparse(const SparseStep& step, size_t head, SparseHead& sparse);
  void attend_exact(const ExactParts& exact, size_t item, AttendScratch& scratch);
  void propose_sparse(size_t head, size_t n_exact, SparseHead& sparse);
  void finish_sparse(Worker& worker, size_t n_exact, size_t head, const SparseHead& sparse, float* out);
  void run_sparse(Worker& worker, const SparseStep& step, size_t head, size_t phase, size_t piece);
  size_t n_estimates() const;
  void plan_sparse(size_t n_exact, size_t n_alone);
  void walk_sparse(Worker& worker, const SparseStep& step, size_t n_alone);
  void count_sparse(const LayerView& view);
  void report_all(size_t layer, const LayerView& view) const;
  void report_selection(size_t layer, const LayerView& view) const;
  void report_sparse(size_t layer, const LayerView& view);
  // What follows attention to promote pages (hot_rows.cpp, observe_prompt.cpp).
  static std::vector<LayerLayout> own_layouts(const Recipe& recipe, const Geometry& geometry,
                                              const CacheStatistics& statistics);
  bool reads_cold(const PartialState& exact, SparseHead& sparse) const;
  void observe_prompt(Worker& worker, size_t layer);
  void observe_parts(Worker& worker, size_t layer, const LayerView& view);
  void observe_pages(Worker& worker, size_t layer, const LayerView& view, size_t n_cold_pages);
  void move_pages();

  Recipe recipe_;
  Geometry geometry_;
  std::shared_ptr<const CacheStatistics> statistics_;
  std::vector<PromptObserver> prompt_;  // [layer]
  Store store_;
  std::optional<Dropping> dropping_;    // of a recipe that drops rows
  std::optional<Reserving> reserving_;  // of one that codes what leaves a reserve
  std::optional<KeyReserving> key_reserving_;
  // By how many positions sinks lie farther away than the policy has it, and the turn that takes it off.
  size_t sink_shift_ = 0;
  std::vector<float> sink_cosine_;
  std::vector<float> sink_sine_;
  std::unique_ptr<Selector> selector_;
  std::unique_ptr<Placement> placement_;
  size_t full_layer_;    // Geometry::first_full_layer()
  bool any_gives_back_;  // pages of some layer leave or get another form at the end of a step
  size_t step_tokens_ = 0;
  bool is_broken_ = false;  // while a step is under way, and if it never ends
  StepStats stats_;
  std::unique_ptr<FirmBytes> step_bytes_;  // nullptr: none
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<PartialState> part_states_;  // [kv_head][part] of attend_parts
  std::vector<HeadQueries> head_queries_;  // [kv_head] of attend_parts
  LayerStatistics making_;                 // of the layer that ends
  std::vector<uint32_t> making_positions_;
  Store::Sealing sealing_;  // of the layer that ends
  Selection selection_ = Selection::all();
  std::vector<double> selected_mass_;  // [kv_head] of the selection's rows, summed over the group
  struct SparseWalks;
  std::unique_ptr<SparseWalks> sparse_walks_;  // the heads' ways through attend_sparse
  std::vector<SparseHead> sparse_heads_;       // one a member, then one for each head that all share
  std::vector<HeadFrames> sparse_frames_;
  // What was read of a KV head, and the mass that its kept rows hold, summed over the group.
  struct SparseReads {
    size_t n_rows;
    uint64_t n_bytes;
    double mass;                           // 0 unless measured
    std::vector<uint32_t> positions = {};  // of the rows, where there is an observer
  };
  std::vector<SparseReads> sparse_reads_;  // [kv_head]
  LayerView sparse_view_{};
  TierCounts tier_before_;      // when the step began
  std::vector<size_t> n_told_;  // [layer] pieces to be read that the tier knows of in this step
  // Nearly all of what the last step read that repeated another's rows was in memory.
  bool last_read_was_there_ = false;
  bool measures_mass_ = false;
  ReadObserver* observer_ = nullptr;
  std::unique_ptr<HotRows> hot_;
};

}  // namespace quire
