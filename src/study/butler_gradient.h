// The loss of a predictor on an example, and its gradient, written by hand.
//
// For a query row at position t the candidates are the tokens [sink, t - local]: what run time reads anyway
// is left out on both sides, since the first tokens alone hold most of a model's attention and would leave
// nothing to learn (the paper takes the whole causal row; sink = local = 0 does). Over the candidates
//
//   p = softmax(q . k)                    the teacher's, per query head
//   s = i . (k P) / sqrt(d'),  r = softmax(s)
//   loss = mean over rows, heads, layers of w (sum p log p - sum p log r)
//
// which is the cross-entropy without its constant part, so that 0 is perfect. w is the share of the head's
// attention that lies on candidates: a row that looks at sinks only says nothing about the others.
// Memory is O(rows of a block x tokens).
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "study/butler_example.h"
#include "study/butler_layout.h"

namespace quire {

struct ButlerMask {
  size_t sink = 4;
  size_t local = 32;
  bool weighted = true;  // w as above; otherwise 1

  // The candidates of a row, [first, end), empty where end <= first.
  size_t first() const { return sink; }
  size_t end(size_t position) const { return position + 1 > local ? position + 1 - local : 0; }
};

// Runs f(item) for all items below n, on any number of threads.
using ItemRunner = std::function<void(size_t n, const std::function<void(size_t item)>& f)>;

// What a producer reads [row][width], normalised as its LayerNorm does before weight and bias.
std::vector<float> butler_inputs(const ButlerGeometry& geometry, const std::vector<float>& inputs);

// T: float, or double for tests.
template <typename T>
class ButlerGradient {
 public:
  ButlerGradient(const ButlerLayout& layout, const ButlerMask& mask, ItemRunner run);

  // Importance queries of all rows, for whoever scores with them: [producer] -> [row][query_values].
  const std::vector<std::vector<T>>& predict(const ButlerExample<T>& example, const T* parameters);

  // The example's loss; its gradient times `factor` is added to `gradient` [layout.size()].
  double add(const ButlerExample<T>& example, const T* parameters, double factor, T* gradient);

  // Per layer from 1 on, of the last add().
  const std::vector<double>& layer_losses() const { return layer_losses_; }

 private:
  // What a producer's forward pass leaves for its backward pass.
  struct Producer {
    std::vector<T> normed;   // [row][width], before weight and bias
    std::vector<T> x;        // [row][width]
    std::vector<T> pre;      // [row][hidden]
    std::vector<T> y;        // [row][hidden]
    std::vector<T> d_query;  // [row][query_values]
  };

  void forward_producer(size_t p, const ButlerExample<T>& example, const T* parameters);
  void backward_producer(size_t p, size_t n_rows, const T* parameters, T* gradient);
  double layer_head(size_t layer, size_t kv_head, const ButlerExample<T>& example, const T* parameters,
                    double factor, T* gradient);

  ButlerLayout layout_;
  ButlerMask mask_;
  ItemRunner run_;
  std::vector<Producer> producers_;
  std::vector<std::vector<T>> queries_;  // [producer] -> [row][query_values]
  std::vector<double> layer_losses_;
};

extern template class ButlerGradient<float>;
extern template class ButlerGradient<double>;

}  // namespace quire
