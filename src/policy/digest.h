// Digests: what selectors note of a page's keys, so that they can judge rows without reading them.
#pragma once

#include <cstddef>

#include "format/row_format.h"
#include "policy/policy_choice.h"

namespace quire {

// Bytes a page and KV head; 0: the policy judges by nothing of the kind.
size_t digest_bytes(const PolicyChoice& select, size_t layer, Format key_format, size_t head_dim);

// Of a page that holds n_rows rows: takes out whatever the digest says of rows behind them, so that it is
// what it would be if these had never come.
void clear_digest(const PolicyChoice& select, Format key_format, size_t head_dim, size_t n_rows,
                  std::byte* digest);

}  // namespace quire
