// Promoted pages in a file: the sequence goes on in the same bits, and damage is refused.
#include <gtest/gtest.h>

#include <cstring>

#include "property/cache/saved.h"
#include "property/promote/scene.h"

namespace quire::test {
namespace {

struct SavedPromotion : testing::Test {
  SavedPromotion() : prompt(geometry(6, 64, {2, 6}), 760, 4) {
    Random random(3);
    for (size_t i = 0; i < 15; ++i) {
      const size_t from = 700 + 4 * i;
      like(prompt, from, from + 3, 10 + random.below(600), 15);
    }
  }
  Prompt prompt;
  Recipe recipe = monarch("promote=0.3,budget=20,initial_sticky=2");
};

TEST_F(SavedPromotion, GoesOnInTheSameBits) {
  for (const size_t at : {50, 700, 707, 731}) {
    Decoding decoding(prompt, recipe, std::min<size_t>(at, 700));
    decoding.steps(at - decoding.cache.n_tokens());
    const Bytes bytes = save(decoding.cache);
    PagePool pool;
    Cache loaded(recipe, prompt.shape, pool);
    ASSERT_EQ(load(bytes, loaded), "");
    ASSERT_EQ(save(loaded), bytes) << at;
    ASSERT_EQ(loaded.residency().sticky_tokens, decoding.cache.residency().sticky_tokens);
    Outputs out = empty_outputs(prompt);
    run_rest(loaded, prompt, 1, decoding.team, out);
    decoding.out = empty_outputs(prompt);
    decoding.steps(760 - at);
    for (size_t layer = 0; layer < 2; ++layer) {
      ASSERT_EQ(std::memcmp(out[layer].data(), decoding.out[layer].data(), out[layer].size() * sizeof(float)),
                0)
          << at;
    }
    ASSERT_EQ(save(loaded), save(decoding.cache)) << at;
  }
}

TEST_F(SavedPromotion, DamageIsRefused) {
  Decoding decoding(prompt, recipe, 700);
  decoding.steps(20);
  EXPECT_EQ(refusal(save(decoding.cache)), "");
  const std::function<void(std::vector<uint64_t>&)> changes[] = {
      [](auto& v) { v.clear(); },
      [](auto& v) { v.resize(3); },
      [](auto& v) { v[3] = ~uint64_t{0}; },
      [](auto& v) { v[3] += 100; },
      [](auto& v) { v[3] += 1; },
      [](auto& v) { v[4] |= uint64_t{1} << 63; },
      [](auto& v) { v[5] = 0x7f800000; },          // infinite
      [](auto& v) { v[5] = 0xbf800000; },          // negative
      [](auto& v) { v[5] ^= uint64_t{1} << 60; },  // a copy in no slot, or none in one
      [](auto& v) { v[6] = (v[6] & ~(uint64_t{1} << 60)) | uint64_t{1} << 61; },  // sticky without a copy
      [](auto& v) { v.back() = 1000; },                                           // open
      [](auto& v) { v.back() = uint64_t{1} << 32; },
      [](auto& v) { v.back() = v[v.size() - 2]; },  // twice
      [](auto& v) { v.pop_back(); },
      [](auto& v) { v.insert(v.end(), 100, CopyTable::kFree); },  // beyond the capacity
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    const Bytes bytes = changed<uint64_t>(decoding.cache, "hot", changes[i]);
    EXPECT_TRUE(is_refused_for("hot", bytes)) << i << " '" << refusal(bytes) << "'";
  }
}

// Each slot would be a page in every layer, of a recipe that a file may bring with it.
TEST_F(SavedPromotion, SlotsBeyondThePagesAreRefused) {
  recipe = monarch("promote=0.3,budget=20,initial_sticky=2,max_hot=1000000");
  Decoding decoding(prompt, recipe, 700);
  decoding.steps(20);
  const auto more = [](size_t n) {
    return [n](std::vector<uint64_t>& v) {
      const uint64_t last = v.back();
      v.back() = CopyTable::kFree;
      v.insert(v.end(), n, CopyTable::kFree);
      v.push_back(last);
    };
  };
  EXPECT_EQ(refusal(changed<uint64_t>(decoding.cache, "hot", more(4))), "");
  const Bytes bytes = changed<uint64_t>(decoding.cache, "hot", more(1000));
  EXPECT_TRUE(is_refused_for("hot", bytes)) << refusal(bytes);
}

}  // namespace
}  // namespace quire::test
