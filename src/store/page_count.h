// How many pages hold so many tokens.
#pragma once

#include <cstddef>

#include "store/layouts.h"

namespace quire {

inline size_t pages_for(size_t n_tokens) { return (n_tokens + kTokensPerPage - 1) / kTokensPerPage; }

}  // namespace quire
