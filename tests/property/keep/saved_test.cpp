// Rows that have moved or left, in a file: the sequence goes on in the same bits, no token is lost or there
// twice, and damage is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "property/cache/saved.h"
#include "property/keep/scene.h"
#include "property/rapid.h"

namespace quire::test {
namespace {

const char* const kDropping[] = {
    "streaming(window=40)",
    "streaming(window=64,sink=0)",
    "streaming(window=3,sink=16,k=f32,v=bf16)",
    "h2o(budget=50)",
    "h2o(budget=60%)",
    "keyformer(budget=64,steps=20)",
    "snapkv(budget=70,window=16)",
    "k=f16,v=bf16,keep=log(reserve=48)",
    "k=f32,v=f32,keep=log(reserve=30,rule=strided)",
};
const char* const kCoding[] = {
    "logquant(reserve=48)",
    "k=kivi2,v=kivi2,keep=log(reserve=64,rule=strided)",
    "turbo2(keep=log(reserve=96),frame=rotated)",
    "k=turbo4,v=f16,keep=log(reserve=30),sink=2,frame=rotated",
    "k=nested4,v=nested3,frame=rotated,keep=log(reserve=40),select=sign(budget=30)",
    "quire(stats=prompt,keep=log(reserve=40))",
    "logquant(reserve=64,partial=on)",
    "logquant(reserve=64,rule=strided,partial=on,sink=3)",
    "k=token2,v=kivi4,keep=log(reserve=90,partial=on)",
    "turbo3(stats=prompt,keep=log(reserve=33,partial=on))",
};

std::vector<const char*> all_recipes() {
  std::vector<const char*> all(std::begin(kDropping), std::end(kDropping));
  all.insert(all.end(), std::begin(kCoding), std::end(kCoding));
  return all;
}

// Steps of random lengths to n tokens in all.
void grow(Cache& cache, const Prompt& prompt, size_t n, Random& random, Team& team, Outputs& out) {
  while (cache.n_tokens() < n) {
    const size_t begin = cache.n_tokens();
    const size_t end = std::min(n, begin + 1 + random.below(random.below(2) == 0 ? 3 : 150));
    run_step(cache, prompt, begin, end, end - begin, team, out);
  }
}

bool equal_bits(const Outputs& a, const Outputs& b) {
  for (size_t layer = 0; layer < a.size(); ++layer) {
    if (std::memcmp(a[layer].data(), b[layer].data(), a[layer].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

// Every token is exact, coded or counted as dropped; and the rows of each head are of different tokens.
void check_conservation(const Cache& cache) {
  const Residency at = cache.residency();
  RC_ASSERT(at.total_tokens == cache.n_tokens());
  RC_ASSERT(at.hot_tokens + at.cold_tokens + at.dropped_tokens == at.total_tokens);
  for (size_t layer = 0; cache.dropping() != nullptr && layer < cache.geometry().n_layers; ++layer) {
    for (size_t head = 0; head < cache.geometry().n_kv_heads[layer]; ++head) {
      const std::vector<uint32_t>& positions = cache.dropping()->rows(layer, head).positions;
      RC_ASSERT(positions.size() + cache.store().left_tokens(layer) == cache.n_tokens());
      RC_ASSERT(std::set<uint32_t>(positions.begin(), positions.end()).size() == positions.size());
    }
  }
}

Cache empty_cache(const Prompt& prompt, const Recipe& recipe, PagePool& pool) {
  return Cache(recipe, prompt.shape, pool, nullptr, nullptr, frequencies(prompt.shape.head_dim));
}

// Before the file the cache grows and is shared; behind it both go on alike, and begin anew alike.
void check(const Recipe& recipe, uint64_t seed) {
  Random random(seed);
  const Prompt prompt(geometry(4, 64, {2, 1}), 1 + random.below(700), seed);
  PagePool pool;
  PagePool other;
  Team team(1);
  Cache cache = empty_cache(prompt, recipe, pool);
  Outputs out = empty_outputs(prompt);
  grow(cache, prompt, random.below(prompt.n_tokens + 1), random, team, out);
  const Cache shared = cache.fork();
  const Bytes bytes = save(cache);
  Cache loaded = empty_cache(prompt, recipe, other);
  RC_ASSERT(load(bytes, loaded) == "");
  RC_ASSERT(loaded.n_tokens() == cache.n_tokens());
  RC_ASSERT(loaded.coded_tokens() == cache.coded_tokens());
  RC_ASSERT(loaded.size_bytes() == cache.size_bytes());
  RC_ASSERT(other.used_bytes() == loaded.store().size_bytes());
  RC_ASSERT(loaded.residency().dropped_tokens == cache.residency().dropped_tokens);
  RC_ASSERT(save(loaded) == bytes);
  check_conservation(loaded);
  Outputs wanted = empty_outputs(prompt);
  Outputs got = empty_outputs(prompt);
  Random steps = random;
  grow(cache, prompt, prompt.n_tokens, random, team, wanted);
  grow(loaded, prompt, prompt.n_tokens, steps, team, got);
  RC_ASSERT(equal_bits(got, wanted));
  check_conservation(loaded);
  RC_ASSERT(save(loaded) == save(cache));
  RC_ASSERT(save(shared) == bytes);
  loaded.crop(0);
  cache = empty_cache(prompt, recipe, pool);
  steps = random;
  grow(cache, prompt, prompt.n_tokens, random, team, wanted);
  grow(loaded, prompt, prompt.n_tokens, steps, team, got);
  RC_ASSERT(equal_bits(got, wanted));
  RC_ASSERT(save(loaded) == save(cache));
}

TEST(SavedMoves, GoesOnInTheSameBits) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<const char*> recipes = all_recipes();
    const uint64_t seed = *rc::gen::arbitrary<uint64_t>();
    const std::string text = recipes[Random(~seed).below(recipes.size())];
    RC_LOG(text);
    check(Recipe::parse(text), seed);
  }));
}

// ---- damage

using Values = std::vector<uint32_t>;
using Change = std::function<void(Values&)>;
constexpr uint32_t kInfinity = 0x7f800000;

// A recipe's cache after a prompt of 200 tokens and 20 more, of two layers with 2 and 1 KV heads.
struct Damage {
  explicit Damage(const std::string& recipe) : keeper(prompt, recipe) {
    keeper.grow(prompt, 200, 200);
    keeper.grow(prompt, 220, 1);
  }

  void refuses(const std::string& section, const Change& change, int line) {
    const Bytes bytes = changed<uint32_t>(keeper.cache, section, change);
    EXPECT_TRUE(is_refused_for(section, bytes))
        << keeper.cache.recipe().text() << ", line " << line << ": '" << refusal(bytes) << "'";
  }

  Prompt prompt{geometry(4, 64, {2, 1}), 230, 9};
  Keeper keeper;
};

TEST(SavedMovesDamage, RowsThatHaveLeft) {
  for (const char* recipe : kDropping) {
    Damage damage(recipe);
    ASSERT_EQ(refusal(save(damage.keeper.cache)), "") << recipe;
    const size_t n = damage.keeper.cache.rows().n_rows;
    const auto refuses = [&](int line, const Change& change) { damage.refuses("moved", change, line); };
    refuses(__LINE__, [](Values& v) { v.clear(); });
    refuses(__LINE__, [](Values& v) { v.resize(1); });
    refuses(__LINE__, [](Values& v) { v.pop_back(); });
    refuses(__LINE__, [](Values& v) { v.push_back(0); });
    refuses(__LINE__, [](Values& v) { v.resize(2), v[1] = 0; });
    refuses(__LINE__, [](Values& v) { v[0] = 221; });  // more steps of one than tokens
    refuses(__LINE__, [](Values& v) { v[1] += 1; });
    refuses(__LINE__, [](Values& v) { v[1] = 0xffffffff; });
    refuses(__LINE__, [](Values& v) { v[1] = 0x80000000; });
    refuses(__LINE__, [](Values& v) { v[3] = v[2]; });  // twice
    refuses(__LINE__, [](Values& v) { v[2] = 220; });   // beyond the tokens
    refuses(__LINE__, [](Values& v) { v[2] = 0xffffffff; });
    refuses(__LINE__, [](Values& v) { v.back() = kInfinity; });
    refuses(__LINE__, [](Values& v) { v.back() = kInfinity | 1; });  // no number
    refuses(__LINE__, [](Values& v) { v.back() = 0xbf800000; });     // negative
    refuses(__LINE__, [n](Values& v) { v[2 + n] = 0xffffffff; });
    // One row more or less in every head.
    refuses(__LINE__, [n](Values& v) { v[1] += 1, v.insert(v.end(), 6, 0); });
    EXPECT_TRUE(is_refused_for("moved", without(damage.keeper.cache, "moved"))) << recipe;
  }
}

// Fewer rows than the recipe keeps, all else fitting: the last ones of each head are taken away.
TEST(SavedMovesDamage, FewerRowsThanTheRecipeKeeps) {
  for (const std::string recipe :
       {"streaming(window=40)", "snapkv(budget=70,window=16)", "k=f16,v=f16,keep=log(reserve=48)"}) {
    Damage damage(recipe);
    const size_t n = damage.keeper.cache.rows().n_rows;
    damage.refuses(
        "moved",
        [n](Values& v) {
          const size_t n_fewer = std::min<size_t>(n - 1, 15);
          Values fewer = {v[0], static_cast<uint32_t>(n_fewer)};
          for (size_t part = 0; part < 6; ++part) {
            const auto first = v.begin() + static_cast<ptrdiff_t>(2 + part * n);
            fewer.insert(fewer.end(), first, first + static_cast<ptrdiff_t>(n_fewer));
          }
          v = fewer;
        },
        __LINE__);
  }
}

// A position that is free, but not one that the recipe would have kept.
TEST(SavedMovesDamage, OtherRowsThanTheRecipeKeeps) {
  for (const std::string recipe : {"streaming(window=40)", "k=f16,v=f16,keep=log(reserve=48)",
                                   "k=f16,v=f16,keep=log(reserve=48,rule=strided)"}) {
    Damage damage(recipe);
    const size_t n = damage.keeper.cache.rows().n_rows;
    damage.refuses(
        "moved",
        [n](Values& v) {
          const auto last = v.begin() + static_cast<ptrdiff_t>(2 + n);
          uint32_t free = 0;
          while (std::find(v.begin() + 2, last, free) != last) ++free;
          v[2] = free;
        },
        __LINE__);
  }
}

TEST(SavedMovesDamage, RowsOfAReserve) {
  for (const char* recipe : kCoding) {
    Damage damage(recipe);
    ASSERT_EQ(refusal(save(damage.keeper.cache)), "") << recipe;
    if (damage.keeper.cache.reserving() == nullptr) continue;  // partial: nothing is said
    const auto refuses = [&](int line, const Change& change) { damage.refuses("moved", change, line); };
    refuses(__LINE__, [](Values& v) { v.clear(); });
    refuses(__LINE__, [](Values& v) { v.pop_back(); });
    refuses(__LINE__, [](Values& v) { v.push_back(0); });
    refuses(__LINE__, [](Values& v) { v[0] = v[1]; });
    refuses(__LINE__, [](Values& v) { v[0] = 220; });
    refuses(__LINE__, [](Values& v) { v[0] = 0xffffffff; });
    EXPECT_TRUE(is_refused_for("moved", without(damage.keeper.cache, "moved"))) << recipe;
  }
}

TEST(SavedMovesDamage, Counts) {
  for (const char* recipe : all_recipes()) {
    Damage damage(recipe);
    const auto refused = [&](size_t at, uint64_t value) {
      const Bytes bytes =
          changed<uint64_t>(damage.keeper.cache, "rows", [&](std::vector<uint64_t>& v) { v[at] = value; });
      const std::string error = refusal(bytes);
      EXPECT_NE(error, "") << recipe << " " << at << " " << value;
      EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    };
    for (const uint64_t n : {uint64_t{0}, uint64_t{1}, uint64_t{219}, (uint64_t{1} << 31) + 1,
                             uint64_t{1} << 32, uint64_t{1} << 58, std::numeric_limits<uint64_t>::max()}) {
      const size_t n_sealed = damage.keeper.cache.store().view(1, 220).n_sealed();
      // Of pages in order the last row may be unused.
      if (n != 219 || has_moved_rows(damage.keeper.cache.recipe())) refused(0, n);
      for (size_t layer = 0; layer < 2; ++layer) {
        if (n != n_sealed) refused(1 + layer, n);
      }
    }
  }
}

TEST(SavedMovesDamage, PagesOfAnotherLength) {
  for (const char* recipe : all_recipes()) {
    Damage damage(recipe);
    for (const ptrdiff_t more : {-1, 1, 2048}) {
      const Bytes bytes = changed<std::byte>(damage.keeper.cache, "pages", [&](Bytes& pages) {
        pages.resize(static_cast<size_t>(static_cast<ptrdiff_t>(pages.size()) + more));
      });
      EXPECT_TRUE(is_refused_for("pages", bytes)) << recipe << " " << refusal(bytes);
    }
  }
}

// Whatever is not refused can be gone on with: numbers and rows that nobody has written so.
TEST(SavedMovesDamage, WhatIsReadCanGoOn) {
  size_t n_read = 0;
  for (const char* recipe : all_recipes()) {
    Damage damage(recipe);
    Random random(17);
    for (int round = 0; round < 60; ++round) {
      const bool rows = round % 3 == 0;
      const Bytes bytes = changed<uint32_t>(damage.keeper.cache, rows ? "pages" : "moved", [&](Values& v) {
        for (size_t i = 1 + random.below(3); i > 0 && !v.empty(); --i) {
          // Of rows, nothing but numbers that are none.
          v[random.below(v.size())] = rows ? 0x7fff7fff : static_cast<uint32_t>(random.below(230));
        }
      });
      if (!refusal(bytes).empty()) continue;
      ++n_read;
      PagePool pool;
      Cache loaded = empty_cache(damage.prompt, damage.keeper.cache.recipe(), pool);
      ASSERT_EQ(load(bytes, loaded), "");
      Team team(1);
      Outputs out = empty_outputs(damage.prompt);
      run_step(loaded, damage.prompt, 220, 225, 5, team, out);
      while (loaded.n_tokens() < 230) {
        run_step(loaded, damage.prompt, loaded.n_tokens(), loaded.n_tokens() + 1, 1, team, out);
      }
    }
  }
  EXPECT_GT(n_read, 300u);
}

}  // namespace
}  // namespace quire::test
