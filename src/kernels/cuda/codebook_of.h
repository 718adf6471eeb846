// Codebooks for launches. Solving one takes milliseconds of the host; a launch is to take microseconds.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

#include "format/lloyd_max.h"

namespace quire::cuda {

// Of a format, solved at the first use; by any thread.
template <class F>
const Codebook& codebook_of(int head_dim) {
  static std::array<std::once_flag, kMaxHeadDim + 1> once;
  static std::array<Codebook, kMaxHeadDim + 1> books;
  const auto at = static_cast<size_t>(head_dim);
  std::call_once(once.at(at), [&] { books[at] = make_codebook(F::kCodebook, head_dim); });
  return books[at];
}

}  // namespace quire::cuda
