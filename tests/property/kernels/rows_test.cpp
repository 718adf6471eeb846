// Rows in pages: storing and expanding every f16, bf16 and fp8, and the four attention kernels of one page.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/fp8.h"
#include "base/half.h"
#include "format/row_format.h"
#include "property/isa.h"
#include "property/random.h"
#include "property/reference.h"

namespace quire::test {
namespace {

constexpr size_t kSpareValues = 32;  // as pages have (kSpareBytes)

bool is_nan_half(Format format, uint16_t bits) {
  const uint16_t exponent = format == Format::kF16 ? 0x7c00 : 0x7f80;
  return (bits & 0x7fff) > exponent;
}

float decode(Format format, uint16_t bits) {
  return format == Format::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// What a page must hold for x: rounded to nearest even, the largest finite number in place of infinity.
uint16_t encode(Format format, float x) {
  const auto largest = static_cast<float>(info(format).largest);
  if (x > largest) x = largest;
  if (x < -largest) x = -largest;
  return format == Format::kF16 ? f32_to_f16(x) : f32_to_bf16(x);
}

TEST(Unpack, EveryHalfOnEverySet) {
  std::vector<uint16_t> halves(65536 + kSpareValues);
  for (size_t i = 0; i < 65536; ++i) halves[i] = static_cast<uint16_t>(i);
  for (const Format format : {Format::kF16, Format::kBF16}) {
    for (const Ops* table : tables()) {
      std::vector<float> out(65536);
      table->unpack[static_cast<size_t>(format)](halves.data(), out.size(), out.data());
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(float_to_bits(out[i]), float_to_bits(decode(format, halves[i])))
            << table->name << " " << info(format).name << " " << i;
      }
    }
  }
}

// Stores x as one page of 64 values per dim, both ways, and compares every stored half.
void check_stored(const Ops& table, Format format, const std::vector<float>& x, int head_dim) {
  const size_t page_values = 64 * static_cast<size_t>(head_dim);
  const auto index = static_cast<size_t>(format);
  std::vector<uint16_t> keys(page_values + kSpareValues);
  std::vector<uint16_t> values(page_values + kSpareValues);
  ASSERT_EQ(x.size() % page_values, 0u);
  for (size_t first = 0; first < x.size(); first += page_values) {
    table.store_keys[index](keys.data(), 0, 64, head_dim, x.data() + first, head_dim);
    table.store_values[index](values.data(), 0, 64, head_dim, x.data() + first, head_dim);
    for (size_t i = 0; i < page_values; ++i) {
      const size_t token = i / head_dim;
      const size_t dim = i % head_dim;
      const uint16_t wanted = encode(format, x[first + i]);
      ASSERT_EQ(values[i], wanted) << table.name << " " << info(format).name << " " << x[first + i];
      ASSERT_EQ(keys[dim * 64 + token], wanted)
          << table.name << " " << info(format).name << " " << x[first + i];
    }
  }
}

// Every representable number, the midpoint to the next, and the floats on both sides of it.
std::vector<float> interesting_values(Format format) {
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (is_nan_half(format, half)) continue;
    const float here = decode(format, half);
    x.push_back(here);
    const float next = decode(format, static_cast<uint16_t>(half + 1));
    const float middle = here / 2 + next / 2;
    if (!std::isfinite(middle)) continue;
    x.push_back(middle);
    x.push_back(std::nextafterf(middle, 0.0f));
    x.push_back(std::nextafterf(middle, 2 * middle));
  }
  const float largest = std::numeric_limits<float>::max();
  for (const float value : {65504.0f, 65519.996f, 65520.0f, 65536.0f, 1e30f, largest, 1e-40f, 1.0f / 0.0f}) {
    x.push_back(value);
    x.push_back(-value);
  }
  return x;
}

TEST(Store, EveryHalfAndEveryTieOnEverySet) {
  for (const Format format : {Format::kF16, Format::kBF16}) {
    std::vector<float> x = interesting_values(format);
    ASSERT_GT(x.size(), 200000u);
    for (const int head_dim : {64, 7}) {  // 7: all of it is the tail of a row
      const size_t page_values = 64 * static_cast<size_t>(head_dim);
      std::vector<float> padded = x;
      padded.resize((x.size() + page_values - 1) / page_values * page_values, 1.0f);
      for (const Ops* table : tables()) {
        check_stored(*table, format, padded, head_dim);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A NaN is shown, not hidden behind a large number, in the whole registers of a row and in its tail.
TEST(Store, NanStaysNan) {
  constexpr int kDim = 40;
  for (const Format format : {Format::kF16, Format::kBF16}) {
    for (const Ops* table : tables()) {
      const std::vector<float> x(64 * kDim, std::numeric_limits<float>::quiet_NaN());
      std::vector<uint16_t> keys(x.size() + kSpareValues);
      std::vector<uint16_t> values(x.size() + kSpareValues);
      table->store_keys[static_cast<size_t>(format)](keys.data(), 0, 64, kDim, x.data(), kDim);
      table->store_values[static_cast<size_t>(format)](values.data(), 0, 64, kDim, x.data(), kDim);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(is_nan_half(format, keys[i])) << table->name << " " << info(format).name << " " << i;
        ASSERT_TRUE(is_nan_half(format, values[i])) << table->name << " " << info(format).name << " " << i;
      }
    }
  }
}

constexpr auto kFP8 = static_cast<size_t>(Format::kFP8);

TEST(Unpack, EveryFp8OnEverySet) {
  std::vector<uint8_t> numbers(256 + kSpareValues);
  for (size_t i = 0; i < 256; ++i) numbers[i] = static_cast<uint8_t>(i);
  for (const Ops* table : tables()) {
    std::vector<float> out(256);
    table->unpack[kFP8](numbers.data(), out.size(), out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(float_to_bits(out[i]), float_to_bits(fp8_to_f32(numbers[i]))) << table->name << " " << i;
    }
  }
}

// Every number, the midpoint to the next, the floats on both sides of it, and what is out of range or NaN.
TEST(Store, EveryFp8AndEveryTieOnEverySet) {
  std::vector<float> x = {449.0f, 1e30f, 1.0f / 0.0f, 1e-40f, std::numeric_limits<float>::quiet_NaN()};
  for (uint8_t low = 0; low < 0x7e; ++low) {
    const float here = fp8_to_f32(low);
    const float middle = here / 2 + fp8_to_f32(static_cast<uint8_t>(low + 1)) / 2;
    x.insert(x.end(), {here, middle, std::nextafterf(middle, 0.0f), std::nextafterf(middle, 2 * middle)});
  }
  const size_t n = x.size();
  for (size_t i = 0; i < n; ++i) x.push_back(-x[i]);
  for (const int head_dim : {40, 64, 7}) {
    const size_t page_values = 64 * static_cast<size_t>(head_dim);
    std::vector<float> page(page_values);
    for (size_t i = 0; i < page_values; ++i) page[i] = x[i % x.size()];
    for (const Ops* table : tables()) {
      std::vector<uint8_t> keys(page_values + kSpareValues), values = keys;
      table->store_keys[kFP8](keys.data(), 0, 64, head_dim, page.data(), head_dim);
      table->store_values[kFP8](values.data(), 0, 64, head_dim, page.data(), head_dim);
      for (size_t i = 0; i < page_values; ++i) {
        const uint8_t wanted = f32_to_fp8(page[i]);
        ASSERT_EQ(values[i], wanted) << table->name << " " << page[i];
        ASSERT_EQ(keys[i % head_dim * 64 + i / head_dim], wanted) << table->name << " " << page[i];
      }
    }
  }
}

TEST(Store, NothingButTheRowsGivenIsWritten) {
  Random random(1);
  for (const Ops* table : tables()) {
    for (const int head_dim : {40, 64, 100}) {
      for (const auto& [first, n] : {std::pair{0, 1}, {3, 7}, {63, 1}, {17, 47}, {0, 64}}) {
        const size_t page_values = 64 * static_cast<size_t>(head_dim);
        const std::vector<float> x = random.normals(static_cast<size_t>(n) * (head_dim + 5));
        std::vector<float> keys(page_values + kSpareValues, -1.0f);
        std::vector<float> values = keys;
        table->store_keys[0](keys.data(), first, n, head_dim, x.data(), head_dim + 5);
        table->store_values[0](values.data(), first, n, head_dim, x.data(), head_dim + 5);
        for (size_t i = 0; i < keys.size(); ++i) {
          const auto token = static_cast<int>(i / head_dim);
          const bool inside = i < page_values && token >= first && token < first + n;
          const size_t from = inside ? (token - first) * (head_dim + 5) + i % head_dim : 0;
          ASSERT_EQ(values[i], inside ? x[from] : -1.0f) << table->name << " dim " << head_dim << " at " << i;
          const size_t transposed = i < page_values ? (i % head_dim) * 64 + i / head_dim : i;
          ASSERT_EQ(keys[transposed], inside ? x[from] : -1.0f)
              << table->name << " dim " << head_dim << " at " << i;
        }
      }
    }
  }
}

// merge() against the sums it stands for, empty states included.
TEST(Merge, EqualsDoublePrecision) {
  Random random(2);
  const double none = -std::numeric_limits<double>::infinity();
  for (const Ops* table : tables()) {
    for (const int head_dim : {1, 15, 16, 40, 64, 100}) {
      for (int round = 0; round < 50; ++round) {
        const bool empty[2] = {random.below(4) == 0, random.below(4) == 0};
        std::vector<float> m(2), l(2);
        std::vector<std::vector<float>> o;
        for (int i = 0; i < 2; ++i) {
          m[i] = empty[i] ? static_cast<float>(none) : static_cast<float>(random.uniform(-60000, 60000));
          if (!empty[i] && i == 1 && !empty[0] && round % 2 == 0)
            m[i] = m[0] + static_cast<float>(random.normal());
          l[i] = empty[i] ? 0.0f : static_cast<float>(random.uniform(1, 64));
          o.push_back(empty[i] ? std::vector<float>(head_dim, 0.0f) : random.normals(head_dim));
        }
        const double top = std::max(m[0], m[1]);
        const double weights[2] = {empty[0] ? 0 : std::exp(m[0] - top), empty[1] ? 0 : std::exp(m[1] - top)};
        const std::vector<float> first = o[0];
        const double sum = l[0] * weights[0] + l[1] * weights[1];
        table->merge(&m[0], &l[0], o[0].data(), &m[1], &l[1], o[1].data(), 1, head_dim);
        ASSERT_EQ(m[0], static_cast<float>(top)) << table->name;
        ASSERT_NEAR(l[0], sum, 1e-6 * sum) << table->name;
        for (int d = 0; d < head_dim; ++d) {
          ASSERT_NEAR(o[0][d], first[d] * weights[0] + o[1][d] * weights[1], 5e-6)
              << table->name << " dim " << d;
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
