// What signvq codes know of a sequence's first tokens: as the device measures it, and as the CPU does.
#include "kernels/cuda/signvq_statistics.h"

#include <cstdio>

#include "base/half.h"
#include "cache/prompt_statistics.h"
#include "cuda/device_test.h"
#include "cuda/page_order.h"

namespace quire::test {
namespace {

using cuda::DeviceBuffer;

struct SignsCase {
  int head_dim;
  int n_tokens;
  int n_kept;
  Format format;
  bool has_equals;  // rows that come again, and a group of dims whose signs are always the same
};

constexpr int kHeads = 2;

// Keys [kv_head][token][head_dim] as they lie in exact rows, and queries.
struct SignsInput {
  explicit SignsInput(const SignsCase& c)
      : d(static_cast<size_t>(c.head_dim)), n(static_cast<size_t>(c.n_tokens)) {
    Random random(17);
    const auto to = c.format == Format::kF16 ? f32_to_f16 : f32_to_bf16;
    std::vector<float> rows = random.normals(kHeads * n * d);
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t token = i / d % n;
      float x = rows[i] * (1.0f + static_cast<float>(i % d % 7)) + 0.3f;
      if (c.has_equals && token >= 100) x = rows[i - i % (n * d) + token % 100 * d + i % d];
      if (c.has_equals && i % d < 4) x = 1.0f + static_cast<float>(token % 3);
      keys.push_back(to(x));
    }
    queries = random.normals(kHeads * d);
  }
  const uint16_t* row(size_t head, size_t token) const { return keys.data() + (head * n + token) * d; }

  size_t d, n;
  std::vector<uint16_t> keys;
  std::vector<float> queries;
};

struct Measured {
  std::vector<float> mean, balance, codebook;
  std::vector<int32_t> kept;  // [kv_head][kMostKeptRows]
};

Measured on_gpu(const SignsCase& c, const SignsInput& in, int n_due) {
  Random random(5);
  const int n_pages = (c.n_tokens + 63) / 64;
  const PageOrder order({n_pages}, random);
  const size_t side = 64 * in.d;
  std::vector<uint16_t> pages(order.size * kHeads * side, 0xffff);
  for (size_t t = 0; t < in.n; ++t) {
    for (size_t head = 0; head < kHeads; ++head)
      std::copy_n(in.row(head, t), in.d,
                  pages.data() + (order.at(0, t / 64) * kHeads + head) * side + t % 64 * in.d);
  }
  const DeviceBuffer rows = on_device(pages), table = on_device(order.entries),
                     queries = on_device(in.queries);
  const DeviceBuffer mean(kHeads * in.d * 4), balance(kHeads * in.d * 4),
      codebook(kHeads * in.d / 4 * 64 * 4);
  const DeviceBuffer kept(kHeads * cuda::kMostKeptRows * 4);
  const DeviceBuffer workspace(cuda::measuring_bytes(kHeads, c.head_dim, c.n_tokens));
  const auto head_bytes = static_cast<int64_t>(2 * side);
  cuda::measure_signs({kHeads,
                       c.head_dim,
                       c.format,
                       {rows.as<uint8_t>(), kHeads * head_bytes, head_bytes},
                       table.as<int32_t>(),
                       c.n_tokens,
                       n_due,
                       c.n_kept,
                       queries.as<float>()},
                      {mean.as<float>(), balance.as<float>(), codebook.as<float>(), kept.as<int32_t>()},
                      workspace.as<void>(), nullptr);
  cuda::wait_for(nullptr);
  return {on_host<float>(mean), on_host<float>(balance), on_host<float>(codebook), on_host<int32_t>(kept)};
}

Measured on_cpu(const SignsCase& c, const SignsInput& in, int n_due) {
  const Recipe recipe = Recipe::parse("selfindex");
  RowLayout layout;
  layout.n_kv_heads = kHeads;
  layout.head_dim = in.d;
  layout.key_format = layout.value_format = c.format;
  PagePool pool;
  std::vector<PageRef> pages;
  for (size_t first = 0; first < in.n; first += 64) {
    pages.push_back(pool.allocate(layout.page_bytes()));
    for (size_t head = 0; head < kHeads; ++head) {
      auto* keys = reinterpret_cast<uint16_t*>(pages.back()->data + layout.key_offset(head));
      for (size_t t = first; t < std::min(first + 64, in.n); ++t) {
        for (size_t j = 0; j < in.d; ++j) keys[j * 64 + t % 64] = in.row(head, t)[j];
      }
    }
  }
  LayerView view{};
  view.layout = &layout;
  view.pages = pages;
  view.n_tokens = in.n;
  PromptObserver observer;
  observer.query_squares.assign(kHeads * in.d, 1.0);
  observer.last_query = in.queries;
  LayerStatistics statistics = sized_statistics(recipe, kHeads, in.d);
  Measured result;
  for (size_t head = 0; head < kHeads; ++head) {
    std::vector<uint32_t> kept(static_cast<size_t>(c.n_kept));
    HeadStatistics(recipe, view, head, nullptr)
        .measure(observer, static_cast<size_t>(n_due), kept.data(), kept.size(), statistics);
    result.kept.insert(result.kept.end(), kept.begin(), kept.end());
    result.kept.resize((head + 1) * cuda::kMostKeptRows, -1);
  }
  result.mean = statistics.key_mean;
  result.balance = statistics.key_balance;
  result.codebook = statistics.codebook;
  return result;
}

class MeasuredSigns : public DeviceTest {};

// Sums are of doubles on both sides, in another order: what is compared may be a float's neighbour.
void expect_alike(const std::vector<float>& got, const std::vector<float>& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], 4e-7f * std::max(1.0f, std::fabs(expected[i]))) << what << " " << i;
  }
}

TEST_F(MeasuredSigns, AreThoseOfTheCpu) {
  const SignsCase cases[] = {
      {64, 512, 64, Format::kF16, false},   {80, 700, 64, Format::kF16, true},
      {96, 1031, 33, Format::kBF16, false}, {128, 1500, 64, Format::kF16, false},
      {128, 1500, 0, Format::kF16, true},   {256, 575, 1, Format::kBF16, true},
  };
  for (const SignsCase& c : cases) {
    SCOPED_TRACE(std::to_string(c.head_dim) + " dims, " + std::to_string(c.n_tokens) + " tokens, kept " +
                 std::to_string(c.n_kept));
    const SignsInput in(c);
    const int n_due = (c.n_tokens - 40) / 64 * 64;
    const Measured expected = on_cpu(c, in, n_due);
    const Measured got = on_gpu(c, in, n_due);
    for (size_t head = 0; head < kHeads; ++head) {
      for (size_t i = 0; i < static_cast<size_t>(c.n_kept); ++i) {
        const size_t at = head * cuda::kMostKeptRows + i;
        ASSERT_EQ(got.kept[at], expected.kept[at]) << "row " << i << " of head " << head;
      }
    }
    expect_alike(got.mean, expected.mean, "mean");
    expect_alike(got.balance, expected.balance, "largest size");
    expect_alike(got.codebook, expected.codebook, "word");
  }
}

}  // namespace
}  // namespace quire::test
