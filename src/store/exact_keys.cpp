#include "store/exact_keys.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "store/store.h"

namespace quire {

namespace {

// Where a key's values lie: one after another among the exact keys, a column in a page.
struct KeyPlace {
  const std::byte* first;
  size_t stride_bytes;
};

}  // namespace

ExactKeys::ExactKeys(std::vector<uint32_t> positions_in, size_t n_pages)
    : positions(std::move(positions_in)) {
  for (size_t page = 0; page <= n_pages; ++page) {
    const auto at = std::lower_bound(positions.begin(), positions.end(), page * kTokensPerPage);
    first.push_back(static_cast<uint32_t>(at - positions.begin()));
  }
  QUIRE_CHECK(first.back() == positions.size());
}

// From the keys that were exact before and from pages that are still open.
void Store::keep_exact_keys(size_t layer, std::vector<uint32_t> positions, size_t n_pages) {
  const RowLayout& layout = layouts_[layer].open;
  const size_t size = info(layout.key_format).value_bytes;
  const size_t row_size = size * layout.head_dim;
  const std::shared_ptr<const ExactKeys> before = exact_keys_[layer];
  auto keys = std::make_shared<ExactKeys>(std::move(positions), n_pages);
  const size_t n = keys->positions.size();
  keys->rows = pool_->allocate(std::max<size_t>(1, n * layout.n_kv_heads * row_size));
  const auto find = [&](size_t head, uint32_t position) -> KeyPlace {
    const Page& page = *pages_[layer][position / kTokensPerPage];
    if (!page.sealed) {
      return {page.data + layout.key_offset(head) + position % kTokensPerPage * size, kTokensPerPage * size};
    }
    QUIRE_CHECK(before != nullptr);
    const auto at = std::lower_bound(before->positions.begin(), before->positions.end(), position);
    QUIRE_CHECK(at != before->positions.end() && *at == position);
    const auto i = static_cast<size_t>(at - before->positions.begin());
    return {before->rows->data + (head * before->positions.size() + i) * row_size, size};
  };
  std::byte* to = keys->rows->data;
  for (size_t head = 0; head < layout.n_kv_heads; ++head) {
    for (const uint32_t position : keys->positions) {
      const KeyPlace from = find(head, position);
      for (size_t d = 0; d < layout.head_dim; ++d, to += size) {
        std::memcpy(to, from.first + d * from.stride_bytes, size);
      }
    }
  }
  exact_keys_[layer] = std::move(keys);
}

}  // namespace quire
