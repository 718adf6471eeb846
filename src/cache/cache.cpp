#include "cache/cache.h"

#include <algorithm>
#include <utility>

namespace quire {

namespace {

// Query tokens attended together by one thread in a long prefill: with a group of 3 heads 96 rows, whose
// scores and outputs of a page stay in the second-level cache beside the expanded page.
constexpr size_t kTileQueries = 32;

std::vector<RowLayout> layouts(const Recipe& recipe, const Geometry& geometry) {
  std::vector<RowLayout> all;
  for (const size_t n_kv_heads : geometry.n_kv_heads) {
    all.push_back({n_kv_heads, geometry.head_dim, recipe.key_format, recipe.value_format});
  }
  return all;
}

}  // namespace

uint64_t Geometry::token_bytes(const Recipe& recipe) const {
  uint64_t total = 0;
  for (const RowLayout& layout : layouts(recipe, *this)) total += layout.token_bytes();
  return total;
}

uint64_t Geometry::cache_bytes(const Recipe& recipe, size_t n_tokens) const {
  const size_t n_pages = (n_tokens + kTokensPerPage - 1) / kTokensPerPage;
  return token_bytes(recipe) * kTokensPerPage * n_pages;
}

struct Cache::Lane {
  AttendScratch scratch;
  std::vector<float> q;               // [rows][head_dim] of the tile at hand
  std::vector<float> out;             // the same shape
  PartialState run{0, 0};
  PartialState total{0, 0};
};

Cache::Cache(const Recipe& recipe, const Geometry& geometry, PagePool& pool)
    : recipe_(recipe),
      geometry_(geometry),
      store_(layouts(recipe, geometry), pool),
      selector_(std::make_unique<SelectAll>()),
      placement_(std::make_unique<StayInPlace>()) {}

Cache::Cache(Cache&&) noexcept = default;
Cache& Cache::operator=(Cache&&) noexcept = default;
Cache::~Cache() = default;

void Cache::begin_step(size_t n_new, int n_members) {
  store_.extend(n_new);
  step_tokens_ = n_new;
  stats_ = StepStats{};
  while (lanes_.size() < static_cast<size_t>(n_members)) lanes_.push_back(std::make_unique<Lane>());
}

void Cache::append(Worker& worker, size_t layer, size_t first, size_t n, const float* k, const float* v, size_t ld) {
  const RowLayout& layout = store_.layout(layer);
  worker.share(static_cast<int64_t>(layout.n_kv_heads), 1, [&](int64_t head, int64_t) {
    const size_t column = static_cast<size_t>(head) * layout.head_dim;
    store_.write(layer, static_cast<size_t>(head), n_tokens() + first, n, k + column, v + column, ld);
  });
}

void Cache::attend(Worker& worker, size_t layer, size_t first, size_t n, const float* q, size_t ldq, float* out,
                   size_t ldo) {
  const LayerView view = store_.view(layer, n_tokens() + first + n);
  if (worker.rank() == 0) count_reads(*view.layout, first, n);
  if (n <= kTileQueries) {
    attend_runs(worker, layer, view, first, n, q, ldq, out, ldo);
  } else {
    attend_tiles(worker, view, first, n, q, ldq, out, ldo);
  }
}

// Each query reads the tokens up to its own; the queries of a tile share one read of their rows' bytes.
void Cache::count_reads(const RowLayout& layout, size_t first, size_t n) {
  const size_t start = n_tokens() + first;
  stats_.rows_read += layout.n_kv_heads * (n * start + n * (n + 1) / 2);
  for (size_t tile = 0; tile < n; tile += kTileQueries) {
    stats_.bytes_read += (start + std::min(n, tile + kTileQueries)) * layout.token_bytes();
  }
}

namespace {

// Copies n queries' rows of one group, q [n][ldq] -> rows [n * group][head_dim].
void gather_rows(const float* q, size_t ldq, size_t n, size_t group_values, float* rows) {
  for (size_t i = 0; i < n; ++i) std::copy_n(q + i * ldq, group_values, rows + i * group_values);
}

void resize_state(PartialState& state, size_t n_rows, size_t head_dim) {
  if (state.n_rows != n_rows || state.head_dim != head_dim) state = PartialState(n_rows, head_dim);
}

// Divides by the sums and writes [n][ldo], the group's heads side by side.
void scatter_output(const PartialState& state, size_t n, size_t group, float* out, size_t ldo) {
  const size_t dim = state.head_dim;
  for (size_t i = 0; i < n; ++i) {
    for (size_t h = 0; h < group; ++h) {
      const size_t row = i * group + h;
      const float inverse = state.l[row] > 0.0f ? 1.0f / state.l[row] : 0.0f;
      float* to = out + i * ldo + h * dim;
      for (size_t d = 0; d < dim; ++d) to[d] = state.o[row * dim + d] * inverse;
    }
  }
}

}  // namespace

// Long prefill: tiles of queries are enough work for all members.
void Cache::attend_tiles(Worker& worker, const LayerView& view, size_t first, size_t n, const float* q, size_t ldq,
                         float* out, size_t ldo) {
  const size_t n_kv_heads = view.layout->n_kv_heads;
  const size_t dim = view.layout->head_dim;
  const size_t group = geometry_.n_heads / n_kv_heads;
  const size_t n_tiles = (n + kTileQueries - 1) / kTileQueries;
  const Selection everything = Selection::all();
  worker.share(static_cast<int64_t>(n_tiles * n_kv_heads), 1, [&](int64_t item, int64_t) {
    // Late tiles see more tokens: they go first, so that the last ones handed out are short.
    const size_t tile = n_tiles - 1 - static_cast<size_t>(item) / n_kv_heads;
    const size_t head = static_cast<size_t>(item) % n_kv_heads;
    const size_t start = tile * kTileQueries;
    const size_t count = std::min(kTileQueries, n - start);
    Lane& lane = *lanes_[static_cast<size_t>(worker.rank())];
    lane.q.resize(count * group * dim);
    gather_rows(q + start * ldq + head * group * dim, ldq, count, group * dim, lane.q.data());
    const QueryRows queries{lane.q.data(), count, group, n_tokens() + first + start};
    resize_state(lane.total, count * group, dim);
    resize_state(lane.run, count * group, dim);
    lane.total.clear();
    const size_t n_runs = runs_for(queries.first_position + count);
    for (size_t run = 0; run < n_runs; ++run) {
      lane.run.clear();
      attend_run(view, head, run, queries, everything, lane.scratch, lane.run);
      lane.total.merge(lane.run);
    }
    scatter_output(lane.total, count, group, out + start * ldo + head * group * dim, ldo);
  });
}

// Few queries: runs of pages are shared out, their states merged afterwards in order.
void Cache::attend_runs(Worker& worker, size_t layer, const LayerView& view, size_t first, size_t n, const float* q,
                        size_t ldq, float* out, size_t ldo) {
  const size_t n_kv_heads = view.layout->n_kv_heads;
  const size_t dim = view.layout->head_dim;
  const size_t group = geometry_.n_heads / n_kv_heads;
  const size_t n_runs = runs_for(view.n_tokens);
  const size_t n_rows = n * group;
  if (worker.rank() == 0) {
    if (run_states_.size() < n_runs * n_kv_heads) run_states_.resize(n_runs * n_kv_heads, PartialState(n_rows, dim));
    selection_ = n == 1 ? selector_->select(layer, view, q) : Selection::all();
  }
  worker.barrier();
  worker.share(static_cast<int64_t>(n_runs * n_kv_heads), 1, [&](int64_t item, int64_t) {
    const size_t head = static_cast<size_t>(item) / n_runs;
    const size_t run = static_cast<size_t>(item) % n_runs;
    Lane& lane = *lanes_[static_cast<size_t>(worker.rank())];
    PartialState& state = run_states_[static_cast<size_t>(item)];
    resize_state(state, n_rows, dim);
    state.clear();
    const float* rows = q + head * group * dim;
    if (n > 1) {
      lane.q.resize(n_rows * dim);
      gather_rows(rows, ldq, n, group * dim, lane.q.data());
      rows = lane.q.data();
    }
    attend_run(view, head, run, {rows, n, group, n_tokens() + first}, selection_, lane.scratch, state);
  });
  worker.share(static_cast<int64_t>(n_kv_heads), 1, [&](int64_t item, int64_t) {
    const auto head = static_cast<size_t>(item);
    PartialState& total = lanes_[static_cast<size_t>(worker.rank())]->total;
    resize_state(total, n_rows, dim);
    total.clear();
    for (size_t run = 0; run < n_runs; ++run) total.merge(run_states_[head * n_runs + run]);
    scatter_output(total, n, group, out + head * group * dim, ldo);
  });
}

void Cache::end_step() {
  store_.commit(step_tokens_);
  stats_.n_tokens = n_tokens();
  placement_->plan(store_, stats_);
}

Cache Cache::fork() const {
  Cache copy(recipe_, geometry_, store_.pool());
  copy.store_ = store_.fork();
  return copy;
}

}  // namespace quire
