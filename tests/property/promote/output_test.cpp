// What a step of a cache that promotes pages gives: attention to its exact rows, its copies and the cold rows
// that it reads, in double precision.
#include <gtest/gtest.h>

#include "property/promote/scene.h"

namespace quire::test {
namespace {

Prompt sized_prompt(size_t n_tokens, size_t head_dim = 64, uint64_t seed = 1) {
  return Prompt(geometry(6, head_dim, {2, 6, 1}), n_tokens, seed);
}

// Over two boundaries of pages of 64 and eight of pages of 16: the first token of a page is seen in its own
// step, and nothing shifts when rows become cold. (The published code leaves the first token of a page out.)
TEST(PromoteOutput, WithoutReadingColdRowsItIsThatOfHotRows) {
  const Prompt prompt = sized_prompt(470);
  const Recipe recipe = monarch("trigger=off,promote=0.05");
  Decoding decoding(prompt, recipe, 330);
  size_t n_with_copies = 0;
  for (size_t t = 330; t < 470; ++t) {
    const auto hot = decoding.hot();
    n_with_copies += decoding.copies().n_rows() > 0;
    decoding.step();
    ASSERT_EQ(decoding.cache.n_tokens(), t + 1);  // positions are absolute, whatever is hot
    ASSERT_LE(decoding.error_of_step(hot), allowed_error(recipe)) << t;
  }
  EXPECT_EQ(n_with_copies, 140u);
}

// All cold rows beside the copies: what a full read gives, though rows are read in three forms.
TEST(PromoteOutput, WithAllColdRowsItIsThatOfAllRows) {
  for (const size_t page_tokens : {1, 5, 10, 16, 48, 64}) {
    for (const size_t head_dim : {40, 64, 128}) {
      const Prompt prompt = sized_prompt(420, head_dim, page_tokens);
      const Recipe recipe =
          monarch("cold=0,budget=100%,promote=0.02,max_hot=200,page=" + std::to_string(page_tokens));
      Decoding decoding(prompt, recipe, 400);
      for (size_t i = 0; i < 10; ++i) {
        decoding.step();
        ASSERT_LE(decoding.error_of_step([](size_t, size_t) { return true; }), allowed_error(recipe))
            << page_tokens << " " << head_dim << " " << i;
      }
      EXPECT_GT(decoding.copies().n_rows(), 0u) << page_tokens << " " << head_dim;
      EXPECT_EQ(decoding.cache.last_step().rows_read, 9u * 410);
    }
  }
}

// Without any copies the same rows are read in the same form as by a recipe that reads everything.
TEST(PromoteOutput, WithoutPromotionItIsAFullRead) {
  const Prompt prompt = sized_prompt(700);
  Decoding decoding(prompt, monarch("cold=0,budget=100%,promote=1,initial_sticky=0"), 690);
  Decoding full(prompt, Recipe::parse("k=nested4,v=nested3,frame=rotated,tail=64"), 690);
  for (size_t t = 690; t < 700; ++t) {
    decoding.step();
    full.step();
    const std::vector<float> a = outputs_of(decoding, t);
    const std::vector<float> b = outputs_of(full, t);
    double error = 0;
    double size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      error += std::pow(a[i] - b[i], 2);
      size += std::pow(b[i], 2);
    }
    ASSERT_LT(std::sqrt(error / size), kTableError) << t;
  }
  EXPECT_EQ(decoding.cache.residency().page_ins, 0u);
}

// Every query head likes a row of its own, and hardly anything else.
struct Needles {
  Needles() : prompt(sized_prompt(1200)) {
    quieten(prompt);
    for (size_t h = 0; h < 6; ++h) like(prompt, 1180, 1200, tokens[h], 18, h);
  }
  // Of the group of a KV head of a layer.
  bool is_liked(size_t layer, size_t kv_head, size_t token) const {
    const size_t group = 6 / prompt.shape.n_kv_heads[layer];
    const auto first = tokens.begin() + static_cast<ptrdiff_t>(kv_head * group);
    return std::find(first, first + static_cast<ptrdiff_t>(group), token) !=
           first + static_cast<ptrdiff_t>(group);
  }
  const std::vector<size_t> tokens = {70, 333, 500, 801, 1000, 640};
  Prompt prompt;
};

// They are read, and no more rows than the budget allows.
TEST(PromoteOutput, ReadsTheNeedlesAmongColdRows) {
  const Needles needles;
  Decoding decoding(needles.prompt, monarch("budget=6,candidates=10,promote=1,initial_sticky=0"), 1190);
  for (size_t i = 0; i < 10; ++i) {
    const auto hot = decoding.hot();
    decoding.step();
    const auto is_read = [&](size_t layer, size_t head, size_t t) {
      return hot(head, t) || needles.is_liked(layer, head, t);
    };
    ASSERT_LE(decoding.error_by_layer(is_read), 0.1) << i;
    EXPECT_EQ(decoding.cache.last_step().rows_read, 9 * (decoding.cache.residency().hot_tokens + 6));
  }
}

// Pages promoted on the way change nothing but the form in which they are read.
TEST(PromoteOutput, PromotedNeedlesAreStillRead) {
  const Needles needles;
  Decoding decoding(needles.prompt, monarch("budget=6,candidates=10,initial_sticky=0,swaps=1,promote=0.5"),
                    1180);
  for (size_t i = 0; i < 20; ++i) {
    const size_t n_before = decoding.cache.residency().page_ins;
    decoding.step();
    EXPECT_LE(decoding.cache.residency().page_ins, n_before + 1);
    const auto is_read = [&](size_t layer, size_t head, size_t t) {
      return t < 4 || t >= decoding.n_sealed() || needles.is_liked(layer, head, t);
    };
    ASSERT_LE(decoding.error_by_layer(is_read), 0.1) << i;
  }
  EXPECT_EQ(decoding.copies().n_rows(), 64u);  // capacity: four of the six
  for (const size_t page : decoding.pages_with_copies()) {
    EXPECT_TRUE(std::any_of(needles.tokens.begin(), needles.tokens.end(), [&](size_t t) {
      return t / 16 == page;
    })) << page;
  }
}

// A KV head that expects next to nothing of its cold rows reads their index only; with trigger=off not even
// that.
TEST(PromoteOutput, HeadsSkipColdRowsOfNoWeight) {
  Prompt prompt = sized_prompt(1000);
  like(prompt, 990, 1000, 985, 20);  // in the window
  struct {
    const char* settings;
    size_t index_bytes;
  } cases[] = {{"", 10}, {"trigger=score", 10}, {"trigger=off", 0}};
  for (const auto& one : cases) {
    const std::string settings = std::string(one.settings) + (*one.settings != 0 ? "," : "");
    Decoding decoding(prompt, monarch(settings + "promote=0.9,initial_sticky=0"), 990);
    decoding.cache.measure_mass(true);
    const auto hot = decoding.hot();
    const size_t n_hot = decoding.cache.residency().hot_tokens + 1;
    decoding.step();
    const StepStats& stats = decoding.cache.last_step();
    EXPECT_EQ(stats.rows_read, 9 * n_hot) << one.settings;
    EXPECT_EQ(stats.bytes_read, 9 * (n_hot * 256 + decoding.n_sealed() * one.index_bytes)) << one.settings;
    EXPECT_GT(stats.mass_sum / static_cast<double>(stats.mass_count), 0.98);
    EXPECT_LE(decoding.error_of_step(hot), kExactError);
  }
}

// As published: a hot row of some probability keeps the cold ones from being read, however much these have.
TEST(PromoteOutput, TheScoreTriggerLooksAtHotRowsAlone) {
  Prompt prompt = sized_prompt(1000);
  like(prompt, 990, 1000, 985, 16);
  like(prompt, 990, 1000, 300, 16);
  Decoding by_score(prompt, monarch("trigger=score,budget=10,initial_sticky=0"), 990);
  Decoding by_mass(prompt, monarch("budget=10,initial_sticky=0,cold=0.001"), 990);
  const size_t n_hot = by_score.cache.residency().hot_tokens + 1;
  by_score.step();
  by_mass.step();
  EXPECT_EQ(by_score.cache.last_step().rows_read, 9 * n_hot);
  EXPECT_EQ(by_mass.cache.last_step().rows_read, 9 * (n_hot + 10));
  Prompt diffuse = sized_prompt(1000);
  Decoding other(diffuse, monarch("trigger=score,budget=10,initial_sticky=0,promote=0.5"), 990);
  other.step();
  EXPECT_EQ(other.cache.last_step().rows_read, 9 * (n_hot + 10));
}

// Rows that are not like normal ones never give anything but numbers.
TEST(PromoteOutput, ExtremesAreFinite) {
  for (const double size : {0.0, 1e-39, 1e4, 1e30}) {
    for (const char* settings : {"", "mass=0.9", "trigger=score", "queries=mean", "sink=0,promote=0"}) {
      Prompt prompt = sized_prompt(400);
      for (auto& q : prompt.q) {
        for (float& x : q) x *= static_cast<float>(size);
      }
      Decoding decoding(prompt, monarch(settings), 390);
      decoding.cache.measure_mass(true);
      decoding.steps(10);
      for (const float x : outputs_of(decoding, 399)) ASSERT_TRUE(std::isfinite(x)) << size << settings;
    }
  }
}

}  // namespace
}  // namespace quire::test
