// One page pool under several threads: sequences grow, fork and go at once.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/error.h"
#include "property/store/sequence_model.h"

namespace quire::test {
namespace {

void live(PagePool& pool, uint64_t seed, std::atomic<int>& mistakes, std::atomic<int>& refusals) {
  Random random(seed);
  Sequence sequence{Store(two_layouts(), pool), {}};
  for (int step = 0; step < 100; ++step) {
    const size_t n = 1 + random.below(40);
    try {
      sequence.store.extend(n);
    } catch (const Error&) {
      ++refusals;
      sequence.store.crop(0);
      sequence.tags.clear();
      continue;
    }
    for (size_t i = 0; i < n; ++i) {
      const auto tag = static_cast<uint32_t>(random.below(1 << 20));
      write_token(sequence.store, sequence.tags.size(), tag);
      sequence.tags.push_back(tag);
    }
    sequence.store.commit(n);
    if (random.below(8) == 0) {
      const Sequence copy{sequence.store.fork(), sequence.tags};
      if (!first_difference(copy).empty()) ++mistakes;
    }
  }
  if (!first_difference(sequence).empty()) ++mistakes;
}

TEST(SharedPool, ManySequencesAtOnce) {
  // The budget is less than one sequence alone comes to need, so that refusals do not depend on timing.
  for (const uint64_t budget : {uint64_t{0}, uint64_t{100} << 10}) {
    PagePool pool(budget);
    std::atomic<int> mistakes{0};
    std::atomic<int> refusals{0};
    std::vector<std::thread> threads;
    for (uint64_t seed = 0; seed < 4; ++seed)
      threads.emplace_back([&, seed] { live(pool, seed, mistakes, refusals); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(mistakes, 0);
    EXPECT_EQ(refusals > 0, budget > 0);
    EXPECT_EQ(pool.used_bytes(), 0u);
  }
}

}  // namespace
}  // namespace quire::test
