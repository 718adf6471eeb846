// Random keys, values and queries of one layer, attended through the kernels and in double precision.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "attention/attend.h"
#include "property/random.h"
#include "property/reference.h"
#include "property/store/sequence_model.h"
#include "store/store.h"

namespace quire::test {

// Every byte of every page becomes 0xff: a NaN in each format, so that a lane that holds no token shows.
inline void poison(const Store& store) {
  for (size_t layer = 0; layer < store.n_layers(); ++layer) {
    for (const PageRef& page : store.view(layer, 0).pages) std::memset(page->data, 0xff, page->size_bytes);
  }
}

struct Scene {
  PagePool pool;
  Store store;
  size_t n_tokens;
  size_t group;          // query heads per KV head
  size_t n_queries;      // the last tokens, each attending up to its own position
  std::vector<float> q;  // [n_kv_heads][n_queries * group][head_dim], scaled

  Scene(RowLayout layout, size_t n_tokens_, size_t group_, size_t n_queries_, uint64_t seed)
      : store({layout}, pool), n_tokens(n_tokens_), group(group_), n_queries(n_queries_) {
    Random random(seed);
    store.extend(n_tokens);
    poison(store);
    for (size_t head = 0; head < layout.n_kv_heads; ++head) {
      const std::vector<float> k = random.normals(n_tokens * layout.head_dim);
      const std::vector<float> v = random.normals(n_tokens * layout.head_dim);
      store.write(0, head, 0, n_tokens, k.data(), v.data(), layout.head_dim);
    }
    store.commit(n_tokens);
    const double scale = 1.0 / std::sqrt(static_cast<double>(layout.head_dim));
    q = random.normals(layout.n_kv_heads * n_rows() * layout.head_dim, scale);
  }

  const RowLayout& layout() const { return store.layout(0); }
  size_t n_rows() const { return n_queries * group; }
  size_t first_position() const { return n_tokens >= n_queries ? n_tokens - n_queries : 0; }
  LayerView view() const { return store.view(0, n_tokens); }
  size_t position(size_t row) const { return first_position() + row / group; }

  QueryRows queries(size_t head) const {
    return {q.data() + head * n_rows() * layout().head_dim, n_queries, group, first_position()};
  }

  // All runs of pages, each from an empty state, merged from left to right.
  PartialState attend(size_t head, const Selection& selection) const {
    AttendScratch scratch;
    PartialState total(n_rows(), layout().head_dim);
    for (size_t run = 0; run < runs_for(n_tokens); ++run) {
      PartialState state(n_rows(), layout().head_dim);
      attend_run(view(), head, run, queries(head), selection, scratch, state);
      total.merge(state);
    }
    return total;
  }

  // In double precision, over the stored rows.
  template <typename Selected>
  Attended expected(size_t head, size_t row, const Selected& selected) const {
    const LayerView rows = view();
    const auto visible = [&](size_t t) { return t <= position(row) && selected(t); };
    const auto key = [&](size_t t, size_t d) { return static_cast<double>(stored_key(rows, head, t, d)); };
    const auto value = [&](size_t t, size_t d) {
      return static_cast<double>(stored_output(rows, head, t, d));
    };
    const float* query = q.data() + (head * n_rows() + row) * layout().head_dim;
    return attention(query, layout().head_dim, n_tokens, visible, key, value);
  }

  std::string name() const {
    return std::string("head_dim ") + std::to_string(layout().head_dim) +
           " k=" + info(layout().key_format).name + " v=" + info(layout().value_format).name + " tokens " +
           std::to_string(n_tokens) + " group " + std::to_string(group) + " queries " +
           std::to_string(n_queries);
  }
};

inline std::vector<float> outputs(const PartialState& state) {
  std::vector<float> out(state.n_rows * state.head_dim);
  state.write_output(out.data(), state.head_dim);
  return out;
}

// Largest error of the outputs and log sums of a head; infinite where one is NaN or wrongly empty.
template <typename Selected>
double largest_error(const Scene& scene, size_t head, const PartialState& state, const Selected& selected) {
  const std::vector<float> out = outputs(state);
  double worst = 0;
  const auto note = [&](double got, double wanted) {
    if (got == wanted) return;  // two infinities too
    const double error = std::fabs(got - wanted);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  };
  for (size_t row = 0; row < scene.n_rows(); ++row) {
    const Attended wanted = scene.expected(head, row, selected);
    for (size_t d = 0; d < state.head_dim; ++d) note(out[row * state.head_dim + d], wanted.output[d]);
    note(state.log_sum(row), wanted.log_sum);
  }
  return worst;
}

inline bool everything(size_t) { return true; }

// Random normal rows: errors of f32 sums of up to 256 products and 700 tokens stay well below.
constexpr double kAttentionError = 1e-5;

}  // namespace quire::test
