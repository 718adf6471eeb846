// Sequences with coded pages: the same codes however the tokens come in and whoever computes; crops, forks,
// budgets, and the bytes that are reported.
#include <gtest/gtest.h>

#include "base/error.h"
#include "property/sealed/scene.h"

namespace quire::test {
namespace {

const char* const kRecipes[] = {"turbo4(frame=rotated)",
                                "turbo2(sink=0,tail=0,frame=rotated)",
                                "k=turbo4,v=turbo3,sink=16,tail=100,frame=rotated",
                                "turbo3q(frame=rotated,tail=20)",
                                "kivi2",
                                "k=f16,v=q4,tail=1",
                                "polar4r(frame=rotated)"};

Prompt prompt_of(size_t n_tokens, uint64_t seed = 1) {
  return Prompt(geometry(6, 40, {2, 6, 1}), n_tokens, seed);
}

// A cache after the prompt's tokens in steps of `step`.
struct Filled {
  Filled(const Prompt& prompt, const Recipe& recipe, size_t step, int n_threads = 1, uint64_t budget = 0)
      : pool(budget), cache(recipe, prompt.shape, pool), team(n_threads), out(empty_outputs(prompt)) {
    run_rest(cache, prompt, step, team, out);
  }

  PagePool pool;
  Cache cache;
  Team team;
  Outputs out;
};

// The outputs of `n` further tokens, one by one: equal in every bit only where every code is.
Outputs probe(Cache& cache, size_t n, Team& team) {
  const Prompt more(cache.geometry(), cache.n_tokens() + n, 77);
  Outputs out = empty_outputs(more);
  run_rest(cache, more, 1, team, out);
  for (size_t layer = 0; layer < out.size(); ++layer) {
    out[layer].erase(out[layer].begin(), out[layer].end() - static_cast<ptrdiff_t>(n * more.q_width()));
  }
  return out;
}

TEST(SealedSequence, CodesDoNotDependOnTheSteps) {
  for (const char* text : kRecipes) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t n_tokens : {64, 128, 129, 192, 330}) {
      const Prompt prompt = prompt_of(n_tokens);
      Filled whole(prompt, recipe, n_tokens);
      const Outputs wanted = [&] {
        Cache copy = whole.cache.fork();
        return probe(copy, 3, whole.team);
      }();
      for (const size_t step : {1, 7, 63, 64, 65, 100}) {
        Filled chunked(prompt, recipe, step);
        ASSERT_EQ(chunked.cache.size_bytes(), whole.cache.size_bytes())
            << text << " " << n_tokens << " " << step;
        ASSERT_EQ(chunked.pool.used_bytes(), whole.cache.size_bytes())
            << text << " " << n_tokens << " " << step;
        ASSERT_EQ(probe(chunked.cache, 3, chunked.team), wanted)
            << text << " " << n_tokens << " in steps of " << step;
      }
    }
  }
}

TEST(SealedSequence, ThreadsDoNotMatter) {
  const Prompt prompt = prompt_of(330);
  for (const char* text : kRecipes) {
    for (const size_t step : {1, 65}) {
      const Outputs alone = Filled(prompt, Recipe::parse(text), step).out;
      for (const int n_threads : {2, 3}) {
        ASSERT_EQ(Filled(prompt, Recipe::parse(text), step, n_threads).out, alone)
            << text << ", steps of " << step << ", " << n_threads << " threads";
      }
    }
  }
}

// A step attends to its own rows and to all that are not coded yet in exact form: the first step's outputs
// are those of `full`.
TEST(SealedSequence, TheFirstStepIsExact) {
  const Prompt prompt = prompt_of(330);
  const Outputs full = run_prompt(prompt, Recipe{}, 330);
  for (const char* text : kRecipes) ASSERT_EQ(Filled(prompt, Recipe::parse(text), 330).out, full) << text;
}

// ---- bytes
// -----------------------------------------------------------------------------------------------------

TEST(SealedBytes, FollowFromTheShape) {
  for (const char* text : kRecipes) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t n_tokens : {1, 63, 64, 65, 127, 128, 129, 164, 192, 193, 330}) {
      const Prompt prompt = prompt_of(n_tokens);
      const Filled filled(prompt, recipe, n_tokens);
      EXPECT_EQ(filled.cache.size_bytes(), prompt.shape.cache_bytes(recipe, n_tokens))
          << text << " " << n_tokens;
      EXPECT_EQ(filled.pool.used_bytes(), filled.cache.size_bytes()) << text << " " << n_tokens;
      EXPECT_EQ(filled.cache.coded_tokens(), 64 * sealed_pages(recipe, n_tokens)) << text << " " << n_tokens;
    }
  }
}

TEST(SealedBytes, Turbo4TakesWhatItSays) {
  const Geometry smollm = geometry(9, 64, std::vector<size_t>(30, 3));
  const auto bits = [&](const char* recipe) {
    return static_cast<double>(smollm.cache_bytes(Recipe::parse(recipe), 7000)) * 8 /
           (7000.0 * 30 * 3 * 64 * 2);
  };
  EXPECT_LE(bits("turbo4"), 4.5);
  EXPECT_LT(bits("k=turbo4,v=turbo3"), bits("turbo4"));
  RecordProperty("turbo4_bits", std::to_string(bits("turbo4")));
  RecordProperty("turbo4_turbo3_bits", std::to_string(bits("k=turbo4,v=turbo3")));
}

// A long step holds the coded pages and one layer's open ones: with a budget of just that it runs, with a
// byte less it is refused, and nothing has changed then.
TEST(SealedBudget, OfThePeakIsEnoughAndNoByteLess) {
  for (const char* text : kRecipes) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t step : {1, 10, 64, 65, 100, 330}) {
      const Prompt prompt = prompt_of(330);
      const uint64_t peak = prompt.shape.peak_bytes(recipe, 0, 330, step);
      ASSERT_EQ(Filled(prompt, recipe, step, 2, peak).cache.n_tokens(), 330u);
      PagePool pool(peak - 1);
      Cache cache(recipe, prompt.shape, pool);
      Team team(2);
      Outputs out = empty_outputs(prompt);
      EXPECT_THROW(run_rest(cache, prompt, step, team, out), Error) << text << " steps of " << step;
      EXPECT_EQ(pool.used_bytes(), prompt.shape.cache_bytes(recipe, cache.n_tokens())) << text << " " << step;
      EXPECT_EQ(cache.size_bytes(), pool.used_bytes());
    }
  }
}

TEST(SealedBudget, ALongStepHasOneLayerOpen) {
  const Geometry shape = geometry(6, 40, {3, 3, 3, 3, 3, 3, 3, 3});
  const Recipe recipe = coded_recipe("turbo4");
  const size_t n_tokens = 64 * 40;
  const uint64_t open_layer = layer_layouts(recipe, shape)[0].open.page_bytes() * 40;
  const uint64_t peak = shape.peak_bytes(recipe, 0, n_tokens, 0);
  EXPECT_LE(peak, shape.cache_bytes(recipe, n_tokens) + open_layer);
  EXPECT_LT(peak, shape.cache_bytes(Recipe{}, n_tokens) / 2);
  const Prompt prompt(shape, n_tokens, 3);
  PagePool pool(peak);
  Cache cache(recipe, shape, pool);
  uint64_t most = 0;
  cache.begin_step(n_tokens, 1);
  Team(1).run([&](Worker& worker) {
    for (size_t layer = 0; layer < 8; ++layer) {
      cache.begin_layer(worker, layer);
      cache.append(worker, layer, 0, n_tokens, prompt.k[layer].data(), prompt.v[layer].data(), 120);
      most = std::max(most, pool.used_bytes());
      cache.end_layer(worker, layer);
    }
  });
  cache.end_step();
  EXPECT_LE(most, peak);
  EXPECT_LE(pool.reserved_bytes(), peak + (size_t{8} << 20)) << "slabs are kept, not more than they hold";
}

// Shared pages are copied before they are written and stay when they are coded on one side: all of it counts.
TEST(SealedBudget, CountsWhatAForkShares) {
  for (const char* text : kRecipes) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t n_tokens : {100, 128, 190}) {
      for (const size_t n_new : {30, 64, 130}) {
        const Prompt prompt = prompt_of(n_tokens);
        const Prompt longer = prompt_of(n_tokens + n_new, 8);
        const auto attempt = [&](uint64_t budget) {
          Filled first(prompt, recipe, n_tokens, 1, budget);
          Cache second = first.cache.fork();
          const uint64_t used = first.pool.used_bytes();
          Outputs out = empty_outputs(longer);
          try {
            run_rest(second, longer, n_new, first.team, out);
          } catch (const Error&) {
            EXPECT_EQ(first.pool.used_bytes(), used);
            EXPECT_EQ(second.n_tokens(), n_tokens);
            return false;
          }
          return true;
        };
        // The least budget that does: anything between must be refused cleanly, never half-way.
        uint64_t low = prompt.shape.peak_bytes(recipe, 0, n_tokens, 0);
        uint64_t high = 4 * prompt.shape.peak_bytes(Recipe{}, 0, n_tokens + n_new, 0);
        ASSERT_TRUE(attempt(high)) << text;
        while (low < high) {
          const uint64_t middle = (low + high) / 2;
          attempt(middle) ? high = middle : low = middle + 1;
        }
      }
    }
  }
}

// ---- crop and fork
// -------------------------------------------------------------------------------------------------

TEST(SealedCrop, NotIntoCodedRows) {
  const Prompt prompt = prompt_of(330);
  for (const char* text : kRecipes) {
    const Recipe recipe = Recipe::parse(text);
    Filled filled(prompt, recipe, 330);
    const size_t coded = filled.cache.coded_tokens();
    ASSERT_GE(coded, 128u);
    const uint64_t bytes = filled.cache.size_bytes();
    for (const size_t left : {coded - 1, coded - 64, size_t{1}}) {
      try {
        filled.cache.crop(left);
        FAIL() << text;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(std::to_string(coded)), std::string::npos) << error.what();
      }
      EXPECT_EQ(filled.cache.n_tokens(), 330u);
      EXPECT_EQ(filled.cache.size_bytes(), bytes);
    }
  }
}

// To any length that can be had, and on from there in steps of several sizes.
TEST(SealedCrop, GoesBackAndOn) {
  const Prompt prompt = prompt_of(330);
  for (const char* text : kRecipes) {
    const Recipe recipe = Recipe::parse(text);
    Filled straight(prompt, recipe, 330);
    const Outputs wanted = probe(straight.cache, 2, straight.team);
    for (const size_t step : {1, 30, 70, 200}) {
      Filled filled(prompt, recipe, 330);
      const size_t coded = filled.cache.coded_tokens();
      for (const size_t left : {size_t{329}, size_t{321}, std::max<size_t>(coded, 300), coded, size_t{0}}) {
        filled.cache.crop(left);
        EXPECT_EQ(filled.cache.n_tokens(), left);
        EXPECT_EQ(filled.pool.used_bytes(), filled.cache.size_bytes());
        EXPECT_EQ(filled.cache.size_bytes() == 0, left == 0);
        run_rest(filled.cache, prompt, step, filled.team, filled.out);
        EXPECT_EQ(filled.cache.size_bytes(), prompt.shape.cache_bytes(recipe, 330)) << text << " " << left;
      }
      EXPECT_EQ(probe(filled.cache, 2, filled.team), wanted) << text << " in steps of " << step;
    }
  }
}

TEST(SealedFork, BothSidesGoOnAlone) {
  for (const char* text : kRecipes) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t shared : {63, 64, 100, 128, 192, 200}) {
      const Prompt prompt = prompt_of(330);
      Prompt other = prompt_of(330, 9);
      for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
        const auto n = static_cast<ptrdiff_t>(shared * prompt.kv_width(layer));
        std::copy_n(prompt.k[layer].begin(), n, other.k[layer].begin());
        std::copy_n(prompt.v[layer].begin(), n, other.v[layer].begin());
      }
      PagePool pool;
      Team team(2);
      Cache first(recipe, prompt.shape, pool);
      Outputs out = empty_outputs(prompt);
      Outputs out_other = empty_outputs(other);
      run_step(first, prompt, 0, shared, shared, team, out);
      const uint64_t used = pool.used_bytes();
      Cache second = first.fork();
      EXPECT_EQ(pool.used_bytes(), used);
      EXPECT_EQ(second.size_bytes(), first.size_bytes());
      const Outputs wanted = Filled(prompt, recipe, 330).out;
      for (size_t t = shared; t < 330; t += 10) {  // taking turns
        run_step(first, prompt, t, std::min<size_t>(330, t + 10), 10, team, out);
        run_step(second, other, t, std::min<size_t>(330, t + 10), 10, team, out_other);
      }
      // What was coded before the fork is held once.
      const uint64_t coded = sealed_pages(recipe, shared) * (prompt.shape.token_bytes(recipe) * 64);
      EXPECT_LE(pool.used_bytes() + coded, first.size_bytes() + second.size_bytes()) << text << " " << shared;
      Filled alone(prompt, recipe, 330);
      Filled alone_other(other, recipe, 330);
      EXPECT_EQ(probe(first, 2, team), probe(alone.cache, 2, team)) << text << " " << shared;
      EXPECT_EQ(probe(second, 2, team), probe(alone_other.cache, 2, team)) << text << " " << shared;
    }
  }
}

// A fork outlives what it was made from.
TEST(SealedFork, OutlivesTheFirst) {
  const Prompt prompt = prompt_of(200);
  const Recipe recipe = coded_recipe("turbo4q");
  PagePool pool;
  Team team(1);
  auto first = std::make_unique<Cache>(recipe, prompt.shape, pool);
  Outputs out = empty_outputs(prompt);
  run_rest(*first, prompt, 200, team, out);
  Cache second = first->fork();
  first.reset();
  EXPECT_EQ(pool.used_bytes(), second.size_bytes());
  Filled alone(prompt, recipe, 200);
  EXPECT_EQ(probe(second, 2, team), probe(alone.cache, 2, team));
}

// Law 7.
TEST(SealedStats, CountWhatIsRead) {
  const Prompt prompt = prompt_of(330);
  const Recipe recipe = coded_recipe("turbo4");
  Filled filled(prompt, recipe, 329);
  const StepStats& stats = filled.cache.last_step();  // of token 330 alone
  EXPECT_EQ(stats.n_tokens, 330u);
  EXPECT_EQ(stats.rows_read, 330u * 9);
  const uint64_t row_bytes = 9 * 40 * 2 * 2;  // of an open token, all layers
  const uint64_t sealed = prompt.shape.cache_bytes(recipe, 329) - (384 - 256) * row_bytes;
  EXPECT_EQ(stats.bytes_read, sealed + (330 - 256) * row_bytes);
}

}  // namespace
}  // namespace quire::test
