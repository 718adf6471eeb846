// The mergeable result of attention over a part of the tokens.
#pragma once

#include <cstddef>
#include <vector>

namespace quire {

// For n query rows: the running maximum m of the scores, the sum l of exp(score - m), and the output
// o = sum of exp(score - m) * value, not yet divided by l. Of no tokens: m = -inf, l = 0, o = 0.
// Attention over any split of the tokens is the merge of the parts' states, in any order up to rounding.
struct PartialState {
  PartialState(size_t n, size_t dim);

  size_t n_rows;
  size_t head_dim;
  std::vector<float> m;  // [n]
  std::vector<float> l;  // [n]
  std::vector<float> o;  // [n][head_dim]

  // Back to the state of no tokens.
  void clear();
  // The same, of another shape if it has to be.
  void clear(size_t n, size_t dim);
  // This state becomes that of both parts together.
  void merge(const PartialState& other);
  // out [n][ld] = o / l; rows that attended to nothing give zeros.
  void write_output(float* out, size_t ld) const;
  // log of the sum of exp(score) over all tokens seen, -inf when there were none.
  double log_sum(size_t row) const;
};

// log(exp(a) + exp(b)); -inf is a sum of nothing.
double add_logs(double a, double b);

}  // namespace quire
