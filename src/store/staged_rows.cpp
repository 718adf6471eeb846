#include "store/staged_rows.h"

#include <cstring>

#include "kernels/ops.h"
#include "tier/tier.h"

namespace quire {

void StagedRows::load(const LayerView& view, size_t kv_head, size_t first, std::span<const uint64_t> rows,
                      PieceUse use) {
  const SealedLayout& layout = view.layer->sealed;
  const size_t stride = (layout.head_bytes() + 63) / 64 * 64;
  first_ = first;
  key_bytes_ = layout.key_bytes();
  keys_.assign(rows.size(), nullptr);
  reads_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const Page& page = *view.pages[first + i];
    if (page.outside == nullptr) {
      keys_[i] = page.data + layout.key_offset(kv_head);
      continue;
    }
    if (rows[i] == 0) continue;
    const size_t n_bytes = rows.size() * stride + kSpareBytes;
    if (copies_.size_bytes() < n_bytes) {
      copies_ = Memory(n_bytes);
      std::memset(copies_.data(), 0, n_bytes);  // lanes of rows that are not read are some numbers
    }
    reads_.push_back({&page.outside, kv_head, rows[i], copies_.data() + i * stride});
    keys_[i] = reads_.back().to;
  }
  if (!reads_.empty()) view.pages[first]->outside->tier->load(reads_, use);
}

}  // namespace quire
