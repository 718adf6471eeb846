// Which tokens are read: random selections against an explicit mask (U15), empty ones, and causality.
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <vector>

#include "property/attention/scene.h"
#include "property/rapid.h"

namespace quire::test {
namespace {

struct Chosen {
  Selection selection;
  std::set<size_t> tokens;  // of head 0; head 1 has others
};

Chosen choose(Random& random, size_t n_tokens, size_t n_chosen) {
  const size_t n_pages = (n_tokens + kTokensPerPage - 1) / kTokensPerPage;
  Chosen chosen{Selection(2, n_pages), {}};
  for (size_t i = 0; i < n_chosen; ++i) {
    const size_t token = random.below(n_tokens);
    chosen.tokens.insert(token);
    chosen.selection.mark(0, token);
    chosen.selection.mark(1, random.below(n_tokens));
  }
  return chosen;
}

// U15: a budget of a prompt's tokens, then a chunk of five queries.
TEST(Selected, BudgetsOfAPromptEqualTheExplicitMask) {
  Random random(1);
  for (const size_t budget : {1, 24, 36, 48, 72, 120}) {
    for (const size_t head_dim : {64, 100}) {
      const Scene scene({2, head_dim, Format::kF16, Format::kF32}, 125, 3, 5, budget);
      const Chosen chosen = choose(random, 125, budget);
      const auto selected = [&](size_t t) { return chosen.tokens.contains(t); };
      const double error = largest_error(scene, 0, scene.attend(0, chosen.selection), selected);
      ASSERT_LE(error, kAttentionError) << scene.name() << " budget " << budget;
    }
  }
}

TEST(Selected, RandomShapesAndWords) {
  EXPECT_TRUE(rc::check([] {
    const size_t n_tokens = *rc::gen::inRange<size_t>(1, 400);
    const size_t n_queries = std::min(n_tokens, *rc::gen::inRange<size_t>(1, 20));
    const size_t group = *rc::gen::inRange<size_t>(1, 5);
    const size_t head_dim = *rc::gen::element<size_t>(8, 24, 40, 64);
    const auto format = [] { return kFormats[*rc::gen::inRange<size_t>(0, std::size(kFormats))].format; };
    const RowLayout layout{2, head_dim, format(), format()};
    const auto seed = *rc::gen::arbitrary<uint64_t>();
    const Scene scene(layout, n_tokens, group, n_queries, seed);
    Random random(seed + 1);
    const Chosen chosen = choose(random, n_tokens, random.below(n_tokens + 1));
    const auto selected = [&](size_t t) { return chosen.tokens.contains(t); };
    RC_ASSERT(largest_error(scene, 0, scene.attend(0, chosen.selection), selected) <= kAttentionError);
  }));
}

TEST(Selected, NothingGivesZerosAndMinusInfinity) {
  for (const size_t n_queries : {1, 20}) {
    const Scene scene({1, 72, Format::kF16, Format::kF16}, 300, 3, n_queries, 7);
    const PartialState state = scene.attend(0, Selection(1, 5));
    for (const float value : outputs(state)) ASSERT_EQ(value, 0.0f);
    for (size_t row = 0; row < scene.n_rows(); ++row) {
      ASSERT_EQ(state.m[row], -std::numeric_limits<float>::infinity());
      ASSERT_EQ(state.l[row], 0.0f);
      ASSERT_EQ(state.log_sum(row), -std::numeric_limits<double>::infinity());
    }
  }
}

// A selection of tokens that only later queries may see: earlier ones get nothing, not the future.
TEST(Selected, TheFutureStaysInvisible) {
  const Scene scene({1, 64, Format::kF32, Format::kF32}, 128, 1, 30, 8);
  Selection selection(1, 2);
  selection.mark(0, 110);  // queries are tokens 98..127
  const std::vector<float> out = outputs(scene.attend(0, selection));
  for (size_t row = 0; row < 30; ++row) {
    for (size_t d = 0; d < 64; ++d) {
      const float wanted = 98 + row >= 110 ? stored_output(scene.view(), 0, 110, d) : 0.0f;
      ASSERT_NEAR(out[row * 64 + d], wanted, 1e-6) << "query " << row;
    }
  }
}

// Law 4: selecting every token is bit-equal to reading everything, bits past the end changing nothing.
TEST(Selected, EverythingMarkedIsBitEqualToAll) {
  for (const size_t n_tokens : {1, 63, 64, 65, 300}) {
    const Scene scene({2, 80, Format::kF16, Format::kBF16}, n_tokens, 3, 1, n_tokens);
    const size_t n_pages = (n_tokens + 63) / 64;
    Selection exact(2, n_pages);
    Selection beyond(2, n_pages);
    for (size_t head = 0; head < 2; ++head) {
      for (size_t t = 0; t < n_tokens; ++t) exact.mark(head, t);
      for (size_t t = 0; t < 64 * n_pages; ++t) beyond.mark(head, t);
    }
    for (size_t head = 0; head < 2; ++head) {
      const std::vector<float> all = outputs(scene.attend(head, Selection::all()));
      ASSERT_EQ(outputs(scene.attend(head, exact)), all) << n_tokens;
      ASSERT_EQ(outputs(scene.attend(head, beyond)), all) << n_tokens;
    }
  }
}

}  // namespace
}  // namespace quire::test
