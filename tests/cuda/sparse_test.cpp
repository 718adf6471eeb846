// Sparse attention on the device against double precision.
#include "cuda/sparse_step.h"

namespace quire::test {
namespace {

template <class Codes>
void check(const SparseCase& c) {
  SparseStep<Codes> step(c, 23);
  step.run();
  step.check();
}

class CudaSparse : public DeviceTest {};

TEST_F(CudaSparse, AllHeadSizesAndOddLengths) {
  for (const int head_dim : {64, 80, 96, 128, 256}) {
    SCOPED_TRACE(head_dim);
    SparseCase c = {.n_pages = {0, 0, 1, 3, 9, 40}, .tails = {0, 1, 63, 64, 65, 17}};
    c.head_dim = head_dim;
    check<Nested<4, 3>>(c);
  }
}

TEST_F(CudaSparse, AllNumbersOfBits) {
  for (const int head_dim : {64, 80, 128}) {
    SparseCase c = {.n_pages = {12, 2}, .tails = {5, 0}};
    c.head_dim = head_dim;
    check<Nested<4, 4>>(c);
    check<Nested<3, 3>>(c);
    check<Nested<2, 2>>(c);
  }
}

TEST_F(CudaSparse, AnyGroupUpToSixteen) {
  for (const int group : {1, 2, 3, 5, 7, 8, 9, 16}) {
    SCOPED_TRACE(group);
    SparseCase c = {.n_pages = {16, 7}, .tails = {30, 64}};
    c.group = group;
    check<Nested<4, 3>>(c);
  }
  SparseCase largest = {.n_pages = {9}, .tails = {3}};
  largest.group = 16;
  largest.head_dim = 256;
  check<Nested<4, 3>>(largest);
}

TEST_F(CudaSparse, ClustersOfAllSizes) {
  for (const int blocks : {1, 2, 3, 4, 8, 14, 16}) {
    SCOPED_TRACE(blocks);
    SparseCase c = {.n_pages = {70, 3, 0}, .tails = {9, 70, 0}};
    c.cluster_blocks = blocks;
    check<Nested<4, 3>>(c);
  }
}

// The page with the sinks is then not that of the cluster's first block.
TEST_F(CudaSparse, FewerPagesThanBlocks) {
  for (const int group : {4, 9, 16}) {
    SCOPED_TRACE(group);
    SparseCase c = {.n_pages = {1, 2}, .tails = {0, 3}};
    c.group = group;
    c.cluster_blocks = 16;
    check<Nested<4, 3>>(c);
  }
}

TEST_F(CudaSparse, BudgetsByRowsShareAndMass) {
  SparseCase c = {.n_pages = {64, 10}, .tails = {33, 1}};
  for (const int rows : {1, 40, 300, 5000}) {
    c.budget = {.share = 0, .rows = rows, .mass = 0, .candidates = 2};
    check<Nested<4, 3>>(c);
  }
  for (const double mass : {0.3, 0.9, 1.0}) {
    c.budget = {.share = 0, .rows = 0, .mass = mass, .candidates = 0.35};
    check<Nested<4, 3>>(c);
  }
  c.group = 9;
  check<Nested<4, 3>>(c);
}

TEST_F(CudaSparse, WithoutFramesSinksOrTailsAndWithExactRowsInBf16) {
  SparseCase c = {.n_pages = {20, 6}, .tails = {0, 90}};
  c.framed = false;
  c.n_sinks = 0;
  c.format = Format::kBF16;
  check<Nested<4, 3>>(c);
  c.n_sinks = 64;
  check<Nested<4, 3>>(c);
}

TEST_F(CudaSparse, LongSequencesSpillNothingAndVeryLongOnesDo) {
  SparseCase c = {.n_pages = {2048}, .tails = {11}};
  c.n_kv_heads = 1;
  check<Nested<4, 3>>(c);
  c.cluster_blocks = 1;  // estimates and candidates in the workspace
  check<Nested<4, 3>>(c);
}

TEST_F(CudaSparse, ManySequences) {
  Random random(5);
  SparseCase c;
  for (int i = 0; i < 128; ++i) {
    c.n_pages.push_back(static_cast<int>(random.below(12)));
    c.tails.push_back(static_cast<int>(random.below(130)));
  }
  c.head_dim = 64;
  check<Nested<4, 3>>(c);
}

TEST_F(CudaSparse, SharpAndFlatAttention) {
  for (const float size : {0.0f, 0.05f, 12.0f}) {
    SparseCase c = {.n_pages = {40}, .tails = {20}};
    c.query_size = size;
    check<Nested<4, 3>>(c);
  }
}

TEST_F(CudaSparse, ResultsAreTheSameBitsEveryTime) {
  const SparseCase c = {.n_pages = {90, 33}, .tails = {9, 100}};
  SparseStep<Nested<4, 3>> step(c, 3);
  step.run();
  const std::vector<float> once = step.out();
  step.run();
  EXPECT_EQ(once, step.out());
}

TEST_F(CudaSparse, ACapturedGraphStaysValidAsSequencesGrow) {
  const SparseCase most = {.n_pages = {60, 20, 3}, .tails = {64, 64, 64}};
  SparseStep<Nested<4, 3>> step(most, 9);
  std::vector<SparseCase> cases(3, most);
  cases[0].n_pages = {0, 1, 3};
  cases[0].tails = {1, 0, 64};
  cases[1].n_pages = {30, 20, 0};
  cases[1].tails = {7, 63, 0};
  step.run_graph(cases);
}

}  // namespace
}  // namespace quire::test
