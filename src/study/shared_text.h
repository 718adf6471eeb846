// How much of one text stands in others too.
#pragma once

#include <cstddef>
#include <span>

#include "study/haystack.h"

namespace quire {

// So many tokens in a row are the same by more than chance.
constexpr size_t kSharedTokens = 64;

// Of all windows of kSharedTokens tokens of a text (a shorter text is one window): those that some of the
// others have too, at whatever place.
struct SharedText {
  size_t n_windows = 0;
  size_t n_shared = 0;
  size_t text = 0;  // one of the others with such a window, where there is any

  double share() const {
    return n_windows == 0 ? 0 : static_cast<double>(n_shared) / static_cast<double>(n_windows);
  }
};
SharedText shared_text(const Tokens& text, std::span<const Tokens> others);

}  // namespace quire
