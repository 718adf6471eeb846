// Whole caches that read a selection: equal to reading everything where the budget covers it, whatever the
// threads and the history, and what they say of rows, bytes and mass is so.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "property/select/scene.h"
#include "property/sparse/scene.h"

namespace quire::test {
namespace {

constexpr const char* kSelectors[] = {"quest(dense=1,", "quest(dense=0,queries=head,page=8,",
                                      "doublesparse(",  "doublesparse(from=prompt,bits=2,",
                                      "oracle(",        "random("};

std::string with_budget(const char* selector, const std::string& budget) {
  return std::string(selector) + "budget=" + budget + ")";
}

struct Grown {
  Grown(const Recipe& recipe, const Prompt& prompt_in, int n_threads = 1)
      : prompt(prompt_in),
        cache(recipe, prompt.shape, pool, {.calibration = channel_calibration(prompt.shape, 5)}),
        team(n_threads),
        out(empty_outputs(prompt)) {}

  // Steps of `step` tokens up to n.
  void grow(size_t n, size_t step) {
    while (cache.n_tokens() < n) {
      const size_t begin = cache.n_tokens();
      const size_t end = std::min(n, begin + step);
      run_step(cache, prompt, begin, end, end - begin, team, out);
    }
  }

  const Prompt& prompt;
  PagePool pool;
  Cache cache;
  Team team;
  Outputs out;
};

// Outputs of the tokens from `first` on.
bool equal_from(const Prompt& prompt, const Outputs& a, const Outputs& b, size_t first) {
  for (size_t layer = 0; layer < a.size(); ++layer) {
    const size_t at = first * prompt.q_width();
    if (std::memcmp(a[layer].data() + at, b[layer].data() + at, (a[layer].size() - at) * sizeof(float)) !=
        0) {
      return false;
    }
  }
  return true;
}

Outputs decoded(const std::string& recipe, const Prompt& prompt, size_t n_decoded, int n_threads = 1) {
  Grown run(Recipe::parse(recipe), prompt, n_threads);
  run.grow(prompt.n_tokens - n_decoded, 97);
  run.grow(prompt.n_tokens, 1);
  return run.out;
}

TEST(SelectedAll, IsBitEqualToReadingEverything) {
  const Prompt prompt(geometry(6, 64, {2, 1, 3}), 330, 1);
  const Outputs full = decoded("full", prompt, 20);
  for (const char* selector : kSelectors) {
    EXPECT_TRUE(equal_from(prompt, decoded(with_budget(selector, "100%"), prompt, 20), full, 0)) << selector;
    EXPECT_FALSE(equal_from(prompt, decoded(with_budget(selector, "64"), prompt, 20), full, 310)) << selector;
  }
}

TEST(SelectedAll, WhatIsShorterThanTheBudget) {
  for (const size_t n : {1, 2, 63, 64, 65, 200, 256}) {
    const Prompt prompt(geometry(4, 40, {2, 1, 1}), n, n);
    const size_t n_decoded = std::min<size_t>(n, 5);
    const Outputs full = decoded("full", prompt, n_decoded);
    for (const char* recipe : {"quest", "doublesparse", "doublesparse(from=prompt)", "oracle", "random"}) {
      EXPECT_TRUE(equal_from(prompt, decoded(recipe, prompt, n_decoded), full, 0)) << recipe << " " << n;
    }
  }
}

// Steps of several tokens read everything.
TEST(SelectedSteps, OnlySingleTokensSelect) {
  const Prompt prompt(geometry(3, 64, {1, 1}), 300, 2);
  for (const char* selector : kSelectors) {
    Grown run(Recipe::parse(with_budget(selector, "32")), prompt);
    Grown full(Recipe::parse("full"), prompt);
    run.grow(298, 298);
    full.grow(298, 298);
    run_step(run.cache, prompt, 298, 300, 1, run.team, run.out);
    run_step(full.cache, prompt, 298, 300, 1, full.team, full.out);
    EXPECT_TRUE(equal_from(prompt, run.out, full.out, 0)) << selector;
  }
}

TEST(SelectedThreads, ParallelOutputsAreEqual) {
  for (const HeadShape& shape : {kHeadShapes[1], kHeadShapes[4]}) {
    const Prompt prompt(geometry(shape.n_heads, shape.head_dim, {shape.n_kv_heads, 1}), 200, 3);
    for (const char* selector : kSelectors) {
      const std::string recipe = with_budget(selector, "48");
      const Outputs one = decoded(recipe, prompt, 3);
      for (const int n_threads : {2, 3, 4}) {
        EXPECT_TRUE(equal_from(prompt, decoded(recipe, prompt, 3, n_threads), one, 0)) << recipe;
      }
    }
  }
}

// Attention over the selected rows, in double precision, with exact and with coded values.
TEST(SelectedOutput, IsAttentionOverTheRowsSelected) {
  const Prompt prompt(geometry(6, 64, {2}), 400, 4);
  for (const char* selector : kSelectors) {
    if (std::string(selector).find("dense=1") != std::string::npos) continue;
    for (const char* values : {"f16", "q8"}) {
      Recipe recipe = Recipe::parse(with_budget(selector, "48"));
      const SelectScene scene(recipe.text(), prompt, 399);
      const std::set<size_t> read[] = {scene.rows(0), scene.rows(1)};
      const bool coded = std::string(values) == "q8";
      if (coded) {
        recipe.coded = true;
        recipe.keys = SideFormat::exact(Format::kF16);
        recipe.values = SideFormat::of(Code::kQ8);
        recipe.frame = FrameKind::kPlain;
      }
      Grown run(recipe, prompt);
      run.grow(399, 399);
      run.grow(400, 1);
      // What the rows are stored as.
      Recipe stored = coded ? recipe : Recipe::parse("q8(tail=1000,frame=plain)");
      stored.select = {};
      const auto wanted = expected_outputs(prompt, stored, 0, 399,
                                           [&](size_t head, size_t t) { return read[head].contains(t); });
      EXPECT_LT(largest_error(prompt, run.out[0], wanted, 399), coded ? 0.01 : 1e-4) << recipe.text();
    }
  }
}

// Grown, cut, grown again and forked, it goes on as one that has grown at once.
TEST(SelectedHistory, CutsAndForksChangeNothing) {
  const Prompt prompt(geometry(4, 64, {2, 1}), 420, 5);
  for (const char* selector : kSelectors) {
    for (const size_t cut : {301, 330, 384}) {
      const Recipe recipe = Recipe::parse(with_budget(selector, "48"));
      Grown plain(recipe, prompt);
      plain.grow(300, 300);
      plain.grow(420, 1);
      Grown run(recipe, prompt);
      run.grow(300, 300);
      run.grow(400, 7);
      run.cache.crop(cut);
      Cache fork = run.cache.fork();
      run.grow(420, 1);
      EXPECT_TRUE(equal_from(prompt, run.out, plain.out, cut)) << selector << cut;
      Outputs forked = empty_outputs(prompt);
      while (fork.n_tokens() < 420) {
        run_step(fork, prompt, fork.n_tokens(), fork.n_tokens() + 1, 1, run.team, forked);
      }
      EXPECT_TRUE(equal_from(prompt, forked, plain.out, cut)) << selector << cut;
    }
  }
}

TEST(SelectedHistory, EmptiedAndFilledAnew) {
  const Prompt prompt(geometry(4, 64, {2}), 400, 6);
  Prompt other = prompt;
  for (float& x : other.q[0]) x = -2 * x + 0.01f;
  for (const char* selector : kSelectors) {
    const Recipe recipe = Recipe::parse(with_budget(selector, "48"));
    Grown plain(recipe, prompt);
    plain.grow(380, 380);
    plain.grow(400, 1);
    Grown run(recipe, prompt);
    run_step(run.cache, other, 0, 350, 350, run.team, run.out);
    run.cache.crop(0);
    run.grow(380, 380);
    run.grow(400, 1);
    EXPECT_TRUE(equal_from(prompt, run.out, plain.out, 0)) << selector;
  }
}

TEST(SelectedBytes, DigestsAreCounted) {
  const Geometry shape = geometry(6, 64, {2, 1});
  const auto token_bytes = [&](const char* text) { return shape.token_bytes(Recipe::parse(text)); };
  EXPECT_EQ(token_bytes("quest"), token_bytes("full") + 3 * 16);  // an eighth of the keys
  EXPECT_EQ(token_bytes("quest(page=64)"), token_bytes("full") + 3 * 4);
  EXPECT_EQ(token_bytes("doublesparse"), token_bytes("full") + 3 * (8 + 4));
  EXPECT_EQ(token_bytes("oracle"), token_bytes("full"));
  for (const char* text : {"quest", "doublesparse(from=prompt)", "k=f16,v=q8,select=quest", "random"}) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t n : {1, 64, 65, 330}) {
      const Prompt prompt(shape, n, n);
      const uint64_t peak = shape.peak_bytes(recipe, 0, n, 100);
      Grown run(recipe, prompt);
      run.grow(n, 100);
      EXPECT_EQ(run.cache.size_bytes(), shape.cache_bytes(recipe, n)) << text << n;
      EXPECT_EQ(run.pool.used_bytes(), shape.cache_bytes(recipe, n)) << text << n;
      PagePool enough(peak);
      Cache fits(recipe, shape, enough);
      Team team(1);
      fill(fits, prompt, n, 100, team);
      PagePool less(peak - 1);
      Cache refused(recipe, shape, less);
      EXPECT_THROW(fill(refused, prompt, n, 100, team), Error) << text << n;
    }
  }
}

// Rows, bytes and mass of a step are those of the selection.
TEST(SelectedReads, AreCountedAsTheyAre) {
  const Prompt prompt(geometry(6, 64, {2}), 391, 7);
  const std::map<std::string, uint64_t> digest_bytes = {
      {"quest(dense=0,budget=48)", 24 * 256},  // the short pages before the newest token's
      {"doublesparse(budget=48)", 391 * 12},
      {"oracle(budget=48)", 0},
      {"random(budget=48)", 0},
  };
  for (const auto& [text, per_head] : digest_bytes) {
    const SelectScene scene(text, prompt, 390);
    uint64_t n_rows = 0;
    uint64_t n_bytes = 0;
    double mass = 0;
    for (size_t head = 0; head < 2; ++head) {
      const std::set<size_t> rows = scene.rows(head);
      std::set<size_t> pages;
      for (const size_t t : rows) pages.insert(t / 64);
      const size_t n_key_pages = scene.selector->reads_all_keys() ? 7 : pages.size();
      n_rows += rows.size();
      n_bytes += per_head + n_key_pages * 64 * 128 + rows.size() * 128;
      for (size_t h = 3 * head; h < 3 * head + 3; ++h) {
        double all = 0;
        double read = 0;
        for (size_t t = 0; t < 391; ++t) {
          const double p = std::exp(scene.score(h, t));
          all += p;
          read += rows.contains(t) ? p : 0;
        }
        mass += read / all;
      }
    }
    Grown run(Recipe::parse(text), prompt);
    run.cache.measure_mass(true);
    run.grow(390, 390);
    run.grow(391, 1);
    const StepStats& stats = run.cache.last_step();
    EXPECT_EQ(stats.rows_read, n_rows) << text;
    EXPECT_EQ(stats.bytes_read, n_bytes) << text;
    EXPECT_EQ(stats.mass_count, 6u);
    EXPECT_NEAR(stats.mass_sum, mass, 1e-4) << text;
  }
}

// Of codes: what the oracle leaves out is what it says.
TEST(SelectedReads, MassOfCodedRows) {
  const WeightsPrompt prompt(6, 2, 64, 500, 3, 9);
  const Recipe recipe = Recipe::parse("k=q8,v=q8,frame=plain,select=oracle(budget=60)");
  const Decoded decoded = decode_last(prompt, recipe, {.measure_mass = true});
  const Scores scores(prompt, recipe);
  double mass = 0;
  for (size_t h = 0; h < 6; ++h) {
    const std::set<size_t> read = tokens_read(prompt, decoded, h / 3);
    mass += std::exp(scores.log_sum(h, [&](size_t t) { return read.contains(t); }) - scores.log_sum(h)) / 6;
  }
  EXPECT_NEAR(decoded.stats.mass_sum / static_cast<double>(decoded.stats.mass_count), mass, 0.01);
}

TEST(SelectedRefusals, NameWhatIsMissing) {
  const Geometry shape = geometry(2, 64, {1});
  PagePool pool;
  const Recipe recipe = Recipe::parse("doublesparse");
  EXPECT_THROW(Cache(recipe, shape, pool), Error);
  Calibration old = *channel_calibration(shape, 1);
  old.query_key.clear();
  try {
    Cache(recipe, shape, pool, {.calibration = std::make_shared<const Calibration>(old)});
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("quire calibrate"), std::string::npos) << error.what();
  }
  Cache(Recipe::parse("doublesparse(from=prompt)"), shape, pool);
}

}  // namespace
}  // namespace quire::test
