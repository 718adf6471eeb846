// The bias of a KV head's keys, which RoPE turns with the position.
//
// A model whose key projection has a bias b keeps R_p (k + b) as the key of position p: at every position the
// same vector, turned. It may be many times as long as k, and a code errs in proportion to what it codes. So
// coded keys are freed of it, and every score gets its share back. With p = s + t, s the first position of
// the page:
//
//   key     k' = R_p (k + b) - R_p b
//   score   <q, R_p (k + b)> = <q, k'> + <R_-s q, R_t b>
//
// R_t b, t = 0..63, is one page of exact rows that serves all pages of the head: a query is turned back by
// the page's first position and scored with it.
//
// R turns the channels i and i + half by the angle p * frequency[i]; channels from 2 half on stand still.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace quire {

// Cosine and sine of p * frequency for every pair of channels and position p < 2^36: a product of the turns
// of p's digits to the base 64, each of which is in a table. Immutable.
class RopeTurns {
 public:
  struct Turn {
    double cosine;
    double sine;
  };

  // Radians per position, [half].
  explicit RopeTurns(std::vector<double> frequencies);

  size_t half() const { return half_; }
  Turn at(size_t pair, uint64_t position) const noexcept;

 private:
  static constexpr size_t kDigits = 6;

  size_t half_;
  std::vector<Turn> table_;  // [digit][value 0..63][half]
};

// What is taken off the keys of one KV head. Immutable, safe to use from several threads.
class KeyBias {
 public:
  // bias [head_dim]; pairs of channels in which it is zero cost nothing.
  KeyBias(std::shared_ptr<const RopeTurns> turns, std::span<const float> bias);

  size_t head_dim() const { return head_dim_; }
  // Channels in which the bias is not zero, partners counted.
  size_t n_channels() const { return 2 * pairs_.size() + still_.size(); }
  // R_t b in these channels, [n_channels][64], with room behind for whole registers.
  const float* page() const { return page_.data(); }

  // keys [head_dim][64] of the positions from `first` on, a multiple of 64, become k'.
  void take_off_page(uint64_t first, float* keys) const noexcept;
  // The same of one key [head_dim].
  void take_off(uint64_t position, float* key) const noexcept;
  // q [n_rows][head_dim] -> R_-first q in the channels of page(), out [n_rows][n_channels].
  void turn_back(uint64_t first, const float* q, size_t n_rows, float* out) const noexcept;

 private:
  struct Pair {
    size_t channel;  // and channel + half
    double first;
    double second;
  };
  struct Still {
    size_t channel;
    double value;
  };

  std::shared_ptr<const RopeTurns> turns_;
  size_t head_dim_;
  std::vector<Pair> pairs_;
  std::vector<Still> still_;
  std::vector<float> page_;  // first channels of the pairs, then their partners, then those that stand still
};

}  // namespace quire
