#include "cache/dropping.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "format/frame.h"
#include "kernels/ops.h"
#include "store/page_count.h"

namespace quire {

namespace {

// Observed together: their scores of the whole sequence stay in a buffer.
constexpr size_t kQueriesTogether = 16;
// Blocks of these that are shared out at once. What each block finds is added up in the order of the text, so
// that no mass hangs on the number of threads.
constexpr size_t kRoundBlocks = 8;
// Rows whose masses are added up by one member.
constexpr size_t kSummedRows = 1024;

// Standard Gumbel noise, a function of what it is for.
float gumbel(uint64_t seed, uint64_t layer, uint64_t head, uint64_t position) {
  const uint64_t bits = splitmix64(splitmix64(splitmix64(seed ^ layer << 40) ^ head << 20) ^ position);
  const double uniform = (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
  return static_cast<float>(-std::log(-std::log(uniform)));
}

}  // namespace

Dropping::Dropping(std::shared_ptr<const Retention> retention, const Geometry& geometry)
    : retention_(std::move(retention)), n_heads_(geometry.n_heads), layers_(geometry.n_layers) {
  for (size_t layer = 0; layer < layers_.size(); ++layer)
    layers_[layer].heads.resize(geometry.n_kv_heads[layer]);
}

void Dropping::clear() {
  for (Layer& layer : layers_) {
    layer.n_tokens = layer.n_generated = 0;
    std::fill(layer.heads.begin(), layer.heads.end(), HeadRows{});
  }
}

void Dropping::restore(size_t n_tokens, size_t n_generated, std::vector<std::vector<HeadRows>> rows) {
  QUIRE_CHECK(rows.size() == layers_.size());
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    QUIRE_CHECK(rows[layer].size() == layers_[layer].heads.size());
    layers_[layer] = {std::move(rows[layer]), n_tokens, n_generated};
  }
}

// The same in all layers that have heads.
size_t Dropping::n_generated() const {
  size_t most = 0;
  for (const Layer& layer : layers_) most = std::max(most, layer.n_generated);
  return most;
}

uint64_t Dropping::size_bytes() const {
  uint64_t total = 0;
  for (const Layer& layer : layers_) {
    for (const HeadRows& head : layer.heads) {
      total += head.positions.size() * sizeof(head.positions[0]) + head.mass.size() * sizeof(head.mass[0]);
    }
  }
  return total;
}

// Rows that have come since: the newest tokens, at the end.
void Dropping::admit(Layer& layer, const LayerView& view) {
  for (HeadRows& head : layer.heads) {
    auto next = static_cast<uint32_t>(layer.n_tokens);
    while (head.positions.size() < view.n_tokens) head.positions.push_back(next++);
    head.mass.resize(view.n_tokens, 0.0f);
  }
}

void Dropping::observe(Worker& worker, size_t layer, const LayerView& view, size_t first, size_t n,
                       size_t n_step, const float* q, size_t ldq) {
  const size_t n_kv_heads = view.layout->n_kv_heads;
  const size_t observed = retention_->observed_queries(n_step);
  const size_t start = std::max(first, n_step - observed) - first;
  Layer& own = layers_[layer];
  if (worker.rank() == 0) {
    admit(own, view);
    const size_t n_blocks = std::min(kRoundBlocks, (n + kQueriesTogether - 1) / kQueriesTogether);
    const size_t n_masses = start < n ? n_kv_heads * n_blocks * view.n_tokens : 0;
    block_masses_.resize(std::max(block_masses_.size(), n_masses));
    own.n_tokens += n;
    if (n_step == 1) ++own.n_generated;
    if (first == 0 && retention_->forgets()) {
      for (HeadRows& head : own.heads) std::fill(head.mass.begin(), head.mass.end(), 0.0f);
    }
  }
  worker.barrier();
  if (start >= n) return;
  const size_t group = n_heads_ / n_kv_heads;
  for (size_t i = start; i < n; i += kRoundBlocks * kQueriesTogether) {
    const size_t count = std::min(kRoundBlocks * kQueriesTogether, n - i);
    observe_round(worker, layer, view, {q + i * ldq, count, group, view.n_tokens - n + i}, ldq);
  }
  // What a prompt needs is large, and of no use to single tokens.
  if (n_step == 1 || first + n < n_step) return;
  buffers_[static_cast<size_t>(worker.rank())] = {};
  if (worker.rank() == 0) block_masses_ = {};  // all have read theirs: sharing waits
}

uint64_t Dropping::observed_bytes(const LayerView& view, size_t first, size_t n, size_t n_step) const {
  const size_t observed = retention_->observed_queries(n_step);
  const uint64_t key_row_bytes = view.layout->n_kv_heads * view.layout->key_bytes() / kTokensPerPage;
  uint64_t total = 0;
  for (size_t i = std::max(first, n_step - observed) - first; i < n; i += kQueriesTogether) {
    total += (view.n_tokens - n + std::min(n, i + kQueriesTogether)) * key_row_bytes;
  }
  return total;
}

// queries.q: [queries][ldq], the heads of all KV heads side by side.
void Dropping::observe_round(Worker& worker, size_t layer, const LayerView& view, const QueryRows& queries,
                             size_t ldq) {
  const size_t n_kv_heads = view.layout->n_kv_heads;
  const size_t width = queries.group * view.layout->head_dim;
  const size_t n_blocks = (queries.n_queries + kQueriesTogether - 1) / kQueriesTogether;
  const size_t n_rows = queries.first_position + queries.n_queries;
  worker.share(static_cast<int64_t>(n_kv_heads * n_blocks), 1, [&](int64_t item, int64_t) {
    const size_t head = static_cast<size_t>(item) / n_blocks;
    const size_t first = static_cast<size_t>(item) % n_blocks * kQueriesTogether;
    const size_t count = std::min(kQueriesTogether, queries.n_queries - first);
    Buffers& buffers = buffers_[static_cast<size_t>(worker.rank())];
    buffers.q.resize(count * width);
    for (size_t j = 0; j < count; ++j) {
      std::copy_n(queries.q + (first + j) * ldq + head * width, width, buffers.q.data() + j * width);
    }
    float* mass = block_masses_.data() + static_cast<size_t>(item) * n_rows;
    std::fill_n(mass, n_rows, 0.0f);
    observe_block(view, layer, head, {buffers.q.data(), count, queries.group, queries.first_position + first},
                  buffers, mass);
  });
  const size_t n_pieces = (n_rows + kSummedRows - 1) / kSummedRows;
  worker.share(static_cast<int64_t>(n_kv_heads * n_pieces), 1, [&](int64_t item, int64_t) {
    const size_t head = static_cast<size_t>(item) / n_pieces;
    const size_t first = static_cast<size_t>(item) % n_pieces * kSummedRows;
    const size_t last = std::min(n_rows, first + kSummedRows);
    float* total = layers_[layer].heads[head].mass.data();
    for (size_t block = 0; block < n_blocks; ++block) {
      const float* mass = block_masses_.data() + (head * n_blocks + block) * n_rows;
      for (size_t t = first; t < last; ++t) total[t] += mass[t];
    }
  });
}

// Two passes over the scores: the first finds each row's maximum and sum, the second adds probabilities up in
// `mass`, which has a number for each row that the last query sees.
void Dropping::observe_block(const LayerView& view, size_t layer, size_t head, const QueryRows& queries,
                             Buffers& buffers, float* mass) const {
  const size_t n_rows = queries.n_queries * queries.group;
  const size_t last = queries.first_position + queries.n_queries;  // rows that the last query sees
  const size_t n_pages = pages_for(last);
  const auto dim = static_cast<int>(view.layout->head_dim);
  const auto format = static_cast<size_t>(view.layout->key_format);
  const size_t page_scores = n_rows * kTokensPerPage;
  const Observation how = retention_->observation(layers_[layer].n_generated);
  buffers.scores.resize(n_pages * page_scores);
  buffers.masks.resize(n_pages * n_rows);
  buffers.row_max.assign(n_rows, -std::numeric_limits<float>::infinity());
  buffers.row_sum.assign(n_rows, 0.0f);
  buffers.correction.resize(n_rows);
  for (size_t page = 0; page < n_pages; ++page) {
    float* scores = buffers.scores.data() + page * page_scores;
    uint64_t* masks = buffers.masks.data() + page * n_rows;
    ops().score[format](queries.q, static_cast<size_t>(dim), static_cast<int>(n_rows), dim,
                        view.keys(head, page), scores, nullptr);
    if (const float cap = view.score_softcap(); cap > 0) {
      ops().cap_scores(scores, static_cast<int>(page_scores), cap);
    }
    if (how.gumbel) add_noise(how, layer, head, page, queries, scores);
    row_masks(queries, ~uint64_t{0}, view.n_tokens, page, masks);
    // The scores are needed again: the running softmax writes over them.
    std::vector<float>& once = buffers.once;
    once.assign(scores, scores + page_scores);
    ops().softmax(once.data(), masks, static_cast<int>(n_rows), buffers.row_max.data(),
                  buffers.row_sum.data(), buffers.correction.data());
  }
  std::vector<float> sums = buffers.row_sum;
  for (size_t page = 0; page < n_pages; ++page, mass += kTokensPerPage) {
    float* scores = buffers.scores.data() + page * page_scores;
    // With the final maximum the weights are exp(score - maximum), of rows that are not seen 0.
    ops().softmax(scores, buffers.masks.data() + page * n_rows, static_cast<int>(n_rows),
                  buffers.row_max.data(), buffers.row_sum.data(), buffers.correction.data());
    const size_t n = std::min(kTokensPerPage, last - page * kTokensPerPage);
    for (size_t r = 0; r < n_rows; ++r) {
      const float weight = sums[r] > 0 ? 1 / sums[r] : 0;
      for (size_t t = 0; t < n; ++t) mass[t] += weight * scores[r * kTokensPerPage + t];
    }
  }
}

// scores [queries * group][64] of a page's rows.
void Dropping::add_noise(const Observation& how, size_t layer, size_t head, size_t page,
                         const QueryRows& queries, float* scores) const {
  const std::vector<uint32_t>& positions = layers_[layer].heads[head].positions;
  const auto scale = static_cast<float>(1 / how.temperature);
  const size_t first = page * kTokensPerPage;
  const size_t n = std::min(kTokensPerPage, positions.size() - first);
  for (size_t h = 0; h < queries.group; ++h) {
    for (size_t t = 0; t < n; ++t) {
      const float noise = gumbel(how.seed, layer, head * queries.group + h, positions[first + t]);
      for (size_t i = 0; i < queries.n_queries; ++i) {
        float& score = scores[(i * queries.group + h) * kTokensPerPage + t];
        score = (score + noise) * scale;
      }
    }
  }
}

void Dropping::drop(Worker& worker, size_t layer, size_t n_step, Store& store) {
  Layer& own = layers_[layer];
  if (own.heads.empty()) return;
  const size_t n_open = own.heads[0].positions.size();
  const RowStep step = {n_open - n_step, n_step, own.n_tokens};
  const size_t n_after = retention_->rows_after(step);
  if (n_after == n_open) return;
  if (worker.rank() == 0 && store.left_tokens(layer) == 0) store.keep_sinks(layer);
  worker.barrier();
  worker.share(static_cast<int64_t>(own.heads.size()), 1, [&](int64_t item, int64_t) {
    const auto head = static_cast<size_t>(item);
    std::vector<uint32_t>& dropped = buffers_[static_cast<size_t>(worker.rank())].dropped;
    retention_->choose(own.heads[head], step, n_open - n_after, dropped);
    leave(dropped, layer, head, own.heads[head], store);
  });
  if (worker.rank() == 0) store.drop_rows(layer, n_open, n_after);
  worker.barrier();
}

// Rows from the end take the places of those that leave.
void Dropping::leave(const std::vector<uint32_t>& dropped, size_t layer, size_t head, HeadRows& rows,
                     Store& store) {
  std::vector<bool> leaves(rows.positions.size(), false);
  for (const uint32_t i : dropped) leaves[i] = true;
  const size_t n_after = rows.positions.size() - dropped.size();
  size_t from = n_after;
  for (size_t to = 0; to < n_after; ++to) {
    if (!leaves[to]) continue;
    while (leaves[from]) ++from;
    store.move_row(layer, head, from, to);
    rows.positions[to] = rows.positions[from];
    rows.mass[to] = rows.mass[from];
    ++from;
  }
  rows.positions.resize(n_after);
  rows.mass.resize(n_after);
}

}  // namespace quire
