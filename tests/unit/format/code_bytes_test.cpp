// Bytes of hand-made rows, and how many codes are in use: q8, q4, kivi, polar, and the sketched codes.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/half.h"
#include "format/group_codes.h"
#include "format/kivi.h"
#include "format/polar.h"
#include "format/turbo.h"
#include "format/turbo_prod.h"
#include "unit/format/code_places.h"
#include "unit/format/code_rows.h"

namespace quire {
namespace {

using namespace test;

// Row 1 of a page of head size 40: 0, 1, ..., 31 and then -8, -7, ..., -1.
std::vector<float> counting_page() {
  std::vector<float> rows(page_values(40), 0.0f);
  for (int j = 0; j < 32; ++j) rows[static_cast<size_t>(40 + j)] = static_cast<float>(j);
  for (int j = 0; j < 8; ++j) rows[static_cast<size_t>(40 + 32 + j)] = static_cast<float>(j - 8);
  return rows;
}

// Two groups of scales of 64 tokens come first.
constexpr int kTwoGroups = 2 * 2 * 64;

TEST(GroupCodes, Q8Bytes) {
  const std::vector<uint8_t> page = encoded<Q8>(counting_page(), 40, {}, true);
  const auto code = [&](int d) { return key_code<8>(page.data() + kTwoGroups, 40, 1, d) - 128; };
  EXPECT_EQ(get_half(page.data() + 2), f16_to_f32(f32_to_f16(31.0f / 127.0f)));
  EXPECT_EQ(code(0), 0);
  EXPECT_EQ(code(31), 127);
  EXPECT_EQ(code(10), 41);  // 10 * 127 / 31 = 40.97
  EXPECT_EQ(get_half(page.data() + 128 + 2), f16_to_f32(f32_to_f16(8.0f / 127.0f)));
  EXPECT_EQ(code(32), -127);
  EXPECT_EQ(code(39), -16);  // -127 / 8 = -15.9
}

TEST(GroupCodes, Q4Bytes) {
  for (const bool keys : {true, false}) {
    const std::vector<uint8_t> page = encoded<Q4>(counting_page(), 40, {}, keys);
    const auto code = [&](int d) {
      const uint8_t* packs = page.data() + kTwoGroups;
      return keys ? key_code<4>(packs, 40, 1, d) : value_code<4>(packs, 1, d);
    };
    EXPECT_EQ(get_half(page.data() + 2), -31.0f / 8.0f);  // the largest value is positive, so code 0 is it
    EXPECT_EQ(code(0), 8);
    EXPECT_EQ(code(16), 4);  // 8.5 - 16 * 8 / 31 = 4.4
    EXPECT_EQ(code(15), 4);  // 8.5 - 3.87 = 4.6
    EXPECT_EQ(code(31), 0);
    EXPECT_EQ(get_half(page.data() + 128 + 2), 1.0f);  // -8 / -8
    for (int j = 0; j < 8; ++j) EXPECT_EQ(code(32 + j), j);
  }
}

TEST(GroupCodes, Q4OddGroup) {
  std::vector<float> rows(page_values(9), 0.0f);
  for (int j = 0; j < 9; ++j) rows[static_cast<size_t>(j)] = static_cast<float>(j - 8);
  const std::vector<uint8_t> page = encoded<Q4>(rows, 9, {}, true);
  EXPECT_EQ(get_half(page.data()), 1.0f);
  for (int j = 0; j < 9; ++j) EXPECT_EQ(key_code<4>(page.data() + 128, 9, 0, j), j);
  const std::vector<float> back = decoded<Q4>(page, 9, {}, true);
  for (int j = 0; j < 9; ++j) EXPECT_EQ(back[static_cast<size_t>(j)], static_cast<float>(j - 8));
}

TEST(Kivi, KeyBytes) {
  // Channel j of token t: j + (t mod 4), so each group is 0..3 above j, and codes are t mod 4.
  std::vector<float> rows(page_values(40));
  for (int t = 0; t < 64; ++t) {
    for (int j = 0; j < 40; ++j)
      rows[static_cast<size_t>(t * 40 + j)] = static_cast<float>(j + t % 4 + t / 32);
  }
  const std::vector<uint8_t> page = encoded<Kivi<2>>(rows, 40, {}, true);
  for (int g = 0; g < 2; ++g) {
    for (int j = 0; j < 40; ++j) {
      EXPECT_EQ(get_half(page.data() + g * 160 + 2 * j), 1.0f);
      EXPECT_EQ(get_half(page.data() + g * 160 + 80 + 2 * j), static_cast<float>(j + g));
    }
  }
  for (int t = 0; t < 64; ++t) {
    for (int j = 0; j < 40; ++j) EXPECT_EQ(key_code<2>(page.data() + 320, 40, t, j), t % 4);
  }
  EXPECT_EQ(decoded<Kivi<2>>(page, 40, {}, true), rows);
}

TEST(Kivi, ValueBytes) {
  const std::vector<uint8_t> page = encoded<Kivi<4>>(counting_page(), 40, {}, false);
  const uint8_t* zeros = page.data() + kTwoGroups;
  const auto code = [&](int d) { return value_code<4>(zeros + kTwoGroups, 1, d); };
  EXPECT_EQ(get_half(page.data() + 2), f16_to_f32(f32_to_f16(31.0f / 15.0f)));
  EXPECT_EQ(get_half(zeros + 2), 0.0f);
  EXPECT_EQ(get_half(page.data() + 128 + 2), f16_to_f32(f32_to_f16(7.0f / 15.0f)));
  EXPECT_EQ(get_half(zeros + 128 + 2), -8.0f);
  EXPECT_EQ(code(0), 0);
  EXPECT_EQ(code(1), 0);    // 1 / 2.07 = 0.48
  EXPECT_EQ(code(30), 15);  // 30 / 2.07 = 14.5
  EXPECT_EQ(code(31), 15);
  EXPECT_EQ(code(32), 0);  // -8
  EXPECT_EQ(code(33), 2);  // 1 / 0.467 = 2.1 above it
  EXPECT_EQ(code(38), 13);
  EXPECT_EQ(code(39), 15);
}

TEST(Kivi, ConstantGroupsHaveNoScale) {
  const std::vector<float> rows(page_values(64), 0.1f);
  for (bool keys : {true, false}) {
    const std::vector<uint8_t> page = encoded<Kivi<2>>(rows, 64, {}, keys);
    EXPECT_EQ(get_half(page.data()), 0.0f);
    for (float x : decoded<Kivi<2>>(page, 64, {}, keys)) EXPECT_EQ(x, f16_to_f32(f32_to_f16(0.1f)));
  }
}

// A channel far from zero, as Qwen2's: codes are found from the zero as stored, so f16's rounding of it is
// not added to the error of the code.
TEST(Kivi, BiasedChannel) {
  std::vector<float> rows = gaussian_page(64, 81);
  for (size_t i = 3; i < rows.size(); i += 64) rows[i] += 274.3f;
  const std::vector<float> back = round_trip<Kivi<4>>(rows, 64, true);
  for (size_t i = 3; i < rows.size(); i += 64) EXPECT_NEAR(back[i], rows[i], 0.3);
}

TEST(Polar, BytesOfAHandMadeRow) {
  const Codebook book = codebook_of<Polar4>(8);
  std::vector<float> rows(page_values(8), 0.0f);
  // Pairs (j, j + 4) at 10, 100, 190 and 300 degrees, of lengths 1, 2, 3, 4.
  const double degrees[] = {10, 100, 190, 300};
  for (int p = 0; p < 4; ++p) {
    const double angle = degrees[p] * 3.14159265358979 / 180.0;
    rows[static_cast<size_t>(8 * 2 + p)] = static_cast<float>((p + 1) * std::cos(angle));
    rows[static_cast<size_t>(8 * 2 + p + 4)] = static_cast<float>((p + 1) * std::sin(angle));
  }
  const std::vector<uint8_t> page = encoded<Polar4>(rows, 8, book, true);
  const auto pair = [](const std::vector<uint8_t>& from, int norms, int p) {
    return key_code<8>(from.data() + norms, 4, 2, p);
  };
  const int signs[] = {3, 1, 0, 2};
  const int parts[] = {0, 7, 0, 5};  // 10 / 11.25, 80 / 11.25, 10 / 11.25, 60 / 11.25 from the axis of |x|
  double squares = 0.0;
  for (int p = 0; p < 4; ++p) {
    const int byte = pair(page, 128, p);
    EXPECT_EQ(byte >> 6, signs[p]) << p;
    EXPECT_EQ(byte >> 3 & 7, parts[p]) << p;
    const double length = (p + 1) / std::sqrt(30.0);
    int code = 0;
    while (code < 7 && length > book.thresholds[code]) ++code;
    EXPECT_EQ(byte & 7, code) << p;
    squares += static_cast<double>(book.centroids[code]) * book.centroids[code];
  }
  EXPECT_NEAR(get_half(page.data() + 2 * 2), std::sqrt(30.0 / squares), 4e-3);
  // The same codes behind sizes of errors, and their signs.
  const std::vector<uint8_t> longer = encoded<Polar4r>(rows, 8, book, true);
  EXPECT_EQ(get_half(longer.data() + 2 * 2), get_half(page.data() + 2 * 2));
  for (int p = 0; p < 4; ++p) EXPECT_EQ(pair(longer, 256, p), pair(page, 128, p));
  const std::vector<float> back = decoded<Polar4>(page, 8, book, true);
  double mean = 0.0;
  for (size_t j = 0; j < 8; ++j) {
    EXPECT_EQ(key_code<1>(longer.data() + 256 + 64 * 4, 8, 2, static_cast<int>(j)),
              rows[16 + j] >= back[16 + j] ? 1 : 0);
    mean += std::abs(rows[16 + j] - back[16 + j]) / 8.0;
  }
  EXPECT_NEAR(get_half(longer.data() + 128 + 2 * 2), mean, 1e-3 * mean);
}

// Every bin of the circle is as wide as the others, and its centre is decoded.
TEST(Polar, AnglesAreWithinHalfABin) {
  const Codebook book = codebook_of<Polar4>(64);
  const double pi = 3.14159265358979;
  for (int step = 0; step < 3600; ++step) {
    const double angle = step * 2.0 * pi / 3600 + 1e-4;
    float row[64], back[64];
    for (int p = 0; p < 32; ++p) {
      row[p] = static_cast<float>(std::cos(angle));
      row[p + 32] = static_cast<float>(std::sin(angle));
    }
    uint8_t codes[32];
    polar_code_row(row, std::sqrt(32.0f), 64, book, codes);
    polar_decode_row(codes, 1.0f, 64, book, back);
    const double off =
        std::atan2(back[32] * row[0] - back[0] * row[32], back[0] * row[0] + back[32] * row[32]);
    ASSERT_LE(std::abs(off), pi / 32 + 1e-5) << step;
  }
}

// U09: codes in use on Gaussian rows.
template <int bits>
size_t turbo_codes_in_use() {
  const Codebook book = codebook_of<Turbo<bits>>(64);
  std::set<int> used;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<uint8_t> page = encoded<Turbo<bits>>(gaussian_page(64, seed), 64, book, true);
    for (int t = 0; t < 64; ++t) {
      const TurboRow row =
          Turbo<bits>::key_row(page.data(), page.data() + Turbo<bits>::index_page_bytes(64), 64, t);
      uint8_t codes[kCodeBufferBytes] = {0};
      add_plane(row.sign, 64, row.sign_stride, bits - 1, codes);
      for (int p = 1; p < bits; ++p) add_plane(row.planes + (p - 1) * 8, 64, 1, bits - 1 - p, codes);
      used.insert(codes, codes + 64);
    }
  }
  return used.size();
}

TEST(CodesInUse, Turbo) {
  EXPECT_EQ(turbo_codes_in_use<2>(), 4u);
  EXPECT_EQ(turbo_codes_in_use<3>(), 8u);
  EXPECT_EQ(turbo_codes_in_use<4>(), 16u);
}

// Different `bits`-wide fields of a page's last `n_bytes`, over some pages of head size 64.
template <class F>
size_t fields_in_use(size_t n_bytes, int bits, bool keys) {
  std::set<int> used;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const std::vector<uint8_t> page = encoded<F>(gaussian_page(64, seed), 64, codebook_of<F>(64), keys);
    for (size_t i = page.size() - n_bytes; i < page.size(); ++i) {
      for (int shift = 0; shift < 8; shift += bits) used.insert(page[i] >> shift & ((1 << bits) - 1));
    }
  }
  return used.size();
}

TEST(CodesInUse, Others) {
  for (const bool keys : {true, false}) {
    EXPECT_EQ(fields_in_use<Kivi<2>>(64 * 16, 2, keys), 4u);
    EXPECT_EQ(fields_in_use<Kivi<4>>(64 * 32, 4, keys), 16u);
    EXPECT_EQ(fields_in_use<Q4>(64 * 32, 4, keys), 16u);
    EXPECT_EQ(fields_in_use<Q8>(64 * 64, 8, keys), 255u);  // -128 is left out
    EXPECT_EQ(fields_in_use<Polar4>(64 * 32, 8, keys), 256u);
  }
}

}  // namespace
}  // namespace quire
