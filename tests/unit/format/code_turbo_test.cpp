// turbo2, turbo3, turbo4: bytes where the drawing says, errors as in theory.
#include "format/turbo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/half.h"
#include "format/frame.h"
#include "unit/format/code_rows.h"

namespace quire {
namespace {

using namespace test;

static_assert(CodeFormat<Turbo<2>> && CodeFormat<Turbo<3>> && CodeFormat<Turbo<4>>);
// K and V of a token of 64 dims: 36, 52, 68 bytes; of 128 dims: 68, 100, 132.
static_assert(Turbo<2>::key_page_bytes(64) + Turbo<2>::value_page_bytes(64) == 64 * 36);
static_assert(Turbo<3>::key_page_bytes(64) + Turbo<3>::value_page_bytes(64) == 64 * 52);
static_assert(Turbo<4>::key_page_bytes(64) + Turbo<4>::value_page_bytes(64) == 64 * 68);
static_assert(Turbo<2>::key_page_bytes(128) + Turbo<2>::value_page_bytes(128) == 64 * 68);
static_assert(Turbo<4>::key_page_bytes(128) + Turbo<4>::value_page_bytes(128) == 64 * 132);
static_assert(Turbo<3>::key_page_bytes(100) == 64 * (2 + 3 * 13));

// Codes 0..15 of turbo4 at head size 16: every centroid once, so |c(x)| = |x| and codes are known.
TEST(Turbo, BytesOfAHandMadeRow) {
  const Codebook book = make_codebook({CodebookKind::kCoordinate, 4}, 16);
  float squares = 0.0f;
  for (float centroid : book.centroids) squares += centroid * centroid;
  const float norm = std::sqrt(squares);  // not quite 1: the row below is scaled to make it so
  std::vector<float> rows(64 * 16, 0.0f);
  const int token = 5;
  for (int j = 0; j < 16; ++j) rows[token * 16 + j] = 3.0f * book.centroids[j] / norm;
  // Thresholds are those of unit rows: scaling may move a value past one, so the codes are found here anew.
  int codes[16];
  float coded = 0.0f;
  for (int j = 0; j < 16; ++j) {
    int m = 0;
    while (m < 7 && std::abs(rows[token * 16 + j]) > 3.0f * book.thresholds[m]) ++m;
    codes[j] = (j < 8 ? 0 : 8) + m;
    coded += book.centroids[codes[j]] * book.centroids[codes[j]];
  }
  std::vector<uint8_t> keys(static_cast<size_t>(Turbo<4>::key_page_bytes(16)), 0xee);
  Turbo<4>::encode_keys(rows.data(), 16, book, keys.data());
  std::vector<uint8_t> values(static_cast<size_t>(Turbo<4>::value_page_bytes(16)), 0xee);
  Turbo<4>::encode_values(rows.data(), 16, book, values.data());
  const auto bit = [](const std::vector<uint8_t>& page, int byte, int j) {
    return page[static_cast<size_t>(byte)] >> j & 1;
  };
  for (int j = 0; j < 16; ++j) {
    const int g = j / 8;
    EXPECT_EQ(bit(keys, g * 64 + token, j % 8), codes[j] >> 3);
    EXPECT_EQ(bit(values, token * 10 + 2 + g, j % 8), codes[j] >> 3);
    for (int p = 1; p < 4; ++p) {
      EXPECT_EQ(bit(keys, 2 * 64 + 128 + (token * 3 + p - 1) * 2 + g, j % 8), codes[j] >> (3 - p) & 1);
      EXPECT_EQ(bit(values, token * 10 + 2 + p * 2 + g, j % 8), codes[j] >> (3 - p) & 1);
    }
  }
  EXPECT_NEAR(get_half(keys.data() + 2 * 64 + 2 * token), 3.0f / std::sqrt(coded), 3e-3);
  EXPECT_EQ(get_half(values.data() + 10 * token), get_half(keys.data() + 2 * 64 + 2 * token));
  EXPECT_EQ(get_half(keys.data() + 2 * 64 + 2 * (token + 1)), 0.0f);  // a row of zeros
}

TEST(Turbo, BitsPastTheHeadSizeAreZero) {
  const Codebook book = make_codebook(Turbo<4>::kCodebook, 100);
  const std::vector<uint8_t> keys = encoded<Turbo<4>>(gaussian_page(100, 3), 100, book, true);
  for (int t = 0; t < 64; ++t) {
    EXPECT_EQ(keys[static_cast<size_t>(12 * 64 + t)] & 0xf0, 0);
    for (int p = 0; p < 3; ++p) {
      const int at = Turbo<4>::index_page_bytes(100) + t * Turbo<4>::key_planes_bytes(100) + p * 13 + 12;
      EXPECT_EQ(keys[static_cast<size_t>(at)] & 0xf0, 0);
    }
  }
}

// The coarser code is the top of the finer one: sign planes agree over the widths.
TEST(Turbo, SignPlaneIsTheSignOfTheRow) {
  for (int head_dim : kHeadDims) {
    const std::vector<float> rows = gaussian_page(head_dim, 17);
    const std::vector<uint8_t> two =
        encoded<Turbo<2>>(rows, head_dim, make_codebook(Turbo<2>::kCodebook, head_dim), true);
    const std::vector<uint8_t> four =
        encoded<Turbo<4>>(rows, head_dim, make_codebook(Turbo<4>::kCodebook, head_dim), true);
    for (int t = 0; t < 64; ++t) {
      for (int j = 0; j < head_dim; ++j) {
        const size_t byte = static_cast<size_t>(j / 8 * 64 + t);
        const int sign = rows[static_cast<size_t>(t * head_dim + j)] < 0.0f ? 0 : 1;
        ASSERT_EQ(two[byte] >> (j % 8) & 1, sign);
        ASSERT_EQ(four[byte] >> (j % 8) & 1, sign);
      }
    }
  }
}

template <int bits>
void expect_decoded_norms() {
  for (int head_dim : kHeadDims) {
    const std::vector<float> rows = gaussian_page(head_dim, 23);
    const std::vector<float> back = round_trip<Turbo<bits>>(rows, head_dim, true);
    for (int t = 0; t < 64; ++t) {
      const double norm = std::sqrt(squared_norm(rows.data() + t * head_dim, head_dim));
      EXPECT_NEAR(std::sqrt(squared_norm(back.data() + t * head_dim, head_dim)), norm, norm / 1900);
    }
  }
}

TEST(Turbo, DecodedRowsHaveTheNormOfTheRow) {
  expect_decoded_norms<2>();
  expect_decoded_norms<3>();
  expect_decoded_norms<4>();
}

// As algorithm 1 has it, before norm correction: x^ = |x| c(x / |x|).
template <int bits>
double published_distortion(int head_dim) {
  const Codebook book = make_codebook(Turbo<bits>::kCodebook, head_dim);
  double error = 0.0;
  double size = 0.0;
  for (uint64_t p = 0; p < 32; ++p) {
    const std::vector<float> rows = gaussian_page(head_dim, 1000 + p);
    std::vector<float> back =
        decoded<Turbo<bits>>(encoded<Turbo<bits>>(rows, head_dim, book, true), head_dim, book, true);
    for (int t = 0; t < 64; ++t) {
      float scaled[kMaxHeadDim];
      uint8_t codes[kCodeBufferBytes];
      const ScaledRow row = scale_row(rows.data() + t * head_dim, head_dim, scaled);
      const float coded = turbo_code_row<bits>(scaled, row.norm, head_dim, book, codes);
      for (int j = 0; j < head_dim; ++j) back[static_cast<size_t>(t * head_dim + j)] *= coded;
    }
    error += squared_distance(rows, back);
    size += squared_norm(rows);
  }
  return error / size;
}

template <int bits>
void expect_theory(double measured_before) {
  const double published = published_distortion<bits>(64);
  const double corrected = distortion<Turbo<bits>>(64, true, 32);
  const double theory = coordinate_quantizer(bits, 64).distortion;
  std::printf("turbo%d d=64: as published %.5f (theory %.5f), norm corrected %.5f (at most %.5f)\n", bits,
              published, theory, corrected, 2.0 * (1.0 - std::sqrt(1.0 - theory)));
  EXPECT_NEAR(published, measured_before, 0.03 * measured_before);
  const double most = 2.0 * (1.0 - std::sqrt(1.0 - theory));  // were |c(x)| the same for every x
  EXPECT_LT(corrected, most);
  EXPECT_GT(corrected, 0.94 * most);
}

TEST(Turbo, DistortionIsThatOfTheory) {
  expect_theory<2>(0.1142);
  expect_theory<3>(0.0334);
  expect_theory<4>(0.0092);
}

// Uneven channels (one of 30 times the size) come out of the rotation nearly Gaussian.
TEST(Turbo, RotationSavesAnOutlierChannel) {
  float signs[64];
  frame_signs(frame_seed(0, 0, FrameSide::kKey), 64, signs);
  const Frame frame = {64, nullptr, nullptr, signs};
  std::vector<float> rows = gaussian_page(64, 77);
  for (int t = 0; t < 64; ++t) rows[static_cast<size_t>(t * 64 + 7)] *= 30.0f;
  std::vector<float> framed(rows.size());
  for (int t = 0; t < 64; ++t) to_frame(frame, rows.data() + t * 64, framed.data() + t * 64);
  const double plain = squared_distance(rows, round_trip<Turbo<4>>(rows, 64, true)) / squared_norm(rows);
  const double rotated =
      squared_distance(framed, round_trip<Turbo<4>>(framed, 64, true)) / squared_norm(framed);
  std::printf("one channel of 30 times the size: turbo4 %.4f, rotated %.4f\n", plain, rotated);
  EXPECT_LT(rotated, 0.05);
  EXPECT_LT(rotated, 0.2 * plain);
}

}  // namespace
}  // namespace quire
