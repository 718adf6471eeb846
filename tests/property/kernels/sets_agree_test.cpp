// AVX2 and AVX-512 give the same bits in attention and between the products, so that what a machine generates
// does not depend on which of the two it has.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "format/row_format.h"
#include "property/isa.h"
#include "property/random.h"

namespace quire::test {
namespace {

struct PageResult {
  std::vector<float> scores, m, l, correction, o;
  bool operator==(const PageResult&) const = default;
};

// One page attended by n rows from an empty state, then once more with other masks.
PageResult attend_page(const Ops& table, Format format, int n, int head_dim, uint64_t seed) {
  Random random(seed);
  const size_t page_values = 64 * static_cast<size_t>(head_dim);
  std::vector<float> keys(page_values + kSpareBytes);  // large enough for every format
  std::vector<float> values(page_values + kSpareBytes);
  const auto index = static_cast<size_t>(format);
  const std::vector<float> k = random.normals(page_values);
  const std::vector<float> v = random.normals(page_values);
  table.store_keys[index](keys.data(), 0, 64, head_dim, k.data(), head_dim);
  table.store_values[index](values.data(), 0, 64, head_dim, v.data(), head_dim);
  const std::vector<float> q = random.normals(static_cast<size_t>(n) * head_dim, 0.2);
  PageResult result;
  result.scores.resize(static_cast<size_t>(n) * 64);
  result.m.assign(n, -std::numeric_limits<float>::infinity());
  result.l.assign(n, 0.0f);
  result.correction.resize(n);
  result.o.assign(q.size(), 0.0f);
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<uint64_t> masks(n);
    uint64_t rows = 0;
    for (uint64_t& mask : masks) rows |= mask = random.next() & random.next();
    table.score[index](q.data(), head_dim, n, head_dim, keys.data(), result.scores.data(), nullptr);
    table.softmax(result.scores.data(), masks.data(), n, result.m.data(), result.l.data(),
                  result.correction.data());
    table.accumulate[index](result.scores.data(), result.correction.data(), rows, n, head_dim, values.data(),
                            result.o.data(), head_dim, nullptr);
  }
  return result;
}

TEST(VectorSets, AgreeOnAttention) {
  const Ops* avx2 = ops_by_name("avx2");
  const Ops* avx512 = ops_by_name("avx512");
  if (avx2 == nullptr || avx512 == nullptr) GTEST_SKIP() << "this machine lacks one of the sets";
  for (const FormatInfo& format : kFormats) {
    for (const int head_dim : {40, 64, 100, 128}) {
      for (int n = 1; n <= 13; ++n) {
        const PageResult a = attend_page(*avx2, format.format, n, head_dim, 10 * n);
        ASSERT_GT(a.l[0], 1.0f);
        ASSERT_EQ(a, attend_page(*avx512, format.format, n, head_dim, 10 * n))
            << format.name << " " << head_dim;
      }
    }
  }
}

TEST(VectorSets, AgreeBetweenTheProducts) {
  const Ops* avx2 = ops_by_name("avx2");
  const Ops* avx512 = ops_by_name("avx512");
  if (avx2 == nullptr || avx512 == nullptr) GTEST_SKIP() << "this machine lacks one of the sets";
  Random random(1);
  for (const int n : {1, 15, 16, 40, 576}) {
    const std::vector<float> x = random.normals(n, 3.0);
    const std::vector<float> weight = random.normals(n);
    std::vector<float> a(n), b(n);
    avx2->rms_norm(x.data(), weight.data(), 1e-5f, n, a.data());
    avx512->rms_norm(x.data(), weight.data(), 1e-5f, n, b.data());
    ASSERT_EQ(a, b) << n;
    a = b = x;
    avx2->silu_multiply(a.data(), weight.data(), n);
    avx512->silu_multiply(b.data(), weight.data(), n);
    ASSERT_EQ(a, b) << n;
    avx2->gelu_multiply(a.data(), weight.data(), n);
    avx512->gelu_multiply(b.data(), weight.data(), n);
    ASSERT_EQ(a, b) << n;
  }
  for (const int half : {4, 16, 20, 32}) {
    const std::vector<float> cosine = random.normals(half);
    const std::vector<float> sine = random.normals(half);
    std::vector<float> a = random.normals(3 * 80);
    std::vector<float> b = a;
    avx2->rope(a.data(), 3, 80, half, cosine.data(), sine.data(), 0.1f);
    avx512->rope(b.data(), 3, 80, half, cosine.data(), sine.data(), 0.1f);
    ASSERT_EQ(a, b) << half;
  }
}

}  // namespace
}  // namespace quire::test
