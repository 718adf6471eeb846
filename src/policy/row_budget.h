// A number of rows, said as such or as a share of the tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace quire {

// Fewest rows that a budget by share comes to: a short text is not worth leaving rows out.
constexpr size_t kLeastShareRows = 256;

struct RowBudget {
  double share = 0;  // of all tokens, above 0; 0: not by share
  size_t rows = 0;   // so many; 0: not by number

  bool operator==(const RowBudget&) const = default;

  bool given() const { return share > 0 || rows > 0; }
  // Of n_tokens.
  size_t of(size_t n_tokens) const {
    if (rows > 0) return std::min(rows, n_tokens);
    const auto n = static_cast<size_t>(std::ceil(share * static_cast<double>(n_tokens)));
    return std::min(std::max(n, kLeastShareRows), n_tokens);
  }
};

}  // namespace quire
