#include "study/butler_start.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/random.h"
#include "study/chance.h"
#include "study/dense.h"
#include "study/small_product.h"

namespace quire {
namespace {

constexpr double kRidge = 1e-2;
// Directions of keys with less than this share of the mean variance are not divided by it.
constexpr double kLeastVariance = 1e-3;
constexpr int kSubspaceRounds = 12;

double normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(6.283185307179586 * random.uniform());
}

void fill_normal(Random& random, double deviation, std::vector<float>& values) {
  for (float& value : values) value = static_cast<float>(deviation * normal(random));
}

double inverse_root(size_t n) { return 1 / std::sqrt(static_cast<double>(n)); }

// sums [a's columns][b's columns] += a^T b over the rows of both.
class CrossSum {
 public:
  // a [n][width], kept transposed.
  CrossSum(const float* a, size_t n, size_t width) : n_(n), width_(width) {
    transpose(a, n, width, width, transposed_);
  }

  // b [n][ldb], `columns` of it, into sums + offset [width][ld].
  void add(const float* b, size_t ldb, size_t columns, double* sums, size_t ld) {
    operand_.pack(b, columns, n_, 1, ldb);
    product_.resize(width_ * columns);
    multiply_small<float>(operand_, {transposed_.data(), n_, width_, product_.data(), columns});
    for (size_t i = 0; i < width_; ++i) {
      for (size_t j = 0; j < columns; ++j) sums[i * ld + j] += static_cast<double>(product_[i * columns + j]);
    }
  }

 private:
  size_t n_, width_;
  std::vector<float> transposed_, product_;
  PackedOperand<float> operand_;
};

// c [m][n] = a^T b over their k rows, a [k][lda], b [k][ldb].
void cross(const double* a, size_t lda, const double* b, size_t ldb, size_t k, size_t m, size_t n,
           double* c) {
  std::fill_n(c, m * n, 0.0);
  for (size_t r = 0; r < k; ++r) {
    for (size_t i = 0; i < m; ++i) {
      const double factor = a[r * lda + i];
      for (size_t j = 0; j < n; ++j) c[i * n + j] += factor * b[r * ldb + j];
    }
  }
}

// c [m][n] = a b, a [m][k], b [k][n].
void product(const double* a, const double* b, size_t m, size_t k, size_t n, double* c) {
  std::fill_n(c, m * n, 0.0);
  for (size_t i = 0; i < m; ++i) {
    for (size_t r = 0; r < k; ++r) {
      for (size_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + r] * b[r * n + j];
    }
  }
}

}  // namespace

ButlerWeights random_butler(const ButlerGeometry& geometry, uint64_t seed) {
  constexpr uint64_t kSalt = 0xb071e5;
  ButlerWeights weights = ButlerWeights::zeros(geometry);
  for (size_t p = 0; p < weights.producers.size(); ++p) {
    Random random = random_of(seed, kSalt, p);
    fill_normal(random, inverse_root(geometry.width), weights.producers[p].in);
    fill_normal(random, inverse_root(geometry.hidden), weights.producers[p].out);
  }
  for (size_t i = 0; i < weights.projections.size(); ++i) {
    Random random = random_of(seed, kSalt + 1, i);
    fill_normal(random, inverse_root(geometry.head_dim), weights.projections[i]);
  }
  return weights;
}

// Sums over the rows of a producer.
struct ButlerFit::Producer {
  size_t n_rows = 0;
  std::vector<double> inputs;   // [width][width]
  std::vector<double> queries;  // input x query, [width][slot, head, head_dim]
  std::vector<double> map;      // the regression of queries on inputs, as above
  std::vector<double> hidden;   // [hidden][hidden]
  std::vector<double> targets;  // hidden x importance query, [hidden][slot, head, dim]
};

struct ButlerFit::Head {
  size_t n_keys = 0;
  // The first key, which is taken off all: keys with a bias would leave nothing of their small directions in
  // sums of squares.
  std::vector<float> origin;    // [head_dim]
  std::vector<double> sums;     // [head_dim]
  std::vector<double> squares;  // [head_dim][head_dim]
  std::vector<double> aim;      // importance query = q aim, [head_dim][dim]
};

ButlerFit::ButlerFit(const ButlerGeometry& geometry, size_t sink, ItemRunner run)
    : geometry_(geometry),
      sink_(sink),
      run_(std::move(run)),
      weights_(ButlerWeights::zeros(geometry)),
      producers_(geometry.n_producers()),
      heads_((geometry.n_layers - 1) * geometry.n_kv_heads) {
  const ButlerGeometry& g = geometry;
  for (size_t p = 0; p < producers_.size(); ++p) {
    producers_[p].inputs.assign(g.width * g.width, 0.0);
    producers_[p].queries.assign(g.width * g.n_slots(p) * g.n_heads * g.head_dim, 0.0);
    producers_[p].hidden.assign(g.hidden * g.hidden, 0.0);
    producers_[p].targets.assign(g.hidden * g.query_values(p), 0.0);
  }
  for (Head& head : heads_) {
    head.sums.assign(g.head_dim, 0.0);
    head.squares.assign(g.head_dim * g.head_dim, 0.0);
  }
}

ButlerFit::~ButlerFit() = default;

void ButlerFit::add_keys(const ButlerExample<float>& example, size_t layer, size_t kv_head) {
  const size_t dim = geometry_.head_dim;
  if (example.n_tokens <= sink_) return;
  const size_t n = example.n_tokens - sink_;
  const float* keys = example.keys[layer - 1].data() + (kv_head * example.n_tokens + sink_) * dim;
  Head& head = heads_[(layer - 1) * geometry_.n_kv_heads + kv_head];
  if (head.origin.empty()) head.origin.assign(keys, keys + dim);
  std::vector<float> shifted(keys, keys + n * dim);
  for (size_t i = 0; i < n; ++i) {
    for (size_t d = 0; d < dim; ++d) {
      float& value = shifted[i * dim + d];
      value -= head.origin[d];
      head.sums[d] += static_cast<double>(value);
    }
  }
  CrossSum(shifted.data(), n, dim).add(shifted.data(), dim, dim, head.squares.data(), dim);
  head.n_keys += n;
}

void ButlerFit::add_first(const ButlerExample<float>& example) {
  const ButlerGeometry& g = geometry_;
  run_(heads_.size(), [&](size_t i) { add_keys(example, 1 + i / g.n_kv_heads, i % g.n_kv_heads); });
  run_(producers_.size(), [&](size_t p) {
    Producer& own = producers_[p];
    const std::vector<float> x = butler_inputs(g, example.inputs[p]);
    const size_t n_rows = example.rows.size();
    CrossSum sum(x.data(), n_rows, g.width);
    sum.add(x.data(), g.width, g.width, own.inputs.data(), g.width);
    const size_t ld = g.n_slots(p) * g.n_heads * g.head_dim;
    for (size_t column = 0; column < g.n_slots(p) * g.n_heads; ++column) {
      const size_t layer = g.producer_layer(p) + 1 + column / g.n_heads;
      const float* q = example.queries[layer - 1].data() + column % g.n_heads * n_rows * g.head_dim;
      sum.add(q, g.head_dim, g.head_dim, own.queries.data() + column * g.head_dim, ld);
    }
    own.n_rows += n_rows;
  });
}

void ButlerFit::solve_first() {
  const ButlerGeometry& g = geometry_;
  run_(producers_.size(), [&](size_t p) {
    Producer& own = producers_[p];
    own.map = solve_ridge(own.inputs, own.queries, g.width, g.n_slots(p) * g.n_heads * g.head_dim, kRidge);
  });
  run_(heads_.size(), [&](size_t i) { solve_head(1 + i / g.n_kv_heads, i % g.n_kv_heads); });
  run_(producers_.size(), [&](size_t p) { solve_in(p); });
}

void ButlerFit::solve_head(size_t layer, size_t kv_head) {
  const ButlerGeometry& g = geometry_;
  const size_t dim = g.head_dim;
  Head& head = heads_[(layer - 1) * g.n_kv_heads + kv_head];
  const auto n = static_cast<double>(std::max<size_t>(head.n_keys, 1));
  std::vector<double> covariance(dim * dim);
  for (size_t i = 0; i < dim * dim; ++i) {
    covariance[i] = head.squares[i] / n - head.sums[i / dim] * head.sums[i % dim] / (n * n);
  }
  const Eigen keys = symmetric_eigen(covariance, dim);
  double mean = 0;
  for (const double value : keys.values) mean += std::max(value, 0.0) / static_cast<double>(dim);
  // C^1/2 and C^-1/2, symmetric.
  std::vector<double> root(dim * dim, 0.0), inverse(dim * dim, 0.0);
  for (size_t e = 0; e < dim; ++e) {
    const double deviation = std::sqrt(std::max(keys.values[e], kLeastVariance * mean) + 1e-30);
    const double* vector = keys.vectors.data() + e * dim;
    for (size_t i = 0; i < dim * dim; ++i) {
      const double square = vector[i / dim] * vector[i % dim];
      root[i] += square * deviation;
      inverse[i] += square / deviation;
    }
  }
  // The second moment of foretold queries, of all heads of the group.
  const size_t p = g.producer_of(layer);
  const size_t group = g.n_heads / g.n_kv_heads;
  const size_t ld = g.n_slots(p) * g.n_heads * dim;
  std::vector<double> moment(dim * dim, 0.0), one(dim * dim), other(dim * dim);
  for (size_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const size_t column = (g.slot_of(layer) * g.n_heads + h) * dim;
    cross(producers_[p].map.data() + column, ld, producers_[p].queries.data() + column, ld, g.width, dim, dim,
          one.data());
    for (size_t i = 0; i < dim * dim; ++i) moment[i] += (one[i] + one[i % dim * dim + i / dim]) / 2;
  }
  product(root.data(), moment.data(), dim, dim, dim, one.data());
  product(one.data(), root.data(), dim, dim, dim, other.data());
  const Eigen scores = symmetric_eigen(other, dim);
  std::vector<double> kept(dim * g.dim, 0.0);  // V [head_dim][dim]
  for (size_t j = 0; j < std::min(g.dim, dim); ++j) {
    for (size_t d = 0; d < dim; ++d) kept[d * g.dim + j] = scores.vectors[j * dim + d];
  }
  std::vector<double> projection(dim * g.dim);
  product(inverse.data(), kept.data(), dim, dim, g.dim, projection.data());
  std::copy(projection.begin(), projection.end(),
            weights_.projections[layer - 1].begin() + static_cast<ptrdiff_t>(kv_head * dim * g.dim));
  head.aim.resize(dim * g.dim);
  product(root.data(), kept.data(), dim, dim, g.dim, head.aim.data());
  for (double& value : head.aim) value *= std::sqrt(static_cast<double>(g.dim));
}

void ButlerFit::solve_in(size_t p) {
  const ButlerGeometry& g = geometry_;
  const Producer& own = producers_[p];
  const size_t n_out = g.query_values(p);
  const size_t ld = g.n_slots(p) * g.n_heads * g.head_dim;
  // map and queries of importance queries: those of queries times aim.
  std::vector<double> map(g.width * n_out, 0.0), sums(g.width * n_out, 0.0);
  for (size_t column = 0; column < n_out; ++column) {
    const size_t slot_head = column / g.dim;
    const size_t layer = g.producer_layer(p) + 1 + slot_head / g.n_heads;
    const size_t kv_head = slot_head % g.n_heads / (g.n_heads / g.n_kv_heads);
    const std::vector<double>& aim = heads_[(layer - 1) * g.n_kv_heads + kv_head].aim;
    for (size_t i = 0; i < g.width; ++i) {
      for (size_t d = 0; d < g.head_dim; ++d) {
        const double factor = aim[d * g.dim + column % g.dim];
        map[i * n_out + column] += own.map[i * ld + slot_head * g.head_dim + d] * factor;
        sums[i * n_out + column] += own.queries[i * ld + slot_head * g.head_dim + d] * factor;
      }
    }
  }
  std::vector<double> fitted(n_out * n_out), symmetric(n_out * n_out);
  cross(map.data(), n_out, sums.data(), n_out, g.width, n_out, n_out, fitted.data());
  for (size_t i = 0; i < n_out * n_out; ++i) {
    symmetric[i] = (fitted[i] + fitted[i % n_out * n_out + i / n_out]) / 2;
  }
  const size_t k = std::min(g.hidden, n_out);
  const std::vector<double> leading = leading_subspace(symmetric, n_out, k, kSubspaceRounds);
  std::vector<double> spread(g.width);
  for (size_t m = 0; m < k; ++m) {
    std::vector<double> row(g.width, 0.0);
    for (size_t i = 0; i < g.width; ++i) {
      for (size_t j = 0; j < n_out; ++j) row[i] += map[i * n_out + j] * leading[m * n_out + j];
    }
    product(row.data(), own.inputs.data(), 1, g.width, g.width, spread.data());
    double square = 0;
    for (size_t i = 0; i < g.width; ++i) square += row[i] * spread[i];
    const double rms =
        std::sqrt(std::max(square, 0.0) / static_cast<double>(std::max<size_t>(own.n_rows, 1)));
    for (size_t i = 0; i < g.width; ++i) {
      weights_.producers[p].in[m * g.width + i] = rms > 0 ? static_cast<float>(row[i] / rms) : 0.0f;
    }
  }
  // More units than outputs: the others begin at random.
  Random random = random_of(1, p);
  for (size_t i = k * g.width; i < weights_.producers[p].in.size(); ++i) {
    weights_.producers[p].in[i] = static_cast<float>(inverse_root(g.width) * normal(random));
  }
}

void ButlerFit::add_second(const ButlerExample<float>& example) {
  const ButlerGeometry& g = geometry_;
  const size_t n_rows = example.rows.size();
  run_(producers_.size(), [&](size_t p) {
    Producer& own = producers_[p];
    const std::vector<float> x = butler_inputs(g, example.inputs[p]);
    PackedOperand<float> operand;
    operand.pack(weights_.producers[p].in.data(), g.hidden, g.width, g.width, 1);
    std::vector<float> y(n_rows * g.hidden);
    multiply_small<float>(operand, {x.data(), g.width, n_rows, y.data(), g.hidden});
    for (float& value : y) value = value / (1 + std::exp(-value));
    CrossSum sum(y.data(), n_rows, g.hidden);
    sum.add(y.data(), g.hidden, g.hidden, own.hidden.data(), g.hidden);
    std::vector<float> aim, wanted(n_rows * g.dim);
    for (size_t column = 0; column < g.n_slots(p) * g.n_heads; ++column) {
      const size_t layer = g.producer_layer(p) + 1 + column / g.n_heads;
      const size_t h = column % g.n_heads;
      const Head& head = heads_[(layer - 1) * g.n_kv_heads + h / (g.n_heads / g.n_kv_heads)];
      aim.assign(head.aim.begin(), head.aim.end());
      operand.pack(aim.data(), g.dim, g.head_dim, 1, g.dim);
      const float* q = example.queries[layer - 1].data() + h * n_rows * g.head_dim;
      multiply_small<float>(operand, {q, g.head_dim, n_rows, wanted.data(), g.dim});
      sum.add(wanted.data(), g.dim, g.dim, own.targets.data() + column * g.dim, g.query_values(p));
    }
  });
}

void ButlerFit::solve_second() {
  const ButlerGeometry& g = geometry_;
  run_(producers_.size(), [&](size_t p) {
    Producer& own = producers_[p];
    const size_t n_out = g.query_values(p);
    const std::vector<double> out = solve_ridge(own.hidden, own.targets, g.hidden, n_out, kRidge);
    for (size_t j = 0; j < n_out; ++j) {
      for (size_t m = 0; m < g.hidden; ++m) {
        weights_.producers[p].out[j * g.hidden + m] = static_cast<float>(out[m * n_out + j]);
      }
    }
  });
}

}  // namespace quire
