// Attention over signvq codes on the device against the CPU's rule of choice and double precision.
#include "base/error.h"
#include "cuda/signvq_step.h"

namespace quire::test {
namespace {

void check(const SignVqCase& c) {
  SignVqStep step(c, 29);
  step.run();
  step.check();
}

cuda::SignVqAttention shape_of(int n_sequences, int head_dim, int n_pages) {
  cuda::SignVqAttention a{};
  a.n_sequences = n_sequences;
  a.n_kv_heads = 8;
  a.group = 4;
  a.head_dim = head_dim;
  a.page_table_stride = n_pages;
  a.n_kept_rows = 64;
  a.budget = {.share = 0.075, .rows = 0, .mass = 0, .candidates = 1};
  return a;
}

TEST(SignVqPlanTest, FillsTheDeviceWhereThereIsWork) {
  const cuda::SignVqPlan one = cuda::plan_signvq(shape_of(1, 128, 2048), 132);
  EXPECT_EQ(one.attend_blocks, 33);
  EXPECT_EQ(one.block_parts, 1);
  const cuda::SignVqPlan few = cuda::plan_signvq(shape_of(8, 128, 2048), 132);
  EXPECT_EQ(few.scan_blocks, 4);
  EXPECT_EQ(few.block_parts, 8);
  const cuda::SignVqPlan many = cuda::plan_signvq(shape_of(256, 64, 64), 132);
  EXPECT_EQ(many.scan_blocks, 1);
  EXPECT_EQ(many.attend_blocks, 1);
  const cuda::SignVqPlan brief = cuda::plan_signvq(shape_of(1, 128, 1), 132);
  EXPECT_EQ(brief.scan_blocks, 1);
  EXPECT_EQ(brief.attend_blocks, 1);
  EXPECT_GE(brief.workspace_bytes, brief.states_offset);
}

TEST(SignVqPlanTest, RefusesWhatThereIsNoKernelFor) {
  EXPECT_THROW(cuda::plan_signvq(shape_of(1, 112, 8), 132), Error);
  cuda::SignVqAttention a = shape_of(1, 128, 8);
  a.n_kept_rows = 65;
  EXPECT_THROW(cuda::plan_signvq(a, 132), Error);
  a.n_kept_rows = 64;
  a.budget.mass = 0.9;
  EXPECT_THROW(cuda::plan_signvq(a, 132), Error);
}

class CudaSignVq : public DeviceTest {};

TEST_F(CudaSignVq, AllHeadSizesAndOddLengths) {
  for (const int head_dim : {64, 80, 96, 128, 256}) {
    SCOPED_TRACE(head_dim);
    SignVqCase c = {.n_pages = {0, 0, 1, 3, 9, 40, 15}, .tails = {0, 1, 63, 64, 65, 17, 40}};
    c.head_dim = head_dim;
    check(c);
  }
}

TEST_F(CudaSignVq, AnyGroup) {
  for (const int group : {1, 2, 3, 5, 6, 7, 8, 9, 17}) {
    SCOPED_TRACE(group);
    SignVqCase c = {.n_pages = {16, 7}, .tails = {30, 64}};
    c.group = group;
    check(c);
  }
  SignVqCase largest = {.n_pages = {9}, .tails = {3}};
  largest.group = 9;
  largest.head_dim = 256;
  check(largest);
}

TEST_F(CudaSignVq, BudgetsByRowsAndShare) {
  SignVqCase c = {.n_pages = {64, 10}, .tails = {33, 1}};
  for (const int rows : {1, 140, 300, 5000}) {
    c.budget = {.share = 0, .rows = rows, .mass = 0, .candidates = 1};
    check(c);
  }
  c.budget = {.share = 1, .rows = 0, .mass = 0, .candidates = 1};
  check(c);
}

TEST_F(CudaSignVq, FewOrNoKeptRowsAndExactRowsInBf16) {
  SignVqCase c = {.n_pages = {20, 6}, .tails = {0, 90}};
  c.format = Format::kBF16;
  for (const int n_kept : {0, 1, 33}) {
    c.n_kept = n_kept;
    check(c);
  }
}

// More listed rows than a block takes at a time, and blocks that have a part of several scan blocks.
TEST_F(CudaSignVq, LongSequencesByManyBlocksAndByOne) {
  SignVqCase c = {.n_pages = {2047}, .tails = {63}};
  c.n_kv_heads = 1;
  check(c);
  c.n_pages = {400};
  c.n_multiprocessors = 1;
  c.budget.share = 0.6;
  check(c);
}

TEST_F(CudaSignVq, ManySequences) {
  Random random(5);
  SignVqCase c;
  for (int i = 0; i < 100; ++i) {
    c.n_pages.push_back(static_cast<int>(random.below(12)));
    c.tails.push_back(static_cast<int>(random.below(130)));
  }
  c.head_dim = 64;
  check(c);
}

// A group of dims that outweighs all others has entries that span more than seven bits.
TEST_F(CudaSignVq, SharpFlatAndUnevenAttention) {
  for (const float size : {0.0f, 0.05f, 8.0f}) {
    SignVqCase c = {.n_pages = {40}, .tails = {20}};
    c.query_size = size;
    check(c);
  }
  SignVqCase c = {.n_pages = {40}, .tails = {20}};
  c.uneven = 8;
  check(c);
}

TEST_F(CudaSignVq, ResultsAreTheSameBitsEveryTime) {
  const SignVqCase c = {.n_pages = {90, 33}, .tails = {9, 100}};
  SignVqStep step(c, 3);
  step.run();
  const std::vector<float> once = step.out();
  step.run();
  EXPECT_EQ(once, step.out());
}

// Tails fill, pages are coded, and a sequence begins anew; the rows that are kept were chosen of first pages.
TEST_F(CudaSignVq, ACapturedGraphStaysValidAsSequencesGrow) {
  const SignVqCase most = {.n_pages = {60, 20, 3}, .tails = {64, 64, 64}, .n_kept = 5, .first_pages = 1};
  SignVqStep step(most, 9);
  const std::vector<std::vector<int>> pages = {{0, 0, 1},   {1, 0, 1},   {2, 7, 2},
                                               {31, 19, 3}, {60, 20, 0}, {60, 20, 3}};
  const std::vector<std::vector<int>> tails = {{1, 0, 63},   {64, 1, 64}, {7, 63, 1},
                                               {64, 64, 17}, {0, 1, 5},   {64, 64, 64}};
  std::vector<SignVqCase> cases(pages.size(), most);
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].n_pages = pages[i];
    cases[i].tails = tails[i];
  }
  step.run_graph(cases);
}

}  // namespace
}  // namespace quire::test
