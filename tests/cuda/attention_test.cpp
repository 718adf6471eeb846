// Attention on the device against double precision over the same stored rows.
#include "kernels/cuda/attention.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/fp8.h"
#include "cuda/device_graph.h"
#include "cuda/device_test.h"
#include "format/code_catalogue.h"
#include "format/group_codes.h"
#include "format/kivi.h"
#include "format/lloyd_max.h"
#include "format/turbo_panel.h"
#include "property/random.h"
#include "property/reference.h"

namespace quire::test {
namespace {

using cuda::DeviceBuffer;

struct Shape {
  std::vector<int> lengths;
  int n_kv_heads;
  int group;
  int head_dim;
  int first_token = 0;
  int window = 0;
  float score_cap = 0;
  std::vector<float> score_bias = {};  // [sequence][head]

  int first_seen(int n) const { return window > 0 ? std::max(first_token, n - window) : first_token; }
  int n_heads() const { return n_kv_heads * group; }
};

// How one KV head's rows of a page become bytes, and what these bytes say.
struct PageFormat {
  size_t key_bytes;
  size_t value_bytes;
  // rows [64][head_dim]; the first n are tokens.
  std::function<void(const float*rows, int n, uint8_t*page)> put_keys, put_values;
  std::function<void(const uint8_t*page, int row, float*out)> get_key, get_value;
  std::function<void(const cuda::DecodeAttention&, cuda::Stream)> attend;
};

// A batch of sequences in pages of random order. Bytes that no row has been written to are all ones: NaN.
struct Batch {
  Batch(const Shape& shape, const PageFormat& format, uint64_t seed);

  const uint8_t* keys(int sequence, int kv_head, int page) const {
    const size_t number = static_cast<size_t>(table[static_cast<size_t>(sequence * stride + page)]);
    return bytes.data() + number * page_bytes + static_cast<size_t>(kv_head) * head_bytes;
  }

  size_t head_bytes;
  size_t page_bytes;
  int stride = 1;
  std::vector<int32_t> table;
  std::vector<uint8_t> bytes;
  std::vector<float> queries;
};

Batch::Batch(const Shape& shape, const PageFormat& format, uint64_t seed)
    : head_bytes(format.key_bytes + format.value_bytes),
      page_bytes(head_bytes * static_cast<size_t>(shape.n_kv_heads)) {
  Random random(seed);
  int n_pages = 1;
  for (const int length : shape.lengths) {
    stride = std::max(stride, (length + 63) / 64);
    n_pages += (length + 63) / 64;
  }
  std::vector<int32_t> order(static_cast<size_t>(n_pages));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  table.assign(shape.lengths.size() * static_cast<size_t>(stride), -1);
  bytes.assign(static_cast<size_t>(n_pages) * page_bytes, 0xff);
  queries = random.normals(shape.lengths.size() * static_cast<size_t>(shape.n_heads() * shape.head_dim));
  size_t next = 0;
  for (size_t sequence = 0; sequence < shape.lengths.size(); ++sequence) {
    for (int first = 0; first < shape.lengths[sequence]; first += 64) {
      const int n = std::min(64, shape.lengths[sequence] - first);
      const int32_t page = order[next++];
      table[sequence * static_cast<size_t>(stride) + static_cast<size_t>(first / 64)] = page;
      for (int head = 0; head < shape.n_kv_heads; ++head) {
        uint8_t* at =
            bytes.data() + static_cast<size_t>(page) * page_bytes + static_cast<size_t>(head) * head_bytes;
        format.put_keys(random.normals(static_cast<size_t>(64 * shape.head_dim)).data(), n, at);
        format.put_values(random.normals(static_cast<size_t>(64 * shape.head_dim), 3.0).data(), n,
                          at + format.key_bytes);
      }
    }
  }
}

struct Result {
  std::vector<float> out;
  std::vector<float> log_sums;
};

// A batch on the device, and where its results go.
struct DeviceBatch {
  DeviceBatch(const Shape& shape, const PageFormat& format, const Batch& batch)
      : pages(on_device(batch.bytes)),
        table(on_device(batch.table)),
        lengths(on_device(std::vector<int32_t>(shape.lengths.begin(), shape.lengths.end()))),
        queries(on_device(batch.queries)),
        bias(on_device(shape.score_bias)),
        out(batch.queries.size() * sizeof(float)),
        log_sums(batch.queries.size() / static_cast<size_t>(shape.head_dim) * sizeof(float)),
        workspace(cuda::workspace_bytes(static_cast<int>(shape.lengths.size()), shape.n_kv_heads, shape.group,
                                        shape.head_dim, cuda::block_count())) {
    out.fill(0xff);
    log_sums.fill(0xff);
    workspace.fill(0);
    const auto page_bytes = static_cast<int64_t>(batch.page_bytes);
    const auto head_bytes = static_cast<int64_t>(batch.head_bytes);
    attention = {static_cast<int>(shape.lengths.size()),
                 shape.n_kv_heads,
                 shape.group,
                 shape.head_dim,
                 queries.as<float>(),
                 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                 {pages.as<uint8_t>(), page_bytes, head_bytes},
                 {pages.as<uint8_t>() + format.key_bytes, page_bytes, head_bytes},
                 table.as<int32_t>(),
                 batch.stride,
                 lengths.as<int32_t>(),
                 shape.first_token,
                 out.as<float>(),
                 log_sums.as<float>(),
                 workspace.as<void>(),
                 shape.window,
                 shape.score_cap,
                 shape.score_bias.empty() ? nullptr : bias.as<float>()};
    cuda::wait_for(nullptr);
  }
  Result result() const { return {on_host<float>(out), on_host<float>(log_sums)}; }

  DeviceBuffer pages, table, lengths, queries, bias, out, log_sums, workspace;
  cuda::DecodeAttention attention;
};

Result run(const Shape& shape, const PageFormat& format, const Batch& batch, int n_launches = 1) {
  const DeviceBatch device(shape, format, batch);
  for (int i = 0; i < n_launches; ++i) format.attend(device.attention, nullptr);
  cuda::wait_for(nullptr);
  return device.result();
}

// Relative error of the output and error of the logarithm, for every head.
void expect_close(const Shape& shape, const PageFormat& format, const Batch& batch, const Result& result,
                  double tolerance) {
  const auto dim = static_cast<size_t>(shape.head_dim);
  for (size_t sequence = 0; sequence < shape.lengths.size(); ++sequence) {
    const auto n = static_cast<size_t>(shape.lengths[sequence]);
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      std::vector<float> keys(n * dim), values(n * dim);
      for (size_t t = 0; t < n; ++t) {
        const uint8_t* page = batch.keys(static_cast<int>(sequence), kv_head, static_cast<int>(t / 64));
        format.get_key(page, static_cast<int>(t % 64), keys.data() + t * dim);
        format.get_value(page + format.key_bytes, static_cast<int>(t % 64), values.data() + t * dim);
      }
      for (int g = 0; g < shape.group; ++g) {
        const size_t head =
            sequence * static_cast<size_t>(shape.n_heads()) + static_cast<size_t>(kv_head * shape.group + g);
        std::vector<float> q(batch.queries.begin() + static_cast<std::ptrdiff_t>(head * dim),
                             batch.queries.begin() + static_cast<std::ptrdiff_t>((head + 1) * dim));
        for (float& x : q) x /= std::sqrt(static_cast<float>(shape.head_dim));
        // One dim more for the bias.
        q.push_back(shape.score_bias.empty() ? 0.0f : shape.score_bias[head]);
        const int first = shape.first_seen(static_cast<int>(n));
        const Attended wanted = attention(
            q.data(), dim + 1, n, [&](size_t t) { return static_cast<int>(t) >= first; },
            [&](size_t t, size_t d) { return d < dim ? keys[t * dim + d] : 1.0f; },
            [&](size_t t, size_t d) { return d < dim ? values[t * dim + d] : 0.0f; }, shape.score_cap);
        double error = 0, size = 0;
        for (size_t d = 0; d < dim; ++d) {
          error += std::pow(result.out[head * dim + d] - wanted.output[d], 2);
          size += std::pow(wanted.output[d], 2);
        }
        ASSERT_LE(std::sqrt(error), tolerance * std::sqrt(size))
            << "sequence " << sequence << " head " << head;
        if (std::isinf(wanted.log_sum)) {
          ASSERT_EQ(result.log_sums[head], -INFINITY);
        } else {
          ASSERT_NEAR(result.log_sums[head], wanted.log_sum, tolerance)
              << "sequence " << sequence << " head " << head;
        }
      }
    }
  }
}

PageFormat exact_format(Format format, int head_dim) {
  const auto to = format == Format::kF16 ? f32_to_f16 : f32_to_bf16;
  const auto from = format == Format::kF16 ? f16_to_f32 : bf16_to_f32;
  const auto put = [=](const float* rows, int n, uint8_t* page) {
    auto* numbers = reinterpret_cast<uint16_t*>(page);
    for (int i = 0; i < n * head_dim; ++i) numbers[i] = to(rows[i]);
  };
  const auto get = [=](const uint8_t* page, int row, float* out) {
    const auto* numbers = reinterpret_cast<const uint16_t*>(page) + row * head_dim;
    for (int d = 0; d < head_dim; ++d) out[d] = from(numbers[d]);
  };
  const size_t n_bytes = static_cast<size_t>(128 * head_dim);
  return {n_bytes, n_bytes, put, put, get, get, [=](const cuda::DecodeAttention& a, cuda::Stream stream) {
            cuda::attend_exact(a, format, stream);
          }};
}

PageFormat fp8_format(int head_dim) {
  const auto put = [=](const float* rows, int n, uint8_t* page) {
    for (int i = 0; i < n * head_dim; ++i) page[i] = f32_to_fp8(rows[i]);
  };
  const auto get = [=](const uint8_t* page, int row, float* out) {
    for (int d = 0; d < head_dim; ++d) out[d] = fp8_to_f32(page[row * head_dim + d]);
  };
  const size_t n_bytes = static_cast<size_t>(64 * head_dim);
  return {n_bytes, n_bytes, put, put, get, get, [=](const cuda::DecodeAttention& a, cuda::Stream stream) {
            cuda::attend_exact(a, Format::kFP8, stream);
          }};
}

// Norms of the rows that are no tokens are NaN.
void poison_norms(int n, uint8_t* page) { std::fill(page + 2 * n, page + 128, uint8_t{0xff}); }

template <int kKeyBits, int kValueBits>
PageFormat turbo_format(int head_dim) {
  using Keys = TurboPanel<kKeyBits>;
  using Values = TurboPanel<kValueBits>;
  const Codebook key_book = make_codebook(Keys::kCodebook, head_dim);
  const Codebook value_book = make_codebook(Values::kCodebook, head_dim);
  return {static_cast<size_t>(Keys::key_page_bytes(head_dim)),
          static_cast<size_t>(Values::value_page_bytes(head_dim)),
          [=](const float* rows, int n, uint8_t* page) {
            Keys::encode_keys(rows, head_dim, key_book, page);
            poison_norms(n, page);
          },
          [=](const float* rows, int n, uint8_t* page) {
            Values::encode_values(rows, head_dim, value_book, page);
            poison_norms(n, page);
          },
          [=](const uint8_t* page, int row, float* out) {
            Keys::decode_key_row(page, head_dim, row, key_book, out);
          },
          [=](const uint8_t* page, int row, float* out) {
            Values::decode_value_row(page, head_dim, row, value_book, out);
          },
          [=](const cuda::DecodeAttention& a, cuda::Stream stream) {
            cuda::attend_turbo(a, kKeyBits, kValueBits, stream);
          }};
}

// q8, q4, kivi2, kivi4. Ranges of the value rows that are no tokens are NaN.
template <class F>
PageFormat panel_format(Code code, int head_dim, int value_range_bytes) {
  return {
      static_cast<size_t>(F::key_page_bytes(head_dim)),
      static_cast<size_t>(F::value_page_bytes(head_dim)),
      [=](const float* rows, int, uint8_t* page) { F::encode_keys(rows, head_dim, {}, page); },
      [=](const float* rows, int n, uint8_t* page) {
        F::encode_values(rows, head_dim, {}, page);
        for (int i = 0; i < value_range_bytes; i += 128) poison_norms(n, page + i);
      },
      [=](const uint8_t* page, int row, float* out) { F::decode_key_row(page, head_dim, row, {}, out); },
      [=](const uint8_t* page, int row, float* out) { F::decode_value_row(page, head_dim, row, {}, out); },
      [=](const cuda::DecodeAttention& a, cuda::Stream stream) { cuda::attend_panels(a, code, stream); }};
}

PageFormat panel_format(Code code, int head_dim) {
  switch (code) {
    case Code::kQ8: return panel_format<Q8>(code, head_dim, Q8::codes_offset(head_dim));
    case Code::kQ4: return panel_format<Q4>(code, head_dim, Q4::codes_offset(head_dim));
    case Code::kKivi2: return panel_format<Kivi<2>>(code, head_dim, Kivi<2>::value_codes_offset(head_dim));
    default: return panel_format<Kivi<4>>(code, head_dim, Kivi<4>::value_codes_offset(head_dim));
  }
}
constexpr Code kPanels[] = {Code::kQ8, Code::kQ4, Code::kKivi2, Code::kKivi4};

void check(const Shape& shape, const PageFormat& format, double tolerance, int n_launches = 1) {
  const Batch batch(shape, format, 7);
  expect_close(shape, format, batch, run(shape, format, batch, n_launches), tolerance);
}

constexpr double kF16 = 1e-3;  // a few roundings of queries, probabilities and centroids to f16
constexpr double kBF16 = 8e-3;
constexpr int kHeadDims[] = {64, 80, 96, 128, 256};
const std::vector<int> kOddLengths = {0, 1, 63, 64, 65, 1000};

class CudaAttention : public DeviceTest {};

TEST_F(CudaAttention, ExactRowsOfAllHeadSizesAndOddLengths) {
  for (const int head_dim : kHeadDims) {
    const Shape shape = {kOddLengths, 2, 4, head_dim};
    check(shape, exact_format(Format::kF16, head_dim), kF16);
    check(shape, exact_format(Format::kBF16, head_dim), kBF16);
    check(shape, fp8_format(head_dim), kF16);
  }
}

// Every number there is as values, and as keys those up to 2, which scores of f16 queries bear.
TEST_F(CudaAttention, AllFp8Numbers) {
  const auto put_up_to = [](uint8_t largest) {
    return [=](const float*, int n, uint8_t* page) {
      for (int i = 0; i < n * 128; ++i) {
        const auto code = static_cast<uint8_t>(i * 89 / 7 + i);
        page[i] = (code & 0x7f) > largest ? 0 : code;
      }
    };
  };
  PageFormat format = fp8_format(128);
  format.put_values = put_up_to(0x7e);
  check({{130}, 1, 4, 128}, format, kF16);
  format.put_keys = put_up_to(0x40);
  check({{130}, 1, 4, 128}, format, kF16);
}

// Heads that begin and end within a block's part, more of them than the copying warp may be ahead.
TEST_F(CudaAttention, ManyShortSequencesOfExactRows) {
  Random random(4);
  Shape shape = {{}, 4, 4, 128};
  for (int i = 0; i < 300; ++i) shape.lengths.push_back(static_cast<int>(random.below(200)));
  check(shape, exact_format(Format::kBF16, 128), kBF16, 2);
  check(shape, fp8_format(128), kF16, 2);
}

TEST_F(CudaAttention, TurboPagesOfAllHeadSizesAndOddLengths) {
  for (const int head_dim : kHeadDims) {
    const Shape shape = {kOddLengths, 2, 4, head_dim};
    check(shape, turbo_format<4, 4>(head_dim), kF16);
    check(shape, turbo_format<3, 3>(head_dim), kF16);
    check(shape, turbo_format<2, 2>(head_dim), kF16);
    check(shape, turbo_format<4, 3>(head_dim), kF16);
    check(shape, turbo_format<3, 2>(head_dim), kF16);
  }
}

TEST_F(CudaAttention, PanelsOfAllHeadSizesAndOddLengths) {
  for (const int head_dim : kHeadDims) {
    const Shape shape = {kOddLengths, 2, 4, head_dim};
    for (const Code code : kPanels) {
      SCOPED_TRACE(info(code).name);
      check(shape, panel_format(code, head_dim), kF16);
    }
  }
}

TEST_F(CudaAttention, AnyNumberOfQueryHeads) {
  for (const int group : {1, 3, 7, 8, 9, 32}) {
    const Shape shape = {{200, 77}, 2, group, 64};
    for (const Code code : kPanels) check(shape, panel_format(code, 64), kF16);
    check(shape, exact_format(Format::kF16, 64), kF16);
    check(shape, fp8_format(64), kF16);
    check(shape, turbo_format<4, 4>(64), kF16);
  }
}

TEST_F(CudaAttention, LongSequences) {
  const Shape shape = {{131071, 3}, 1, 4, 128};
  check(shape, exact_format(Format::kBF16, 128), kBF16);
  check(shape, fp8_format(128), kF16);
  check(shape, turbo_format<4, 4>(128), 2 * kF16);
  check(shape, panel_format(Code::kQ4, 128), 2 * kF16);
}

TEST_F(CudaAttention, ManySequencesOfDifferentLengths) {
  Random random(3);
  Shape shape = {{}, 2, 5, 64};
  for (int i = 0; i < 256; ++i) shape.lengths.push_back(static_cast<int>(random.below(700)));
  check(shape, exact_format(Format::kF16, 64), kF16);
  check(shape, turbo_format<4, 3>(64), kF16);
}

TEST_F(CudaAttention, FirstTokensAreLeftOut) {
  Shape shape = {{3, 4, 5, 300}, 1, 4, 128};
  shape.first_token = 4;
  check(shape, exact_format(Format::kF16, 128), kF16);
  check(shape, fp8_format(128), kF16);
  for (const Code code : kPanels) check(shape, panel_format(code, 128), kF16);
  check(shape, turbo_format<4, 4>(128), kF16);
}

// Windows of less and more than a tile and a page, beside and across their borders; what lies in pages before
// them is NaN, so it is noticed where it is read.
TEST_F(CudaAttention, OfAWindowTheLastTokensAloneAreRead) {
  for (const int window : {1, 15, 16, 17, 64, 100, 500}) {
    for (const int head_dim : {64, 128, 256}) {
      SCOPED_TRACE(std::to_string(window) + " tokens, heads of " + std::to_string(head_dim));
      Shape shape = {{0, 1, 63, 64, 65, 116, 1000}, 2, 4, head_dim};
      shape.window = window;
      const PageFormat format = window % 2 == 0 ? exact_format(Format::kF16, head_dim) : fp8_format(head_dim);
      Batch batch(shape, format, 7);
      for (size_t s = 0; s < shape.lengths.size(); ++s) {
        const int n_left = std::max(0, shape.lengths[s] - window) / 64;
        for (int page = 0; page < n_left; ++page) {
          auto* bytes = const_cast<uint8_t*>(batch.keys(static_cast<int>(s), 0, page));
          std::fill_n(bytes, batch.page_bytes, uint8_t{0xff});
        }
      }
      const Result result = run(shape, format, batch);
      // The reference reads pages that are NaN, too, but does not look at what is outside.
      expect_close(shape, format, batch, result, kF16);
    }
  }
}

TEST_F(CudaAttention, ScoresAreCapped) {
  Shape shape = {{0, 1, 65, 1000}, 2, 5, 128};
  shape.score_cap = 1.5f;
  check(shape, exact_format(Format::kF16, 128), kF16);
  shape.window = 70;
  check(shape, exact_format(Format::kBF16, 128), kBF16);
  check(shape, fp8_format(128), kF16);
  shape.window = 0;
  shape.first_token = 4;
  Random random(9);
  shape.score_bias = random.normals(shape.lengths.size() * static_cast<size_t>(shape.n_heads()));
  check(shape, turbo_format<4, 4>(128), kF16);
  check(shape, turbo_format<3, 2>(128), kF16);
  for (const Code code : kPanels) check(shape, panel_format(code, 128), kF16);
}

TEST_F(CudaAttention, TheWorkspaceServesLaunchAfterLaunchAndResultsAreTheSameBits) {
  const Shape shape = {{5000, 64, 0, 9000}, 4, 4, 128};
  for (const PageFormat& format :
       {turbo_format<4, 4>(128), exact_format(Format::kF16, 128), fp8_format(128)}) {
    const Batch batch(shape, format, 11);
    const Result once = run(shape, format, batch);
    const Result thrice = run(shape, format, batch, 3);
    EXPECT_EQ(once.out, thrice.out);
    EXPECT_EQ(once.log_sums, thrice.log_sums);
    expect_close(shape, format, batch, once, kF16);
  }
}

TEST_F(CudaAttention, TwoPartsMergeToTheWhole) {
  const PageFormat format = exact_format(Format::kF16, 64);
  Shape whole = {{1000}, 2, 4, 64};
  const Batch batch(whole, format, 5);
  Shape tail = whole;
  tail.first_token = 640;
  Shape head = whole;
  head.lengths = {640};
  Result first = run(head, format, batch);
  const Result second = run(tail, format, batch);
  const DeviceBuffer out = on_device(first.out), sums = on_device(first.log_sums);
  const DeviceBuffer other_out = on_device(second.out), other_sums = on_device(second.log_sums);
  cuda::merge_attention(out.as<float>(), sums.as<float>(), other_out.as<float>(), other_sums.as<float>(), 8,
                        64, nullptr);
  cuda::wait_for(nullptr);
  expect_close(whole, format, batch, {on_host<float>(out), on_host<float>(sums)}, kF16);
}

TEST_F(CudaAttention, ACapturedGraphStaysValidAsSequencesGrow) {
  for (const PageFormat& format : {exact_format(Format::kBF16, 128), fp8_format(128), turbo_format<4, 4>(128),
                                   panel_format(Code::kKivi2, 128)}) {
    Shape shape = {{6400, 1280, 64}, 2, 4, 128};
    const Batch batch(shape, format, 13);
    DeviceBatch device(shape, format, batch);
    DeviceGraph graph([&](cuda::Stream stream) { format.attend(device.attention, stream); });
    for (const std::vector<int>& lengths : {std::vector<int>{1, 0, 64}, {700, 64, 0}, {6400, 1279, 33}}) {
      shape.lengths = lengths;
      device.lengths.write(lengths.data(), lengths.size() * sizeof(int32_t));
      graph.replay();
      expect_close(shape, format, batch, device.result(), kBF16);
    }
  }
}

TEST_F(CudaAttention, ASizeWithoutKernelIsRefusedInASentence) {
  cuda::DecodeAttention attention{};
  attention.n_sequences = 1;
  attention.head_dim = 72;
  try {
    cuda::attend_exact(attention, Format::kF16, nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no CUDA kernel for heads of 72 values (64, 80, 96, 128, 256)");
  }
  attention.head_dim = 64;
  try {
    cuda::attend_panels(attention, Code::kPolar4, nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no CUDA kernel reads all rows of the format polar4");
  }
}

}  // namespace
}  // namespace quire::test
