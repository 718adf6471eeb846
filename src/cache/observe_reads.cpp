// What a decoded token has read, told to a ReadObserver. Without one nothing here costs anything.
#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "cache/cache.h"

namespace quire {

namespace {

void add_word(uint64_t word, size_t page, std::vector<uint32_t>& positions) {
  for (; word != 0; word &= word - 1) {
    positions.push_back(static_cast<uint32_t>(page * kTokensPerPage) +
                        static_cast<uint32_t>(std::countr_zero(word)));
  }
}

}  // namespace

// Everything that the layer holds: of rows that have left, or moved, the positions are where they are known.
void Cache::report_all(size_t layer, const LayerView& view) const {
  std::vector<uint32_t> positions;
  for (size_t head = 0; head < view.layout->n_kv_heads; ++head) {
    if (is_windowed(layer)) {
      const size_t first = view.first_seen(view.n_tokens - 1);
      positions.resize(view.n_tokens - first);
      std::iota(positions.begin(), positions.end(),
                static_cast<uint32_t>(view.left_pages * kTokensPerPage + first));
    } else if (dropping_) {
      positions = dropping_->rows(layer, head).positions;
      const bool has_sinks = view.sinks != nullptr && view.layer->drops();
      for (uint32_t i = 0; has_sinks && i < view.layer->sink_tokens; ++i) positions.push_back(i);
    } else {
      positions.resize(view.n_tokens);
      std::iota(positions.begin(), positions.end(), 0u);
    }
    observer_->read(layer, head, positions);
  }
}

void Cache::report_selection(size_t layer, const LayerView& view) const {
  std::vector<uint32_t> lies;  // [row] its position, where that is not the row's number
  if (reserving_) lies = reserving_->positions(view.n_sealed() * kTokensPerPage, view.n_tokens);
  for (size_t head = 0; head < view.layout->n_kv_heads; ++head) {
    std::vector<uint32_t> positions;
    for (size_t page = 0; page < view.pages.size(); ++page) {
      const uint64_t kept = view.kept != nullptr ? view.kept->word(head, page) : 0;
      add_word(selection_.word(head, page) | kept, page, positions);
    }
    std::erase_if(positions, [&](uint32_t position) { return position >= view.n_tokens; });
    for (uint32_t& position : positions) position = lies.empty() ? position : lies[position];
    observer_->read(layer, head, positions);
  }
}

// The coded rows that were kept are there already; exact ones are read in any case.
void Cache::report_sparse(size_t layer, const LayerView& view) {
  const size_t n_sealed = view.n_sealed();
  for (size_t head = 0; head < view.layout->n_kv_heads; ++head) {
    std::vector<uint32_t>& positions = sparse_reads_[head].positions;
    for (size_t page = 0; page < n_sealed; ++page) add_word(~view.coded_word(head, page), page, positions);
    for (size_t t = n_sealed * kTokensPerPage; t < view.n_tokens; ++t) {
      positions.push_back(static_cast<uint32_t>(t));
    }
    observer_->read(layer, head, positions);
  }
}

}  // namespace quire
