// Where training of a predictor begins: at random, or fitted to the model by least squares.
//
// Fitted: a score of the model is q . k, and P may keep `dim` numbers of k. With C the covariance of a KV
// head's keys and Q the second moment of what of its queries a linear map of the producer's input foretells
// (RoPE turns queries by their position, which the input hardly knows: most of a query's fast pairs is not to
// be foretold, and P shall not be spent on it),
//
//   V = the `dim` leading eigenvectors of C^1/2 Q C^1/2     P = C^-1/2 V     i = sqrt(dim) V^T C^1/2 q
//
// makes i . (k P) / sqrt(dim) the best approximation of foretold scores in the mean of squares, keys about
// their mean. `in` then becomes the leading components of the linear regression of all i of the producer on
// its input (reduced-rank regression), each of unit variance, and `out` the regression of i on SiLU of these.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "policy/butler.h"
#include "study/butler_example.h"
#include "study/butler_gradient.h"

namespace quire {

ButlerWeights random_butler(const ButlerGeometry& geometry, uint64_t seed);

// Adds up what the fit needs, in two rounds over the same examples.
class ButlerFit {
 public:
  ButlerFit(const ButlerGeometry& geometry, size_t sink, ItemRunner run);
  ~ButlerFit();

  void add_first(const ButlerExample<float>& example);
  // Projections and `in`.
  void solve_first();
  void add_second(const ButlerExample<float>& example);
  // `out`.
  void solve_second();

  const ButlerWeights& weights() const { return weights_; }

 private:
  struct Producer;
  struct Head;

  void add_keys(const ButlerExample<float>& example, size_t layer, size_t kv_head);
  void solve_head(size_t layer, size_t kv_head);
  void solve_in(size_t producer);

  ButlerGeometry geometry_;
  size_t sink_;
  ItemRunner run_;
  ButlerWeights weights_;
  std::vector<Producer> producers_;
  std::vector<Head> heads_;  // [layer - 1][kv_head]
};

}  // namespace quire
