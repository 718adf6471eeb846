// The end of a layer of a step: pages that are due get their other form, or rows leave.
#include <utility>

#include "cache/cache.h"
#include "cache/hot_rows.h"

namespace quire {

void Cache::end_layer(Worker& worker, size_t layer) {
  if (is_windowed(layer)) return leave_window(worker, layer);
  if (dropping_) return dropping_->drop(worker, layer, step_tokens_, store_);
  if (hot_ && hot_->observes(step_tokens_)) observe_prompt(worker, layer);
  const size_t n_total = n_tokens() + step_tokens_;
  if (selector_->observes(store_)) finish_digests(worker, layer, n_total);
  const LayerLayout& layout = store_.layer_layout(layer);
  if (layout.sealed_pages(n_total) <= layout.sealed_pages(n_tokens())) return;  // nothing is due
  if (reserving_) arrange_rows(worker, layer, n_total);
  if (recipe_.prompt_statistics) make_statistics(worker, layer, n_total);
  if (worker.rank() == 0 && key_reserving_) key_reserving_->keep(layer, store_);
  while (seal_pages(worker, layer, n_total)) {
  }
}

// Digests are of rows where they lie: those of the open pages are made anew.
void Cache::arrange_rows(Worker& worker, size_t layer, size_t n_total) {
  reserving_->arrange(worker, layer, store_);
  const size_t n_heads = store_.layout(layer).n_kv_heads;
  const size_t first = store_.view(layer, n_total).n_sealed() * kTokensPerPage;
  worker.share(static_cast<int64_t>(n_heads), 1, [&](int64_t head, int64_t) {
    selector_->append(store_, layer, static_cast<size_t>(head), first, n_total - first);
  });
}

// Of those that are due, as many as are coded at a time. Whether some are left.
bool Cache::seal_pages(Worker& worker, size_t layer, size_t n_total) {
  const LayerLayout& layout = store_.layer_layout(layer);
  if (worker.rank() == 0) sealing_ = store_.begin_sealing(layer, n_total);
  worker.barrier();
  const bool more = sealing_.last < layout.sealed_pages(n_total);
  const size_t n_heads = layout.open.n_kv_heads;
  const size_t n_pages = sealing_.last - sealing_.first;
  worker.share(static_cast<int64_t>(n_pages * n_heads), 1, [&](int64_t item, int64_t) {
    const size_t page = sealing_.first + static_cast<size_t>(item) / n_heads;
    const size_t head = static_cast<size_t>(item) % n_heads;
    store_.seal(sealing_, layer, page, head, frames(layer, head));
  });
  if (worker.rank() == 0) store_.end_sealing(std::move(sealing_), layer);
  worker.barrier();
  return more;
}

}  // namespace quire
