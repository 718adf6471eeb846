// What a budget that covers everything, short texts and dense layers do, who computes, how the prompt came
// in, and the bytes that are read.
#include <gtest/gtest.h>

#include "property/sparse/scene.h"

namespace quire::test {
namespace {

const char* const kDense = "k=nested4,v=nested3,frame=rotated";

Recipe quire_recipe(const std::string& settings) {
  return Recipe::parse("quire(frame=rotated" + (settings.empty() ? "" : "," + settings) + ")");
}

Prompt prompt_of(size_t n_tokens, uint64_t seed = 1) {
  return Prompt(geometry(6, 64, {2, 6, 1}), n_tokens, seed);
}

// Law 4.
TEST(SparseWhole, BudgetsThatCoverEverythingAreBitEqualToAFullRead) {
  for (const size_t n_tokens : {300, 700, 1001}) {
    const Prompt prompt = prompt_of(n_tokens);
    const Decoded dense = decode_last(prompt, Recipe::parse(kDense));
    for (const std::string& settings :
         {std::string("budget=100%"), "budget=" + std::to_string(n_tokens), std::string("budget=1000000"),
          std::string("mass=1"), std::string("budget=100%,queries=mean"), std::string("dense=3,budget=1%"),
          std::string("dense=4000")}) {
      const Decoded sparse = decode_last(prompt, quire_recipe(settings), {.measure_mass = true});
      EXPECT_EQ(sparse.out, dense.out) << n_tokens << " " << settings;
      EXPECT_EQ(sparse.stats.rows_read, dense.stats.rows_read);
      EXPECT_EQ(sparse.stats.bytes_read, dense.stats.bytes_read);
      EXPECT_EQ(sparse.stats.mass_count, 0u);
    }
  }
}

// Up to the least budget by share, and where nothing is coded yet.
TEST(SparseWhole, ShortTextsAreReadInFull) {
  for (const size_t n_tokens : {1, 2, 63, 64, 65, 128, 129, 200, 256}) {
    const Prompt prompt = prompt_of(n_tokens);
    EXPECT_EQ(decode_last(prompt, quire_recipe("")).out, decode_last(prompt, Recipe::parse(kDense)).out)
        << n_tokens;
    EXPECT_EQ(decode_last(prompt, quire_recipe("mass=0.5,candidates=100%")).stats.n_tokens, n_tokens);
  }
  const Prompt tail = prompt_of(200);
  EXPECT_EQ(decode_last(tail, quire_recipe("budget=1,tail=200")).out,
            decode_last(tail, Recipe::parse(std::string(kDense) + ",tail=200")).out);
}

// One row less than everything: a different way, the same attention but for a row of little weight.
TEST(SparseWhole, AlmostEverythingIsAlmostEqual) {
  const Prompt prompt = prompt_of(800);
  const Decoded dense = decode_last(prompt, Recipe::parse(kDense));
  const Decoded sparse = decode_last(prompt, quire_recipe("budget=799"));
  EXPECT_EQ(sparse.stats.rows_read, 9u * 799);
  for (size_t layer = 0; layer < 3; ++layer) {
    double error = 0;
    double size = 0;
    for (size_t i = 0; i < dense.out[layer].size(); ++i) {
      error += std::pow(dense.out[layer][i] - sparse.out[layer][i], 2);
      size += std::pow(dense.out[layer][i], 2);
    }
    EXPECT_LT(std::sqrt(error / size), 0.05) << layer;
  }
}

// Codes that stand out are found: needles that the query likes, and nothing else to read.
TEST(SparseWhole, ReadsTheNeedles) {
  for (const size_t head_dim : {40, 64, 100, 128, 256}) {
    constexpr size_t kTokens = 2000;
    Prompt prompt(geometry(4, head_dim, {2}), kTokens, head_dim);
    std::vector<std::vector<bool>> needle(2, std::vector<bool>(kTokens));
    for (size_t head = 0; head < 2; ++head) {
      for (size_t h = 2 * head; h < 2 * head + 2; ++h) {
        for (size_t i = 0; i < 10; ++i) {
          const size_t t = 100 + 150 * i + 7 * h;
          needle[head][t] = true;
          const float* q = prompt.q[0].data() + (kTokens - 1) * prompt.q_width() + h * head_dim;
          float* k = prompt.k[0].data() + t * prompt.kv_width(0) + head * head_dim;
          for (size_t d = 0; d < head_dim; ++d) k[d] += 14 * q[d];
        }
      }
    }
    const Recipe recipe = quire_recipe("budget=" + std::to_string(4 + 80 + 20));
    const size_t n_sealed = sealed_pages(recipe, kTokens - 1) * 64;
    ASSERT_EQ(kTokens - n_sealed, 80u);
    const Decoded decoded = decode_last(prompt, recipe);
    EXPECT_EQ(decoded.stats.rows_read, 2u * 104);
    const auto wanted = expected_outputs(prompt, recipe, 0, kTokens - 1, [&](size_t head, size_t t) {
      return t < 4 || t >= n_sealed || needle[head][t];
    });
    std::vector<float> out((kTokens - 1) * prompt.q_width());
    out.insert(out.end(), decoded.out[0].begin(), decoded.out[0].end());
    EXPECT_LE(largest_error(prompt, out, wanted, kTokens - 1), allowed_error(recipe)) << head_dim;
  }
}

const char* const kSettings[] = {"budget=200", "mass=0.9", "budget=300,candidates=4,queries=mean",
                                 "dense=1,budget=5%", "mass=0.6,candidates=90%,sink=0,tail=1"};

TEST(SparseWhole, ThreadsDoNotMatter) {
  const Prompt prompt = prompt_of(2600);
  for (const char* settings : kSettings) {
    const Decoded alone = decode_last(prompt, quire_recipe(settings));
    for (const int n_threads : {2, 3, 5}) {
      const Decoded shared = decode_last(prompt, quire_recipe(settings), {.n_threads = n_threads});
      EXPECT_EQ(shared.out, alone.out) << settings << " " << n_threads;
      EXPECT_EQ(shared.stats.rows_read, alone.stats.rows_read) << settings;
      EXPECT_EQ(shared.stats.bytes_read, alone.stats.bytes_read) << settings;
    }
  }
}

TEST(SparseWhole, StepsOfThePromptDoNotMatter) {
  const Prompt prompt = prompt_of(1500);
  for (const char* settings : kSettings) {
    const Decoded whole = decode_last(prompt, quire_recipe(settings));
    for (const size_t step : {1, 63, 64, 100, 777}) {
      EXPECT_EQ(decode_last(prompt, quire_recipe(settings), {.step = step}).out, whole.out)
          << settings << " " << step;
    }
  }
}

// A cache that has read other texts before, longer and shorter ones, reads this one alike.
TEST(SparseWhole, NothingIsLeftOverFromOtherSteps) {
  const Prompt prompt = prompt_of(1300);
  const Prompt longer = prompt_of(3000, 2);
  for (const char* settings : kSettings) {
    PagePool pool;
    Cache cache(quire_recipe(settings), prompt.shape, pool);
    Team team(2);
    Outputs out = empty_outputs(longer);
    fill(cache, longer, 2999, 3000, team);
    run_step(cache, longer, 2999, 3000, 1, team, out);
    cache.crop(0);
    fill(cache, prompt, 1299, 1300, team);
    out = empty_outputs(prompt);
    run_step(cache, prompt, 1299, 1300, 1, team, out);
    const Decoded fresh = decode_last(prompt, quire_recipe(settings));
    for (size_t layer = 0; layer < 3; ++layer) {
      EXPECT_TRUE(std::equal(fresh.out[layer].begin(), fresh.out[layer].end(),
                             out[layer].end() - static_cast<ptrdiff_t>(prompt.q_width())))
          << settings << " " << layer;
    }
  }
}

// A fork reads as the first does.
TEST(SparseWhole, AForkReadsAlike) {
  const Prompt prompt = prompt_of(900);
  PagePool pool;
  Cache cache(quire_recipe("budget=150"), prompt.shape, pool);
  Team team(1);
  fill(cache, prompt, 899, 900, team);
  Cache fork = cache.fork();
  Outputs out = empty_outputs(prompt);
  Outputs other = empty_outputs(prompt);
  run_step(cache, prompt, 899, 900, 1, team, out);
  run_step(fork, prompt, 899, 900, 1, team, other);
  for (size_t layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(std::equal(out[layer].end() - 384, out[layer].end(), other[layer].end() - 384));
  }
  EXPECT_EQ(cache.last_step().rows_read, fork.last_step().rows_read);
}

// Law 7: index planes of all rows, the other key bytes of the candidates, the value bytes of the rows read,
// and all of the exact rows.
TEST(SparseBytes, AreThoseOfTheThreeSteps) {
  const struct {
    const char* format;
    const char* keys;
    size_t index_bytes, key_bytes;  // of a row of 64 dims
    size_t value_bytes;
  } sides[] = {{"k=nested4,v=nested3", "nested4", 8 + 2, 24, 26},
               {"k=nested3,v=nested2", "nested3", 8 + 2, 16, 18},
               {"k=nested2,v=q8", "nested2", 8 + 2, 8, 68}};
  for (const auto& side : sides) {
    for (const size_t budget : {140, 200, 500}) {
      const Recipe recipe = Recipe::parse(std::string(side.format) + ",frame=rotated,select=sign(budget=" +
                                          std::to_string(budget) + ",candidates=2)");
      const Prompt prompt(geometry(6, 64, {2, 3}), 1600, 8);
      const Decoded decoded = decode_last(prompt, recipe);
      const size_t n_sealed = sealed_pages(recipe, 1599) * 64;
      const size_t n_exact = 1600 - n_sealed + 4;
      const size_t n_heads = 5;
      EXPECT_EQ(decoded.stats.rows_read, n_heads * budget);
      EXPECT_EQ(decoded.stats.bytes_read,
                n_heads * (n_sealed * side.index_bytes + (2 * budget - n_exact) * side.key_bytes +
                           (budget - n_exact) * side.value_bytes + n_exact * 64 * 2 * 2))
          << side.format << " " << budget;
    }
  }
}

// Fewer rows than are exact anyway: these alone.
TEST(SparseBytes, OfABudgetBelowTheExactRows) {
  const Prompt prompt = prompt_of(700);
  const Decoded decoded = decode_last(prompt, quire_recipe("budget=10"));
  const size_t n_exact = 4 + 700 - 64 * sealed_pages(quire_recipe(""), 699);
  EXPECT_EQ(decoded.stats.rows_read, 9 * n_exact);
  for (const auto& layer : decoded.out) {
    for (const float x : layer) EXPECT_TRUE(std::isfinite(x));
  }
}

// Rows that are not like normal ones never give anything but numbers, nor more rows than the budget.
TEST(SparseExtremes, OutputsAreFinite) {
  enum Kind { kZeroQueries, kZeroKeys, kHugeKeys, kHugeQueries, kDenormals, kOneHuge, kZeroRows };
  for (const Kind kind :
       {kZeroQueries, kZeroKeys, kHugeKeys, kHugeQueries, kDenormals, kOneHuge, kZeroRows}) {
    Prompt prompt = prompt_of(900);
    for (size_t layer = 0; layer < 3; ++layer) {
      for (float& x : prompt.q[layer]) {
        x *= kind == kZeroQueries ? 0.0f : kind == kHugeQueries ? 1e30f : kind == kDenormals ? 1e-39f : 1.0f;
      }
      std::vector<float>& k = prompt.k[layer];
      for (size_t i = 0; i < k.size(); ++i) {
        if (kind == kZeroKeys || (kind == kZeroRows && i / prompt.kv_width(layer) % 3 == 0)) k[i] = 0;
        if (kind == kHugeKeys || (kind == kOneHuge && i / prompt.kv_width(layer) == 333)) k[i] *= 1e4f;
        if (kind == kDenormals) k[i] *= 1e-39f;
      }
    }
    for (const char* settings : kSettings) {
      const Decoded decoded = decode_last(prompt, quire_recipe(settings), {.measure_mass = true});
      for (const auto& layer : decoded.out) {
        for (const float x : layer) ASSERT_TRUE(std::isfinite(x)) << kind << " " << settings;
      }
      ASSERT_LE(decoded.stats.rows_read, 9u * 900);
      if (decoded.stats.mass_count == 0) continue;
      const double mass = decoded.stats.mass_sum / static_cast<double>(decoded.stats.mass_count);
      ASSERT_TRUE(mass >= 0 && mass <= 1.001) << kind << " " << settings << " " << mass;
    }
  }
}

}  // namespace
}  // namespace quire::test
