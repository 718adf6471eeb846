#include "policy/select_random.h"

#include <vector>

#include "format/frame.h"
#include "policy/highest.h"

namespace quire {

namespace {

class SelectRandom : public Selector {
 public:
  explicit SelectRandom(const PolicyChoice& choice)
      : budget_(choice.budget),
        dense_layers_(choice.number("dense")),
        n_recent_(choice.number("recent")),
        seed_(choice.number("seed")) {}

  std::unique_ptr<Selector> copy() const override { return std::make_unique<SelectRandom>(*this); }

  bool selects(size_t layer, size_t n_tokens) const override {
    return layer >= dense_layers_ && budget_.of(n_tokens) < n_tokens;
  }

  // Every token draws a number that hangs on seed, layer, head, step and token alone, whichever thread asks;
  // the highest are read.
  void select(const HeadStep& step, Selection& selection) override {
    const size_t n_tokens = step.view->n_tokens;
    const uint64_t place = splitmix64(seed_) ^ (uint64_t{step.layer} << 40 | uint64_t{step.kv_head} << 20);
    const uint64_t step_seed = splitmix64(splitmix64(place) ^ n_tokens);
    std::vector<float> draws(n_tokens);
    for (size_t t = 0; t < n_tokens; ++t) {
      const bool recent = t + n_recent_ >= n_tokens;
      draws[t] = recent ? kCertain : static_cast<float>(splitmix64(step_seed + t) >> 40);
    }
    prefer_kept(*step.view, step.kv_head, draws);
    std::vector<float> room;
    mark_highest(draws, budget_.of(n_tokens), step.kv_head, room, selection);
  }

 private:
  RowBudget budget_;
  size_t dense_layers_;
  size_t n_recent_;
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<Selector> make_random_selector(const PolicyChoice& choice) {
  return std::make_unique<SelectRandom>(choice);
}

}  // namespace quire
