// What the recipe `full` does: reads everything, moves nothing.
#include "policy/policy.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(FullPolicy, ReadsEverythingAndMovesNothing) {
  PagePool pool;
  Store store(std::vector<RowLayout>{{1, 8, Format::kF16, Format::kF16}}, pool);
  store.extend(70);
  store.commit(70);
  EXPECT_FALSE(SelectAll().selects(0, 70));
  StayInPlace placement;
  EXPECT_TRUE(placement.plan(store, StepStats{}).empty());
}

}  // namespace
}  // namespace quire
