// Layers whose queries see a window of the tokens before them: whatever the recipe, they keep that window's
// rows in exact form and no others (docs/adr/0018).
#include <algorithm>

#include "cache/cache.h"

namespace quire {

// After the layer's step. Nobody reads the layer any more: sharing has waited.
void Cache::leave_window(Worker& worker, size_t layer) {
  if (worker.rank() == 0) store_.leave_window(layer, n_tokens() + step_tokens_);
  worker.barrier();
}

// As count_reads(): each query reads its window, and a tile of queries what any of them sees.
void Cache::count_window_reads(const LayerView& view, size_t n) {
  const size_t start = view.n_tokens - n;
  for (size_t i = start; i < view.n_tokens; ++i) {
    stats_.rows_read += view.layout->n_kv_heads * (i + 1 - view.first_seen(i));
  }
  for (size_t tile = 0; tile < n; tile += kTileQueries) {
    const size_t end = start + std::min(n, tile + kTileQueries);
    stats_.bytes_read += (end - view.first_seen(start + tile)) * view.layout->token_bytes();
  }
}

}  // namespace quire
