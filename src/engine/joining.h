// How a prompt joins a sequence that is there already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

struct Joint {
  // The prompt begins like the sequence: it is the whole text, and its first n_common tokens need not be
  // computed again. Otherwise it is what comes after the sequence.
  bool same_start = false;
  size_t n_common = 0;  // equal tokens at the start of both
};

// Two texts start alike when one is the beginning of the other, or when they agree in at least half of the
// shorter one: a document with another question behind it does, a question to a document does not. The first
// n_fixed tokens, which every prompt has (a chat template's), say nothing.
Joint join(std::span<const int32_t> sequence, std::span<const int32_t> prompt, size_t n_fixed = 0);

}  // namespace quire
