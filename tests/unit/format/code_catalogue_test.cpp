// What every coded format promises, over all head sizes and kinds of rows.
#include "format/code_catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "format/code_lookup.h"
#include "format/frame.h"
#include "unit/format/code_rows.h"

namespace quire {
namespace {

using namespace test;

// f(format, keys) for every format, for its keys and for its values.
template <class F>
void for_each_side(F&& f) {
  for (int i = 0; i < kCodeCount; ++i) {
    visit_code(static_cast<Code>(i), [&](auto format) {
      SCOPED_TRACE(decltype(format)::kInfo.name);
      f(format, true);
      f(format, false);
    });
  }
}

template <class Format>
double declared(Format, bool keys) {
  return keys ? Format::kInfo.key_distortion : Format::kInfo.value_distortion;
}

// Rows as a recipe would hand them over: in the rotated frame where the format wants it.
template <class Format>
std::vector<float> prepared(Format, std::vector<float> rows, int head_dim) {
  if (!Format::kInfo.wants_rotation) return rows;
  std::vector<float> signs(static_cast<size_t>(head_dim));
  frame_signs(frame_seed(1, 2, FrameSide::kKey), head_dim, signs.data());
  const Frame frame = {head_dim, nullptr, nullptr, signs.data()};
  for (int t = 0; t < kPageRows; ++t) to_frame(frame, rows.data() + t * head_dim, rows.data() + t * head_dim);
  return rows;
}

// Rows far from Gaussian: heavy tails stretch the range of min/max codes, and a single value comes out of the
// rotation as coordinates of one size, which may lie at the worst place of a cell (2 bits: 1 against the
// centroids 0.45 and 1.51, a squared error of 0.26).
constexpr double kUneven = 3.5;

double relative_error(const std::vector<float>& rows, const std::vector<float>& back) {
  return squared_distance(rows, back) / squared_norm(rows);
}

bool all_finite(const std::vector<float>& x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
}

TEST(CodeCatalogue, NamesAreDistinctAndFoundExactly) {
  std::set<std::string> names;
  for (int i = 0; i < kCodeCount; ++i) {
    const CodeInfo about = info(static_cast<Code>(i));
    names.insert(about.name);
    EXPECT_EQ(code_by_name(about.name), static_cast<Code>(i));
    EXPECT_NE(std::string(about.source), "");
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kCodeCount));
  for (const char* name : {"", "turbo", "turbo44", "Turbo4", "q"})
    EXPECT_EQ(code_by_name(name), std::nullopt);
  static_assert(info(Code::kKivi2).key_bits == 2);
  static_assert(key_page_bytes(Code::kTurbo4, 64) == 64 * 34);
}

// Bytes a token of K and V together, as algorithms.md 8.1 counts them.
TEST(CodeCatalogue, Sizes) {
  const auto token_bytes = [](Code code, int head_dim) {
    return (key_page_bytes(code, head_dim) + value_page_bytes(code, head_dim)) / 64.0;
  };
  const struct {
    Code code;
    double at_64, at_128;
  } table[] = {{Code::kTurbo2, 36, 68},   {Code::kTurbo3, 52, 100}, {Code::kTurbo4, 68, 132},
               {Code::kTurbo4q, 72, 136}, {Code::kQ8, 136, 272},    {Code::kQ4, 72, 144},
               {Code::kKivi2, 48, 96},    {Code::kKivi4, 80, 160},  {Code::kPolar4, 68, 132},
               {Code::kPolar4r, 88, 168}, {Code::kSignVq, 56, 112}};
  for (const auto& line : table) {
    EXPECT_EQ(token_bytes(line.code, 64), line.at_64) << info(line.code).name;
    EXPECT_EQ(token_bytes(line.code, 128), line.at_128) << info(line.code).name;
  }
}

TEST(CodeCatalogue, GaussianRowsKeepTheDeclaredBound) {
  std::printf("E|x - x^|^2 / |x|^2 of Gaussian rows, keys (and values where they are coded otherwise)\n%-14s",
              "");
  for (int head_dim : kHeadDims) std::printf("%8d", head_dim);
  std::printf("\n");
  for_each_side([](auto format, bool keys) {
    using Format = decltype(format);
    std::printf("%-8s %-5s", Format::kInfo.name, keys ? "key" : "value");
    for (int head_dim : kHeadDims) {
      const double measured = distortion<Format>(head_dim, keys);
      std::printf(" %.5f", measured);
      EXPECT_LE(measured, declared(format, keys)) << head_dim;
      EXPECT_GT(measured, 0.6 * declared(format, keys)) << head_dim << ": a bound that says nothing";
    }
    std::printf("\n");
  });
}

// llama.cpp rotates rows for q4_0 too: no loss on Gaussian rows, and a gain on rows with heavy tails.
TEST(CodeCatalogue, Q4Rotated) {
  std::vector<float> signs(64);
  frame_signs(frame_seed(0, 0, FrameSide::kKey), 64, signs.data());
  const Frame frame = {64, nullptr, nullptr, signs.data()};
  const auto error_of = [&](std::vector<float> rows, bool rotated) {
    for (int t = 0; rotated && t < kPageRows; ++t)
      to_frame(frame, rows.data() + t * 64, rows.data() + t * 64);
    return relative_error(rows, round_trip<Q4>(rows, 64, true));
  };
  const std::vector<float> gaussian = gaussian_page(64, 91);
  std::vector<float> heavy = gaussian;
  for (float& x : heavy) x = x * x * x;
  std::printf("q4 d=64: Gaussian %.5f, rotated %.5f; cubes %.5f, rotated %.5f\n", error_of(gaussian, false),
              error_of(gaussian, true), error_of(heavy, false), error_of(heavy, true));
  EXPECT_NEAR(error_of(gaussian, true), error_of(gaussian, false), 0.05 * error_of(gaussian, false));
  EXPECT_LT(error_of(heavy, true), 0.6 * error_of(heavy, false));
}

// U04: no head size is much worse than 64, whatever divides it. Short last groups and rows make it better.
TEST(CodeCatalogue, OtherHeadSizesAreAboutAsGoodAs64) {
  for_each_side([](auto format, bool keys) {
    using Format = decltype(format);
    const double at_64 = distortion<Format>(64, keys);
    for (int head_dim : {8, 9, 40, 72, 80, 96, 99, 100, 112, 128, 255, 256}) {
      const double measured = distortion<Format>(head_dim, keys);
      EXPECT_LT(measured, 1.15 * at_64) << head_dim;
      EXPECT_GT(measured, head_dim < 40 ? 0.0 : 0.8 * at_64) << head_dim;
    }
  });
}

// U09: the second of each pair has more bits, and less error at every head size.
template <class Coarse, class Fine>
void expect_falls() {
  for (int head_dim : kHeadDims) {
    for (bool keys : {true, false}) {
      EXPECT_LT(distortion<Fine>(head_dim, keys), 0.6 * distortion<Coarse>(head_dim, keys))
          << Fine::kInfo.name << " against " << Coarse::kInfo.name << ", head size " << head_dim;
    }
  }
}

TEST(CodeCatalogue, ErrorFallsWithBits) {
  expect_falls<Turbo<2>, Turbo<3>>();
  expect_falls<Turbo<3>, Turbo<4>>();
  expect_falls<TurboProd<2>, TurboProd<3>>();
  expect_falls<TurboProd<3>, TurboProd<4>>();
  expect_falls<Kivi<2>, Kivi<4>>();
  expect_falls<TokenGroups<2>, TokenGroups<4>>();
  expect_falls<Q4, Q8>();
  expect_falls<Polar4, Polar4r>();
}

// Pages hold no byte that the rows do not determine, and encoders write no byte beyond.
TEST(CodeCatalogue, EveryByteOfAPageAndNoOtherIsWritten) {
  for_each_side([](auto format, bool keys) {
    using Format = decltype(format);
    for (int head_dim : {8, 9, 40, 64, 99, 100, 255, 256}) {
      const std::vector<float> rows = gaussian_page(head_dim, 5);
      const Codebook book = codebook_of<Format>(head_dim);
      const size_t bytes =
          static_cast<size_t>(keys ? Format::key_page_bytes(head_dim) : Format::value_page_bytes(head_dim));
      std::vector<uint8_t> zeros(bytes + 64, 0), ones(bytes + 64, 0xff);
      for (std::vector<uint8_t>* page : {&zeros, &ones}) {
        if (keys) {
          Format::encode_keys(rows.data(), head_dim, book, page->data());
        } else {
          Format::encode_values(rows.data(), head_dim, book, page->data());
        }
      }
      EXPECT_TRUE(std::equal(zeros.begin(), zeros.begin() + static_cast<ptrdiff_t>(bytes), ones.begin()))
          << head_dim;
      for (size_t i = bytes; i < bytes + 64; ++i) ASSERT_TRUE(zeros[i] == 0 && ones[i] == 0xff) << head_dim;
    }
  });
}

TEST(CodeCatalogue, HeavyTailsStayNearTheBound) {
  for_each_side([](auto format, bool keys) {
    using Format = decltype(format);
    for (int head_dim : kHeadDims) {
      std::vector<float> rows = gaussian_page(head_dim, 61);
      for (float& x : rows) x = x * x * x;
      rows = prepared(format, rows, head_dim);
      const double error = relative_error(rows, round_trip<Format>(rows, head_dim, keys));
      EXPECT_LT(error, kUneven * declared(format, keys)) << head_dim;
    }
  });
}

// A row with one value 1000 times the others: the coarse formats may lose the others, never the large one.
TEST(CodeCatalogue, SingleOutlier) {
  for_each_side([](auto format, bool keys) {
    using Format = decltype(format);
    for (int head_dim : kHeadDims) {
      std::vector<float> rows = gaussian_page(head_dim, 62);
      for (int t = 0; t < kPageRows; ++t)
        rows[static_cast<size_t>(t * head_dim + (t * 7) % head_dim)] *= 1000.0f;
      rows = prepared(format, rows, head_dim);
      const double error = relative_error(rows, round_trip<Format>(rows, head_dim, keys));
      EXPECT_LT(error, kUneven * declared(format, keys)) << head_dim;
    }
  });
}

TEST(CodeCatalogue, ConstantRows) {
  for_each_side([](auto format, bool keys) {
    using Format = decltype(format);
    for (int head_dim : kHeadDims) {
      for (float value : {1.0f, -0.37f, 123.4f}) {
        std::vector<float> rows(page_values(head_dim), value);
        rows = prepared(format, rows, head_dim);
        const double error = relative_error(rows, round_trip<Format>(rows, head_dim, keys));
        EXPECT_LT(error, kUneven * declared(format, keys)) << head_dim << " " << value;
      }
    }
  });
}

TEST(CodeCatalogue, ZeroRowsAreExact) {
  for_each_side([](auto format, bool keys) {
    using Format = decltype(format);
    for (int head_dim : kHeadDims) {
      for (float zero : {0.0f, -0.0f}) {
        const std::vector<float> rows(page_values(head_dim), zero);
        for (float x : round_trip<Format>(rows, head_dim, keys)) ASSERT_EQ(x, 0.0f) << head_dim;
      }
    }
  });
}

// Scales are f16: what is below their smallest step becomes that step or zero, and nothing worse.
TEST(CodeCatalogue, TinyRowsStayTiny) {
  for_each_side([](auto format, bool keys) {
    using Format = decltype(format);
    for (int head_dim : kHeadDims) {
      for (float size : {1e-45f, 1e-42f, 1e-38f, 1e-30f, 1e-8f}) {
        std::vector<float> rows = gaussian_page(head_dim, 63);
        for (float& x : rows) x *= size;
        const std::vector<float> back = round_trip<Format>(rows, head_dim, keys);
        for (size_t i = 0; i < rows.size(); ++i)
          ASSERT_NEAR(back[i], rows[i], 4.1e-7) << head_dim << " " << size;
      }
    }
  });
}

// Beyond f16 scales saturate: rows keep their signs and stay finite.
TEST(CodeCatalogue, HugeRowsSaturate) {
  for_each_side([](auto format, bool keys) {
    using Format = decltype(format);
    for (int head_dim : kHeadDims) {
      for (float size : {1e6f, 1e30f, 5e37f}) {
        std::vector<float> rows = gaussian_page(head_dim, 64);
        for (float& x : rows) x *= size;
        const std::vector<float> back = round_trip<Format>(rows, head_dim, keys);
        ASSERT_TRUE(all_finite(back)) << head_dim << " " << size;
        double agreement = 0.0;
        for (size_t i = 0; i < rows.size(); ++i) agreement += (rows[i] > 0.0f) == (back[i] > 0.0f);
        EXPECT_GT(agreement / static_cast<double>(rows.size()), 0.6) << head_dim << " " << size;
      }
    }
  });
}

// Outside the promise, but no reason for undefined behaviour or for spreading.
TEST(CodeCatalogue, NonFiniteRowsGiveFiniteOnesAndLeaveOthersAlone) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(), FLT_MAX, -FLT_MAX};
  for_each_side([&](auto format, bool keys) {
    using Format = decltype(format);
    for (int head_dim : {40, 64, 99}) {
      const std::vector<float> rows = gaussian_page(head_dim, 65);
      const std::vector<float> clean = round_trip<Format>(rows, head_dim, keys);
      for (float value : bad) {
        std::vector<float> broken = rows;
        broken[static_cast<size_t>(3 * head_dim)] = value;
        for (int j = 0; j < head_dim; ++j) broken[static_cast<size_t>(5 * head_dim + j)] = value;
        const std::vector<float> back = round_trip<Format>(broken, head_dim, keys);
        ASSERT_TRUE(all_finite(back)) << head_dim << " " << value;
        const size_t group_end = static_cast<size_t>(32 * head_dim);  // the group of kivi's keys
        for (size_t i = group_end; i < rows.size(); ++i) ASSERT_EQ(back[i], clean[i]);
      }
    }
  });
}

// Powers of two move through scales unrounded, as long as f16 has them: the smallest size of a key's group,
// which signvq stores, is often so near 0 that f16 rounds it.
TEST(CodeCatalogue, PowersOfTwoScaleExactly) {
  for_each_side([](auto format, bool keys) {
    using Format = decltype(format);
    if (std::is_same_v<Format, SignVq> && keys) return;
    for (int head_dim : kHeadDims) {
      const std::vector<float> rows = gaussian_page(head_dim, 66);
      const std::vector<float> back = round_trip<Format>(rows, head_dim, keys);
      for (float power : {0.25f, 64.0f}) {
        std::vector<float> scaled = rows;
        for (float& x : scaled) x *= power;
        const std::vector<float> scaled_back = round_trip<Format>(scaled, head_dim, keys);
        for (size_t i = 0; i < back.size(); ++i) ASSERT_EQ(scaled_back[i], power * back[i]) << head_dim;
      }
    }
  });
}

}  // namespace
}  // namespace quire
