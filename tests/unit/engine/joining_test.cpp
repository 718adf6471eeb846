#include "engine/joining.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

using Tokens = std::vector<int32_t>;

Joint join_of(const Tokens& sequence, const Tokens& prompt, size_t n_fixed = 0) {
  return join(sequence, prompt, n_fixed);
}

TEST(Joining, OneIsTheBeginningOfTheOther) {
  const Tokens document{1, 2, 3, 4};
  for (const Tokens& prompt : {document, Tokens{1, 2, 3, 4, 5}, Tokens{1, 2}, Tokens{1}}) {
    const Joint joint = join_of(document, prompt);
    EXPECT_TRUE(joint.same_start);
    EXPECT_EQ(joint.n_common, std::min<size_t>(4, prompt.size()));
  }
}

TEST(Joining, AnotherQuestionBehindTheSameDocument) {
  const Joint joint = join_of({1, 2, 3, 4, 5, 6, 70, 80, 90}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_TRUE(joint.same_start);
  EXPECT_EQ(joint.n_common, 6u);
}

TEST(Joining, AQuestionToADocument) {
  EXPECT_FALSE(join_of({1, 2, 3, 4, 5, 6}, {9, 8, 7}).same_start);
  EXPECT_FALSE(join_of({1, 2, 3, 4, 5, 6}, {1, 9, 8, 7}).same_start) << "the first word alone says nothing";
  EXPECT_TRUE(join_of({1, 2, 3, 4, 5, 6}, {1, 2, 8, 7}).same_start) << "half of it does";
}

TEST(Joining, TheTemplateSaysNothing) {
  const Tokens talk{100, 101, 102, 1, 2, 3, 103, 4, 5, 6};
  EXPECT_FALSE(join_of(talk, {100, 101, 102, 9, 8, 7, 103}, 3).same_start);
  EXPECT_FALSE(join_of(talk, {100, 101, 102, 9, 103}, 3).same_start);
  EXPECT_TRUE(join_of(talk, {100, 101, 102, 1, 2, 3, 103}, 3).same_start);
  EXPECT_TRUE(join_of(talk, {100, 101, 102, 1, 2, 7, 103}, 3).same_start);
}

TEST(Joining, NothingIsTheBeginningOfEverything) {
  EXPECT_TRUE(join_of({}, {1, 2}).same_start);
  EXPECT_TRUE(join_of({1, 2}, {}).same_start);
  EXPECT_EQ(join_of({}, {1, 2}).n_common, 0u);
}

}  // namespace
}  // namespace quire
