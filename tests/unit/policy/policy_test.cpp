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
  const float q[8] = {};
  SelectAll selector;
  EXPECT_TRUE(selector.select(0, store.view(0, 70), q).is_all());
  StayInPlace placement;
  EXPECT_TRUE(placement.plan(store, StepStats{}).empty());
}

}  // namespace
}  // namespace quire
