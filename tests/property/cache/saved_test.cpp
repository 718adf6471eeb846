// A cache that was written to a file and read again gives the same attention, bit for bit, whatever its
// recipe, length and history, and whatever follows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "property/cache/prompt.h"
#include "property/cache/saved.h"
#include "property/rapid.h"

namespace quire::test {
namespace {

Recipe random_recipe(Random& random) {
  const std::vector<const char*> rows = {"f16", "bf16", "f32", "fp8"};
  const auto pick = [&](const auto& names) { return std::string(names[random.below(names.size())]); };
  if (random.below(3) == 0) {
    const std::vector<const char*> selections = {"", ",select=quest(budget=30,dense=0)",
                                                 ",select=doublesparse(budget=30,from=prompt)",
                                                 ",select=oracle(budget=30)", ",select=random(budget=40)"};
    return Recipe::parse("k=" + pick(rows) + ",v=" + pick(rows) + pick(selections));
  }
  std::vector<std::string_view> all = {"f16"};
  for (int i = 0; i < kCodeCount; ++i) all.push_back(info(static_cast<Code>(i)).name);
  std::erase(all, std::string_view("signvq"));  // goes by the prompt: property/statistics
  const std::string code(all[1 + random.below(all.size() - 1)]);
  const bool coded_keys = random.below(2) == 0;
  const std::string keys = coded_keys ? code : pick(all);
  const std::string values = coded_keys ? pick(all) : code;
  return Recipe::parse("k=" + keys + ",v=" + values + ",sink=" + std::to_string(random.below(17)) +
                       ",tail=" + std::to_string(random.below(150)) + ",frame=rotated");
}

// Steps of random lengths to n tokens in all.
void grow(Cache& cache, const Prompt& prompt, size_t n, Random& random, Team& team, Outputs& out) {
  while (cache.n_tokens() < n) {
    const size_t begin = cache.n_tokens();
    const size_t end = std::min(n, begin + 1 + random.below(random.below(2) == 0 ? 3 : 150));
    run_step(cache, prompt, begin, end, end - begin, team, out);
  }
}

void crop_a_little(Cache& cache, Random& random) {
  const size_t least = cache.coded_tokens();
  cache.crop(least + random.below(cache.n_tokens() - least + 1));
}

// Before the file the cache grows, is cut and is shared; behind it both go on alike.
void check(uint64_t seed) {
  Random random(seed);
  const Recipe recipe = random_recipe(random);
  const Prompt prompt(geometry(4, 64, {2, 1}), 1 + random.below(400), seed);
  PagePool pool;
  PagePool other;
  Team team(1);
  Cache cache(recipe, prompt.shape, pool);
  Outputs out = empty_outputs(prompt);
  grow(cache, prompt, random.below(prompt.n_tokens + 1), random, team, out);
  if (random.below(2) == 0) crop_a_little(cache, random);
  const Cache shared = cache.fork();
  const Bytes bytes = save(cache);
  Cache loaded(recipe, prompt.shape, other);
  RC_ASSERT(load(bytes, loaded) == "");
  RC_ASSERT(loaded.n_tokens() == cache.n_tokens());
  RC_ASSERT(loaded.coded_tokens() == cache.coded_tokens());
  RC_ASSERT(other.used_bytes() == loaded.size_bytes());
  RC_ASSERT(save(loaded) == bytes);
  Outputs wanted = empty_outputs(prompt);
  Outputs got = empty_outputs(prompt);
  Random steps = random;
  grow(cache, prompt, prompt.n_tokens, random, team, wanted);
  grow(loaded, prompt, prompt.n_tokens, steps, team, got);
  for (size_t layer = 0; layer < wanted.size(); ++layer) {
    RC_ASSERT(std::memcmp(wanted[layer].data(), got[layer].data(), wanted[layer].size() * sizeof(float)) ==
              0);
  }
  RC_ASSERT(save(loaded) == save(cache));
  RC_ASSERT(save(shared) == bytes);
}

TEST(SavedCache, GivesTheSameAttention) {
  EXPECT_TRUE(rc::check([] { check(*rc::gen::arbitrary<uint64_t>()); }));
}

}  // namespace
}  // namespace quire::test
