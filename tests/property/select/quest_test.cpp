// Quest: bounds that hold, and the pages that a reference in double precision picks by them.
#include "policy/select_quest.h"

#include <gtest/gtest.h>

#include "property/select/scene.h"

namespace quire::test {
namespace {

constexpr const char* kKeyFormats[] = {"f32", "f16", "bf16"};

std::string quest(const std::string& settings, const std::string& keys = "f16") {
  return "k=" + keys + ",v=f16,select=quest(dense=0," + settings + ")";
}

double bound(const SelectScene& scene, size_t h, size_t page, size_t page_tokens) {
  double sum = 0;
  for (size_t d = 0; d < scene.dim(); ++d) {
    const double q = scene.query(h)[d];
    double most = -INFINITY;
    for (size_t t = page * page_tokens; t < (page + 1) * page_tokens; ++t) {
      most = std::max(most, q * scene.key(h / scene.group(), t, d));
    }
    sum += most;
  }
  return sum;
}

TEST(QuestBounds, EqualTheReferenceAndBoundEveryScore) {
  uint64_t turn = 0;
  for (const HeadShape& shape : kHeadShapes) {
    for (const size_t page_tokens : {4, 16, 64}) {
      const Prompt prompt(geometry(shape.n_heads, shape.head_dim, {shape.n_kv_heads}), 150 + turn, turn);
      const SelectScene scene(quest("page=" + std::to_string(page_tokens), kKeyFormats[turn % 3]), prompt,
                              turn % 2 == 0 ? 1 : 70);
      ++turn;
      const size_t n_bounds = prompt.n_tokens / page_tokens;
      const LayerView view = scene.view();
      for (size_t head = 0; head < shape.n_kv_heads; ++head) {
        std::vector<float> scores;
        score_bounds(scene.head_step(view, head), page_tokens, n_bounds, scores);
        for (size_t i = 0; i < scene.group() * n_bounds; ++i) {
          const size_t h = i / n_bounds;
          const size_t page = i % n_bounds;
          const float got = scores[(page / 64 * scene.group() + h) * 64 + page % 64];
          ASSERT_NEAR(got, bound(scene, head * scene.group() + h, page, page_tokens), 1e-4);
          for (size_t t = page * page_tokens; t < (page + 1) * page_tokens; ++t) {
            ASSERT_GE(got, scene.score(head * scene.group() + h, t) - 1e-4);
          }
        }
      }
    }
  }
}

// The pages before the newest token's, by their bounds.
std::vector<std::vector<double>> bounds_of(const SelectScene& scene, size_t head, size_t page_tokens) {
  std::vector<std::vector<double>> all;
  const size_t n = (scene.prompt.n_tokens - 1) / page_tokens;
  for (size_t h = head * scene.group(); h < (head + 1) * scene.group(); ++h) {
    std::vector<double>& own = all.emplace_back();
    for (size_t page = 0; page < n; ++page) own.push_back(bound(scene, h, page, page_tokens));
  }
  return all;
}

std::set<size_t> tokens_of(const std::set<size_t>& pages, size_t page_tokens, size_t n_tokens) {
  std::set<size_t> tokens;
  for (const size_t page : pages) {
    for (size_t i = 0; i < page_tokens; ++i) tokens.insert(page * page_tokens + i);
  }
  for (size_t t = (n_tokens - 1) / page_tokens * page_tokens; t < n_tokens; ++t) tokens.insert(t);
  return tokens;
}

TEST(Quest, ReadsThePagesOfTheReference) {
  uint64_t seed = 0;
  for (const HeadShape& shape : kHeadShapes) {
    for (const size_t n_tokens : {385, 400, 415}) {
      const Prompt prompt(geometry(shape.n_heads, shape.head_dim, {shape.n_kv_heads}), n_tokens, ++seed);
      const SelectScene group(quest("budget=100"), prompt);
      const SelectScene by_head(quest("budget=100,queries=head"), prompt);
      ASSERT_TRUE(group.selector->selects(0, n_tokens));
      for (size_t head = 0; head < shape.n_kv_heads; ++head) {
        const auto bounds = bounds_of(group, head, 16);
        // 6 pages, of which the newest token's is one.
        EXPECT_EQ(group.rows(head), tokens_of(highest(best_of(bounds), 5), 16, n_tokens));
        EXPECT_LE(group.rows(head).size(), 100u);
        std::set<size_t> pages;
        for (const auto& own : bounds) pages.merge(highest(own, 5));
        EXPECT_EQ(by_head.rows(head), tokens_of(pages, 16, n_tokens));
      }
    }
  }
}

TEST(Quest, AtLeastThreePagesAndDenseLayers) {
  const Prompt prompt(geometry(2, 64, {1, 1, 1}), 300, 3);
  const SelectScene scene("quest(budget=1)", prompt);
  EXPECT_EQ(scene.rows(0, 2).size(), 32u + 300 % 16);
  EXPECT_FALSE(scene.selector->selects(0, 300));
  EXPECT_FALSE(scene.selector->selects(1, 300));
  EXPECT_TRUE(scene.selector->selects(2, 300));
  for (const size_t n : {1, 16, 47, 48}) EXPECT_FALSE(scene.selector->selects(2, n)) << n;
  EXPECT_TRUE(scene.selector->selects(2, 49));
}

// What was cut off leaves no trace in the bounds of what comes instead.
TEST(Quest, CutAndGrownAgain) {
  const Prompt prompt(geometry(2, 64, {1}), 330, 4);
  Prompt other = prompt;
  for (size_t i = 200 * 64; i < other.k[0].size(); ++i) other.k[0][i] = 100.0f;
  SelectScene cut(quest("budget=100"), other);
  cut.store.crop(205);
  for (size_t i = 205 * 64; i < other.k[0].size(); ++i) other.k[0][i] = prompt.k[0][i];
  cut.append(125);
  Prompt whole = prompt;
  for (size_t i = 200 * 64; i < 205 * 64; ++i) whole.k[0][i] = 100.0f;
  EXPECT_EQ(cut.rows(0), SelectScene(quest("budget=100"), whole).rows(0));
}

}  // namespace
}  // namespace quire::test
