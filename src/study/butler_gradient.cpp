#include "study/butler_gradient.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "study/butler_rows.h"
#include "study/small_product.h"

namespace quire {
namespace {

// Query rows whose scores are in memory at once: with 1,024 tokens in f32, 128 KB of each of teacher's and
// student's, which the second-level cache holds.
constexpr size_t kBlockRows = 32;

size_t whole_pages(size_t n) { return (n + kPageTokens - 1) / kPageTokens * kPageTokens; }

// x -> (x - mean) / sqrt(variance + epsilon).
template <typename T>
void normalise_row(const T* x, size_t n, T* normed) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(n);
  double squares = 0;
  for (size_t i = 0; i < n; ++i) {
    const double offset = static_cast<double>(x[i]) - mean;
    squares += offset * offset;
  }
  const double inverse =
      1 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(kButlerNormEpsilon));
  for (size_t i = 0; i < n; ++i) {
    normed[i] = static_cast<T>((static_cast<double>(x[i]) - mean) * inverse);
  }
}

template <typename T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

// One KV head of one layer on one example: scores of a block of rows, their loss, and what flows back.
template <typename T>
class HeadPass {
 public:
  HeadPass(const ButlerGeometry& geometry, const ButlerMask& mask, const ButlerExample<T>& example)
      : g_(geometry),
        mask_(mask),
        example_(example),
        ld_(whole_pages(example.n_tokens)),
        scale_(static_cast<T>(1 / std::sqrt(static_cast<double>(geometry.dim)))) {}

  // keys [token][head_dim], projection [head_dim][dim].
  void project(const T* keys, const T* projection) {
    transpose(projection, g_.head_dim, g_.dim, g_.dim, scratch_);
    for (T& value : scratch_) value *= scale_;
    keys_.pack(keys, example_.n_tokens, g_.head_dim, g_.head_dim, 1);
    projected_.assign(g_.dim * ld_, T{});
    multiply_small<T>(keys_, {scratch_.data(), g_.head_dim, g_.dim, projected_.data(), ld_});
    by_token_.pack(projected_.data(), ld_, g_.dim, 1, ld_);
    by_dim_.pack(projected_.data(), g_.dim, ld_, ld_, 1);
    d_projected_.assign(g_.dim * ld_, T{});
  }

  // Rows [first, end) of one query head: q [row][head_dim], i and d_i [row][ldi], all at the first row of the
  // example. Returns the sum of their losses.
  double rows(size_t first, size_t end, const T* q, const T* i, T* d_i, size_t ldi, double factor) {
    const size_t n = end - first;
    const size_t limit = std::min(ld_, whole_pages(mask_.end(example_.rows[end - 1])));
    teacher_.resize(kBlockRows * ld_);
    student_.resize(kBlockRows * ld_);
    const T* q_rows = q + first * g_.head_dim;
    const T* i_rows = i + first * ldi;
    // The teacher's scores reach to the row's own token: its share on candidates is measured.
    multiply_small<T>(keys_,
                      {q_rows, g_.head_dim, n, teacher_.data(), ld_, false, example_.rows[end - 1] + 1});
    double loss = 0;
    if (limit > 0) {
      multiply_small<T>(by_token_, {i_rows, ldi, n, student_.data(), ld_, false, limit});
    }
    for (size_t r = 0; r < n; ++r) {
      loss +=
          row(example_.rows[first + r], teacher_.data() + r * ld_, student_.data() + r * ld_, limit, factor);
    }
    if (limit == 0) {
      for (size_t r = 0; r < n; ++r) std::fill_n(d_i + (first + r) * ldi, g_.dim, T{});
      return loss;
    }
    multiply_small<T>(by_dim_, {student_.data(), ld_, n, d_i + first * ldi, ldi, false, g_.dim, limit});
    transpose(i_rows, n, g_.dim, ldi, scratch_);
    d_scores_.pack(student_.data(), limit, n, 1, ld_);
    multiply_small<T>(d_scores_, {scratch_.data(), n, g_.dim, d_projected_.data(), ld_, true});
    return loss;
  }

  // Adds the gradient of the projection [head_dim][dim].
  void finish(const T* keys, T* gradient) {
    keys_.pack(keys, g_.head_dim, example_.n_tokens, 1, g_.head_dim);
    scratch_.resize(g_.dim * g_.head_dim);
    multiply_small<T>(keys_, {d_projected_.data(), ld_, g_.dim, scratch_.data(), g_.head_dim});
    for (size_t d = 0; d < g_.head_dim; ++d) {
      for (size_t j = 0; j < g_.dim; ++j) gradient[d * g_.dim + j] += scratch_[j * g_.head_dim + d] * scale_;
    }
  }

 private:
  // Turns the student's scores [limit] into factor times the loss's derivative by them.
  double row(size_t position, T* teacher, T* student, size_t limit, double factor) {
    const size_t first = mask_.first();
    const size_t end = mask_.end(position);
    if (end <= first) {
      std::fill_n(student, limit, T{});
      return 0;
    }
    double outside = 0;
    const auto top = static_cast<double>(range_max(teacher, first, end));
    if (mask_.weighted) {
      const auto add = [&](size_t token) {
        outside += std::exp(std::min(static_cast<double>(teacher[token]) - top, 700.0));
      };
      for (size_t token = 0; token < first; ++token) add(token);
      for (size_t token = end; token <= position; ++token) add(token);
    }
    scores_.assign(teacher + first, teacher + end);
    const RowSum p = range_softmax(teacher, first, end, limit);
    const double expected_student = range_dot(teacher, student, first, end) / p.sum;
    const double expected_teacher = range_dot(teacher + first, scores_.data(), 0, end - first) / p.sum;
    const RowSum r = range_softmax(student, first, end, limit);
    const double weight = mask_.weighted ? p.sum / (p.sum + outside) : 1;
    const double cross_entropy = r.log_sum() - expected_student;
    const double entropy = p.log_sum() - expected_teacher;
    const auto of_student = static_cast<T>(factor * weight / r.sum);
    const auto of_teacher = static_cast<T>(factor * weight / p.sum);
    for (size_t j = 0; j < limit; ++j) student[j] = student[j] * of_student - teacher[j] * of_teacher;
    return weight * (cross_entropy - entropy);
  }

  const ButlerGeometry& g_;
  const ButlerMask& mask_;
  const ButlerExample<T>& example_;
  size_t ld_;  // tokens in whole pages
  T scale_;
  PackedOperand<T> keys_;                   // [token] x head_dim, at last [head_dim] x token
  PackedOperand<T> by_token_;               // projected keys, [token] x dim
  PackedOperand<T> by_dim_;                 // [dim] x token
  PackedOperand<T> d_scores_;               // [token] x row
  std::vector<T> projected_, d_projected_;  // [dim][ld_], with 1 / sqrt(dim)
  std::vector<T> teacher_, student_;        // [row of the block][ld_]
  std::vector<T> scratch_, scores_;
};

}  // namespace

std::vector<float> butler_inputs(const ButlerGeometry& geometry, const std::vector<float>& inputs) {
  std::vector<float> normed(inputs.size());
  for (size_t at = 0; at < inputs.size(); at += geometry.width) {
    normalise_row(inputs.data() + at, geometry.width, normed.data() + at);
  }
  return normed;
}

template <typename T>
ButlerGradient<T>::ButlerGradient(const ButlerLayout& layout, const ButlerMask& mask, ItemRunner run)
    : layout_(layout),
      mask_(mask),
      run_(std::move(run)),
      producers_(layout.geometry().n_producers()),
      queries_(layout.geometry().n_producers()) {}

template <typename T>
const std::vector<std::vector<T>>& ButlerGradient<T>::predict(const ButlerExample<T>& example,
                                                              const T* parameters) {
  run_(producers_.size(), [&](size_t p) { forward_producer(p, example, parameters); });
  return queries_;
}

template <typename T>
double ButlerGradient<T>::add(const ButlerExample<T>& example, const T* parameters, double factor,
                              T* gradient) {
  const ButlerGeometry& g = layout_.geometry();
  predict(example, parameters);
  for (size_t p = 0; p < producers_.size(); ++p) producers_[p].d_query.resize(queries_[p].size());
  std::vector<double> losses((g.n_layers - 1) * g.n_kv_heads);
  run_(losses.size(), [&](size_t item) {
    const size_t layer = 1 + item / g.n_kv_heads;
    losses[item] = layer_head(layer, item % g.n_kv_heads, example, parameters, factor, gradient);
  });
  run_(producers_.size(), [&](size_t p) { backward_producer(p, example.rows.size(), parameters, gradient); });
  layer_losses_.assign(g.n_layers - 1, 0.0);
  double loss = 0;
  for (size_t item = 0; item < losses.size(); ++item) {
    layer_losses_[item / g.n_kv_heads] += losses[item] / static_cast<double>(example.rows.size() * g.n_heads);
  }
  for (const double of_layer : layer_losses_) loss += of_layer;
  return loss / static_cast<double>(g.n_layers - 1);
}

template <typename T>
double ButlerGradient<T>::layer_head(size_t layer, size_t kv_head, const ButlerExample<T>& example,
                                     const T* parameters, double factor, T* gradient) {
  const ButlerGeometry& g = layout_.geometry();
  const size_t group = g.n_heads / g.n_kv_heads;
  const size_t n_rows = example.rows.size();
  const size_t p = g.producer_of(layer);
  const size_t ldi = g.query_values(p);
  const size_t at = layout_.projection(layer) + kv_head * g.head_dim * g.dim;
  const T* keys = example.keys[layer - 1].data() + kv_head * example.n_tokens * g.head_dim;
  const double row_factor = factor / static_cast<double>(n_rows * g.n_heads * (g.n_layers - 1));
  HeadPass<T> pass(g, mask_, example);
  pass.project(keys, parameters + at);
  double loss = 0;
  for (size_t first = 0; first < n_rows; first += kBlockRows) {
    const size_t end = std::min(n_rows, first + kBlockRows);
    for (size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const size_t column = (g.slot_of(layer) * g.n_heads + head) * g.dim;
      const T* q = example.queries[layer - 1].data() + head * n_rows * g.head_dim;
      loss += pass.rows(first, end, q, queries_[p].data() + column, producers_[p].d_query.data() + column,
                        ldi, row_factor);
    }
  }
  pass.finish(keys, gradient + at);
  return loss;
}

template <typename T>
void ButlerGradient<T>::forward_producer(size_t p, const ButlerExample<T>& example, const T* parameters) {
  const ButlerGeometry& g = layout_.geometry();
  Producer& own = producers_[p];
  const size_t n_rows = example.rows.size();
  const T* weight = parameters + layout_.norm_weight(p);
  const T* bias = parameters + layout_.norm_bias(p);
  own.normed.resize(n_rows * g.width);
  own.x.resize(n_rows * g.width);
  for (size_t r = 0; r < n_rows; ++r) {
    T* normed = own.normed.data() + r * g.width;
    normalise_row(example.inputs[p].data() + r * g.width, g.width, normed);
    for (size_t i = 0; i < g.width; ++i) own.x[r * g.width + i] = normed[i] * weight[i] + bias[i];
  }
  PackedOperand<T> operand;
  own.pre.resize(n_rows * g.hidden);
  operand.pack(parameters + layout_.in(p), g.hidden, g.width, g.width, 1);
  multiply_small<T>(operand, {own.x.data(), g.width, n_rows, own.pre.data(), g.hidden});
  own.y.resize(own.pre.size());
  for (size_t i = 0; i < own.pre.size(); ++i) own.y[i] = own.pre[i] * sigmoid(own.pre[i]);
  const size_t n_out = g.query_values(p);
  queries_[p].resize(n_rows * n_out);
  operand.pack(parameters + layout_.out(p), n_out, g.hidden, g.hidden, 1);
  multiply_small<T>(operand, {own.y.data(), g.hidden, n_rows, queries_[p].data(), n_out});
}

template <typename T>
void ButlerGradient<T>::backward_producer(size_t p, size_t n_rows, const T* parameters, T* gradient) {
  const ButlerGeometry& g = layout_.geometry();
  const Producer& own = producers_[p];
  const size_t n_out = g.query_values(p);
  PackedOperand<T> operand;
  std::vector<T> transposed;
  // out: d_out += d_query^T y, d_y = d_query out.
  transpose(own.d_query.data(), n_rows, n_out, n_out, transposed);
  operand.pack(own.y.data(), g.hidden, n_rows, 1, g.hidden);
  multiply_small<T>(operand, {transposed.data(), n_rows, n_out, gradient + layout_.out(p), g.hidden, true});
  std::vector<T> d_pre(n_rows * g.hidden);
  operand.pack(parameters + layout_.out(p), g.hidden, n_out, 1, g.hidden);
  multiply_small<T>(operand, {own.d_query.data(), n_out, n_rows, d_pre.data(), g.hidden});
  for (size_t i = 0; i < d_pre.size(); ++i) {
    const T s = sigmoid(own.pre[i]);
    d_pre[i] *= s * (1 + own.pre[i] * (1 - s));
  }
  // in: d_in += d_pre^T x, d_x = d_pre in.
  transpose(d_pre.data(), n_rows, g.hidden, g.hidden, transposed);
  operand.pack(own.x.data(), g.width, n_rows, 1, g.width);
  multiply_small<T>(operand, {transposed.data(), n_rows, g.hidden, gradient + layout_.in(p), g.width, true});
  std::vector<T> d_x(n_rows * g.width);
  operand.pack(parameters + layout_.in(p), g.width, g.hidden, 1, g.width);
  multiply_small<T>(operand, {d_pre.data(), g.hidden, n_rows, d_x.data(), g.width});
  T* d_weight = gradient + layout_.norm_weight(p);
  T* d_bias = gradient + layout_.norm_bias(p);
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t i = 0; i < g.width; ++i) {
      d_weight[i] += d_x[r * g.width + i] * own.normed[r * g.width + i];
      d_bias[i] += d_x[r * g.width + i];
    }
  }
}

template class ButlerGradient<float>;
template class ButlerGradient<double>;

}  // namespace quire
