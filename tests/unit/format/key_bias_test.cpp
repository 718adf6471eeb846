#include "format/key_bias.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quire {
namespace {

constexpr double kFrequencies[] = {1, 0.3, 0.0125, 1e-5};

std::shared_ptr<const RopeTurns> turns(size_t half) {
  return std::make_shared<const RopeTurns>(std::vector<double>(kFrequencies, kFrequencies + half));
}

TEST(RopeTurns, AreThoseOfTheAngle) {
  const auto table = turns(4);
  for (const uint64_t position : {0, 1, 63, 64, 65, 4095, 4096, 8191, 262144, 1000000, 16777215, 123456789}) {
    for (size_t pair = 0; pair < 4; ++pair) {
      const double angle = static_cast<double>(position) * kFrequencies[pair];
      const RopeTurns::Turn turn = table->at(pair, position);
      const double allowed = 1e-14 + angle * 0x1p-52;
      EXPECT_NEAR(turn.cosine, std::cos(angle), allowed) << position << " " << pair;
      EXPECT_NEAR(turn.sine, std::sin(angle), allowed) << position << " " << pair;
    }
  }
}

// Dims 0..7, of which 0..5 are three pairs (i, i + 3), and pair 1 has no bias; 7 stands still.
constexpr float kBias[8] = {300, 0, -20, 7, 0, 400, 0, 5};

std::vector<double> turned(uint64_t position) {
  std::vector<double> out(std::begin(kBias), std::end(kBias));
  for (size_t i = 0; i < 3; ++i) {
    const double angle = static_cast<double>(position) * kFrequencies[i];
    out[i] = kBias[i] * std::cos(angle) - kBias[i + 3] * std::sin(angle);
    out[i + 3] = kBias[i] * std::sin(angle) + kBias[i + 3] * std::cos(angle);
  }
  return out;
}

TEST(KeyBias, LooksAtChannelsThatHaveOne) { EXPECT_EQ(KeyBias(turns(3), kBias).n_channels(), 5u); }

TEST(KeyBias, LeavesTheKeyWithoutIt) {
  const KeyBias bias(turns(3), kBias);
  for (const uint64_t first : {0, 64, 4096, 1000000 / 64 * 64}) {
    std::vector<float> page(8 * 64);
    for (size_t t = 0; t < 64; ++t) {
      std::vector<float> key(8);
      const std::vector<double> b = turned(first + t);
      for (size_t d = 0; d < 8; ++d) key[d] = page[d * 64 + t] = static_cast<float>(b[d] + 1.0 + 0.5 * d);
      bias.take_off(first + t, key.data());
      for (size_t d = 0; d < 8; ++d)
        ASSERT_NEAR(key[d], 1.0 + 0.5 * d, 5e-5) << first << " " << t << " " << d;
    }
    bias.take_off_page(first, page.data());
    for (size_t i = 0; i < page.size(); ++i)
      ASSERT_NEAR(page[i], 1.0 + 0.5 * (i / 64), 5e-5) << first << " " << i;
  }
}

TEST(KeyBias, GivesEveryScoreItsShareBack) {
  const KeyBias bias(turns(3), kBias);
  const size_t n = bias.n_channels();
  const std::vector<float> q = {1, 2, 3, 4, 5, 6, 7, 8, -0.5f, 0.25f, 0, 1, 0.75f, -1, 2, 1};
  for (const uint64_t first : {0, 64, 4096, 1000000 / 64 * 64}) {
    std::vector<float> back(2 * n);
    bias.turn_back(first, q.data(), 2, back.data());
    for (size_t row = 0; row < 2; ++row) {
      for (size_t t = 0; t < 64; ++t) {
        double wanted = 0;
        const std::vector<double> b = turned(first + t);
        for (size_t d = 0; d < 8; ++d) wanted += q[row * 8 + d] * b[d];
        double got = 0;
        for (size_t c = 0; c < n; ++c)
          got += static_cast<double>(back[row * n + c]) * bias.page()[c * 64 + t];
        ASSERT_NEAR(got, wanted, 1e-3) << first << " " << row << " " << t;
      }
    }
  }
}

}  // namespace
}  // namespace quire
