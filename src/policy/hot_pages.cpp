#include "policy/hot_pages.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace quire {

namespace {

constexpr size_t kNoPage = ~size_t{0};

}  // namespace

HotPageSettings HotPageSettings::of(const PolicyChoice& choice, size_t window_tokens, size_t sink_tokens) {
  HotPageSettings settings;
  settings.page_tokens = choice.number("page");
  const size_t max_hot = choice.number("max_hot");
  settings.capacity_pages = max_hot > window_tokens ? (max_hot - window_tokens) / settings.page_tokens : 0;
  settings.promote = choice.value("promote");
  settings.sticky = choice.number("sticky");
  settings.decay = choice.value("decay");
  settings.initial_sticky = choice.number("initial_sticky");
  settings.trigger = static_cast<ColdTrigger>(choice.number("trigger"));
  settings.swaps = choice.number("swaps");
  settings.cold = choice.value("cold");
  settings.sink_tokens = sink_tokens;
  return settings;
}

std::vector<Move> HotPages::plan(const Store& store, const StepStats& stats) {
  const size_t n_cold = store.coded_tokens() / settings_.page_tokens;
  const auto averaged = [](std::span<const float> sums, size_t n_layers) {
    std::vector<float> scores(sums.begin(), sums.end());
    for (float& score : scores) score /= static_cast<float>(n_layers);
    return scores;
  };
  if (stats.observed_layers > 0) {
    return after_prompt(averaged(stats.token_scores, stats.observed_layers), n_cold);
  }
  if (stats.scored_layers == 0) return {};
  return after_step(averaged(stats.page_scores, stats.scored_layers), n_cold);
}

std::vector<Move> HotPages::after_step(std::span<const float> scores, size_t n_cold) {
  take_scores(scores);
  for (size_t page = 0; page < scores.size(); ++page) {
    if (pages_[page].resident && scores[page] >= settings_.promote) count_hit(pages_[page]);
  }
  std::vector<Move> moves;
  promote(n_cold, moves);
  return moves;
}

// Pages of the tokens liked best get their copies first and keep them until the next prompt. They take half
// of the room at most: scattered over pages they would else leave none for what attention asks for later.
std::vector<Move> HotPages::after_prompt(std::span<const float> scores, size_t n_cold) {
  std::vector<float> page_scores((scores.size() + settings_.page_tokens - 1) / settings_.page_tokens, 0.0f);
  for (size_t t = settings_.sink_tokens; t < scores.size(); ++t) {
    page_scores[t / settings_.page_tokens] += scores[t];
  }
  take_scores(page_scores);
  for (Page& page : pages_) page.initial = false;
  std::vector<Move> moves;
  const std::vector<size_t> liked = initial_pages(scores, n_cold);
  for (const size_t page : liked) pages_[page].initial = pages_[page].resident;
  for (const size_t page : liked) {
    if (pages_[page].initial) continue;
    if (!make_room(std::numeric_limits<float>::infinity(), moves)) break;
    page_in(page, moves);
    pages_[page].initial = true;
  }
  promote(n_cold, moves);
  return moves;
}

std::vector<size_t> HotPages::initial_pages(std::span<const float> scores, size_t n_cold) const {
  const size_t n_tokens = std::min(scores.size(), n_cold * settings_.page_tokens);
  const size_t first = std::min(settings_.sink_tokens, n_tokens);
  std::vector<size_t> order(n_tokens - first);
  std::iota(order.begin(), order.end(), first);
  const size_t n = std::min(settings_.initial_sticky, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<ptrdiff_t>(n), order.end(),
      [&](size_t a, size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  std::vector<size_t> pages;
  for (size_t i = 0; i < n && pages.size() < (settings_.capacity_pages + 1) / 2; ++i) {
    const size_t page = order[i] / settings_.page_tokens;
    if (std::find(pages.begin(), pages.end(), page) == pages.end()) pages.push_back(page);
  }
  return pages;
}

void HotPages::take_scores(std::span<const float> scores) {
  pages_.resize(std::max(pages_.size(), scores.size()));
  const auto decay = static_cast<float>(settings_.decay);
  for (size_t i = 0; i < pages_.size(); ++i) {
    pages_[i].importance = std::max(decay * pages_[i].importance, i < scores.size() ? scores[i] : 0.0f);
  }
}

void HotPages::count_hit(Page& page) {
  ++page.hits;
  if (page.stays() || page.hits < settings_.sticky) return;
  // As published stickiness is for ever, so that once it fills the room nothing is promoted again.
  page.sticky = n_staying_pages() < settings_.capacity_pages - settings_.capacity_pages / 4;
}

size_t HotPages::n_staying_pages() const {
  return static_cast<size_t>(std::ranges::count_if(pages_, [](const Page& page) { return page.stays(); }));
}

void HotPages::promote(size_t n_cold, std::vector<Move>& moves) {
  if (settings_.promote >= 1) return;
  size_t n_swaps = 0;
  for (const size_t page : asking_pages(n_cold)) {
    if (n_swaps++ == settings_.swaps || !make_room(pages_[page].importance, moves)) return;
    page_in(page, moves);
    ++counters_.promotions;
    count_hit(pages_[page]);
  }
}

// Coded pages without a copy whose importance passes the threshold, the most important first.
std::vector<size_t> HotPages::asking_pages(size_t n_cold) const {
  std::vector<size_t> asking;
  for (size_t i = 0; i < std::min(n_cold, pages_.size()); ++i) {
    const Page& page = pages_[i];
    if (!page.resident && page.importance > 0 && page.importance >= settings_.promote) asking.push_back(i);
  }
  std::stable_sort(asking.begin(), asking.end(),
                   [&](size_t a, size_t b) { return pages_[a].importance > pages_[b].importance; });
  return asking;
}

// Of those that may go; kNoPage: none.
size_t HotPages::least_page() const {
  size_t least = kNoPage;
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (!pages_[i].resident || pages_[i].stays()) continue;
    if (least == kNoPage || pages_[i].importance < pages_[least].importance) least = i;
  }
  return least;
}

// For a page of that importance; false: there is none.
bool HotPages::make_room(float importance, std::vector<Move>& moves) {
  if (n_resident_ < settings_.capacity_pages) return true;
  const size_t least = least_page();
  if (least == kNoPage || pages_[least].importance >= importance) return false;
  page_out(least, moves);
  return true;
}

void HotPages::page_in(size_t page, std::vector<Move>& moves) {
  pages_[page].resident = true;
  ++n_resident_;
  ++counters_.page_ins;
  moves.push_back({Move::Kind::kCopy, page});
}

// Its hits stay: a page that comes and goes becomes sticky.
void HotPages::page_out(size_t page, std::vector<Move>& moves) {
  pages_[page].resident = false;
  --n_resident_;
  ++counters_.page_outs;
  moves.push_back({Move::Kind::kForget, page});
}

size_t HotPages::n_sticky_pages() const {
  return static_cast<size_t>(
      std::count_if(pages_.begin(), pages_.end(), [](const Page& page) { return page.stays(); }));
}

void HotPages::clear() {
  pages_.clear();
  n_resident_ = 0;
  counters_ = {};
}

void HotPages::restore(std::vector<Page> pages, const Counters& counters) {
  pages_ = std::move(pages);
  counters_ = counters;
  n_resident_ = static_cast<size_t>(
      std::count_if(pages_.begin(), pages_.end(), [](const Page& page) { return page.resident; }));
}

}  // namespace quire
