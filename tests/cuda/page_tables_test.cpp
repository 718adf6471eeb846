#include "kernels/cuda/page_tables.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "property/random.h"

namespace quire::cuda {
namespace {

constexpr int kPageTokens = 64;

TEST(PageNumbers, AreTakenSharedAndGivenBack) {
  PageNumbers numbers(2);
  const int a = numbers.take();
  const int b = numbers.take();
  EXPECT_NE(a, b);
  EXPECT_THROW(numbers.take(), Error);
  numbers.share(a);
  numbers.give_back(a);
  EXPECT_EQ(numbers.n_free(), 0);
  numbers.give_back(a);
  EXPECT_EQ(numbers.n_free(), 1);
  EXPECT_EQ(numbers.take(), a);
}

TEST(PageTables, AnAppendThatDoesNotFitChangesNothing) {
  PageNumbers numbers(4);
  PageTables tables(2, 3, kPageTokens, numbers);
  std::vector<PageCopy> copies;
  tables.append(0, 65, copies);
  EXPECT_THROW(tables.append(0, 128, copies), Error);  // four pages, three allowed
  tables.append(1, 1, copies);
  EXPECT_THROW(tables.append(1, 128, copies), Error);  // one free page, two wanted
  EXPECT_EQ(tables.n_tokens(0), 65);
  EXPECT_EQ(tables.n_tokens(1), 1);
  EXPECT_EQ(numbers.n_free(), 1);
  EXPECT_TRUE(copies.empty());
}

TEST(PageTables, AForkCopiesThePageThatItWritesInto) {
  PageNumbers numbers(8);
  PageTables tables(2, 4, kPageTokens, numbers);
  std::vector<PageCopy> copies;
  tables.append(0, 100, copies);
  tables.fork(0, 1);
  EXPECT_EQ(numbers.n_free(), 6);
  tables.append(1, 1, copies);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, tables.page(0, 1));
  EXPECT_EQ(copies[0].to, tables.page(1, 1));
  EXPECT_EQ(tables.page(0, 0), tables.page(1, 0));
  tables.append(0, 1, copies);  // no longer shared
  EXPECT_EQ(copies.size(), 1u);
}

// Tokens as a map from (page, row) to a number, written and copied as a device would.
class PagesModel {
 public:
  void write(const PageTables& tables, int sequence, int token, int value) {
    rows_[{tables.page(sequence, token / kPageTokens), token % kPageTokens}] = value;
  }
  void apply(const PageCopy& copy) {
    for (int row = 0; row < kPageTokens; ++row) {
      if (const auto found = rows_.find({copy.from, row}); found != rows_.end())
        rows_[{copy.to, row}] = found->second;
    }
  }
  int read(const PageTables& tables, int sequence, int token) const {
    return rows_.at({tables.page(sequence, token / kPageTokens), token % kPageTokens});
  }

 private:
  std::map<std::pair<int, int>, int> rows_;
};

// One random change of one sequence; `tokens` is what each should hold.
void change(PageTables& tables, PagesModel& pages, std::vector<std::vector<int>>& tokens,
            test::Random& random) {
  const int sequence = static_cast<int>(random.below(tokens.size()));
  std::vector<int>& own = tokens[static_cast<size_t>(sequence)];
  const size_t kind = random.below(4);
  if (kind == 0) {
    const size_t left = random.below(own.size() + 1);
    tables.crop(sequence, static_cast<int>(left));
    own.resize(left);
  } else if (kind == 1) {
    const int from = static_cast<int>(random.below(tokens.size()));
    if (from == sequence) return;
    tables.crop(sequence, 0);
    tables.fork(from, sequence);
    own = tokens[static_cast<size_t>(from)];
  } else {
    const int n_new = static_cast<int>(random.below(100));
    std::vector<PageCopy> copies;
    try {
      tables.append(sequence, n_new, copies);
    } catch (const Error&) {
      return;
    }
    for (const PageCopy& copy : copies) pages.apply(copy);
    for (int i = 0; i < n_new; ++i) {
      own.push_back(static_cast<int>(random.below(1 << 30)));
      pages.write(tables, sequence, static_cast<int>(own.size()) - 1, own.back());
    }
  }
}

TEST(PageTables, NoTokenIsLostByRandomAppendsCropsAndForks) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    test::Random random(seed);
    PageNumbers numbers(24);
    {
      PageTables tables(4, 12, kPageTokens, numbers);
      PagesModel pages;
      std::vector<std::vector<int>> tokens(4);
      for (int step = 0; step < 60; ++step) change(tables, pages, tokens, random);
      for (int sequence = 0; sequence < 4; ++sequence) {
        const std::vector<int>& own = tokens[static_cast<size_t>(sequence)];
        ASSERT_EQ(tables.n_tokens(sequence), static_cast<int>(own.size()));
        for (int token = 0; token < static_cast<int>(own.size()); ++token) {
          ASSERT_EQ(pages.read(tables, sequence, token), own[static_cast<size_t>(token)]);
        }
      }
    }
    EXPECT_EQ(numbers.n_free(), 24);
  }
}

}  // namespace
}  // namespace quire::cuda
