#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// No filter, temperature 1.
SamplingOptions plain(uint64_t seed = 1) {
  return {.temperature = 1,
          .top_k = 0,
          .top_p = 1,
          .min_p = 0,
          .repeat_penalty = 1,
          .repeat_last_n = 64,
          .seed = seed,
          .banned = {}};
}

std::map<int32_t, int> counts(const SamplingOptions& options, const std::vector<float>& logits, int n,
                              std::span<const int32_t> history = {}) {
  Sampler sampler(options);
  std::map<int32_t, int> result;
  for (int i = 0; i < n; ++i) ++result[sampler.sample(logits, history)];
  return result;
}

std::set<int32_t> reachable(const SamplingOptions& options, const std::vector<float>& logits,
                            std::span<const int32_t> history = {}) {
  std::set<int32_t> result;
  for (const auto& [id, count] : counts(options, logits, 5000, history)) result.insert(id);
  return result;
}

// Logits with these probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(Sampler, GreedyTakesTheFirstOfEquals) {
  SamplingOptions options = plain();
  options.temperature = 0;
  EXPECT_EQ(Sampler(options).sample(std::vector<float>{1, 5, 5, 2}, {}), 1);
}

TEST(Sampler, GreedyIgnoresWhatIsNotFinite) {
  SamplingOptions options = plain();
  options.temperature = 0;
  EXPECT_EQ(Sampler(options).sample(std::vector<float>{std::nanf(""), -kInfinity, -3, kInfinity}, {}), 2);
}

TEST(Sampler, RefusesLogitsWithoutAFiniteOne) {
  const std::vector<float> logits(4, std::nanf(""));
  SamplingOptions options = plain();
  EXPECT_THROW(Sampler(options).sample(logits, {}), Error);
  options.temperature = 0;
  EXPECT_THROW(Sampler(options).sample(logits, {}), Error);
}

TEST(Sampler, DrawsFromTheDistribution) {
  const std::vector<double> p = {0.5, 0.05, 0.3, 0.15};
  const int n = 20000;
  const auto seen = counts(plain(), logits_of(p), n);
  double chi_square = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double difference = seen.at(static_cast<int32_t>(i)) - n * p[i];
    chi_square += difference * difference / (n * p[i]);
  }
  EXPECT_LT(chi_square, 16.3);  // 0.1 % of chi-square with 3 degrees of freedom
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  const std::vector<float> logits = logits_of({0.8, 0.2});
  SamplingOptions options = plain();
  options.temperature = 0.5;  // 0.64 : 0.04
  EXPECT_NEAR(counts(options, logits, 20000)[1], 20000 * 0.04 / 0.68, 170);
  options.temperature = 2;  // 0.894 : 0.447
  EXPECT_NEAR(counts(options, logits, 20000)[1], 20000 / 3.0, 340);
}

TEST(Sampler, SameSeedSameTokens) {
  std::vector<float> logits(100);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7);
  const auto draw = [&](uint64_t seed) {
    SamplingOptions options;
    options.seed = seed;
    Sampler sampler(options);
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sampler.sample(logits, {}));
    return ids;
  };
  EXPECT_EQ(draw(4), draw(4));
  EXPECT_NE(draw(4), draw(5));
}

// Frozen, so that a seed keeps its meaning from release to release.
TEST(Sampler, FrozenDraws) {
  Sampler sampler(plain(42));
  const std::vector<float> logits(16, 0.0f);
  std::vector<int32_t> ids;
  Random random(42);
  std::vector<int32_t> expected;
  for (int i = 0; i < 20; ++i) {
    ids.push_back(sampler.sample(logits, {}));
    expected.push_back(static_cast<int32_t>(random.next() >> 60));  // equal shares of 16: the top 4 bits
  }
  EXPECT_EQ(ids, expected);
}

TEST(Sampler, TopK) {
  SamplingOptions options = plain();
  options.top_k = 2;
  EXPECT_EQ(reachable(options, {1.0f, 1.2f, 1.1f, 0.9f}), (std::set<int32_t>{1, 2}));
  options.top_k = 100;
  EXPECT_EQ(reachable(options, {1.0f, 1.2f}).size(), 2u);
  options.top_k = 3;  // among equals the lower ids
  EXPECT_EQ(reachable(options, {1, 1, 1, 1, 1}), (std::set<int32_t>{0, 1, 2}));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits = logits_of({0.1, 0.5, 0.15, 0.25});
  SamplingOptions options = plain();
  for (const auto& [top_p, expected] : std::map<double, std::set<int32_t>>{
           {0.0, {1}}, {0.49, {1}}, {0.6, {1, 3}}, {0.8, {1, 3, 2}}, {1.0, {0, 1, 2, 3}}}) {
    options.top_p = top_p;
    EXPECT_EQ(reachable(options, logits), expected) << top_p;
  }
}

TEST(Sampler, MinPIsAShareOfTheBest) {
  const std::vector<float> logits = logits_of({0.04, 0.5, 0.2, 0.26});
  SamplingOptions options = plain();
  for (const auto& [min_p, expected] : std::map<double, std::set<int32_t>>{
           {0.0, {0, 1, 2, 3}}, {0.1, {1, 2, 3}}, {0.45, {1, 3}}, {1.0, {1}}}) {
    options.min_p = min_p;
    EXPECT_EQ(reachable(options, logits), expected) << min_p;
  }
}

// Filters look at the probabilities before the temperature: a high one lets no more tokens through.
TEST(Sampler, TemperatureComesLast) {
  SamplingOptions options = plain();
  options.top_p = 0.6;
  options.temperature = 50;
  EXPECT_EQ(reachable(options, logits_of({0.1, 0.5, 0.15, 0.25})), (std::set<int32_t>{1, 3}));
}

TEST(Sampler, RepeatPenaltyHasTwoSigns) {
  SamplingOptions options = plain();
  options.temperature = 0;
  options.repeat_penalty = 2;
  const std::vector<int32_t> history = {0, 0, 0};
  EXPECT_EQ(Sampler(options).sample(std::vector<float>{3, 1.4f}, history), 0);  // once, not three times: 1.5
  EXPECT_EQ(Sampler(options).sample(std::vector<float>{3, 1.6f}, history), 1);
  EXPECT_EQ(Sampler(options).sample(std::vector<float>{-1, -1.9f}, history), 1);  // -2
}

TEST(Sampler, RepeatPenaltyLooksBackSoFar) {
  SamplingOptions options = plain();
  options.temperature = 0;
  options.repeat_penalty = 2;
  const std::vector<int32_t> history = {0, 1, 1, 1};
  const std::vector<float> logits = {3, 1, 2};
  const std::vector<std::pair<int32_t, int32_t>> cases = {{0, 0}, {1, 0}, {3, 0}, {4, 2}, {-1, 2}, {100, 2}};
  for (const auto& [last_n, expected] : cases) {
    options.repeat_last_n = last_n;
    EXPECT_EQ(Sampler(options).sample(logits, history), expected) << last_n;
  }
}

TEST(Sampler, BannedTokensNeverCome) {
  SamplingOptions options = plain();
  options.banned = {1, 7};
  EXPECT_EQ(reachable(options, {1, 9, 1}), (std::set<int32_t>{0, 2}));
  options.temperature = 0;
  EXPECT_EQ(Sampler(options).sample(std::vector<float>{1, 9, 2}, {}), 2);
}

TEST(Sampler, DoesNotChangeTheLogits) {
  SamplingOptions options;
  options.repeat_penalty = 1.5;
  options.banned = {0};
  const std::vector<float> logits = {1, 2, 3};
  const std::vector<float> before = logits;
  Sampler(options).sample(logits, std::vector<int32_t>{1, 2});
  EXPECT_EQ(logits, before);
}

TEST(SamplingOptions, RefusesWhatMakesNoSense) {
  const double nan = std::nan("");
  const std::vector<SamplingOptions> bad = {
      {.temperature = -1},     {.temperature = nan}, {.temperature = kInfinity},
      {.top_k = -1},           {.top_p = 1.1},       {.top_p = nan},
      {.min_p = -0.1},         {.min_p = 2},         {.repeat_penalty = 0},
      {.repeat_penalty = nan}, {.repeat_last_n = -2}};
  for (const SamplingOptions& options : bad) EXPECT_THROW(Sampler{options}, Error);
  EXPECT_NO_THROW(Sampler{SamplingOptions{}});
}

}  // namespace
}  // namespace quire
