// The frame keeps products, its bias is what centring takes off, and its way back is its way in.
#include "format/frame.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include "property/random.h"

namespace quire {
namespace {

using test::Random;

constexpr int kHeadDims[] = {8, 40, 64, 72, 80, 96, 99, 100, 112, 128, 255, 256};

struct MadeFrame {
  std::vector<float> mean, balance, signs;
  Frame frame;
};

MadeFrame make_frame(int head_dim, uint64_t seed) {
  Random random(seed);
  MadeFrame made;
  made.mean = random.normals(static_cast<size_t>(head_dim), 3.0);
  made.balance.resize(static_cast<size_t>(head_dim));
  for (float& b : made.balance) b = static_cast<float>(std::exp(random.normal()));
  made.signs.resize(static_cast<size_t>(head_dim));
  frame_signs(frame_seed(3, 1, FrameSide::kKey), head_dim, made.signs.data());
  made.frame = {head_dim, made.mean.data(), made.balance.data(), made.signs.data()};
  return made;
}

double dot(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0.0;
  for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * y[i];
  return sum;
}

double norm(const std::vector<float>& x) { return std::sqrt(dot(x, x)); }

// H of `block` values from `start` on, written down from its definition.
void apply_block(std::vector<double>& x, size_t start, size_t block) {
  const std::vector<double> before = x;
  for (size_t i = 0; i < block; ++i) {
    double sum = 0.0;
    for (size_t j = 0; j < block; ++j) sum += (std::popcount(i & j) & 1 ? -1.0 : 1.0) * before[start + j];
    x[start + i] = sum / std::sqrt(static_cast<double>(block));
  }
}

TEST(Frame, IsTheMatrixOfItsDefinition) {
  for (size_t head_dim : {40, 64, 96, 100, 255, 256}) {
    const MadeFrame made = make_frame(static_cast<int>(head_dim), 5);
    const std::vector<float> row = Random(9).normals(head_dim);
    std::vector<float> out(row.size());
    to_frame(made.frame, row.data(), out.data());
    std::vector<double> wanted;
    for (size_t j = 0; j < head_dim; ++j) {
      wanted.push_back(made.signs[j] * (static_cast<double>(row[j]) - made.mean[j]) / made.balance[j]);
    }
    const size_t block = std::bit_floor(head_dim);
    if (block != head_dim) {
      apply_block(wanted, head_dim - block, block);
      for (size_t j = 0; j < block; ++j) wanted[j] *= made.signs[head_dim - 1 - j];
    }
    apply_block(wanted, 0, block);
    for (size_t i = 0; i < head_dim; ++i) EXPECT_NEAR(out[i], wanted[i], 1e-5 * norm(out)) << head_dim;
  }
}

// One value of a row thirty times the others, at any place: no more than a few values of the row in the frame
// may share its size, or a code of few bits loses all others.
TEST(Frame, AnOutlierIsSpreadWhereverItIs) {
  for (int head_dim : {40, 64, 72, 80, 96, 99, 100, 112, 128, 255, 256}) {
    MadeFrame made = make_frame(head_dim, 61);
    made.frame.mean = made.frame.balance = nullptr;
    for (int at = 0; at < head_dim; ++at) {
      std::vector<float> row(static_cast<size_t>(head_dim), 0.0f);
      row[static_cast<size_t>(at)] = 1.0f;
      rotate(made.frame, row.data());
      double fourth = 0.0;
      for (const float x : row) fourth += static_cast<double>(x) * x * x * x;
      // 1 / fourth is the number of equal values with this sum: how many share the outlier.
      EXPECT_GT(1.0 / fourth, head_dim / 3.0) << head_dim << " at " << at;
    }
  }
}

TEST(Frame, ProductsAreKeptUpToTheBias) {
  for (int head_dim : kHeadDims) {
    const MadeFrame made = make_frame(head_dim, 11);
    Random random(12);
    const std::vector<float> q = random.normals(static_cast<size_t>(head_dim));
    const std::vector<float> k = random.normals(static_cast<size_t>(head_dim), 4.0);
    std::vector<float> framed_q(q.size()), framed_k(k.size());
    query_to_frame(made.frame, q.data(), framed_q.data());
    to_frame(made.frame, k.data(), framed_k.data());
    const double size = norm(framed_q) * norm(framed_k) + norm(q) * norm(made.mean);
    EXPECT_NEAR(dot(framed_q, framed_k) + query_bias(made.frame, q.data()), dot(q, k), 1e-6 * size)
        << head_dim;
    EXPECT_NEAR(query_bias(made.frame, q.data()), dot(q, made.mean), 1e-6 * size) << head_dim;
  }
}

TEST(Frame, RotationKeepsNorms) {
  for (int head_dim : kHeadDims) {
    MadeFrame made = make_frame(head_dim, 21);
    made.frame.mean = made.frame.balance = nullptr;
    const std::vector<float> row = Random(22).normals(static_cast<size_t>(head_dim));
    std::vector<float> out(row.size());
    to_frame(made.frame, row.data(), out.data());
    EXPECT_NEAR(norm(out), norm(row), 1e-6 * norm(row)) << head_dim;
  }
}

TEST(Frame, WaysBack) {
  for (int head_dim : kHeadDims) {
    const MadeFrame made = make_frame(head_dim, 31);
    std::vector<float> row = Random(32).normals(static_cast<size_t>(head_dim));
    std::vector<float> out(row.size()), back(row.size());
    to_frame(made.frame, row.data(), out.data());
    row_from_frame(made.frame, out.data(), back.data());
    for (size_t j = 0; j < row.size(); ++j) EXPECT_NEAR(back[j], row[j], 1e-5 * made.balance[j] * norm(out));
    to_frame(made.frame, row.data(), row.data());  // in place
    EXPECT_EQ(row, out);
  }
}

// Two value rows of weights 0.25 and 0.75, summed in the frame, against the sum outside.
TEST(Frame, OutputOfAWeightedSum) {
  for (int head_dim : kHeadDims) {
    MadeFrame made = make_frame(head_dim, 41);
    made.frame.balance = nullptr;
    Random random(42);
    const size_t n = static_cast<size_t>(head_dim);
    const std::vector<float> a = random.normals(n), b = random.normals(n);
    std::vector<float> framed_a(n), framed_b(n), sum(n), out(n);
    to_frame(made.frame, a.data(), framed_a.data());
    to_frame(made.frame, b.data(), framed_b.data());
    for (size_t j = 0; j < n; ++j) sum[j] = 0.25f * framed_a[j] + 0.75f * framed_b[j];
    output_from_frame(made.frame, sum.data(), 1.0f, out.data());
    for (size_t j = 0; j < n; ++j) EXPECT_NEAR(out[j], 0.25 * a[j] + 0.75 * b[j], 2e-5) << head_dim;
    output_from_frame(made.frame, sum.data(), 1.0f, sum.data());
    EXPECT_EQ(sum, out);
  }
}

TEST(Frame, WithoutPartsItIsTheIdentity) {
  const Frame frame = {100, nullptr, nullptr, nullptr};
  const std::vector<float> row = Random(51).normals(100);
  std::vector<float> out(100);
  to_frame(frame, row.data(), out.data());
  EXPECT_EQ(out, row);
  query_to_frame(frame, row.data(), out.data());
  EXPECT_EQ(out, row);
  output_from_frame(frame, row.data(), 0.5f, out.data());
  EXPECT_EQ(out, row);
  EXPECT_EQ(query_bias(frame, row.data()), 0.0f);
}

// Written pages depend on these numbers: they may never change.
TEST(Frame, SignsAreFrozen) {
  EXPECT_EQ(splitmix64(0), 0xe220a8397b1dcdafull);  // the published first output for seed 0
  std::set<uint64_t> seeds;
  for (uint32_t layer = 0; layer < 80; ++layer) {
    for (uint32_t head = 0; head < 16; ++head) {
      seeds.insert(frame_seed(layer, head, FrameSide::kKey));
      seeds.insert(frame_seed(layer, head, FrameSide::kValue));
    }
  }
  EXPECT_EQ(seeds.size(), 80u * 16 * 2);
  float signs[256];
  frame_signs(0, 256, signs);
  for (int j = 0; j < 64; ++j) EXPECT_EQ(signs[j], (0xe220a8397b1dcdafull >> j) & 1 ? 1.0f : -1.0f);
  for (int j = 0; j < 64; ++j) EXPECT_EQ(signs[64 + j], (0x6e789e6aa1b965f4ull >> j) & 1 ? 1.0f : -1.0f);
}

}  // namespace
}  // namespace quire
