#include "cache/hot_file.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace quire {

namespace {

constexpr size_t kHotHeaderValues = 4;
constexpr uint32_t kMostHits = (1u << 28) - 1;

uint64_t page_value(const HotPages::Page& page) {
  return std::bit_cast<uint32_t>(page.importance) | uint64_t{std::min(page.hits, kMostHits)} << 32 |
         uint64_t{page.resident} << 60 | uint64_t{page.sticky} << 61 | uint64_t{page.initial} << 62;
}

HotPages::Page page_of(uint64_t value) {
  HotPages::Page page;
  page.importance = std::bit_cast<float>(static_cast<uint32_t>(value));
  page.hits = static_cast<uint32_t>(value >> 32) & kMostHits;
  page.resident = (value >> 60 & 1) != 0;
  page.sticky = (value >> 61 & 1) != 0;
  page.initial = (value >> 62 & 1) != 0;
  return page;
}

// Resident pages are coded to their last row and lie in one slot each.
bool slots_fit(const SavedHot& saved, size_t n_cold) {
  std::vector<bool> seen(saved.pages.size(), false);
  for (const uint32_t page : saved.slots) {
    if (page == CopyTable::kFree) continue;
    if (page >= std::min(n_cold, saved.pages.size()) || !saved.pages[page].resident || seen[page])
      return false;
    seen[page] = true;
  }
  for (size_t i = 0; i < saved.pages.size(); ++i) {
    if (saved.pages[i].resident != seen[i]) return false;
  }
  return true;
}

bool page_fits(const HotPages::Page& page) {
  return std::isfinite(page.importance) && page.importance >= 0 && (page.resident || !page.stays());
}

}  // namespace

std::vector<uint64_t> hot_values(const HotRows& hot, const Store& store) {
  const HotPages::Counters& counters = hot.policy.counters();
  std::vector<uint64_t> values = {counters.promotions, counters.page_ins, counters.page_outs,
                                  hot.policy.pages().size()};
  for (const HotPages::Page& page : hot.policy.pages()) values.push_back(page_value(page));
  for (size_t slot = 0; slot < store.copies().n_slots(); ++slot) {
    values.push_back(store.copies().page_in(slot));
  }
  return values;
}

SavedHot SavedHot::read(const SectionFile& file, const Recipe& recipe, const Geometry& geometry,
                        std::span<const size_t> n_sealed) {
  const auto fail = [&] { file.fail_section("hot", "it does not fit the rows"); };
  const std::vector<uint64_t> values = file.get_values<uint64_t>("hot");
  const HotPageSettings settings =
      HotPageSettings::of(recipe.promote, recipe.tail_tokens, recipe.sink_tokens);
  const size_t n_coded =
      n_sealed.empty() ? 0 : *std::max_element(n_sealed.begin(), n_sealed.end()) * kTokensPerPage;
  const size_t n_most = (n_coded + settings.page_tokens - 1) / settings.page_tokens;
  if (values.size() < kHotHeaderValues || values[3] > n_most || values.size() - kHotHeaderValues < values[3])
    fail();
  SavedHot saved;
  saved.counters = {values[0], values[1], values[2]};
  for (size_t i = 0; i < values.size() - kHotHeaderValues; ++i) {
    const uint64_t value = values[kHotHeaderValues + i];
    if (i < values[3]) {
      saved.pages.push_back(page_of(value));
      if (page_value(saved.pages.back()) != value || !page_fits(saved.pages.back())) fail();
      continue;
    }
    if (value > CopyTable::kFree) fail();
    saved.slots.push_back(static_cast<uint32_t>(value));
  }
  // All layers that see every token code alike; one that does not is behind, and what it has not coded cannot
  // be copied.
  std::vector<size_t> n_coding;
  for (size_t layer = 0; layer < n_sealed.size(); ++layer) {
    if (!geometry.is_windowed(layer)) n_coding.push_back(n_sealed[layer]);
  }
  const size_t n_least = n_coding.empty() ? 0 : *std::min_element(n_coding.begin(), n_coding.end());
  const size_t n_cold = n_least * kTokensPerPage / settings.page_tokens;
  // The first free slot is taken, so that there are never more slots than pages to lie in them.
  const bool copies = geometry.n_layers > recipe.index->dense_layers;
  if (saved.slots.size() > (copies ? std::min(settings.capacity_pages, n_cold) : 0)) fail();
  if (!slots_fit(saved, n_cold)) fail();
  return saved;
}

}  // namespace quire
