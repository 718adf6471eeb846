// The reserve that thins out with distance, against the paper's vectors and a plain simulation.
#include "store/log_reserve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace quire {
namespace {

std::vector<uint32_t> reserved_after(const LogReserve& reserve, size_t n) {
  LogReserveState state(reserve);
  std::vector<uint32_t> settled;
  state.append(n, settled);
  return {state.reserved().begin(), state.reserved().end()};
}

// W = 4: what LogQuant's algorithm 1 keeps.
TEST(LogReserve, PublishedVectors) {
  const LogReserve reserve(ReserveRule::kPublished, 12, 0);
  using Positions = std::vector<uint32_t>;
  EXPECT_EQ(reserved_after(reserve, 12), (Positions{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(reserved_after(reserve, 16), (Positions{0, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(reserved_after(reserve, 17), (Positions{0, 4, 8, 10, 12, 13, 14, 15, 16}));
  EXPECT_EQ(reserved_after(reserve, 40), (Positions{0, 24, 28, 30, 32, 33, 34, 35, 36, 37, 38, 39}));
}

// R = 128, 192, 256 of the paper: W = 42, 64, 85, and never more than 3W rows nor fewer than 2W.
TEST(LogReserve, PublishedSizes) {
  for (const size_t r : {128, 192, 256}) {
    const LogReserve reserve(ReserveRule::kPublished, r, 0);
    const size_t window = r / 3;
    for (size_t n = 3 * window; n < 3000; ++n) {
      const size_t n_reserved = n - reserve.n_settled(n);
      ASSERT_GE(n_reserved, 2 * window) << r << " " << n;
      ASSERT_LE(n_reserved, 3 * window) << r << " " << n;
    }
  }
}

// At distance d, W 2^j <= d < W 2^(j+1), what is a multiple of 2^(j+1).
TEST(LogReserve, StridedRowsByDefinition) {
  const size_t window = 16;
  const LogReserve reserve(ReserveRule::kStrided, 4 * window, 0);
  for (size_t n = 1; n < 700; n += 1 + n / 50) {
    std::vector<uint32_t> wanted;
    for (size_t p = 0; p < n; ++p) {
      const size_t distance = n - 1 - p;
      size_t stride = 1;
      while (distance >= window * stride) stride *= 2;
      if (p % stride == 0) wanted.push_back(static_cast<uint32_t>(p));
    }
    ASSERT_EQ(reserved_after(reserve, n), wanted) << n;
  }
}

class LogReserveLaws : public testing::TestWithParam<ReserveRule> {};

// Every token is reserved or has settled once, the first of all the sinks, and the count of those that have
// is the one that layouts go by.
TEST_P(LogReserveLaws, NoTokenIsLostOrSettlesTwice) {
  for (const size_t sinks : {0, 1, 4, 16}) {
    for (const size_t r : {3, 4, 7, 31, 64, 192}) {
      const LogReserve reserve(GetParam(), r, sinks);
      LogReserveState state(reserve);
      std::vector<uint32_t> settled;
      for (size_t n = 1; n <= 900; ++n) {
        state.append(1, settled);
        ASSERT_EQ(reserve.n_settled(n), settled.size())
            << "sinks " << sinks << " reserve " << r << " n " << n;
        ASSERT_EQ(settled.size() + state.reserved().size(), n);
        ASSERT_TRUE(std::is_sorted(state.reserved().begin(), state.reserved().end()));
      }
      std::vector<uint32_t> all = settled;
      all.insert(all.end(), state.reserved().begin(), state.reserved().end());
      std::sort(all.begin(), all.end());
      for (uint32_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
      for (uint32_t i = 0; i < sinks; ++i) ASSERT_EQ(settled[i], i);
    }
  }
}

TEST_P(LogReserveLaws, APositionAloneTellsWhetherItIsReserved) {
  for (const size_t sinks : {0, 3}) {
    for (const size_t r : {3, 4, 7, 31, 96}) {
      const LogReserve reserve(GetParam(), r, sinks);
      LogReserveState state(reserve);
      std::vector<uint32_t> settled;
      for (size_t n = 1; n <= 700; ++n) {
        state.append(1, settled);
        std::vector<uint32_t> reserved;
        for (size_t p = 0; p < n + 2; ++p) {
          if (reserve.reserves(p, n)) reserved.push_back(static_cast<uint32_t>(p));
        }
        ASSERT_TRUE(
            std::equal(reserved.begin(), reserved.end(), state.reserved().begin(), state.reserved().end()))
            << "sinks " << sinks << " reserve " << r << " n " << n;
      }
    }
  }
  EXPECT_FALSE(LogReserve(GetParam(), 30, 4).reserves(1, 2));
  EXPECT_TRUE(LogReserve(GetParam(), 30, 0).reserves(0, size_t{1} << 31));
}

TEST_P(LogReserveLaws, StepsOfAnySizeSettleInTheSameOrder) {
  const LogReserve reserve(GetParam(), 30, 4);
  LogReserveState once(reserve);
  std::vector<uint32_t> wanted;
  once.append(1000, wanted);
  for (const size_t step : {1, 7, 64, 333}) {
    LogReserveState state(reserve);
    std::vector<uint32_t> settled;
    while (state.n_tokens() < 1000) state.append(std::min(step, 1000 - state.n_tokens()), settled);
    EXPECT_EQ(settled, wanted) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, LogReserveLaws,
                         testing::Values(ReserveRule::kPublished, ReserveRule::kStrided));

}  // namespace
}  // namespace quire
