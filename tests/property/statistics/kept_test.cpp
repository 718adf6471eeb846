// Rows that stay exact although their pages are coded, and attention over caches with prompt statistics.
#include <gtest/gtest.h>

#include "property/statistics/scene.h"

namespace quire::test {
namespace {

Prompt kept_prompt(size_t n, size_t dim = 64, uint64_t seed = 3) {
  return Prompt(geometry(6, dim, {2, 3}), n, seed);
}

const char* const kDense[] = {"k=signvq,v=signvq,full_rows=64",
                              "signvq",
                              "k=signvq,v=f16,full_rows=7,sink=4,tail=64",
                              "turbo4q(stats=prompt,full_rows=30)",
                              "k=nested4,v=nested3,stats=prompt,full_rows=64",
                              "quire(stats=prompt,budget=100%,full_rows=64)",
                              "selfindex(budget=100%)",
                              "k=f16,v=nested4,frame=centred,stats=prompt,full_rows=9"};

// Those that the last query of the step, averaged over the group, scores highest.
TEST(KeptRows, AreThoseTheLastQueryLikesBest) {
  for (const char* text :
       {"selfindex", "selfindex(full_rows=9,sink=5,tail=64)", "turbo4(stats=prompt,full_rows=33)",
        "k=f16,v=nested4,frame=centred,stats=prompt,full_rows=9"}) {
    const Recipe recipe = Recipe::parse(text);
    const Prompt prompt = kept_prompt(650);
    Grown grown(prompt, recipe, 650, 650, 0, 2);
    for (size_t layer = 0; layer < 2; ++layer) {
      const size_t n_kv = prompt.shape.n_kv_heads[layer];
      const size_t group = 6 / n_kv;
      for (size_t head = 0; head < n_kv; ++head) {
        const std::vector<double> k = exact_rows(prompt, prompt.k[layer], layer, 650, head);
        const size_t n_due = (650 - recipe.tail_tokens) / 64 * 64;
        std::vector<double> scores(n_due, 0.0);
        for (size_t t = 0; t < n_due; ++t) {
          for (size_t d = 0; d < 64; ++d) {
            double q = 0;
            for (size_t h = head * group; h < (head + 1) * group; ++h) {
              q += prompt.q[layer][649 * prompt.q_width() + h * 64 + d] / static_cast<double>(group);
            }
            scores[t] += q * k[t * 64 + d];
          }
        }
        const std::vector<uint32_t> kept = grown.kept(layer, head);
        ASSERT_EQ(kept.size(), recipe.full_rows) << text;
        ASSERT_TRUE(std::is_sorted(kept.begin(), kept.end()));
        double least = INFINITY;
        double most_left = -INFINITY;
        for (size_t t = recipe.sink_tokens; t < n_due; ++t) {
          if (std::binary_search(kept.begin(), kept.end(), t)) {
            least = std::min(least, scores[t]);
          } else {
            most_left = std::max(most_left, scores[t]);
          }
        }
        ASSERT_GE(kept[0], recipe.sink_tokens);
        ASSERT_LT(kept.back(), n_due);
        ASSERT_GE(least, most_left - 1e-5) << text;
      }
    }
  }
}

// All tokens are read once: kept rows, sinks and open rows exactly, the others by their codes.
TEST(KeptRows, OutputsAreThoseOfTheRowsAsStored) {
  for (const char* text : kDense) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t dim : {40, 64}) {
      for (const size_t n : {512, 777}) {
        const Prompt prompt = kept_prompt(n + 1, dim, n);
        Grown before(prompt, recipe, n, n);
        Cache cache = before.cache.fork();
        Outputs out = empty_outputs(prompt);
        run_step(cache, prompt, n, n + 1, 1, before.team, out);
        for (size_t layer = 0; layer < 2; ++layer) {
          ASSERT_LE(decode_error(before, prompt, layer, out[layer].data() + n * prompt.q_width(), n),
                    std::max(2e-5, allowed_error(recipe)))
              << text << " " << dim << " " << n << " layer " << layer;
        }
      }
    }
  }
}

// Law 3. A zero query weighs all tokens alike, and the values are exact and of each token their own.
TEST(KeptRows, NoTokenIsLostOrReadTwice) {
  for (const char* text : {"k=signvq,v=f16,full_rows=64", "k=signvq,v=f16,full_rows=64,sink=16,tail=100",
                           "k=turbo4,v=f16,stats=prompt,full_rows=21"}) {
    for (const size_t n : {513, 600, 705}) {
      Prompt prompt = kept_prompt(n, 64, n);
      Random random(n);
      for (size_t layer = 0; layer < 2; ++layer) {
        std::fill(prompt.q[layer].end() - 384, prompt.q[layer].end(), 0.0f);
        for (float& v : prompt.v[layer]) v = static_cast<float>(random.below(2048));
      }
      Grown grown(prompt, Recipe::parse(text), n - 1, n - 1);
      grown.grow(prompt, n, 1);
      for (size_t layer = 0; layer < 2; ++layer) {
        const size_t group = 6 / prompt.shape.n_kv_heads[layer];
        for (size_t i = 0; i < 384; ++i) {
          double mean = 0;
          for (size_t t = 0; t < n; ++t) {
            mean += prompt.v[layer][t * prompt.kv_width(layer) + i / 64 / group * 64 + i % 64];
          }
          ASSERT_NEAR(grown.out[layer][(n - 1) * 384 + i], mean / static_cast<double>(n), 2e-3)
              << text << " " << n;
        }
      }
    }
  }
}

// Tokens that come after the prompt are coded by its statistics, in pages of their own, and read as stored.
TEST(KeptRows, GeneratedTokensAreCodedByTheSameStatistics) {
  for (const char* text : kDense) {
    const Recipe recipe = Recipe::parse(text);
    const Prompt prompt = kept_prompt(801, 64, 5);
    Grown grown(prompt, recipe, 600, 600);
    const LayerStatistics* made = grown.cache.layer_statistics(0);
    const std::vector<uint32_t> kept = grown.kept(0, 1);
    grown.grow(prompt, 800, 10);
    ASSERT_EQ(grown.cache.layer_statistics(0), made);
    ASSERT_EQ(grown.kept(0, 1), kept);
    ASSERT_GE(grown.cache.coded_tokens(), 704u);
    Cache cache = grown.cache.fork();
    Outputs out = empty_outputs(prompt);
    run_step(cache, prompt, 800, 801, 1, grown.team, out);
    for (size_t layer = 0; layer < 2; ++layer) {
      ASSERT_LE(decode_error(grown, prompt, layer, out[layer].data() + 800 * prompt.q_width(), 800),
                std::max(2e-5, allowed_error(recipe)))
          << text;
    }
  }
}

// A needle among them is found through the index.
TEST(KeptRows, GeneratedTokensStayRetrievable) {
  for (const char* text :
       {"selfindex(budget=150)", "quire(stats=prompt,budget=150)",
        "quire(stats=prompt,budget=150,full_rows=40)", "signvq(select=sign(budget=150))"}) {
    Prompt prompt(geometry(2, 64, {2}), 1501, 9);
    for (const size_t needle : {333, 900, 1200}) {
      Prompt own = prompt;
      for (size_t i = 0; i < 128; ++i) {
        own.k[0][needle * 128 + i] += 16 * own.q[0][1500 * 128 + i];
        own.v[0][needle * 128 + i] = 5;
      }
      Grown grown(own, Recipe::parse(text), 800, 800);
      grown.grow(own, 1500, 50);
      grown.grow(own, 1501, 1);
      EXPECT_LE(grown.cache.last_step().rows_read, 2u * 150) << text;
      for (size_t head = 0; head < 2; ++head) {  // codes of three bits spread their error over the dims
        double mean = 0;
        for (size_t d = 0; d < 64; ++d) mean += grown.out[0][1500 * 128 + head * 64 + d] / 64;
        ASSERT_NEAR(mean, 5, 0.5) << text << " " << needle;
      }
    }
  }
}

// ---- forks and crops

TEST(KeptRows, ForksShareAndGoOnAlone) {
  for (const char* text :
       {"selfindex", "turbo4(stats=prompt,full_rows=8)", "quire(stats=prompt,budget=100)"}) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t shared : {300, 511, 512, 600}) {
      const Prompt prompt = kept_prompt(760);
      Grown grown(prompt, recipe, shared, shared);
      const uint64_t used = grown.pool.used_bytes();
      Cache fork = grown.cache.fork();
      EXPECT_EQ(grown.pool.used_bytes(), used);
      EXPECT_EQ(fork.size_bytes(), grown.cache.size_bytes());
      EXPECT_EQ(fork.layer_statistics(1), grown.cache.layer_statistics(1));
      Outputs out = empty_outputs(prompt);
      for (size_t t = shared; t < 760; t += 20) {  // taking turns
        grown.grow(prompt, std::min<size_t>(760, t + 20), 20);
        run_step(fork, prompt, t, std::min<size_t>(760, t + 20), 20, grown.team, out);
      }
      for (size_t layer = 0; layer < 2; ++layer) {
        ASSERT_TRUE(std::equal(out[layer].begin() + static_cast<ptrdiff_t>(shared * 384), out[layer].end(),
                               grown.out[layer].begin() + static_cast<ptrdiff_t>(shared * 384)))
            << text << " " << shared;
      }
    }
  }
}

TEST(KeptRows, ACropToNothingForgetsThem) {
  for (const char* text : {"selfindex", "turbo4(stats=prompt,full_rows=8)", "signvq"}) {
    const Recipe recipe = Recipe::parse(text);
    const Prompt prompt = kept_prompt(600);
    const Prompt other = kept_prompt(700, 64, 8);
    for (const size_t before : {400, 600}) {
      Grown grown(prompt, recipe, before, before);
      Cache fork = grown.cache.fork();
      grown.cache.crop(0);
      EXPECT_EQ(grown.cache.size_bytes(), 0u);
      EXPECT_EQ(grown.pool.used_bytes(), fork.store().size_bytes());
      EXPECT_EQ(grown.cache.layer_statistics(0), nullptr);
      grown.out = empty_outputs(other);
      grown.grow(other, 700, 650);
      Grown fresh(other, recipe, 700, 650);
      EXPECT_EQ(grown.out, fresh.out) << text;
      ASSERT_EQ(fork.layer_statistics(0) != nullptr, before == 600) << "the fork has what it had";
    }
  }
}

// Cut behind the coded pages and on: the same codes as without.
TEST(KeptRows, ACropBehindThemLeavesThem) {
  for (const char* text : {"selfindex", "turbo4(stats=prompt,full_rows=8)"}) {
    const Prompt prompt = kept_prompt(800);
    Grown straight(prompt, Recipe::parse(text), 700, 700);
    straight.grow(prompt, 800, 1);
    Grown cut(prompt, Recipe::parse(text), 700, 700);
    cut.cache.crop(cut.cache.coded_tokens() + 3);
    const LayerStatistics* made = cut.cache.layer_statistics(0);
    cut.grow(prompt, 800, 1);
    EXPECT_EQ(cut.cache.layer_statistics(0), made);
    EXPECT_TRUE(std::equal(cut.out[0].end() - 384, cut.out[0].end(), straight.out[0].end() - 384)) << text;
  }
}

}  // namespace
}  // namespace quire::test
