#include "gpu/sequence_pages.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "base/error.h"
#include "property/random.h"

namespace quire::test {
namespace {

using gpu::kPageTokens;
using gpu::PagesShape;
using gpu::SequencePages;

// The device as pages see it: what is written where, every token being a number of its own. Of a sequence all
// numbers must be found again, whatever happens to the others that have some of its pages.
class PagesAtWork {
 public:
  explicit PagesAtWork(const PagesShape& shape)
      : pages_(shape), exact_(1000), coded_(1000), tokens_(static_cast<size_t>(shape.n_sequences)) {}

  SequencePages& pages() { return pages_; }
  int n_tokens(int s) const { return static_cast<int>(of(s).size()); }

  // As a prompt: all rows at once, coded pages from the first that is new.
  void append(int s, int n, bool as_begin) {
    const int first_coded = pages_.coded_tokens(s) / kPageTokens;
    if (as_begin) {
      pages_.begin(s, n);
    } else {
      pages_.append(s, n);
    }
    for (int i = 0; i < n; ++i) of(s).push_back(n_made_++);
    write_all(s, first_coded);
  }

  void restore(int s, int n, int n_coded) {
    pages_.restore(s, n, n_coded);
    for (int i = 0; i < n; ++i) of(s).push_back(n_made_++);
    write_all(s, 0);
  }

  void grow(int s) {
    pages_.grow(s);
    of(s).push_back(n_made_++);
    const int at = n_tokens(s) - 1 - pages_.coded_tokens(s);
    exact(s, at / kPageTokens)[static_cast<size_t>(at % kPageTokens)] = of(s).back();
    while (pages_.is_due(s)) {
      const gpu::PageSeal seal = pages_.seal(s);
      coded_[static_cast<size_t>(seal.to)] = exact_[static_cast<size_t>(seal.from)];
    }
  }

  void crop(int s, int n) {
    std::vector<cuda::PageCopy> copies;
    pages_.crop(s, n, copies);
    copy(copies);
    of(s).resize(static_cast<size_t>(n));
  }

  void fork(int from, int to) {
    std::vector<cuda::PageCopy> copies;
    pages_.fork(from, to, copies);
    copy(copies);
    of(to) = of(from);
  }

  void expect_all_found() {
    std::set<int> exact_pages, coded_pages;
    for (int s = 0; s < pages_.shape().n_sequences; ++s) {
      ASSERT_EQ(pages_.n_tokens(s), n_tokens(s));
      const int first = pages_.coded_tokens(s);
      ASSERT_EQ(pages_.first_tokens()[static_cast<size_t>(s)], first);
      for (int i = 0; i < n_tokens(s); ++i) {
        const auto at = static_cast<size_t>(i % kPageTokens);
        ASSERT_EQ(i < first ? coded(s, i / kPageTokens)[at] : exact(s, (i - first) / kPageTokens)[at],
                  of(s)[static_cast<size_t>(i)])
            << "token " << i << " of sequence " << s;
      }
      for (int i = 0; i < first; i += kPageTokens) coded_pages.insert(coded_number(s, i / kPageTokens));
      for (int i = first; i < n_tokens(s); i += kPageTokens) {
        exact_pages.insert(exact_number(s, (i - first) / kPageTokens));
      }
      const int n_sinks = pages_.sink_tokens()[static_cast<size_t>(s)];
      ASSERT_EQ(n_sinks, first > 0 ? pages_.shape().sink_tokens : 0);
      if (first == 0) continue;
      exact_pages.insert(pages_.sink_pages()[static_cast<size_t>(s)]);
      for (int i = 0; i < n_sinks; ++i) {
        ASSERT_EQ(sinks(s)[static_cast<size_t>(i)], of(s)[static_cast<size_t>(i)]) << "sink " << i;
      }
    }
    ASSERT_EQ(pages_.used_exact_pages(), static_cast<int>(exact_pages.size()));
    ASSERT_EQ(pages_.used_coded_pages(), static_cast<int>(coded_pages.size()));
  }

 private:
  using Page = std::array<int64_t, kPageTokens>;

  std::vector<int64_t>& of(int s) { return tokens_[static_cast<size_t>(s)]; }
  const std::vector<int64_t>& of(int s) const { return tokens_[static_cast<size_t>(s)]; }
  int exact_number(int s, int at) const {
    return pages_.exact_table()[static_cast<size_t>(s * pages_.shape().exact_pages() + at)];
  }
  int coded_number(int s, int at) const {
    return pages_.coded_table()[static_cast<size_t>(s * pages_.coded_stride() + at)];
  }
  Page& exact(int s, int at) { return exact_[static_cast<size_t>(exact_number(s, at))]; }
  Page& coded(int s, int at) { return coded_[static_cast<size_t>(coded_number(s, at))]; }
  Page& sinks(int s) { return exact_[static_cast<size_t>(pages_.sink_pages()[static_cast<size_t>(s)])]; }

  // As DeviceCache::put_prompt().
  void write_all(int s, int first_coded) {
    const int first = pages_.coded_tokens(s);
    for (int i = first_coded * kPageTokens; i < first; ++i) {
      coded(s, i / kPageTokens)[static_cast<size_t>(i % kPageTokens)] = of(s)[static_cast<size_t>(i)];
    }
    for (int i = 0; first > 0 && first_coded == 0 && i < pages_.shape().sink_tokens; ++i) {
      sinks(s)[static_cast<size_t>(i)] = of(s)[static_cast<size_t>(i)];
    }
    for (int i = first; i < n_tokens(s); ++i) {
      exact(s, (i - first) / kPageTokens)[static_cast<size_t>((i - first) % kPageTokens)] =
          of(s)[static_cast<size_t>(i)];
    }
  }

  void copy(const std::vector<cuda::PageCopy>& copies) {
    for (const cuda::PageCopy& copy : copies) {
      exact_[static_cast<size_t>(copy.to)] = exact_[static_cast<size_t>(copy.from)];
    }
  }

  SequencePages pages_;
  std::vector<Page> exact_, coded_;
  std::vector<std::vector<int64_t>> tokens_;
  int64_t n_made_ = 0;
};

// One of the things that can happen to a sequence.
void do_something(PagesAtWork& work, int s, Random& random) {
  SequencePages& pages = work.pages();
  const int most = pages.shape().most_tokens;
  const int n = work.n_tokens(s);
  const auto kind = random.below(200);
  if (n == 0 && kind < 80) {
    work.append(s, 1 + static_cast<int>(random.below(650)), true);
  } else if (n == 0 && kind < 100) {
    const int n_new = 1 + static_cast<int>(random.below(600));
    const int n_due = pages.shape().sealed_pages(n_new);
    const int n_most = pages.shape().seals ? std::min(n_new / kPageTokens, pages.shape().coded_pages()) : 0;
    work.restore(s, n_new, n_due + static_cast<int>(random.below(static_cast<size_t>(n_most - n_due + 1))));
  } else if (n == 0) {
    const int from = (s + 1) % 4;
    if (work.n_tokens(from) > 0) work.fork(from, s);
  } else if (kind == 0) {
    work.crop(s, 0);
  } else if (kind == 1) {
    const auto n_loose = static_cast<size_t>(n - std::max(1, pages.coded_tokens(s)) + 1);
    work.crop(s, n - static_cast<int>(random.below(n_loose)));
  } else if (kind < 5 && n < most) {
    work.append(s, 1 + static_cast<int>(random.below(static_cast<size_t>(most - n))), false);
  } else if (n < most) {
    work.grow(s);
  } else {
    ASSERT_THROW(pages.grow(s), Error);
    ASSERT_THROW(pages.append(s, 1), Error);
    work.crop(s, 0);
  }
}

// Steps, prompts, crops and forks in any order: every sequence finds its rows.
TEST(SequencePagesTest, SurviveAnyOrderOfSteps) {
  for (const PagesShape& shape : {PagesShape{4, 700, false, 4, 100}, PagesShape{4, 700, true, 4, 100},
                                  PagesShape{4, 700, true, 0, 0, 300, true}}) {
    Random random(shape.seals ? 5 : 6);
    PagesAtWork work(shape);
    for (int i = 0; i < 4000; ++i) {
      const auto s = static_cast<int>(random.below(4));
      do_something(work, s, random);
      work.expect_all_found();
      if (testing::Test::HasFatalFailure()) return;
      // After a crop fewer pages may be due than are coded.
      ASSERT_GE(work.pages().coded_tokens(s),
                kPageTokens * work.pages().shape().sealed_pages(work.n_tokens(s)));
    }
    for (int s = 0; s < 4; ++s) work.crop(s, 0);
    EXPECT_EQ(work.pages().used_exact_pages(), 0);
    EXPECT_EQ(work.pages().used_coded_pages(), 0);
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
