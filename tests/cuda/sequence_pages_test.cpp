#include "gpu/sequence_pages.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "property/random.h"

namespace quire::test {
namespace {

using gpu::kPageTokens;
using gpu::PagesShape;
using gpu::SequencePages;

// Exact pages of all sequences, and coded ones, as the tables have them: no page has two owners but shared
// ones.
void expect_tables(const SequencePages& pages, const std::vector<int>& lengths, bool shared) {
  const PagesShape& shape = pages.shape();
  std::set<int> exact, coded;
  size_t n_exact = 0, n_coded = 0;
  for (int s = 0; s < shape.n_sequences; ++s) {
    const int n = lengths[static_cast<size_t>(s)];
    ASSERT_EQ(pages.n_tokens(s), n);
    const int first = pages.coded_tokens(s);
    ASSERT_EQ(pages.first_tokens()[static_cast<size_t>(s)], first);
    ASSERT_EQ(first % kPageTokens, 0);
    for (int at = 0; at < (n - first + kPageTokens - 1) / kPageTokens; ++at, ++n_exact) {
      exact.insert(pages.exact_table()[static_cast<size_t>(s * shape.exact_pages() + at)]);
    }
    for (int at = 0; at < first / kPageTokens; ++at, ++n_coded) {
      coded.insert(pages.coded_table()[static_cast<size_t>(s * pages.coded_stride() + at)]);
    }
    ASSERT_EQ(pages.sink_tokens()[static_cast<size_t>(s)], first > 0 ? shape.sink_tokens : 0);
    if (first > 0) {
      exact.insert(pages.sink_pages()[static_cast<size_t>(s)]);
      ++n_exact;
    }
  }
  if (!shared) {
    ASSERT_EQ(exact.size(), n_exact);
    ASSERT_EQ(coded.size(), n_coded);
  }
  ASSERT_EQ(pages.used_exact_pages(), static_cast<int>(exact.size()));
  ASSERT_EQ(pages.used_coded_pages(), static_cast<int>(coded.size()));
}

// Steps, prompts, crops and forks in any order: tables stay right, and what is due is coded.
TEST(SequencePagesTest, SurviveAnyOrderOfSteps) {
  for (const PagesShape& shape : {PagesShape{4, 700, false, 4, 100}, PagesShape{4, 700, true, 4, 100},
                                  PagesShape{4, 700, true, 0, 0, 300, true}}) {
    Random random(shape.seals ? 5 : 6);
    SequencePages pages(shape);
    std::vector<int> lengths(4, 0);
    bool shared = false;
    for (int i = 0; i < 4000; ++i) {
      const auto s = static_cast<int>(random.below(4));
      int& n = lengths[static_cast<size_t>(s)];
      std::vector<cuda::PageCopy> copies;
      const auto kind = random.below(200);
      if (n == 0 && kind < 100) {
        n = 1 + static_cast<int>(random.below(650));
        pages.begin(s, n);
      } else if (n == 0) {
        const int from = (s + 1) % 4;
        if (lengths[static_cast<size_t>(from)] == 0) continue;
        pages.fork(from, s, copies);
        n = lengths[static_cast<size_t>(from)];
        ASSERT_EQ(copies.size(), (n - pages.coded_tokens(s)) % kPageTokens != 0 ? 1u : 0u);
        shared = true;
      } else if (kind == 0) {
        pages.crop(s, 0, copies);
        n = 0;
      } else if (kind == 1) {
        n -=
            static_cast<int>(random.below(static_cast<uint64_t>(n - std::max(1, pages.coded_tokens(s)) + 1)));
        pages.crop(s, n, copies);
      } else if (n < shape.most_tokens) {
        pages.grow(s);
        ++n;
        while (pages.is_due(s)) pages.seal(s);
      } else {
        ASSERT_THROW(pages.grow(s), Error);
      }
      expect_tables(pages, lengths, shared);
      if (testing::Test::HasFatalFailure()) return;
      if (n > 0) {
        // After a crop fewer pages may be due than are coded.
        ASSERT_GE(pages.coded_tokens(s), kPageTokens * shape.sealed_pages(n));
      }
    }
    for (int s = 0; s < 4; ++s) {
      std::vector<cuda::PageCopy> copies;
      pages.crop(s, 0, copies);
    }
    EXPECT_EQ(pages.used_exact_pages(), 0);
    EXPECT_EQ(pages.used_coded_pages(), 0);
  }
}

// A page that a fork has is never written by the other.
TEST(SequencePagesTest, CropsPartFromTheirForks) {
  SequencePages pages({2, 300, false, 0, 0});
  std::vector<cuda::PageCopy> copies;
  pages.begin(0, 128);
  pages.fork(0, 1, copies);
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(pages.used_exact_pages(), 2);
  pages.crop(1, 70, copies);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, pages.exact_table()[1]);
  EXPECT_EQ(copies[0].to, pages.exact_table()[static_cast<size_t>(pages.shape().exact_pages() + 1)]);
  EXPECT_EQ(pages.used_exact_pages(), 3);
}

TEST(SequencePagesTest, CodedTokensCannotBeCutOff) {
  SequencePages pages({1, 400, true, 4, 64});
  std::vector<cuda::PageCopy> copies;
  pages.begin(0, 300);
  EXPECT_EQ(pages.coded_tokens(0), 192);
  EXPECT_THROW(pages.crop(0, 191, copies), Error);
  EXPECT_EQ(pages.n_tokens(0), 300);
  pages.crop(0, 192, copies);
  pages.crop(0, 0, copies);
  EXPECT_THROW(pages.begin(0, 401), Error);
  EXPECT_EQ(pages.used_exact_pages(), 0);
}

}  // namespace
}  // namespace quire::test
