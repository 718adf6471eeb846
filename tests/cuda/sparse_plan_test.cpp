// How sparse launches are planned: host logic.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/sparse_attention.h"
#include "policy/index_budget.h"
#include "property/random.h"

namespace quire::test {
namespace {

using cuda::SparseAttention;
using cuda::SparseBudget;
using cuda::SparseDevice;
using cuda::SparsePlan;

// An H200, and a device without clusters.
constexpr SparseDevice kHopper = {132, 232448, {0, 132, 66, 41, 30, 24, 20, 16, 15, 8, 7, 7, 7, 7, 7, 7, 7}};
constexpr SparseDevice kAmpere = {108, 166912, {0, 108}};

SparseAttention of_shape(int n_sequences, int n_pages, int group = 4, int head_dim = 128) {
  SparseAttention attention{};
  attention.n_sequences = n_sequences;
  attention.n_kv_heads = 8;
  attention.group = group;
  attention.head_dim = head_dim;
  attention.page_table_stride = n_pages;
  return attention;
}

TEST(SparseBudget, IsThatOfThePolicy) {
  Random random(8);
  for (int i = 0; i < 20000; ++i) {
    IndexBudget policy;
    SparseBudget device;
    switch (random.below(3)) {
      case 0: policy.share = device.share = random.uniform(0.001, 1.0); break;
      case 1:
        device.rows = 1 + static_cast<int>(random.below(3000));
        policy.rows = static_cast<size_t>(device.rows);
        break;
      default: policy.mass = device.mass = random.uniform(0.1, 0.999);
    }
    policy.candidates = device.candidates =
        random.uniform(device.mass > 0 ? 0.01 : 1.0, device.mass > 0 ? 1 : 4);
    const int n_exact = static_cast<int>(random.below(400));
    const int n_coded = static_cast<int>(random.below(200000));
    const StepBudget wanted = step_budget(policy, static_cast<size_t>(n_exact), static_cast<size_t>(n_coded));
    const cuda::SparseCounts counts = cuda::sparse_counts(device, n_exact, n_coded);
    ASSERT_EQ(static_cast<size_t>(counts.n_candidates), wanted.n_candidates) << i;
    ASSERT_EQ(static_cast<size_t>(counts.n_rows), wanted.n_rows) << i;
  }
}

TEST(SparsePlan, FitsTheDevice) {
  for (const SparseDevice* one : {&kHopper, &kAmpere}) {
    const SparseDevice& device = *one;
    for (const int n_sequences : {1, 3, 8, 32, 256}) {
      for (const int n_pages : {1, 64, 512, 2048, 16384}) {
        for (const int head_dim : {64, 80, 128, 256}) {
          for (const int group : {1, 4, 9, 16}) {
            const SparseAttention a = of_shape(n_sequences, n_pages, group, head_dim);
            if (&device != &kHopper && group > 8 && head_dim == 256) {
              ASSERT_THROW(plan_sparse(a, 4, 3, device), Error);  // 182 KB without anything of the rows
              continue;
            }
            const SparsePlan plan = plan_sparse(a, 4, 3, device);
            ASSERT_GT(device.clusters[plan.cluster_blocks], 0);
            ASSERT_TRUE(plan.n_warps == 8 || plan.n_warps == 16);
            ASSERT_GE(plan.exact_warps, 1);
            ASSERT_LE(plan.exact_warps * plan.cluster_blocks, 32);
            ASSERT_LE(plan.shared_bytes, device.shared_bytes);
            ASSERT_GE(plan.most_candidates, std::min(256, 64 * n_pages));
          }
        }
      }
    }
  }
}

TEST(SparsePlan, HasRoomForTheCandidatesOfAnyLength) {
  Random random(4);
  for (int i = 0; i < 2000; ++i) {
    SparseAttention a = of_shape(1, 1 + static_cast<int>(random.below(300)));
    a.budget.share = random.uniform(0.001, 1.0);
    a.budget.candidates = random.uniform(1.0, 3.0);
    if (i % 3 == 0) a.budget = {0, 0, 0.9, random.uniform(0.01, 1.0)};
    const SparsePlan plan = plan_sparse(a, 4, 3, kHopper);
    const int n_coded = 64 * static_cast<int>(1 + random.below(static_cast<size_t>(a.page_table_stride)));
    for (const int n_exact : {0, 1, 5, 64, 192})
      ASSERT_LE(cuda::sparse_counts(a.budget, n_exact, n_coded).n_candidates, plan.most_candidates);
  }
}

TEST(SparsePlan, FewSequencesAreSharedOutAmongManyBlocks) {
  EXPECT_EQ(plan_sparse(of_shape(1, 2048), 4, 3, kHopper).cluster_blocks, 9);
  EXPECT_EQ(plan_sparse(of_shape(32, 64), 4, 3, kHopper).cluster_blocks, 1);
  EXPECT_EQ(plan_sparse(of_shape(1, 2048), 4, 3, kAmpere).cluster_blocks, 1);
}

TEST(SparsePlan, EstimatesThatDoNotFitHaveRoomInTheWorkspace) {
  EXPECT_EQ(plan_sparse(of_shape(1, 64), 4, 3, kHopper).candidates_offset, 0u);
  const SparsePlan plan = plan_sparse(of_shape(1, 16384), 4, 3, kHopper, 1);
  EXPECT_GE(plan.candidates_offset, 8u * 16384 * 272);
  EXPECT_GT(plan.workspace_bytes, plan.candidates_offset);
}

void expect_refused(const SparseAttention& a, int key_bits, int value_bits, const char* sentence) {
  try {
    plan_sparse(a, key_bits, value_bits, kHopper);
    FAIL() << sentence;
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), sentence);
  }
}

TEST(SparsePlan, WhatHasNoKernelIsRefusedInASentence) {
  expect_refused(of_shape(1, 1, 4, 72), 4, 3, "no CUDA kernel for heads of 72 values (64, 80, 96, 128, 256)");
  expect_refused(of_shape(1, 1, 17), 4, 3,
                 "sparse attention on the CUDA device is for 1 to 16 query heads of a KV head, not 17");
  expect_refused(of_shape(1, 1), 3, 2,
                 "no CUDA kernel for sparse attention with keys of 3 bits and values of 2");
}

}  // namespace
}  // namespace quire::test
