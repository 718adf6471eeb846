#include "gpu/row_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "gpu/sequence_pages.h"
#include "property/random.h"

namespace quire::test {
namespace {

using gpu::kPageTokens;
using gpu::PagesShape;
using gpu::RowMoves;
using gpu::SequencePages;

// Rows of a batch on the device as its tables have them, every token a number of its own. What the CPU's rule
// reserves must be found among the exact rows, and what has left among the coded ones, in that order.
class ReserveAtWork {
 public:
  explicit ReserveAtWork(const PagesShape& shape)
      : pages_(shape), text_(static_cast<size_t>(shape.n_sequences)) {}

  SequencePages& pages() { return pages_; }
  std::vector<int64_t>& text(int s) { return text_[static_cast<size_t>(s)]; }
  int n(int s) { return static_cast<int>(text(s).size()); }

  void prompt(int s, int n_new) {
    const std::vector<int64_t> exact = exact_rows(s);
    const int n_coded = pages_.coded_tokens(s) / kPageTokens;
    std::vector<int64_t> rows = exact;
    for (int i = 0; i < n_new; ++i) {
      text(s).push_back(n_made_++);
      rows.push_back(text(s).back());
    }
    n_new == n(s) ? pages_.begin(s, n_new) : pages_.append(s, n_new);
    const std::vector<int32_t>& order = pages_.arrangement(s);
    const int n_new_coded = pages_.coded_tokens(s) - kPageTokens * n_coded;
    ASSERT_EQ(static_cast<int>(order.size()), n_new_coded + pages_.exact_rows(s));
    for (size_t i = 0; i < order.size(); ++i) {
      const int64_t row = rows[static_cast<size_t>(order[i])];
      const int at = static_cast<int>(i) - n_new_coded;
      if (at < 0) {
        coded_[kPageTokens * coded_page(s, n_coded + static_cast<int>(i) / kPageTokens) +
               static_cast<int>(i) % kPageTokens] = row;
      } else {
        exact_[exact_row(s, at)] = row;
      }
      if (n_coded == 0 && n_new_coded > 0 && static_cast<int>(i) < pages_.shape().sink_tokens) {
        exact_[kPageTokens * sink_page(s) + static_cast<int>(i)] = row;
      }
    }
  }

  void step(int s) {
    pages_.grow(s);
    text(s).push_back(n_made_++);
    exact_[exact_row(s, n(s) - 1 - pages_.first_tokens()[static_cast<size_t>(s)])] = text(s).back();
    while (pages_.is_due(s)) {
      RowMoves moves;
      const gpu::PageSeal seal = pages_.leave(s, moves);
      for (const gpu::RowMove& move : moves.gathered) exact_[move.to] = exact_[move.from];
      std::map<int, int64_t> moved;
      for (const gpu::RowMove& move : moves.moved) moved[move.to] = exact_[move.from];
      for (const auto& [to, row] : moved) exact_[to] = row;
      for (int i = 0; seal.to >= 0 && i < kPageTokens; ++i)
        coded_[kPageTokens * seal.to + i] = exact_[kPageTokens * seal.from + i];
    }
  }

  void crop(int s, int n_left) {
    std::vector<cuda::PageCopy> copies;
    pages_.crop(s, n_left, copies);
    ASSERT_TRUE(copies.empty());
    text(s).resize(static_cast<size_t>(n_left));
  }

  void fork(int from, int to) {
    std::vector<cuda::PageCopy> copies;
    pages_.fork(from, to, copies);
    for (const cuda::PageCopy& copy : copies) {
      for (int i = 0; i < kPageTokens; ++i)
        exact_[kPageTokens * copy.to + i] = exact_[kPageTokens * copy.from + i];
    }
    text(to) = text(from);
  }

  void expect_as_on_the_cpu(int s) {
    const PagesShape& shape = pages_.shape();
    LogReserveState state(shape.reserve);
    std::vector<uint32_t> settled;
    state.append(static_cast<size_t>(n(s)), settled);
    const int n_coded = pages_.coded_tokens(s);
    const std::vector<int64_t> exact = exact_rows(s);
    std::set<int64_t> expected;
    for (const uint32_t position : state.reserved()) expected.insert(text(s)[position]);
    for (size_t i = 0; i < settled.size() && shape.seals; ++i) {
      const int64_t row = text(s)[settled[i]];
      if (static_cast<int>(i) >= n_coded) {
        expected.insert(row);
        continue;
      }
      const int at = static_cast<int>(i);
      ASSERT_EQ(coded_[kPageTokens * coded_page(s, at / kPageTokens) + at % kPageTokens], row) << i;
      if (at < shape.sink_tokens) {
        ASSERT_EQ(exact_[kPageTokens * sink_page(s) + at], row) << "sink " << i;
      }
    }
    ASSERT_EQ(std::set<int64_t>(exact.begin(), exact.end()), expected) << n(s) << " tokens";
    ASSERT_EQ(exact.size(), expected.size());
    ASSERT_EQ(pages_.first_tokens()[static_cast<size_t>(s)] + static_cast<int>(exact.size()), n(s));
  }

 private:
  int coded_page(int s, int at) const {
    return pages_.coded_table()[static_cast<size_t>(s * pages_.coded_stride() + at)];
  }
  int sink_page(int s) const { return pages_.sink_pages()[static_cast<size_t>(s)]; }
  int exact_row(int s, int row) const {
    const auto at = static_cast<size_t>(s * pages_.shape().exact_pages() + row / kPageTokens);
    return kPageTokens * pages_.exact_table()[at] + row % kPageTokens;
  }
  std::vector<int64_t> exact_rows(int s) {
    std::vector<int64_t> rows;
    for (int i = 0; i < pages_.exact_rows(s); ++i) rows.push_back(exact_[exact_row(s, i)]);
    return rows;
  }

  SequencePages pages_;
  std::map<int, int64_t> exact_, coded_;
  std::vector<std::vector<int64_t>> text_;
  int64_t n_made_ = 0;
};

PagesShape shape_of(ReserveRule rule, size_t reserve, bool seals, int n_sinks) {
  PagesShape shape{3, 900, seals, n_sinks, 0};
  shape.reserve = LogReserve(rule, reserve, static_cast<size_t>(seals ? n_sinks : 0));
  shape.reserve_rows = gpu::most_open_rows(shape.reserve, seals, shape.most_tokens);
  return shape;
}

// Prompts, steps, cuts and forks in any order.
TEST(RowOrderTest, RowsAreWhereTheCpuHasThem) {
  for (const ReserveRule rule : {ReserveRule::kPublished, ReserveRule::kStrided}) {
    for (const auto& [reserve, seals, n_sinks] : {std::tuple{size_t{192}, true, 4},
                                                  {size_t{30}, true, 0},
                                                  {size_t{500}, true, 16},
                                                  {size_t{96}, false, 0}}) {
      Random random(17 + reserve);
      ReserveAtWork work(shape_of(rule, reserve, seals, n_sinks));
      for (int i = 0; i < 1500; ++i) {
        const auto s = static_cast<int>(random.below(3));
        const auto kind = random.below(100);
        const int n = work.n(s);
        if (n == 0 && kind < 30 && work.n((s + 1) % 3) > 0) {
          work.fork((s + 1) % 3, s);
        } else if (n + 130 > 900) {
          work.crop(s, 0);
        } else if (kind < 3 || n == 0) {
          work.prompt(s, 1 + static_cast<int>(random.below(n == 0 ? 500 : 120)));
        } else if (kind < 6) {
          const int fixed = std::max(1, work.pages().order(s).fixed_tokens());
          work.crop(s, fixed + static_cast<int>(random.below(static_cast<size_t>(n - fixed + 1))));
        } else {
          work.step(s);
        }
        if (testing::Test::HasFatalFailure()) return;
        work.expect_as_on_the_cpu(s);
        if (testing::Test::HasFatalFailure()) return;
      }
      for (int s = 0; s < 3; ++s) work.crop(s, 0);
      EXPECT_EQ(work.pages().used_exact_pages(), 0);
      EXPECT_EQ(work.pages().used_coded_pages(), 0);
    }
  }
}

TEST(RowOrderTest, WhatHasLeftCannotBeCutOff) {
  ReserveAtWork work(shape_of(ReserveRule::kPublished, 96, true, 4));
  work.prompt(0, 300);
  std::vector<cuda::PageCopy> copies;
  EXPECT_EQ(work.pages().order(0).fixed_tokens(), 300);
  EXPECT_THROW(work.pages().crop(0, 299, copies), Error);
  EXPECT_FALSE(work.pages().step_lasts(0));
  work.step(0);
  work.crop(0, 300);
  work.expect_as_on_the_cpu(0);
}

// The place of a token is free when it comes: that of the one which the window of the step before has passed.
TEST(RowOrderTest, ARingHoldsSinksAndTheNewest) {
  PagesShape shape{1, 1000, false, 4, 0};
  shape.window_tokens = 37;
  SequencePages pages(shape);
  pages.begin(0, 1);
  std::vector<cuda::PageCopy> copies;
  std::vector<int> places(static_cast<size_t>(shape.window_rows()), -1);
  for (int n = 1; n < 500; ++n) {
    places[static_cast<size_t>(shape.place_of(n - 1))] = n - 1;
    std::set<int> expected;
    for (int i = 0; i < std::min(n, 4); ++i) expected.insert(i);
    for (int i = std::max(0, n - 38); i < n; ++i) expected.insert(i);
    ASSERT_EQ(std::set<int>(places.begin(), places.begin() + pages.exact_rows(0)), expected) << n;
    pages.grow(0);
    EXPECT_EQ(pages.used_exact_pages(), 1);
  }
  EXPECT_THROW(pages.crop(0, 499, copies), Error);
  EXPECT_TRUE(pages.step_lasts(0));
  pages.crop(0, 0, copies);
  pages.begin(0, 41);
  EXPECT_FALSE(pages.step_lasts(0));
  pages.crop(0, 20, copies);
  EXPECT_EQ(pages.exact_rows(0), 20);
}

}  // namespace
}  // namespace quire::test
