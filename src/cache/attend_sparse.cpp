// A decoded token's attention through the index of the keys: exact rows as ever, coded rows in the steps of
// SparseHead, each shared out among the team.
#include <algorithm>
#include <cmath>

#include "cache/cache.h"
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
  const StepBudget budget = step_budget(*recipe_.index, view.n_tokens - n_coded, n_coded);
  if (budget.everything) return std::nullopt;
  return SparseLimits{budget.n_candidates, budget.n_rows, budget.mass, recipe_.index->mean_query};
}

void Cache::size_sparse(const LayerView& view, const ExactParts& exact) {
  const size_t n_kv_heads = view.layout->n_kv_heads;
  sparse_view_ = view;
  sparse_heads_.resize(n_kv_heads);
  sparse_frames_.resize(n_kv_heads);
  head_queries_.resize(n_kv_heads);
  part_states_.resize(std::max(part_states_.size(), exact.size() * n_kv_heads), PartialState(0, 0));
  sparse_mass_.assign(n_kv_heads, 0.0);
}

void Cache::begin_sparse(size_t layer, const SparseLimits& limits, const ExactParts& exact, size_t head,
                         const float* q) {
  const size_t group = geometry_.n_heads / sparse_view_.layout->n_kv_heads;
  HeadQueries& own = head_queries_[head];
  sparse_frames_[head] = frames(layer, head);
  own.rows = framed_queries(own.framed, exact.all(), layer, head,
                            {q + head * group * geometry_.head_dim, 1, group, n_tokens()});
  sparse_heads_[head].begin(sparse_view_, head, sparse_frames_[head], own.rows, limits);
}

// State `item` is that of part item % exact.size() of a head.
void Cache::attend_exact(Worker& worker, const ExactParts& exact, size_t item) {
  const size_t head = item / exact.size();
  const QueryRows& queries = head_queries_[head].rows;
  PartialState& state = part_states_[item];
  state.clear(queries.group, geometry_.head_dim);
  attend_part(sparse_view_, head, exact[item % exact.size()], queries, Selection::all(), nullptr,
              lanes_[static_cast<size_t>(worker.rank())]->scratch, state);
}

// The first of a head's exact states becomes that of all of them.
void Cache::propose_sparse(size_t head, size_t n_exact) {
  PartialState& total = part_states_[head * n_exact];
  for (size_t i = 1; i < n_exact; ++i) total.merge(part_states_[head * n_exact + i]);
  std::vector<double> log_sums(total.n_rows);
  for (size_t row = 0; row < total.n_rows; ++row) log_sums[row] = total.log_sum(row);
  sparse_heads_[head].propose(log_sums.data());
}

void Cache::finish_sparse(Worker& worker, size_t n_exact, size_t head, float* out) {
  Lane& lane = *lanes_[static_cast<size_t>(worker.rank())];
  SparseHead& sparse = sparse_heads_[head];
  PartialState& total = part_states_[head * n_exact];
  lane.coded.clear(total.n_rows, total.head_dim);
  for (size_t chunk = 0; chunk < sparse.n_chunks(); ++chunk) lane.coded.merge(sparse.state(chunk));
  if (measures_mass_) {
    for (size_t row = 0; row < total.n_rows; ++row) {
      const double exact = total.log_sum(row);
      const double read = add_logs(exact, lane.coded.log_sum(row));
      sparse_mass_[head] += std::exp(read - add_logs(exact, sparse.full_log_sum(row, lane.scratch)));
    }
  }
  unframe_output(sparse_frames_[head], lane.coded);
  total.merge(lane.coded);
  total.write_output(out + head * total.n_rows * total.head_dim, total.head_dim);
}

void Cache::count_sparse(const LayerView& view) {
  const size_t n_coded = view.n_sealed() * kTokensPerPage - view.n_exact_sealed();
  const size_t n_exact = view.n_tokens - n_coded;
  stats_.bytes_read += n_exact * view.layout->token_bytes();
  for (size_t head = 0; head < view.layout->n_kv_heads; ++head) {
    stats_.rows_read += n_exact + sparse_heads_[head].n_kept();
    stats_.bytes_read += sparse_heads_[head].bytes_read();
    stats_.mass_sum += sparse_mass_[head];
  }
  if (measures_mass_) stats_.mass_count += geometry_.n_heads;
}

void Cache::attend_sparse(Worker& worker, size_t layer, const LayerView& view, const SparseLimits& limits,
                          const float* q, float* out) {
  const ExactParts exact(Parts(view, view.n_tokens));
  if (worker.rank() == 0) size_sparse(view, exact);
  worker.barrier();
  const size_t n_heads = view.layout->n_kv_heads;
  const auto share = [&](size_t n_items, const auto& work) {
    worker.share(static_cast<int64_t>(n_items), 1,
                 [&](int64_t item, int64_t) { work(static_cast<size_t>(item)); });
  };
  share(n_heads, [&](size_t head) { begin_sparse(layer, limits, exact, head, q); });
  const size_t n_chunks = sparse_heads_[0].n_chunks();
  share(n_heads * (n_chunks + exact.size()), [&](size_t item) {
    if (item < n_heads * n_chunks) return sparse_heads_[item / n_chunks].estimate(item % n_chunks);
    attend_exact(worker, exact, item - n_heads * n_chunks);
  });
  share(n_heads, [&](size_t head) { propose_sparse(head, exact.size()); });
  share(n_heads * n_chunks, [&](size_t item) {
    sparse_heads_[item / n_chunks].score(item % n_chunks,
                                         lanes_[static_cast<size_t>(worker.rank())]->scratch);
  });
  share(n_heads, [&](size_t head) { sparse_heads_[head].choose(); });
  share(n_heads * n_chunks, [&](size_t item) {
    sparse_heads_[item / n_chunks].attend(item % n_chunks,
                                          lanes_[static_cast<size_t>(worker.rank())]->scratch);
  });
  share(n_heads, [&](size_t head) { finish_sparse(worker, exact.size(), head, out); });
  if (worker.rank() == 0) count_sparse(view);
}

}  // namespace quire
