// Statistics of the prompt and kept rows in a file: the same bits afterwards, and damage is refused.
#include <gtest/gtest.h>

#include <cstring>

#include "property/cache/saved.h"
#include "property/statistics/scene.h"

namespace quire::test {
namespace {

const char* const kSavedRecipes[] = {
    "selfindex",
    "selfindex(full_rows=3,sink=4,tail=30,budget=100)",
    "signvq",
    "turbo4(stats=prompt)",
    "quire(stats=prompt,full_rows=20,budget=100)",
    "quire(stats=prompt,frame=centred,mass=0.9)",
    "quire(frame=rotated,budget=12.3456789012345%,candidates=3.14159265358979)"};

Prompt saved_prompt(size_t n) { return Prompt(geometry(4, 64, {2, 1}), n, 6); }

TEST(SavedStatistics, GoesOnInTheSameBits) {
  const Prompt prompt = saved_prompt(760);
  for (const char* text : kSavedRecipes) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t at : {400, 511, 512, 705}) {
      for (const size_t step : {at == 705 ? size_t{1} : size_t{100}}) {
        Grown grown(prompt, recipe, at, 600);
        const Bytes bytes = save(grown.cache);
        PagePool pool;
        Cache loaded(recipe, prompt.shape, pool);
        ASSERT_EQ(load(bytes, loaded), "") << text;
        ASSERT_EQ(loaded.n_tokens(), at);
        ASSERT_EQ(loaded.coded_tokens(), grown.cache.coded_tokens());
        ASSERT_EQ(pool.used_bytes(), grown.cache.store().size_bytes());
        ASSERT_EQ(save(loaded), bytes) << text << " " << at;
        Outputs out = empty_outputs(prompt);
        run_rest(loaded, prompt, step, grown.team, out);
        grown.out = empty_outputs(prompt);
        grown.grow(prompt, 760, step);
        for (size_t layer = 0; layer < 2; ++layer) {
          ASSERT_EQ(
              std::memcmp(out[layer].data(), grown.out[layer].data(), out[layer].size() * sizeof(float)), 0)
              << text << " saved at " << at << ", steps of " << step;
        }
        ASSERT_EQ(save(loaded), save(grown.cache)) << text << " " << at;
      }
    }
  }
}

// ---- damage

struct Saved : testing::Test {
  Prompt prompt = saved_prompt(700);
  Grown grown{prompt, Recipe::parse("selfindex(full_rows=5,sink=4)"), 700, 700};

  void refused_kept(const std::function<void(std::vector<uint32_t>&)>& change) {
    const Bytes bytes = changed<uint32_t>(grown.cache, "kept", change);
    EXPECT_TRUE(is_refused_for("kept", bytes)) << "'" << refusal(bytes) << "'";
  }
  void refused_statistics(const std::function<void(std::vector<float>&)>& change) {
    const Bytes bytes = changed<float>(grown.cache, "statistics", change);
    EXPECT_TRUE(is_refused_for("statistics", bytes)) << "'" << refusal(bytes) << "'";
  }
};
using SavedDamage = Saved;

TEST_F(SavedDamage, UnchangedIsRead) {
  EXPECT_EQ(refusal(changed<uint32_t>(grown.cache, "kept", [](auto&) {})), "");
  EXPECT_EQ(refusal(changed<float>(grown.cache, "statistics", [](auto&) {})), "");
}

// | 5 | positions of head 0 | of head 1 | 5 | positions of layer 1 |
TEST_F(SavedDamage, KeptPositions) {
  refused_kept([](auto& v) { std::swap(v[1], v[2]); });
  refused_kept([](auto& v) { v[2] = v[1]; });
  refused_kept([](auto& v) { v[1] = 3; });  // a sink
  refused_kept([](auto& v) { v[6] = 0; });
  refused_kept([](auto& v) { v[5] = 640; });  // an open row
  refused_kept([](auto& v) { v[5] = 0xffffffff; });
  refused_kept([](auto& v) { v.back() = 10 * 64; });
  refused_kept([](auto& v) { v[0] = 0; });
  refused_kept([](auto& v) { v[0] = 4; });
  refused_kept([](auto& v) { v[0] = 6; });
  refused_kept([](auto& v) { v[0] = 0xffffffff; });
  refused_kept([](auto& v) { v[11] = 65; });
  refused_kept([](auto& v) { v.pop_back(); });
  refused_kept([](auto& v) { v.push_back(0); });
  refused_kept([](auto& v) { v.clear(); });
}

TEST_F(SavedDamage, Statistics) {
  refused_statistics([](auto& v) { v[0] = NAN; });
  refused_statistics([](auto& v) { v[70] = INFINITY; });
  refused_statistics([](auto& v) { v.back() = -INFINITY; });
  refused_statistics([](auto& v) { v.pop_back(); });
  refused_statistics([](auto& v) { v.push_back(0); });
  refused_statistics([](auto& v) { v.clear(); });
  refused_statistics([](auto& v) { v[128] = 0; });  // a balance, which divides
  refused_statistics([](auto& v) { v[129] = -1; });
}

TEST_F(SavedDamage, MissingSections) {
  for (const std::string name : {"kept", "statistics"}) {
    EXPECT_TRUE(is_refused_for(name, without(grown.cache, name))) << name;
  }
}

// Of another recipe: full_rows fewer than the file's.
TEST_F(SavedDamage, MoreRowsThanTheRecipeKeeps) {
  const std::string error = refusal(changed<char>(grown.cache, "recipe", [](std::vector<char>& text) {
    const std::string other = "selfindex(sink=4,full_rows=4)";
    text.assign(other.begin(), other.end());
  }));
  EXPECT_NE(error.find("kept"), std::string::npos) << error;
}

}  // namespace
}  // namespace quire::test
