#include "study/butler_quality.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "study/butler_rows.h"
#include "study/small_product.h"

namespace quire {
namespace {

using Scores = std::array<ButlerScore, kButlerBudgets.size()>;

// The `n` best of the values, of equal ones the first; what is not a number comes last.
std::vector<size_t> best_of(const std::vector<float>& values, size_t n) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto rank = [&](size_t i) { return std::isnan(values[i]) ? -INFINITY : values[i]; };
  const auto before = [&](size_t a, size_t b) { return rank(a) > rank(b) || (rank(a) == rank(b) && a < b); };
  std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(n), order.end(), before);
  order.resize(n);
  return order;
}

// One KV head of a layer on one example.
class HeadMeter {
 public:
  HeadMeter(const ButlerGeometry& g, const ButlerMask& mask, ButlerPooling pooling,
            const ButlerExample<float>& example, size_t layer, size_t kv_head)
      : g_(g), mask_(mask), pooling_(pooling), example_(example), group_(g.n_heads / g.n_kv_heads) {
    const float* keys = example.keys[layer - 1].data() + kv_head * example.n_tokens * g.head_dim;
    keys_.pack(keys, example.n_tokens, g.head_dim, g.head_dim, 1);
    queries_ = example.queries[layer - 1].data() + kv_head * group_ * example.rows.size() * g.head_dim;
    ld_ = (example.n_tokens + kPageTokens - 1) / kPageTokens * kPageTokens;
  }

  void project(const float* keys, const float* projection) {
    std::vector<float> transposed;
    transpose(projection, g_.head_dim, g_.dim, g_.dim, transposed);
    std::vector<float> projected(g_.dim * ld_, 0.0f);
    PackedOperand<float> operand;
    operand.pack(keys, example_.n_tokens, g_.head_dim, g_.head_dim, 1);
    multiply_small<float>(operand, {transposed.data(), g_.head_dim, g_.dim, projected.data(), ld_});
    projected_.pack(projected.data(), ld_, g_.dim, 1, ld_);
  }

  // `i`: importance queries of the group's heads for this row, one after another.
  void row(size_t r, const float* i, Scores& scores) {
    const size_t position = example_.rows[r];
    const size_t first = mask_.first();
    const size_t end = std::max(first, mask_.end(position));
    true_mass(r, position);
    predicted(i, first, end);
    std::vector<float> mass(mass_.begin() + static_cast<ptrdiff_t>(first),
                            mass_.begin() + static_cast<ptrdiff_t>(end));
    double always = 0;
    for (size_t t = 0; t <= position; ++t) {
      if (t < first || t >= end) always += static_cast<double>(mass_[t]);
    }
    for (size_t b = 0; b < kButlerBudgets.size(); ++b) {
      const auto budget = static_cast<size_t>(kButlerBudgets[b] * static_cast<double>(position + 1));
      add(mass, always, std::min(std::max<size_t>(budget, 1), mass.size()), scores[b]);
    }
  }

 private:
  // Mean over the group of the attention of each token.
  void true_mass(size_t r, size_t position) {
    std::vector<float> scores(ld_);
    mass_.assign(ld_, 0.0f);
    for (size_t h = 0; h < group_; ++h) {
      const float* q = queries_ + (h * example_.rows.size() + r) * g_.head_dim;
      multiply_small<float>(keys_, {q, g_.head_dim, 1, scores.data(), ld_});
      const RowSum sum = range_softmax(scores.data(), 0, position + 1, ld_);
      const auto factor = static_cast<float>(1 / (sum.sum * static_cast<double>(group_)));
      for (size_t t = 0; t <= position; ++t) mass_[t] += scores[t] * factor;
    }
  }

  void predicted(const float* i, size_t first, size_t end) {
    std::vector<float> scores(ld_);
    const float scale = 1 / std::sqrt(static_cast<float>(g_.dim));
    best_.assign(end - first, pooling_ == ButlerPooling::kNormalisedSum ? 0 : -INFINITY);
    for (size_t h = 0; h < group_ && end > first; ++h) {
      multiply_small<float>(projected_, {i + h * g_.dim, g_.dim, 1, scores.data(), ld_});
      for (float& score : scores) score *= scale;
      if (pooling_ != ButlerPooling::kMax) {
        const RowSum sum = range_softmax(scores.data(), first, end, ld_);
        for (float& score : scores) score /= static_cast<float>(sum.sum);
      }
      for (size_t t = first; t < end; ++t) {
        float& best = best_[t - first];
        best = pooling_ == ButlerPooling::kNormalisedSum ? best + scores[t] : std::max(best, scores[t]);
      }
    }
  }

  void add(const std::vector<float>& mass, double always, size_t n, ButlerScore& score) const {
    std::vector<bool> is_best(mass.size());
    double oracle = always, chosen = always;
    for (const size_t t : best_of(mass, n)) {
      is_best[t] = true;
      oracle += static_cast<double>(mass[t]);
    }
    size_t n_found = 0;
    for (const size_t t : best_of(best_, n)) {
      n_found += is_best[t];
      chosen += static_cast<double>(mass[t]);
    }
    score.recall += n > 0 ? static_cast<double>(n_found) / static_cast<double>(n) : 1;
    score.mass += chosen;
    score.oracle_mass += oracle;
    score.always_mass += always;
  }

  const ButlerGeometry& g_;
  const ButlerMask& mask_;
  ButlerPooling pooling_;
  const ButlerExample<float>& example_;
  size_t group_;
  size_t ld_ = 0;
  const float* queries_ = nullptr;  // [head of the group][row][head_dim]
  PackedOperand<float> keys_, projected_;
  std::vector<float> mass_, best_;
};

void add_scores(const Scores& from, double factor, Scores& to) {
  for (size_t b = 0; b < from.size(); ++b) {
    to[b].recall += factor * from[b].recall;
    to[b].mass += factor * from[b].mass;
    to[b].oracle_mass += factor * from[b].oracle_mass;
    to[b].always_mass += factor * from[b].always_mass;
  }
}

}  // namespace

ButlerScore ButlerQuality::mean(size_t budget) const {
  Scores sum{};
  for (const Scores& layer : layers) add_scores(layer, 1.0 / static_cast<double>(layers.size()), sum);
  return sum[budget];
}

ButlerMeter::ButlerMeter(const ButlerLayout& layout, const ButlerMask& mask, ButlerPooling pooling,
                         ItemRunner run)
    : layout_(layout), mask_(mask), pooling_(pooling), run_(run), gradient_(layout, mask, run) {
  sums_.layers.resize(layout.geometry().n_layers - 1);
}

void ButlerMeter::add(const ButlerExample<float>& example, const float* parameters) {
  const ButlerGeometry& g = layout_.geometry();
  const auto& queries = gradient_.predict(example, parameters);
  std::vector<Scores> sums((g.n_layers - 1) * g.n_kv_heads);
  run_(sums.size(), [&](size_t item) {
    const size_t layer = 1 + item / g.n_kv_heads;
    const size_t kv_head = item % g.n_kv_heads;
    HeadMeter meter(g, mask_, pooling_, example, layer, kv_head);
    meter.project(example.keys[layer - 1].data() + kv_head * example.n_tokens * g.head_dim,
                  parameters + layout_.projection(layer) + kv_head * g.head_dim * g.dim);
    const size_t p = g.producer_of(layer);
    const size_t column = (g.slot_of(layer) * g.n_heads + kv_head * (g.n_heads / g.n_kv_heads)) * g.dim;
    for (size_t r = 0; r < example.rows.size(); ++r) {
      meter.row(r, queries[p].data() + r * g.query_values(p) + column, sums[item]);
    }
  });
  for (size_t item = 0; item < sums.size(); ++item) {
    add_scores(sums[item], 1.0 / static_cast<double>(g.n_kv_heads), sums_.layers[item / g.n_kv_heads]);
  }
  sums_.n_rows += example.rows.size();
}

ButlerQuality ButlerMeter::quality() const {
  QUIRE_CHECK(sums_.n_rows > 0);
  ButlerQuality quality;
  quality.n_rows = sums_.n_rows;
  for (const Scores& layer : sums_.layers) {
    add_scores(layer, 1.0 / static_cast<double>(sums_.n_rows), quality.layers.emplace_back());
  }
  return quality;
}

}  // namespace quire
