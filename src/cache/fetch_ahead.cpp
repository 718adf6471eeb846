// What a step will read of layers whose rows lie in a tier, told before it is read.
#include <bit>
#include <vector>

#include "cache/cache.h"
#include "policy/policy.h"
#include "tier/tier.h"

namespace quire {

namespace {

// In the order in which they are read: page by page, all heads of it.
std::vector<WantedPieces> whole_pages(const LayerView& view) {
  std::vector<WantedPieces> wanted;
  for (size_t page = 0; page < view.n_sealed(); ++page) {
    if (view.is_outside(page)) wanted.push_back(WantedPieces::of_page(view.pages[page]->outside));
  }
  return wanted;
}

// The same head by head.
std::vector<WantedPieces> whole_heads(const LayerView& view) {
  std::vector<WantedPieces> wanted;
  for (size_t head = 0; head < view.layout->n_kv_heads; ++head) {
    for (size_t page = 0; page < view.n_sealed(); ++page) {
      if (!view.is_outside(page)) continue;
      wanted.push_back(
          WantedPieces::of_head(view.pages[page]->outside, head, ~uint64_t{0}, PieceUse::kSwept));
    }
  }
  return wanted;
}

std::vector<WantedPieces> selected_pieces(const LayerView& view, const Selection& selection) {
  std::vector<WantedPieces> wanted;
  for (size_t page = 0; page < view.n_sealed(); ++page) {
    if (!view.is_outside(page)) continue;
    for (size_t head = 0; head < view.layout->n_kv_heads; ++head) {
      const uint64_t rows = selection.word(head, page) & view.coded_word(head, page);
      if (rows != 0)
        wanted.push_back(WantedPieces::of_head(view.pages[page]->outside, head, rows, PieceUse::kSelected));
    }
  }
  return wanted;
}

}  // namespace

void Cache::begin_fetching() {
  Tier* tier = store_.tier();
  if (tier == nullptr) return;
  tier->check();
  tier->begin_round();
  tier_before_ = tier->counts();
  looked_ahead_.assign(geometry_.n_layers, false);
}

// What the step does not tell of a layer before its queries are there is left to it.
void Cache::look_ahead(size_t first) {
  if (store_.tier() == nullptr) return;
  const size_t last = std::min(geometry_.n_layers, first + recipe_.place.ahead_layers);
  for (size_t layer = first; layer < last; ++layer) {
    if (looked_ahead_[layer] || is_windowed(layer)) continue;
    const LayerView view = store_.view(layer, n_tokens() + step_tokens_);
    if (sparse_limits(layer, view, step_tokens_)) continue;
    if (step_tokens_ > 1 || !selector_->may_select(layer, view.n_tokens)) {
      store_.tier()->want(reads_in_tiles(step_tokens_) ? whole_heads(view) : whole_pages(view));
    } else if (!selector_->repeats()) {
      Selection known(view.layout->n_kv_heads, view.pages.size());
      bool all_known = true;
      for (size_t head = 0; all_known && head < view.layout->n_kv_heads; ++head) {
        all_known = selector_->select_ahead({&view, layer, head, 0, nullptr}, known);
      }
      if (!all_known) continue;
      store_.tier()->want(selected_pieces(view, known));
    }
    looked_ahead_[layer] = true;
  }
}

// The layer at hand; first of all if it was not foreseen, or is read once more.
void Cache::want_rows(size_t layer, const LayerView& view, size_t n) {
  if (store_.tier() == nullptr) return;
  // Rows of the last step are there already, unless there is no room for them.
  const bool known =
      looked_ahead_[layer] || is_windowed(layer) || (!selection_.is_all() && selector_->repeats());
  if (!known) {
    store_.tier()->want(!selection_.is_all() ? selected_pieces(view, selection_)
                        : reads_in_tiles(n)  ? whole_heads(view)
                                             : whole_pages(view));
  }
  looked_ahead_[layer] = false;
  look_ahead(layer + 1);
}

// Candidates of one head.
void Cache::want_candidates(const LayerView& view, size_t head, const SparseHead& sparse) const {
  if (store_.tier() == nullptr) return;
  std::vector<WantedPieces> wanted;
  for (size_t page = 0; page < sparse.n_pages(); ++page) {
    if (!sparse.has_candidates(page) || !view.is_outside(page)) continue;
    wanted.push_back(
        WantedPieces::of_head(view.pages[page]->outside, head, ~uint64_t{0}, PieceUse::kSelected));
  }
  store_.tier()->want(std::move(wanted));
}

// Throws what has gone wrong in the step.
void Cache::end_fetching() {
  Tier* tier = store_.tier();
  if (tier == nullptr) return;
  tier->check();
  stats_.tier = tier->counts().since(tier_before_);
}

}  // namespace quire
