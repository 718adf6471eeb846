// A decoded token's attention through the index of the keys: exact rows as ever, coded rows in the steps of
// SparseHead, shared out among the team.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "cache/cache.h"
#include "cache/hot_rows.h"
#include "cache/lane.h"
#include "cache/sparse_walks.h"

namespace quire {

// The parts of exact rows alone: sinks and runs of open pages.
class Cache::ExactParts {
 public:
  explicit ExactParts(const Parts& parts) : parts_(parts) {}
  const Parts& all() const { return parts_; }
  size_t size() const { return parts_.first_sealed() + parts_.size() - parts_.first_open(); }
  Parts::Part operator[](size_t i) const {
    return parts_[i < parts_.first_sealed() ? i : i + parts_.first_open() - parts_.first_sealed()];
  }

 private:
  Parts parts_;
};

std::optional<SparseLimits> Cache::sparse_limits(size_t layer, const LayerView& view, size_t n) const {
  if (!recipe_.index || n != 1 || layer < recipe_.index->dense_layers) return std::nullopt;
  // The index knows nothing of a key bias, which may be most of a score: such layers are read whole.
  if (statistics_->has_key_bias(layer)) return std::nullopt;
  const size_t n_sealed = view.n_sealed() * kTokensPerPage;
  if (n_sealed == 0) return std::nullopt;
  const size_t n_coded = n_sealed - view.n_exact_sealed();
  if (hot_) return hot_limits(*recipe_.index, n_coded);
  const StepBudget budget = step_budget(*recipe_.index, view.n_tokens - n_coded, n_coded);
  if (budget.everything) return std::nullopt;
  return SparseLimits{budget.n_candidates, budget.n_rows, budget.mass, recipe_.index->mean_query};
}

void Cache::size_sparse(const LayerView& view, const ExactParts& exact) {
  const size_t n_kv_heads = view.layout->n_kv_heads;
  sparse_view_ = view;
  sparse_frames_.resize(n_kv_heads);
  head_queries_.resize(n_kv_heads);
  part_states_.resize(std::max(part_states_.size(), exact.size() * n_kv_heads), PartialState(0, 0));
  sparse_reads_.assign(n_kv_heads, {});
  if (hot_) hot_->begin_layer(view, geometry_.n_heads / n_kv_heads);
}

// What the steps of a layer have in common.
struct Cache::SparseStep {
  size_t layer;
  const SparseLimits* limits;
  const ExactParts* exact;
  const float* q;  // [n_heads][head_dim]
  float* out;      // the same
};

void Cache::begin_sparse(const SparseStep& step, size_t head, SparseHead& sparse) {
  const size_t group = geometry_.n_heads / sparse_view_.layout->n_kv_heads;
  HeadQueries& own = head_queries_[head];
  sparse_frames_[head] = frames(step.layer, head);
  own.rows = framed_queries(own.framed, step.exact->all(), step.layer, head,
                            {step.q + head * group * geometry_.head_dim, 1, group, n_tokens()});
  sparse.begin(sparse_view_, head, sparse_frames_[head], own.rows, *step.limits);
}

// State `item` is that of part item % exact.size() of a head.
void Cache::attend_exact(const ExactParts& exact, size_t item, AttendScratch& scratch) {
  const size_t head = item / exact.size();
  const QueryRows& queries = head_queries_[head].rows;
  PartialState& state = part_states_[item];
  state.clear(queries.group, geometry_.head_dim);
  const Parts::Part part = exact[item % exact.size()];
  attend_part(sparse_view_, head, part, queries, Selection::all(), nullptr, scratch, state);
  if (hot_ && part.kind == Parts::Kind::kKept) {
    hot_->take_copies(sparse_view_, head, part.first_page, scratch.scores.data(), state);
  }
}

// The first of a head's exact states becomes that of all of them.
void Cache::propose_sparse(size_t head, size_t n_exact, SparseHead& sparse) {
  PartialState& total = part_states_[head * n_exact];
  for (size_t i = 1; i < n_exact; ++i) total.merge(part_states_[head * n_exact + i]);
  if (hot_ && !reads_cold(total, sparse)) return sparse.skip();
  std::vector<double> log_sums(total.n_rows);
  for (size_t row = 0; row < total.n_rows; ++row) log_sums[row] = total.log_sum(row);
  sparse.propose(log_sums.data());
  want_candidates(sparse_view_, head, sparse);
}

void Cache::finish_sparse(Worker& worker, size_t n_exact, size_t head, const SparseHead& sparse, float* out) {
  Lane& lane = *lanes_[static_cast<size_t>(worker.rank())];
  SparseReads& reads = sparse_reads_[head];
  reads = {sparse.n_kept(), sparse.bytes_read(), 0};
  if (observer_ != nullptr) sparse.list_kept(reads.positions);
  PartialState& total = part_states_[head * n_exact];
  lane.coded.clear(total.n_rows, total.head_dim);
  for (size_t chunk = 0; chunk < sparse.n_chunks(); ++chunk) lane.coded.merge(sparse.state(chunk));
  if (measures_mass_) {
    for (size_t row = 0; row < total.n_rows; ++row) {
      const double exact = total.log_sum(row);
      const double read = add_logs(exact, lane.coded.log_sum(row));
      reads.mass += std::exp(read - add_logs(exact, sparse.full_log_sum(row, lane.scratch)));
    }
  }
  unframe_output(sparse_frames_[head], lane.coded);
  total.merge(lane.coded);
  if (hot_) hot_->score_pages(sparse_view_, head, total, sparse);
  total.write_output(out + head * total.n_rows * total.head_dim, total.head_dim);
}

void Cache::count_sparse(const LayerView& view) {
  const size_t n_coded = view.n_sealed() * kTokensPerPage - view.n_exact_sealed();
  const size_t n_exact = view.n_tokens - n_coded;
  stats_.bytes_read += n_exact * view.layout->token_bytes();
  for (size_t head = 0; head < view.layout->n_kv_heads; ++head) {
    stats_.rows_read += n_exact + sparse_reads_[head].n_rows;
    stats_.bytes_read += sparse_reads_[head].n_bytes;
    stats_.mass_sum += sparse_reads_[head].mass;
  }
  if (measures_mass_) stats_.mass_count += geometry_.n_heads;
  if (hot_) hot_->end_layer(view, stats_);
}

namespace {

// What is done for each KV head, in this order. Estimates and exact rows are one phase, the estimates first.
enum SparsePhase : size_t { kBegin, kRead, kPropose, kScore, kChoose, kAttend, kFinish, kSparsePhases };

}  // namespace

void Cache::run_sparse(Worker& worker, const SparseStep& step, size_t head, size_t phase, size_t piece) {
  SparseHead& sparse = *sparse_walks_->heads[head].sparse;
  AttendScratch& scratch = lanes_[static_cast<size_t>(worker.rank())]->scratch;
  const size_t n_exact = step.exact->size();
  switch (static_cast<SparsePhase>(phase)) {
    case kBegin: return begin_sparse(step, head, sparse);
    case kRead: {
      const size_t n_estimated = n_estimates();
      if (piece < n_estimated) return sparse.estimate(piece);
      return attend_exact(*step.exact, head * n_exact + piece - n_estimated, scratch);
    }
    case kPropose: return propose_sparse(head, n_exact, sparse);
    case kScore: return sparse.score(piece, scratch);
    case kChoose: return sparse.choose();
    case kAttend: return sparse.attend(piece, scratch);
    default: return finish_sparse(worker, n_exact, head, sparse, step.out);
  }
}

size_t Cache::n_estimates() const {
  return hot_ && !hot_->reads_index() ? 0 : SparseHead::chunks_of(sparse_view_.n_sealed());
}

// The first n_alone heads wait for a member that takes them.
void Cache::plan_sparse(size_t n_exact, size_t n_alone) {
  const size_t n_heads = sparse_view_.layout->n_kv_heads;
  const size_t n_chunks = SparseHead::chunks_of(sparse_view_.n_sealed());
  const size_t n_own = n_alone > 0 ? lanes_.size() : 0;
  sparse_heads_.resize(std::max(sparse_heads_.size(), n_own + n_heads - n_alone));
  if (!sparse_walks_ || sparse_walks_->n_heads < n_heads)
    sparse_walks_ = std::make_unique<SparseWalks>(n_heads);
  const std::array<size_t, kSparsePhases> n_pieces = {1, n_estimates() + n_exact, 1, n_chunks, 1, n_chunks,
                                                      1};
  sparse_walks_->next_alone.store(0, std::memory_order_relaxed);
  for (size_t head = 0; head < n_heads; ++head) {
    SparseWalks::Walk& walk = sparse_walks_->heads[head];
    walk.work.plan(n_pieces);
    if (head < n_alone) continue;
    walk.sparse = &sparse_heads_[n_own + head - n_alone];
    walk.work.open();
  }
}

// As many heads as fill the team belong to one member each: what its later steps read again, estimates and
// sign planes, is in its caches. The rest is everybody's, and goes first: while one member is at a step that
// cannot be shared out, the others go on with heads of their own. Who has none left helps with those of
// others.
void Cache::walk_sparse(Worker& worker, const SparseStep& step, size_t n_alone) {
  const auto heads = std::span(sparse_walks_->heads.get(), sparse_view_.layout->n_kv_heads);
  std::atomic<size_t>& next_alone = sparse_walks_->next_alone;
  size_t own = n_alone;  // none
  const auto takes = [&](size_t head) {
    return heads[head].work.take(
        [&](size_t phase, size_t piece) { run_sparse(worker, step, head, phase, piece); });
  };
  const auto takes_any = [&](size_t first, size_t last) {
    while (first < last && !takes(first)) ++first;
    return first < last;
  };
  const auto takes_own = [&] {
    if (own == n_alone || heads[own].work.is_done()) {
      if (next_alone.load(std::memory_order_relaxed) >= n_alone) return false;
      own = std::min(next_alone.fetch_add(1, std::memory_order_relaxed), n_alone);
      if (own == n_alone) return false;
      heads[own].sparse = &sparse_heads_[static_cast<size_t>(worker.rank())];
      heads[own].work.open();
    }
    return takes(own);
  };
  for (IdleTurn idle;;) {
    if (takes_any(n_alone, heads.size()) || takes_own() || takes_any(0, n_alone)) {
      idle.reset();
      continue;
    }
    if (std::ranges::all_of(heads, [](const auto& head) { return head.work.is_done(); })) break;
    // The barrier is the way out of work that another member has given up.
    if (std::ranges::any_of(heads, [](const auto& head) { return head.work.has_failed(); })) break;
    idle.wait();
  }
  worker.barrier();
}

void Cache::attend_sparse(Worker& worker, size_t layer, const LayerView& view, const SparseLimits& limits,
                          const float* q, float* out) {
  const ExactParts exact(Parts(view, view.n_tokens));
  const SparseStep step{layer, &limits, &exact, q, out};
  const size_t n_heads = view.layout->n_kv_heads;
  const size_t n_alone = n_heads - n_heads % static_cast<size_t>(worker.size());
  if (worker.rank() == 0) {
    size_sparse(view, exact);
    plan_sparse(exact.size(), n_alone);
    look_ahead(layer + 1);
  }
  worker.barrier();
  walk_sparse(worker, step, n_alone);
  if (worker.rank() != 0) return;
  count_sparse(view);
  if (observer_ != nullptr) report_sparse(layer, view);
}

}  // namespace quire
