// What a step will read of layers whose rows lie in a tier, told before it is read.
#include <algorithm>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "policy/policy.h"
#include "tier/tier.h"

namespace quire {

namespace {

constexpr size_t kAllTold = ~size_t{0};
// Of the pieces that a step reads, one in so many may have been missing for its rows to count as there.
constexpr uint64_t kFewMissing = 16;

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
  n_told_.assign(geometry_.n_layers, 0);
}

// Whether the tier now knows of all of them. It takes as many as it has room to remember, and is told of the
// rest when the next layer looks ahead.
bool Cache::want_pieces(size_t layer, std::vector<WantedPieces> wanted) {
  size_t& n_told = n_told_[layer];
  const size_t n = wanted.size();
  const size_t n_known = std::min(n_told, n);
  wanted.erase(wanted.begin(), wanted.begin() + static_cast<ptrdiff_t>(n_known));
  n_told = n_known + store_.tier()->want(std::move(wanted));
  if (n_told < n) return false;
  n_told = kAllTold;
  return true;
}

// What the step does not tell of a layer before its queries are there is left to it. Layers near by go before
// those farther off: what is left of one is told before the next one's turn.
void Cache::look_ahead(size_t first) {
  if (store_.tier() == nullptr) return;
  const size_t last = std::min(geometry_.n_layers, first + recipe_.place.ahead_layers);
  for (size_t layer = first; layer < last; ++layer) {
    if (n_told_[layer] == kAllTold || is_windowed(layer)) continue;
    const LayerView view = store_.view(layer, n_tokens() + step_tokens_);
    if (sparse_limits(layer, view, step_tokens_)) continue;
    if (step_tokens_ > 1 || !selector_->may_select(layer, view.n_tokens)) {
      if (!want_pieces(layer, reads_in_tiles(step_tokens_) ? whole_heads(view) : whole_pages(view))) return;
    } else if (!read_is_there()) {
      Selection known(view.layout->n_kv_heads, view.pages.size());
      bool all_known = true;
      for (size_t head = 0; all_known && head < view.layout->n_kv_heads; ++head) {
        all_known = selector_->select_ahead({&view, layer, head, 0, nullptr}, known);
      }
      if (!all_known) continue;
      if (!want_pieces(layer, selected_pieces(view, known))) return;
    }
  }
}

// The rows of a step that repeats the last one's, as far as the last step of that kind tells: to look for all
// of them once more would be for nothing.
bool Cache::read_is_there() const { return selector_->repeats() && last_read_was_there_; }

// The layer at hand; first of all if it was not foreseen, or is read once more.
void Cache::want_rows(size_t layer, const LayerView& view, size_t n) {
  if (store_.tier() == nullptr) return;
  const bool known =
      n_told_[layer] == kAllTold || is_windowed(layer) || (!selection_.is_all() && read_is_there());
  if (!known) {
    want_pieces(layer, !selection_.is_all() ? selected_pieces(view, selection_)
                       : reads_in_tiles(n)  ? whole_heads(view)
                                            : whole_pages(view));
  }
  n_told_[layer] = 0;
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
  if (!selector_->repeats()) return;
  last_read_was_there_ = stats_.tier.fetched_pieces * kFewMissing <= stats_.tier.pieces;
}

}  // namespace quire
