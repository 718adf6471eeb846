// Which rows a step reads through an index: those of the highest probability for any head of the group, as
// many as the budget says, and attention is exact over them.
#include <gtest/gtest.h>

#include "property/sparse/scene.h"

namespace quire::test {
namespace {

// Levels are 2^(1/8) apart, and rounded.
const double kLevel = std::log(2.0) / 8;

struct Case {
  const char* keys;
  size_t n_heads, n_kv_heads, head_dim, n_tokens;
  double sharpness;  // scores have this standard deviation
  size_t budget;     // rows
  const char* more;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.keys << "/" << c.n_heads << "/" << c.n_kv_heads << "/" << c.head_dim << "/" << c.n_tokens
             << "/" << c.sharpness << "/" << c.budget << c.more;
}

Recipe recipe_of(const Case& c, const std::string& selection) {
  return Recipe::parse(std::string("k=") + c.keys + ",v=q8,frame=plain" + c.more + ",select=sign(" +
                       selection + ")");
}

// How far a score may lie from that of the decoded row: bytes of fused kernels.
double score_error(const Case& c) {
  return std::string(ops().name) != "scalar"
             ? 0.004 * c.sharpness * std::sqrt(static_cast<double>(c.head_dim))
             : 1e-3;
}

void check_weights(const Case& c, const WeightsPrompt& prompt, const Decoded& decoded, const Scores& scores,
                   size_t kv_head, const std::set<size_t>& read) {
  for (size_t h = kv_head * prompt.group(); h < (kv_head + 1) * prompt.group(); ++h) {
    const double sum = scores.log_sum(h, [&](size_t t) { return read.contains(t); });
    for (const size_t t : read) {
      ASSERT_NEAR(std::log(prompt.weight(decoded, h, t)), scores.of_head[h][t] - sum,
                  2e-3 + 2 * score_error(c))
          << c << " head " << h << " token " << t;
    }
  }
}

// The best probability of a token for any head of the group.
std::vector<double> best_log_probabilities(const WeightsPrompt& prompt, const Scores& scores,
                                           size_t kv_head) {
  std::vector<double> best(scores.n_tokens, -INFINITY);
  for (size_t h = kv_head * prompt.group(); h < (kv_head + 1) * prompt.group(); ++h) {
    const double sum = scores.log_sum(h);
    for (size_t t = 0; t < scores.n_tokens; ++t) best[t] = std::max(best[t], scores.of_head[h][t] - sum);
  }
  return best;
}

class SparseChoice : public testing::TestWithParam<Case> {};

// With all rows as candidates the key codes alone decide.
TEST_P(SparseChoice, KeepsTheRowsOfTheHighestProbability) {
  const Case& c = GetParam();
  const Recipe recipe = recipe_of(c, "budget=" + std::to_string(c.budget) + ",candidates=100");
  const WeightsPrompt prompt(c.n_heads, c.n_kv_heads, c.head_dim, c.n_tokens, c.sharpness,
                             c.n_tokens + c.budget);
  const Decoded decoded = decode_last(prompt, recipe);
  const Scores scores(prompt, recipe);
  size_t n_read = 0;
  for (size_t kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
    const std::set<size_t> read = tokens_read(prompt, decoded, kv_head);
    n_read += read.size();
    ASSERT_EQ(read.size(), std::max(c.budget, scores.n_exact())) << c;
    check_weights(c, prompt, decoded, scores, kv_head, read);
    const std::vector<double> best = best_log_probabilities(prompt, scores, kv_head);
    double least_kept = INFINITY;
    double most_left = -INFINITY;
    for (size_t t = 0; t < c.n_tokens; ++t) {
      if (!scores.is_coded(t)) {
        ASSERT_TRUE(read.contains(t)) << c << " exact token " << t;
      } else if (read.contains(t)) {
        least_kept = std::min(least_kept, best[t]);
      } else {
        most_left = std::max(most_left, best[t]);
      }
    }
    ASSERT_GE(least_kept, most_left - kLevel - 2 * score_error(c) - 1e-3) << c << " KV head " << kv_head;
  }
  EXPECT_EQ(decoded.stats.rows_read, prompt.shape.n_layers * n_read) << c;
}

// Candidates that the sign plane proposes: fewer are scored, no more are read, and the mass read is near the
// best that so many rows can hold.
TEST_P(SparseChoice, ByCandidatesComesNear) {
  const Case& c = GetParam();
  if (c.budget < 256) return;
  const Recipe recipe = recipe_of(c, "budget=" + std::to_string(c.budget));
  const WeightsPrompt prompt(c.n_heads, c.n_kv_heads, c.head_dim, c.n_tokens, c.sharpness,
                             c.n_tokens + c.budget);
  const Decoded decoded = decode_last(prompt, recipe);
  const Decoded best =
      decode_last(prompt, recipe_of(c, "budget=" + std::to_string(c.budget) + ",candidates=100"));
  const Scores scores(prompt, recipe);
  for (size_t kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
    const std::set<size_t> read = tokens_read(prompt, decoded, kv_head);
    const std::set<size_t> ideal = tokens_read(prompt, best, kv_head);
    ASSERT_EQ(read.size(), std::max(c.budget, scores.n_exact())) << c;
    check_weights(c, prompt, decoded, scores, kv_head, read);
    double mass = 0;
    double most = 0;
    for (size_t h = kv_head * prompt.group(); h < (kv_head + 1) * prompt.group(); ++h) {
      mass += std::exp(scores.log_sum(h, [&](size_t t) { return read.contains(t); }) - scores.log_sum(h));
      most += std::exp(scores.log_sum(h, [&](size_t t) { return ideal.contains(t); }) - scores.log_sum(h));
    }
    EXPECT_GT(mass, 0.8 * most) << c;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SparseChoice,
    testing::Values(Case{"nested4", 3, 1, 64, 1200, 1, 300, ""}, Case{"nested4", 3, 1, 64, 1200, 3, 300, ""},
                    Case{"nested4", 6, 2, 64, 1500, 4, 200, ""}, Case{"nested4", 1, 1, 64, 1100, 9, 90, ""},
                    Case{"nested4", 6, 2, 64, 1500, 5, 200, ""}, Case{"nested2", 4, 2, 128, 1300, 3, 400, ""},
                    Case{"nested3", 9, 1, 40, 1150, 2, 256, ",sink=16,tail=10"},
                    Case{"nested4", 8, 1, 256, 1400, 3, 500, ",sink=0,tail=0"},
                    Case{"nested3", 2, 2, 100, 700, 2, 100, ",sink=1"},
                    Case{"nested4", 2, 1, 64, 1200, 2, 20, ""}));

// Attention so sharp that the index can tell little: at most the budget, and most of the mass all the same.
TEST(SparseSharp, ReadsWhatItCan) {
  for (const double sharpness : {20.0, 40.0, 200.0}) {
    const Case c{"nested4", 6, 2, 128, 1200, sharpness, 300, ""};
    const Recipe recipe = recipe_of(c, "budget=300");
    const WeightsPrompt prompt(6, 2, 128, 1200, sharpness, 6);
    const Decoded decoded = decode_last(prompt, recipe);
    const Scores scores(prompt, recipe);
    double mass = 0;
    for (size_t h = 0; h < 6; ++h) {
      const std::set<size_t> read = tokens_read(prompt, decoded, h / 3);
      EXPECT_LE(read.size(), 300u);
      mass += std::exp(scores.log_sum(h, [&](size_t t) { return read.contains(t); }) - scores.log_sum(h)) / 6;
    }
    EXPECT_GT(mass, sharpness > 30 ? 0.4 : 0.6) << sharpness;
  }
}

// Nothing to choose by: of equal rows the newest are read.
TEST(SparseTies, OfEqualRowsTheNewest) {
  const Case c{"nested4", 2, 1, 64, 1000, 0, 300, ""};
  const WeightsPrompt prompt(2, 1, 64, 1000, 0, 5);
  const Recipe recipe = recipe_of(c, "budget=300");
  const std::set<size_t> read = tokens_read(prompt, decode_last(prompt, recipe), 0);
  ASSERT_EQ(read.size(), 300u);
  const Scores scores(prompt, recipe);
  const size_t n_kept = 300 - scores.n_exact();
  for (size_t t = scores.n_sealed - n_kept; t < 1000; ++t) EXPECT_TRUE(read.contains(t)) << t;
}

}  // namespace
}  // namespace quire::test
