// Law 2: any split of the tokens into parts merges to the same output, empty parts change nothing; and the
// cases U05, U07 and U08 of softmax over masks.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "property/attention/scene.h"

namespace quire::test {
namespace {

// The selections of a random split of the tokens; some parts are empty.
std::vector<Selection> split(Random& random, size_t n_tokens, size_t n_parts) {
  std::vector<Selection> parts(n_parts, Selection(1, (n_tokens + 63) / 64));
  const size_t n_used = std::max<size_t>(1, n_parts - n_parts / 3);
  for (size_t t = 0; t < n_tokens; ++t) parts[random.below(n_used)].mark(0, t);
  return parts;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - b[i]);
    worst = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(worst, difference);
  }
  return worst;
}

TEST(Partition, AnySplitInAnyOrderGivesTheSameOutput) {
  Random random(1);
  for (size_t round = 0; round < 60; ++round) {
    const size_t n_tokens = 1 + random.below(600);
    const RowLayout layout{1, round % 2 == 0 ? 64u : 100u, Format::kF16, Format::kBF16};
    const Scene scene(layout, n_tokens, 1 + round % 4, std::min<size_t>(n_tokens, 1 + round % 13), round);
    std::vector<PartialState> parts;
    for (const Selection& part : split(random, n_tokens, 1 + random.below(9)))
      parts.push_back(scene.attend(0, part));
    const std::vector<float> whole = outputs(scene.attend(0, Selection::all()));
    for (int order = 0; order < 3; ++order) {
      for (size_t i = parts.size() - 1; i > 0; --i) std::swap(parts[i], parts[random.below(i + 1)]);
      PartialState merged(scene.n_rows(), layout.head_dim);
      for (const PartialState& part : parts) merged.merge(part);
      ASSERT_LE(largest_difference(outputs(merged), whole), 3e-6)
          << scene.name() << " parts " << parts.size();
      ASSERT_LE(largest_error(scene, 0, merged, everything), kAttentionError) << scene.name();
    }
  }
}

TEST(Partition, MergingIsAssociativeUpToRounding) {
  Random random(2);
  const Scene scene({1, 64, Format::kF32, Format::kF32}, 500, 2, 3, 3);
  const std::vector<Selection> parts = split(random, 500, 3);
  PartialState left = scene.attend(0, parts[0]);
  left.merge(scene.attend(0, parts[1]));
  left.merge(scene.attend(0, parts[2]));
  PartialState right = scene.attend(0, parts[1]);
  right.merge(scene.attend(0, parts[2]));
  PartialState first = scene.attend(0, parts[0]);
  first.merge(right);
  EXPECT_LE(largest_difference(outputs(left), outputs(first)), 3e-6);
}

TEST(Partition, EmptyPartsChangeNoBit) {
  const Scene scene({1, 40, Format::kF16, Format::kF16}, 200, 3, 2, 4);
  const PartialState whole = scene.attend(0, Selection::all());
  const PartialState empty(scene.n_rows(), 40);
  PartialState behind = whole;
  behind.merge(empty);
  PartialState before = empty;
  before.merge(whole);
  EXPECT_EQ(outputs(behind), outputs(whole));
  EXPECT_EQ(outputs(before), outputs(whole));
  EXPECT_EQ(behind.m, whole.m);
  EXPECT_EQ(before.l, whole.l);
  PartialState none = empty;
  none.merge(empty);
  for (const float value : outputs(none)) EXPECT_EQ(value, 0.0f);
  EXPECT_EQ(none.m[0], -std::numeric_limits<float>::infinity());
}

// A scene of one head whose keys, values and query are set by hand: dim 0 of a key is its score.
struct Manual {
  PagePool pool;
  Store store;
  size_t n_tokens;

  Manual(const std::vector<float>& scores, const std::vector<float>& values, Format format)
      : store(std::vector<RowLayout>{{1, 16, format, format}}, pool), n_tokens(scores.size()) {
    store.extend(n_tokens);
    poison(store);
    for (size_t t = 0; t < n_tokens; ++t) {
      std::vector<float> k(16, 0.0f);
      k[0] = scores[t];
      const std::vector<float> v(16, values[t]);
      store.write(0, 0, t, 1, k.data(), v.data(), 16);
    }
    store.commit(n_tokens);
  }

  // n_queries rows that multiply scores by `scale` and all see every token.
  PartialState attend(const Selection& selection, float scale, size_t n_queries = 1) const {
    std::vector<float> q(16 * n_queries, 0.0f);
    for (size_t i = 0; i < n_queries; ++i) q[16 * i] = scale;
    AttendScratch scratch;
    PartialState total(n_queries, 16);
    for (size_t run = 0; run < runs_for(n_tokens); ++run) {
      PartialState state(n_queries, 16);
      attend_run(store.view(0, n_tokens), 0, run, {q.data(), n_queries, 1, n_tokens}, selection, scratch,
                 state);
      total.merge(state);
    }
    return total;
  }
};

// U07: true scores far below any finite "minus infinity".
TEST(VeryLowScores, TheLargestOneWins) {
  for (const FormatInfo& format : kFormats) {
    // Numbers that every format has, of fp8 by way of the query.
    const float factor = format.largest < 60000 ? 128.0f : 1.0f;
    std::vector<float> scores(64, -57344.0f / factor);
    scores[0] = -49152.0f / factor;
    std::vector<float> values(64);
    for (size_t t = 0; t < 64; ++t) values[t] = static_cast<float>(t + 2);
    const Manual scene(scores, values, format.format);
    for (const size_t n_queries : {1, 20}) {
      for (const float value : outputs(scene.attend(Selection::all(), factor, n_queries))) {
        EXPECT_EQ(value, 2.0f) << format.name;
      }
    }
    EXPECT_EQ(outputs(scene.attend(Selection::all(), 1e30f))[0], 2.0f) << format.name;
  }
}

TEST(VeryLowScores, EightPartsOfWhichThreeAreEmpty) {
  std::vector<float> scores(64, -60000.0f);
  scores[0] = -55000.0f;
  std::vector<float> values(64);
  for (size_t t = 0; t < 64; ++t) values[t] = static_cast<float>(t + 2);
  const Manual scene(scores, values, Format::kF32);
  PartialState merged(1, 16);
  size_t n_empty = 0;
  for (size_t part = 0; part < 8; ++part) {
    Selection selection(1, 1);
    if (part % 3 != 1) {
      for (size_t t = part; t < 64; t += 8) selection.mark(0, t);
    }
    n_empty += part % 3 == 1;
    merged.merge(scene.attend(selection, 1.0f));
  }
  EXPECT_EQ(n_empty, 3u);
  for (const float value : outputs(merged)) EXPECT_EQ(value, 2.0f);
  EXPECT_NEAR(merged.log_sum(0), -55000.0, 1e-2);
}

// U08: a zero query attends uniformly, so only valid rows may enter the mean; what pages hold behind them is
// NaN here, in keys and values.
TEST(ZeroQuery, GivesTheMeanOfTheValidRows) {
  for (const FormatInfo& format : kFormats) {
    for (const size_t n : {1, 15, 16, 17, 255, 257}) {
      std::vector<float> values(n);
      double mean = 0;
      for (size_t t = 0; t < n; ++t) {
        values[t] = static_cast<float>(t % 16) - 6.0f;
        mean += values[t] / static_cast<double>(n);
      }
      const Manual scene(std::vector<float>(n, 3.0f), values, format.format);
      for (const size_t n_queries : {1, 20}) {
        const PartialState state = scene.attend(Selection::all(), 0.0f, n_queries);
        for (const float value : outputs(state)) ASSERT_NEAR(value, mean, 2e-5) << format.name << " " << n;
        ASSERT_NEAR(state.log_sum(0), std::log(static_cast<double>(n)), 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
