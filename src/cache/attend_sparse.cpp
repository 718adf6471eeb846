// A decoded token's attention through the index of the keys: exact rows as ever, coded rows in the steps of
// SparseHead, each shared out among the team.
#include <algorithm>
#include <cmath>

#include "cache/cache.h"
#include "cache/hot_rows.h"
#include "cache/lane.h"

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
  sparse_heads_.resize(std::max(lanes_.size(), n_kv_heads));
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

// The steps of heads first..last - 1, whose pieces `share` hands out: share(n, work) runs work(0..n - 1).
template <typename Share>
void Cache::walk_sparse(Worker& worker, const SparseStep& step, size_t first, size_t last, SparseHead* heads,
                        const Share& share) {
  const size_t n_heads = last - first;
  const size_t n_chunks = SparseHead::chunks_of(sparse_view_.n_sealed());
  const size_t n_exact = step.exact->size();
  AttendScratch& scratch = lanes_[static_cast<size_t>(worker.rank())]->scratch;
  share(n_heads, [&](size_t i) { begin_sparse(step, first + i, heads[i]); });
  const size_t n_estimated = hot_ && !hot_->reads_index() ? 0 : n_chunks;
  share(n_heads * (n_estimated + n_exact), [&](size_t i) {
    if (i < n_heads * n_estimated) return heads[i / n_estimated].estimate(i % n_estimated);
    attend_exact(*step.exact, first * n_exact + i - n_heads * n_estimated, scratch);
  });
  share(n_heads, [&](size_t i) { propose_sparse(first + i, n_exact, heads[i]); });
  share(n_heads * n_chunks, [&](size_t i) { heads[i / n_chunks].score(i % n_chunks, scratch); });
  share(n_heads, [&](size_t i) { heads[i].choose(); });
  share(n_heads * n_chunks, [&](size_t i) { heads[i / n_chunks].attend(i % n_chunks, scratch); });
  share(n_heads, [&](size_t i) { finish_sparse(worker, n_exact, first + i, heads[i], step.out); });
}

// As many heads as fill the team are walked by one member each: what its later steps read again, estimates
// and sign planes, is in its caches. The rest is shared out piece by piece.
void Cache::attend_sparse(Worker& worker, size_t layer, const LayerView& view, const SparseLimits& limits,
                          const float* q, float* out) {
  const ExactParts exact(Parts(view, view.n_tokens));
  const SparseStep step{layer, &limits, &exact, q, out};
  if (worker.rank() == 0) {
    size_sparse(view, exact);
    look_ahead(layer + 1);
  }
  worker.barrier();
  const size_t n_heads = view.layout->n_kv_heads;
  const size_t n_alone = n_heads - n_heads % static_cast<size_t>(worker.size());
  const auto alone = [](size_t n, const auto& work) {
    for (size_t i = 0; i < n; ++i) work(i);
  };
  const auto share = [&](size_t n, const auto& work) {
    worker.share(static_cast<int64_t>(n), 1, [&](int64_t i, int64_t) { work(static_cast<size_t>(i)); });
  };
  if (n_alone > 0) {
    SparseHead* own = &sparse_heads_[static_cast<size_t>(worker.rank())];
    share(n_alone, [&](size_t head) { walk_sparse(worker, step, head, head + 1, own, alone); });
  }
  if (n_alone < n_heads) walk_sparse(worker, step, n_alone, n_heads, sparse_heads_.data(), share);
  if (worker.rank() != 0) return;
  count_sparse(view);
  if (observer_ != nullptr) report_sparse(layer, view);
}

}  // namespace quire
