#include "base/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace quire {
namespace {

TEST(Memory, IsAlignedAndWritableToItsEnd) {
  for (const size_t n :
       {1ul, 63ul, 64ul, 65ul, 4096ul, (2ul << 20) - 1, 2ul << 20, (2ul << 20) + 1, 5ul << 20}) {
    Memory memory(n);
    ASSERT_EQ(memory.size_bytes(), n);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % (n >= (2u << 20) ? 2u << 20 : 64), 0u) << n;
    std::memset(memory.data(), 1, n);
  }
}

TEST(Memory, OfNothingHasNoData) {
  EXPECT_EQ(Memory().data(), nullptr);
  EXPECT_EQ(Memory(0).data(), nullptr);
}

TEST(Memory, MovesItsOwnership) {
  Memory a(100);
  std::byte* data = a.data();
  Memory b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.size_bytes(), 100u);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: what is left is part of the contract
  EXPECT_EQ(a.size_bytes(), 0u);
  Memory c(7);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.size_bytes(), 100u);
}

// Rounding up to the alignment must not wrap around to a small number.
TEST(Memory, AbsurdSizesAreRefused) {
  for (const size_t less : {0, 1, 63, 1 << 20}) {
    EXPECT_THROW(Memory(std::numeric_limits<size_t>::max() - less), Error);
  }
}

TEST(Memory, PeakResidentBytesGrowWithUse) {
  const uint64_t before = peak_resident_bytes();
  Memory memory(size_t{64} << 20);
  std::memset(memory.data(), 1, memory.size_bytes());
  EXPECT_GE(peak_resident_bytes() + (uint64_t{1} << 20), before);
  EXPECT_GE(peak_resident_bytes(), uint64_t{64} << 20);
}

TEST(Checked, OverflowIsAnErrorThatNamesWhat) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(checked_mul(1u << 31, 1u << 31, "x"), uint64_t{1} << 62);
  EXPECT_EQ(checked_mul(kMost, 1, "x"), kMost);
  EXPECT_EQ(checked_add(kMost - 1, 1, "x"), kMost);
  for (const bool adding : {false, true}) {
    try {
      adding ? checked_add(kMost, 1, "the shelf") : checked_mul(kMost / 2, 3, "the shelf");
      ADD_FAILURE() << "no Error";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "the shelf is too large");
    }
  }
}

}  // namespace
}  // namespace quire
