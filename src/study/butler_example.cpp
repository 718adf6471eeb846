#include "study/butler_example.h"

#include <algorithm>

namespace quire {
namespace {

class Collector : public RowObserver {
 public:
  Collector(const ButlerGeometry& geometry, ButlerExample<float>& example)
      : geometry_(geometry), example_(example) {}

  void attention_input(size_t layer, size_t position, size_t n, const float* x) override {
    const size_t producer = layer / geometry_.stride;
    if (layer % geometry_.stride != 0 || producer >= geometry_.n_producers()) return;
    const size_t width = geometry_.width;
    for_rows(position, n, [&](size_t row, size_t i) {
      std::copy_n(x + i * width, width, example_.inputs[producer].data() + row * width);
    });
  }

  void rows(size_t layer, size_t position, size_t n, const float* q, const float* k, const float*,
            size_t ld) override {
    if (layer == 0) return;
    const size_t dim = geometry_.head_dim;
    float* keys = example_.keys[layer - 1].data();
    for (size_t head = 0; head < geometry_.n_kv_heads; ++head) {
      for (size_t i = 0; i < n; ++i) {
        std::copy_n(k + i * ld + head * dim, dim, keys + (head * example_.n_tokens + position + i) * dim);
      }
    }
    float* queries = example_.queries[layer - 1].data();
    for_rows(position, n, [&](size_t row, size_t i) {
      for (size_t head = 0; head < geometry_.n_heads; ++head) {
        std::copy_n(q + i * ld + head * dim, dim, queries + (head * example_.rows.size() + row) * dim);
      }
    });
  }

 private:
  // f(row, its token of this piece) for the example's rows among n tokens from `position` on.
  template <typename F>
  void for_rows(size_t position, size_t n, const F& f) const {
    const auto& rows = example_.rows;
    auto at = std::lower_bound(rows.begin(), rows.end(), position);
    for (; at != rows.end() && *at < position + n; ++at) {
      f(static_cast<size_t>(at - rows.begin()), *at - position);
    }
  }

  const ButlerGeometry& geometry_;
  ButlerExample<float>& example_;
};

}  // namespace

void take_rows(ButlerExample<float>& example, const ButlerGeometry& geometry, size_t first, size_t stride,
               ButlerExample<float>& part) {
  const ButlerGeometry& g = geometry;
  const size_t n_all = example.rows.size();
  part.n_tokens = example.n_tokens;
  part.rows.clear();
  part.inputs.assign(example.inputs.size(), {});
  part.queries.assign(example.queries.size(), {});
  const auto take = [](const std::vector<float>& from, size_t row, size_t n, std::vector<float>& to) {
    const auto at = from.begin() + static_cast<ptrdiff_t>(row * n);
    to.insert(to.end(), at, at + static_cast<ptrdiff_t>(n));
  };
  for (size_t row = first; row < n_all; row += stride) {
    part.rows.push_back(example.rows[row]);
    for (size_t p = 0; p < part.inputs.size(); ++p) take(example.inputs[p], row, g.width, part.inputs[p]);
  }
  for (size_t layer = 0; layer < part.queries.size(); ++layer) {
    for (size_t head = 0; head < g.n_heads; ++head) {
      for (size_t row = first; row < n_all; row += stride) {
        take(example.queries[layer], head * n_all + row, g.head_dim, part.queries[layer]);
      }
    }
  }
  part.keys.swap(example.keys);
}

void give_keys_back(ButlerExample<float>& example, ButlerExample<float>& part) {
  part.keys.swap(example.keys);
}

void ButlerTeacher::show(std::span<const int32_t> tokens, std::span<const size_t> rows,
                         ButlerExample<float>& example) {
  const ButlerGeometry& g = geometry_;
  example.n_tokens = tokens.size();
  example.rows.assign(rows.begin(), rows.end());
  example.inputs.resize(g.n_producers());
  for (auto& inputs : example.inputs) inputs.resize(rows.size() * g.width);
  example.queries.resize(g.n_layers - 1);
  for (auto& queries : example.queries) queries.resize(g.n_heads * rows.size() * g.head_dim);
  example.keys.resize(g.n_layers - 1);
  for (auto& keys : example.keys) keys.resize(g.n_kv_heads * tokens.size() * g.head_dim);
  Collector collector(geometry_, example);
  Cache cache = engine_.make_cache(Recipe{});
  engine_.forward(tokens, cache, workspace_, {}, &collector);
}

}  // namespace quire
