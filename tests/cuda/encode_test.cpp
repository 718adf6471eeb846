// Bytes of pages coded on the device against those of the CPU's encoder, and decoded rows.
#include "kernels/cuda/encode.h"

#include <cstring>

#include "base/error.h"
#include "cuda/device_test.h"
#include "format/frame.h"
#include "format/lloyd_max.h"
#include "property/random.h"

namespace quire::test {
namespace {

using cuda::DeviceBuffer;

constexpr int kHeads = 3;
constexpr int kPages = 5;
constexpr uint8_t kPoison = 0xa5;

std::vector<Code> device_codes() {
  std::vector<Code> codes;
  for (int i = 0; i < kCodeCount; ++i) {
    if (cuda::codes_on_device(static_cast<Code>(i))) codes.push_back(static_cast<Code>(i));
  }
  return codes;
}

// Rows as models have them, and as they should never be: zeros, one channel only, tiny and huge ones.
std::vector<float> hard_rows(int head_dim, uint64_t seed) {
  Random random(seed);
  std::vector<float> rows = random.normals(static_cast<size_t>(kPages * kHeads * 64 * head_dim));
  for (size_t row = 0; row < rows.size() / static_cast<size_t>(head_dim); ++row) {
    float* x = rows.data() + row * static_cast<size_t>(head_dim);
    const size_t kind = random.below(16);
    const float scale = kind == 1 ? 1e-6f : kind == 2 ? 3e4f : kind == 3 ? 1e-30f : 1.0f;
    for (int d = 0; d < head_dim; ++d) x[d] *= kind == 0 ? 0.0f : scale;
    if (kind == 4) std::fill(x + 1, x + head_dim, 0.0f);
    if (kind == 5) std::fill(x, x + head_dim, 0.25f);
  }
  return rows;
}

struct Frames {
  std::vector<float> mean, balance, signs;  // [kHeads][head_dim]
};

Frames random_frames(int head_dim, uint64_t seed) {
  Random random(seed);
  const auto n = static_cast<size_t>(kHeads * head_dim);
  Frames frames = {random.normals(n), random.normals(n), std::vector<float>(n)};
  for (float& x : frames.balance) x = std::abs(x) + 0.1f;
  for (int head = 0; head < kHeads; ++head) {
    frame_signs(frame_seed(0, static_cast<uint32_t>(head), FrameSide::kKey), head_dim,
                frames.signs.data() + head * head_dim);
  }
  return frames;
}

// Pages [kPages][kHeads] of the CPU.
std::vector<uint8_t> coded_by_cpu(Code code, bool keys, int head_dim, const std::vector<float>& rows,
                                  const Frames* frames) {
  const auto page_bytes =
      static_cast<size_t>(keys ? key_page_bytes(code, head_dim) : value_page_bytes(code, head_dim));
  const Codebook book = make_codebook(codebook_spec(code), head_dim);
  std::vector<uint8_t> pages(kPages * kHeads * page_bytes, kPoison);
  for (size_t i = 0; i < kPages * kHeads; ++i) {
    const auto head = static_cast<std::ptrdiff_t>(i % kHeads) * head_dim;
    std::vector<float> page(rows.begin() + static_cast<std::ptrdiff_t>(i) * 64 * head_dim,
                            rows.begin() + static_cast<std::ptrdiff_t>(i + 1) * 64 * head_dim);
    if (frames != nullptr) {
      const Frame frame = {head_dim, frames->mean.data() + head,
                           keys ? frames->balance.data() + head : nullptr, frames->signs.data() + head};
      for (int t = 0; t < 64; ++t) to_frame(frame, page.data() + t * head_dim, page.data() + t * head_dim);
    }
    visit_code(code, [&](auto format) {
      uint8_t* to = pages.data() + i * page_bytes;
      keys ? format.encode_keys(page.data(), head_dim, book, to)
           : format.encode_values(page.data(), head_dim, book, to);
    });
  }
  return pages;
}

std::vector<uint8_t> coded_by_device(Code code, bool keys, int head_dim, const std::vector<float>& rows,
                                     const Frames* frames) {
  const auto page_bytes = keys ? key_page_bytes(code, head_dim) : value_page_bytes(code, head_dim);
  const DeviceBuffer exact = on_device(rows);
  DeviceBuffer coded(static_cast<size_t>(kPages * kHeads * page_bytes));
  coded.fill(kPoison);
  // Exact pages 4, 2, 0, 1, 3 become coded pages of the same numbers.
  const DeviceBuffer numbers = on_device(std::vector<int32_t>{4, 2, 0, 1, 3});
  DeviceBuffer mean, balance, signs;
  if (frames != nullptr) {
    mean = on_device(frames->mean);
    if (keys) balance = on_device(frames->balance);
    signs = on_device(frames->signs);
  }
  const cuda::PagesToSeal pages = {kPages,
                                   kHeads,
                                   head_dim,
                                   Format::kF32,
                                   {exact.as<uint8_t>(), kHeads * 64 * head_dim * 4, 64 * head_dim * 4},
                                   numbers.as<int32_t>(),
                                   {mean.as<float>(), balance.as<float>(), signs.as<float>()},
                                   {coded.as<uint8_t>(), kHeads * page_bytes, page_bytes},
                                   numbers.as<int32_t>()};
  keys ? cuda::seal_keys(pages, code, nullptr) : cuda::seal_values(pages, code, nullptr);
  cuda::wait_for(nullptr);
  return on_host<uint8_t>(coded);
}

void expect_equal_bytes(const std::vector<uint8_t>& wanted, const std::vector<uint8_t>& found, Code code,
                        bool keys, int head_dim) {
  ASSERT_EQ(wanted.size(), found.size());
  size_t different = 0;
  size_t first = wanted.size();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == found[i]) continue;
    first = std::min(first, i);
    ++different;
  }
  EXPECT_EQ(different, 0u) << info(code).name << (keys ? " keys of " : " values of ") << head_dim
                           << ", first at " << first << " of pages of " << wanted.size() / (kPages * kHeads);
}

class CudaCodes : public DeviceTest {};

TEST_F(CudaCodes, BytesAreThoseOfTheCpu) {
  for (const Code code : device_codes()) {
    for (const int head_dim : {64, 80, 96, 128, 256}) {
      const std::vector<float> rows = hard_rows(head_dim, static_cast<uint64_t>(head_dim));
      for (const bool keys : {true, false}) {
        expect_equal_bytes(coded_by_cpu(code, keys, head_dim, rows, nullptr),
                           coded_by_device(code, keys, head_dim, rows, nullptr), code, keys, head_dim);
      }
    }
  }
}

TEST_F(CudaCodes, RowsGoThroughTheFrameBitByBit) {
  for (const Code code : {Code::kTurbo4, Code::kNested3, Code::kSignVq}) {
    for (const int head_dim : {64, 80, 96, 128, 256}) {
      const std::vector<float> rows = hard_rows(head_dim, 5);
      const Frames frames = random_frames(head_dim, 6);
      for (const bool keys : {true, false}) {
        expect_equal_bytes(coded_by_cpu(code, keys, head_dim, rows, &frames),
                           coded_by_device(code, keys, head_dim, rows, &frames), code, keys, head_dim);
      }
    }
  }
}

TEST_F(CudaCodes, ExactRowsOfAllFormatsAreRead) {
  constexpr int head_dim = 64;
  const std::vector<float> rows = hard_rows(head_dim, 8);
  std::vector<uint16_t> halves(rows.size());
  std::vector<float> rounded(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    halves[i] = f32_to_bf16(rows[i]);
    rounded[i] = bf16_to_f32(halves[i]);
  }
  const DeviceBuffer exact = on_device(halves);
  const int page_bytes = key_page_bytes(Code::kTurbo4, head_dim);
  DeviceBuffer coded(static_cast<size_t>(kPages * kHeads * page_bytes));
  const DeviceBuffer numbers = on_device(std::vector<int32_t>{0, 1, 2, 3, 4});
  cuda::seal_keys({kPages,
                   kHeads,
                   head_dim,
                   Format::kBF16,
                   {exact.as<uint8_t>(), kHeads * 64 * head_dim * 2, 64 * head_dim * 2},
                   numbers.as<int32_t>(),
                   {nullptr, nullptr, nullptr},
                   {coded.as<uint8_t>(), kHeads * page_bytes, page_bytes},
                   numbers.as<int32_t>()},
                  Code::kTurbo4, nullptr);
  expect_equal_bytes(coded_by_cpu(Code::kTurbo4, true, head_dim, rounded, nullptr), on_host<uint8_t>(coded),
                     Code::kTurbo4, true, head_dim);
}

TEST_F(CudaCodes, DecodedRowsAreThoseOfTheCpu) {
  for (const Code code : device_codes()) {
    for (const int head_dim : {64, 80, 128}) {
      const std::vector<float> rows = hard_rows(head_dim, 9);
      const Codebook book = make_codebook(codebook_spec(code), head_dim);
      for (const bool keys : {true, false}) {
        const std::vector<uint8_t> bytes = coded_by_cpu(code, keys, head_dim, rows, nullptr);
        const auto page_bytes = static_cast<int64_t>(bytes.size() / (kPages * kHeads));
        const DeviceBuffer coded = on_device(bytes);
        const DeviceBuffer numbers = on_device(std::vector<int32_t>{0, 1, 2, 3, 4});
        const DeviceBuffer decoded(rows.size() * sizeof(float));
        const cuda::RowPlane plane = {coded.as<uint8_t>(), kHeads * page_bytes, page_bytes};
        (keys ? cuda::open_keys : cuda::open_values)(plane, numbers.as<int32_t>(), kPages, kHeads, head_dim,
                                                     code, decoded.as<float>(), nullptr);
        const std::vector<float> found = on_host<float>(decoded);
        std::vector<float> wanted(rows.size());
        for (size_t row = 0; row < rows.size() / static_cast<size_t>(head_dim); ++row) {
          const uint8_t* page = bytes.data() + row / 64 * static_cast<size_t>(page_bytes);
          float* to = wanted.data() + row * static_cast<size_t>(head_dim);
          visit_code(code, [&](auto format) {
            keys ? format.decode_key_row(page, head_dim, static_cast<int>(row % 64), book, to)
                 : format.decode_value_row(page, head_dim, static_cast<int>(row % 64), book, to);
          });
        }
        EXPECT_EQ(std::memcmp(found.data(), wanted.data(), wanted.size() * sizeof(float)), 0)
            << info(code).name << (keys ? " keys of " : " values of ") << head_dim;
      }
    }
  }
}

TEST(CudaCatalogue, NamesWhatTheDeviceCodes) {
  for (const Code code : {Code::kTurbo2, Code::kTurbo3, Code::kTurbo4, Code::kQ8, Code::kQ4, Code::kKivi2,
                          Code::kKivi4, Code::kNested2, Code::kNested3, Code::kNested4, Code::kSignVq}) {
    EXPECT_TRUE(cuda::codes_on_device(code)) << info(code).name;
  }
  EXPECT_FALSE(cuda::codes_on_device(Code::kPolar4));
  cuda::PagesToSeal pages{};
  pages.n_pages = 1;
  pages.head_dim = 64;
  EXPECT_THROW(cuda::seal_keys(pages, Code::kPolar4, nullptr), Error);
}

}  // namespace
}  // namespace quire::test
