// Monarch's rule of which coded pages have a decoded copy: those that keep attention. Pure logic on arrays of
// attention; the store makes and forgets the copies.
//
// The importance of a page is the largest attention that it had lately:
//
//   importance <- max(decay * importance, score)
//
// The score of a page in a step is the probability that its rows had, summed over them and over the query
// heads, and averaged over layers: as all layers share one decision, this is the published sum over heads of
// A_h(t, s) > promote. (A mean over heads too would never come near 0.12.) It is at most the number of heads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/policy.h"
#include "policy/policy_choice.h"

namespace quire {

// When a decode step reads coded rows that have no copy, for each layer and KV head.
enum class ColdTrigger : uint8_t {
  kMass,   // where their estimated share of the attention reaches `cold` for any head of the group
  kScore,  // as published: where no exact row has a probability of `promote`
  kOff,    // never
};

struct HotPageSettings {
  size_t page_tokens = 16;
  size_t capacity_pages = 0;
  double promote = 0.12;  // 1: no page is promoted
  size_t sticky = 2;
  double decay = 0.92;
  size_t initial_sticky = 16;  // tokens
  ColdTrigger trigger = ColdTrigger::kMass;
  size_t swaps = 4;
  double cold = 0.1;
  size_t sink_tokens = 0;

  // The window takes its part of max_hot; what is left, in whole pages, is for copies.
  static HotPageSettings of(const PolicyChoice& choice, size_t window_tokens, size_t sink_tokens);
};

class HotPages : public Placement {
 public:
  struct Page {
    float importance = 0;
    uint32_t hits = 0;      // steps that it was promoted or scored `promote` while it had a copy
    bool resident = false;  // has a copy
    bool sticky = false;    // by its hits: keeps it; a quarter of the room is for pages that may go again
    bool initial = false;   // keeps it until the next prompt

    bool stays() const { return sticky || initial; }
    bool operator==(const Page&) const = default;
  };
  struct Counters {
    uint64_t promotions = 0;  // copies made since a page's importance asked for it
    uint64_t page_ins = 0;    // these, and copies made after a prompt
    uint64_t page_outs = 0;

    bool operator==(const Counters&) const = default;
  };

  explicit HotPages(const HotPageSettings& settings) : settings_(settings) {}

  std::vector<Move> plan(const Store& store, const StepStats& stats) override;

  // The first n_cold pages are coded to their last row. scores: of a step, for each page that has any row.
  std::vector<Move> after_step(std::span<const float> scores, size_t n_cold);
  // scores: of the last queries of a prompt, for each token, averaged over those that see it.
  std::vector<Move> after_prompt(std::span<const float> scores, size_t n_cold);

  const HotPageSettings& settings() const { return settings_; }
  const Counters& counters() const { return counters_; }
  std::span<const Page> pages() const { return pages_; }
  size_t n_sticky_pages() const;
  uint64_t size_bytes() const { return pages_.size() * sizeof(Page); }
  void clear();
  void restore(std::vector<Page> pages, const Counters& counters);

 private:
  void take_scores(std::span<const float> scores);
  void count_hit(Page& page);
  size_t n_staying_pages() const;
  void promote(size_t n_cold, std::vector<Move>& moves);
  std::vector<size_t> asking_pages(size_t n_cold) const;
  size_t least_page() const;
  bool make_room(float importance, std::vector<Move>& moves);
  void page_in(size_t page, std::vector<Move>& moves);
  void page_out(size_t page, std::vector<Move>& moves);
  std::vector<size_t> initial_pages(std::span<const float> scores, size_t n_cold) const;

  HotPageSettings settings_;
  std::vector<Page> pages_;
  size_t n_resident_ = 0;
  Counters counters_;
};

}  // namespace quire
