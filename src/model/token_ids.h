// Whether tokens are a model's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

// Throws Error for an id outside 0 .. vocabulary - 1.
void check_token_ids(std::span<const int32_t> ids, size_t vocabulary);

}  // namespace quire
