// The sketched codes: products are unbiased, and of the error that theory gives.
#include "format/turbo_prod.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "format/turbo.h"
#include "unit/format/code_places.h"
#include "unit/format/code_rows.h"

namespace quire {
namespace {

using namespace test;

double product(const float* x, const float* y, int n) {
  double sum = 0.0;
  for (int j = 0; j < n; ++j) sum += static_cast<double>(x[j]) * y[j];
  return sum;
}

struct Bias {
  double share;  // mean of <q, x^ - x> <q, x> / <q, x>^2: how much of a product is missing or too much
  double error;  // d E <q, x^ - x>^2 for unit q and x
};

// Over `n_sketches` matrices; queries lean towards their rows, as attended keys do.
template <class F>
Bias measure(int head_dim, int n_sketches) {
  double cross = 0.0, square = 0.0, error = 0.0;
  Random random(7);
  for (int s = 0; s < n_sketches; ++s) {
    const std::vector<float> sketch = make_sketch(static_cast<uint64_t>(s), head_dim);
    Codebook book = make_codebook(F::kCodebook, head_dim);
    book.sketch = sketch.data();
    const std::vector<float> rows = gaussian_page(head_dim, static_cast<uint64_t>(100 + s));
    const std::vector<float> back = decoded<F>(encoded<F>(rows, head_dim, book, true), head_dim, book, true);
    for (int t = 0; t < kPageRows; ++t) {
      const float* x = rows.data() + t * head_dim;
      std::vector<float> q = random.normals(static_cast<size_t>(head_dim));
      for (int j = 0; j < head_dim; ++j) q[static_cast<size_t>(j)] += 0.6f * x[j];
      const double size = std::sqrt(product(q.data(), q.data(), head_dim) * product(x, x, head_dim));
      const double exact = product(q.data(), x, head_dim) / size;
      const double off = product(q.data(), back.data() + t * head_dim, head_dim) / size - exact;
      cross += off * exact;
      square += exact * exact;
      error += off * off;
    }
  }
  return {cross / square, head_dim * error / (64.0 * n_sketches)};
}

TEST(TurboProd, ProductsAreUnbiased) {
  const Bias two = measure<TurboProd<2>>(64, 128);
  const Bias three = measure<TurboProd<3>>(64, 128);
  const Bias four = measure<TurboProd<4>>(64, 128);
  std::printf("d E err^2: turbo2q %.4f turbo3q %.4f turbo4q %.4f; bias %.4f %.4f %.4f\n", two.error,
              three.error, four.error, two.share, three.share, four.share);
  EXPECT_NEAR(two.share, 0.0, 0.02);
  EXPECT_NEAR(three.share, 0.0, 0.012);
  EXPECT_NEAR(four.share, 0.0, 0.008);
  // pi / 2 D_(b-1), algorithms.md 2.3.
  EXPECT_LT(two.error, 1.05 * 0.571);
  EXPECT_LT(three.error, 1.05 * 0.185);
  EXPECT_LT(four.error, 1.05 * 0.0543);
}

TEST(TurboProd, CorrectedTurboHasLessErrorAtTheSameBits) {
  const double turbo = measure<Turbo<3>>(64, 8).error;
  const double sketched = measure<TurboProd<3>>(64, 8).error;
  std::printf("d E err^2 at 3 bits: turbo3 %.4f, turbo3q %.4f\n", turbo, sketched);
  EXPECT_LT(turbo, 0.4 * sketched);
}

TEST(Sketch, IsGaussianAndSeeded) {
  const std::vector<float> sketch = make_sketch(3, 256);
  ASSERT_EQ(sketch.size(), 65536u);
  EXPECT_EQ(sketch, make_sketch(3, 256));
  EXPECT_NE(sketch, make_sketch(4, 256));
  double first = 0.0, second = 0.0, fourth = 0.0, beyond = 0.0;
  for (float x : sketch) {
    first += x;
    second += static_cast<double>(x) * x;
    fourth += std::pow(x, 4);
    beyond += std::abs(x) > 1.959964f;
  }
  EXPECT_NEAR(first / 65536, 0.0, 0.02);
  EXPECT_NEAR(second / 65536, 1.0, 0.03);
  EXPECT_NEAR(fourth / 65536, 3.0, 0.2);
  EXPECT_NEAR(beyond / 65536, 0.05, 0.004);
  EXPECT_EQ(make_sketch(0, 9).size(), 81u);
}

// Places: |x|, |r|, ranks, the sketch's bits.
TEST(TurboProd, BytesOfAHandMadeRow) {
  const int d = 8;
  Codebook book = make_codebook(TurboProd<2>::kCodebook, d);
  std::vector<float> identity(64, 0.0f);  // S = 1: the sketch's bits are the signs of r
  for (size_t i = 0; i < 8; ++i) identity[9 * i] = 1.0f;
  book.sketch = identity.data();
  std::vector<float> rows(page_values(d), 0.0f);
  const float x[] = {4, -4, 1, -1, 1, -1, 1, -1};
  std::copy(x, x + 8, rows.begin() + 3 * d);
  const float norm = std::sqrt(38.0f);
  const float c = book.centroids[1];
  // Of head sizes below 32 (keys) and 16 (values) packs are filled up.
  EXPECT_EQ(TurboProd<2>::key_page_bytes(d), 64 * 4 + 2 * 4 * 64);
  EXPECT_EQ(TurboProd<2>::value_page_bytes(d), 64 * 4 + 2 * 2 * 64);
  const std::vector<uint8_t> keys = encoded<TurboProd<2>>(rows, d, book, true);
  const std::vector<uint8_t> values = encoded<TurboProd<2>>(rows, d, book, false);
  // r = u - c: the two large values lie outside their centroids, the small ones inside.
  const int signs_of_r[] = {1, 0, 0, 1, 0, 1, 0, 1};
  for (int j = 0; j < d; ++j) {
    EXPECT_EQ(key_code<1>(keys.data() + 256, d, 3, j), x[j] > 0 ? 1 : 0) << j;
    EXPECT_EQ(value_code<1>(values.data() + 256, 3, j), x[j] > 0 ? 1 : 0) << j;
    EXPECT_EQ(key_code<1>(keys.data() + 256 + 256, d, 3, j), signs_of_r[j]) << j;
    EXPECT_EQ(value_code<1>(values.data() + 256 + 128, 3, j), signs_of_r[j]) << j;
  }
  const double rest = std::sqrt(2 * std::pow(4 / norm - c, 2) + 6 * std::pow(1 / norm - c, 2));
  EXPECT_NEAR(get_half(keys.data() + 2 * 3), norm, 3e-3);
  EXPECT_NEAR(get_half(keys.data() + 128 + 2 * 3), rest, 3e-4);
  EXPECT_EQ(get_half(values.data() + 2 * 3), get_half(keys.data() + 2 * 3));
  EXPECT_EQ(get_half(values.data() + 128 + 2 * 3), get_half(keys.data() + 128 + 2 * 3));
}

}  // namespace
}  // namespace quire
