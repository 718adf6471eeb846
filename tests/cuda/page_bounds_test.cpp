// Bounds of short pages, what is chosen by them and attention to that, against double precision over the same
// stored rows.
#include "kernels/cuda/page_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "base/half.h"
#include "cuda/device_graph.h"
#include "cuda/device_test.h"
#include "cuda/page_order.h"
#include "policy/row_budget.h"
#include "property/random.h"
#include "property/reference.h"

namespace quire::test {
namespace {

using cuda::PageBudget;

struct BoundsShape {
  std::vector<int> lengths;
  int n_kv_heads;
  int group;
  int head_dim;
  int page_tokens = 16;
  Format format = Format::kF16;
  PageBudget budget = {0, 128};
  bool equal_keys = false;

  size_t n_pairs() const { return lengths.size() * static_cast<size_t>(n_kv_heads); }
  int most_tokens() const { return std::max(1, *std::max_element(lengths.begin(), lengths.end())); }
};

uint16_t rounded(float x, Format format) { return format == Format::kF16 ? f32_to_f16(x) : f32_to_bf16(x); }
float number(uint16_t x, Format format) { return format == Format::kF16 ? f16_to_f32(x) : bf16_to_f32(x); }

// Pages [kv_head][keys, values][64][head_dim], then bounds, in random order. What no row has been written to
// is NaN.
class BoundedRows {
 public:
  explicit BoundedRows(const BoundsShape& shape, uint64_t seed)
      : s(shape), random_(seed), order_(pages_for(shape.lengths), random_) {
    side_ = static_cast<size_t>(64 * s.head_dim);
    const size_t rows = 2 * side_ * static_cast<size_t>(s.n_kv_heads);
    const auto bounds = static_cast<size_t>(cuda::bounds_bytes(s.page_tokens, s.head_dim)) / 2;
    const auto unit = static_cast<size_t>(cuda::unit_bytes(s.head_dim)) / 2;
    bounds_at_ = rows;
    page_ = rows + (bounds * static_cast<size_t>(s.n_kv_heads) + unit - 1) / unit * unit;
    numbers.assign(order_.size * page_, 0xffff);
    for (size_t i = 0; i < s.lengths.size(); ++i) {
      for (int t = 0; t < s.lengths[i]; ++t) put(i, t);
    }
    queries = random_.normals(s.n_pairs() * static_cast<size_t>(s.group * s.head_dim));
  }

  float key(size_t sequence, int head, int t, int d) const {
    return number(at(sequence, head, 0, t)[d], s.format);
  }
  float value(size_t sequence, int head, int t, int d) const {
    return number(at(sequence, head, 1, t)[d], s.format);
  }
  // Of a short page: largest, least.
  std::pair<float, float> bounds(const std::vector<uint16_t>& all, size_t sequence, int head, int page,
                                 int d) const {
    const int per_page = 64 / s.page_tokens;
    const uint16_t* from = all.data() + order_.at(sequence, static_cast<size_t>(page / per_page)) * page_ +
                           bounds_at_ +
                           static_cast<size_t>((head * per_page + page % per_page) * 2 * s.head_dim);
    return {number(from[d], s.format), number(from[s.head_dim + d], s.format)};
  }
  // Of a unit's number.
  int token_of(size_t sequence, int head, int32_t unit) const {
    const size_t numbers_per_unit = static_cast<size_t>(cuda::unit_bytes(s.head_dim)) / 2;
    for (int t = 0; t < s.lengths[sequence]; t += cuda::kUnitRows) {
      if (at(sequence, head, 0, t) == numbers.data() + static_cast<size_t>(unit) * numbers_per_unit) return t;
    }
    return -1;
  }
  const PageOrder& order() const { return order_; }
  size_t page_numbers() const { return page_; }
  size_t bounds_at() const { return bounds_at_; }
  size_t side() const { return side_; }

  BoundsShape s;
  std::vector<uint16_t> numbers;
  std::vector<float> queries;

 private:
  const uint16_t* at(size_t sequence, int head, int side, int t) const {
    return numbers.data() + order_.at(sequence, static_cast<size_t>(t / 64)) * page_ +
           static_cast<size_t>(2 * head + side) * side_ + static_cast<size_t>(t % 64 * s.head_dim);
  }
  void put(size_t sequence, int t) {
    for (int head = 0; head < s.n_kv_heads; ++head) {
      for (int side = 0; side < 2; ++side) {
        auto* to = const_cast<uint16_t*>(at(sequence, head, side, t));
        const double scale = side == 0 ? 0.5 + static_cast<double>(t / s.page_tokens % 7) / 4 : 3.0;
        for (int d = 0; d < s.head_dim; ++d) {
          const double x = side == 0 && s.equal_keys ? 0.25 * (d % 3) : random_.normal() * scale;
          to[d] = rounded(static_cast<float>(x), s.format);
        }
      }
    }
  }

  Random random_;
  PageOrder order_;
  size_t side_ = 0;
  size_t bounds_at_ = 0;
  size_t page_ = 0;
};

struct OnDevice {
  explicit OnDevice(const BoundedRows& rows)
      : numbers(on_device(rows.numbers)),
        table(on_device(rows.order().entries)),
        lengths(on_device(std::vector<int32_t>(rows.s.lengths.begin(), rows.s.lengths.end()))),
        queries(on_device(rows.queries)),
        out(rows.queries.size() * sizeof(float)),
        log_sums(rows.queries.size() / static_cast<size_t>(rows.s.head_dim) * sizeof(float)),
        counts(rows.s.n_pairs() * sizeof(int32_t)) {
    const BoundsShape& s = rows.s;
    const auto page_bytes = static_cast<int64_t>(2 * rows.page_numbers());
    pages = {s.format,
             static_cast<int>(s.lengths.size()),
             s.n_kv_heads,
             s.group,
             s.head_dim,
             s.page_tokens,
             {numbers.as<uint8_t>(), page_bytes, static_cast<int64_t>(4 * rows.side())},
             {numbers.as<uint8_t>() + 2 * rows.bounds_at(), page_bytes,
              cuda::bounds_bytes(s.page_tokens, s.head_dim)},
             table.as<int32_t>(),
             static_cast<int>(rows.order().stride),
             lengths.as<int32_t>()};
    stride = (cuda::listed_units(s.budget, s.page_tokens, s.most_tokens()) + 3) / 4 * 4;
    std::vector<int32_t> numbers_up(s.n_pairs() * static_cast<size_t>(stride / 4));
    std::iota(numbers_up.begin(), numbers_up.end(), 0);
    iota = on_device(numbers_up);
    units = cuda::DeviceBuffer(s.n_pairs() * static_cast<size_t>(stride) * sizeof(int32_t));
    scores = cuda::DeviceBuffer(cuda::score_bytes(pages, s.most_tokens()));
    workspace = cuda::DeviceBuffer(
        cuda::workspace_bytes(pages.n_sequences, s.n_kv_heads, s.group, s.head_dim, cuda::block_count()));
    workspace.fill(0);
    for (cuda::DeviceBuffer* buffer : {&out, &log_sums, &units, &counts, &scores}) buffer->fill(0xff);
    cuda::wait_for(nullptr);
    scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  }

  void bound(const BoundedRows& rows) {
    for (size_t i = 0; i < rows.s.lengths.size(); ++i) {
      cuda::bound_pages(pages, table.as<int32_t>() + i * rows.order().stride,
                        rows.s.lengths[i] / pages.page_tokens, nullptr);
    }
    cuda::wait_for(nullptr);
  }
  void attend(const BoundsShape& s, cuda::Stream stream) {
    const cuda::ListedRows listed = {units.as<int32_t>(), stride, counts.as<int32_t>()};
    cuda::choose_pages(pages, queries.as<float>(), scale, s.budget, s.most_tokens(), scores.as<void>(),
                       listed, stream);
    cuda::attend_listed(pages, listed,
                        {queries.as<float>(), scale, pages.keys.data, pages.keys.data + 64 * 2 * s.head_dim,
                         iota.as<int32_t>(), out.as<float>(), log_sums.as<float>(), workspace.as<void>()},
                        stream);
  }

  cuda::DeviceBuffer numbers, table, lengths, queries, out, log_sums, counts, iota, units, scores, workspace;
  cuda::ShortPages pages{};
  int stride = 0;
  float scale = 0;
};

void expect_bounds(const BoundedRows& rows, const std::vector<uint16_t>& all) {
  const BoundsShape& s = rows.s;
  for (size_t i = 0; i < s.lengths.size(); ++i) {
    for (int page = 0; page < s.lengths[i] / s.page_tokens; ++page) {
      for (int head = 0; head < s.n_kv_heads; ++head) {
        for (int d = 0; d < s.head_dim; ++d) {
          float largest = -INFINITY, least = INFINITY;
          for (int t = page * s.page_tokens; t < (page + 1) * s.page_tokens; ++t) {
            largest = std::max(largest, rows.key(i, head, t, d));
            least = std::min(least, rows.key(i, head, t, d));
          }
          ASSERT_EQ(rows.bounds(all, i, head, page, d), std::pair(largest, least)) << page;
        }
      }
    }
  }
}

// What a short page counts by: its best logarithm of a share for any head of the group.
std::vector<double> page_values(const BoundedRows& rows, size_t sequence, int head, int n_pages,
                                double scale) {
  const BoundsShape& s = rows.s;
  std::vector<double> values(static_cast<size_t>(n_pages), -INFINITY);
  for (int h = 0; h < s.group; ++h) {
    const float* q =
        rows.queries.data() + ((sequence * static_cast<size_t>(s.n_kv_heads) + static_cast<size_t>(head)) *
                                   static_cast<size_t>(s.group) +
                               static_cast<size_t>(h)) *
                                  static_cast<size_t>(s.head_dim);
    std::vector<double> scores;
    for (int page = 0; page < n_pages; ++page) {
      double score = 0;
      for (int d = 0; d < s.head_dim; ++d) {
        double bound = -INFINITY;
        for (int t = page * s.page_tokens; t < (page + 1) * s.page_tokens; ++t)
          bound = std::max(bound,
                           static_cast<double>(q[d]) * static_cast<double>(rows.key(sequence, head, t, d)));
        score += bound;
      }
      scores.push_back(score * scale);
    }
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - top);
    for (size_t i = 0; i < scores.size(); ++i)
      values[i] = std::max(values[i], scores[i] - top - std::log(sum));
  }
  return values;
}

// Tokens of the listed units, checked to be those of the highest values and of the newest page.
std::set<int> expect_choice(const BoundedRows& rows, size_t sequence, int head, const int32_t* units,
                            int n_rows, double scale) {
  const BoundsShape& s = rows.s;
  const int n = s.lengths[sequence];
  EXPECT_EQ(n_rows, cuda::listed_rows(s.budget, s.page_tokens, n));
  std::vector<int> starts;
  for (int i = 0; i * cuda::kUnitRows < n_rows; ++i)
    starts.push_back(rows.token_of(sequence, head, units[i]));
  EXPECT_EQ(std::count(starts.begin(), starts.end(), -1), 0);
  std::set<int> tokens;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int n_here = std::min(cuda::kUnitRows, n_rows - static_cast<int>(i) * cuda::kUnitRows);
    for (int t = 0; t < n_here; ++t) tokens.insert(starts[i] + t);
  }
  EXPECT_EQ(static_cast<int>(tokens.size()), n_rows);
  if (n_rows == n) return tokens;
  const int last = (n - 1) / s.page_tokens;
  for (int t = last * s.page_tokens; t < n; ++t) EXPECT_TRUE(tokens.contains(t));
  const std::vector<double> values = page_values(rows, sequence, head, last, scale);
  std::vector<double> sorted = values;
  std::sort(sorted.rbegin(), sorted.rend());
  const int n_wanted = n_rows / s.page_tokens - (n % s.page_tokens == 0 ? 1 : 0);
  const double least = sorted[static_cast<size_t>(n_wanted - 1)];
  for (int page = 0; page < last; ++page) {
    const bool chosen = tokens.contains(page * s.page_tokens);
    const double value = values[static_cast<size_t>(page)];
    if (s.equal_keys) {
      EXPECT_EQ(chosen, page >= last - n_wanted) << page;  // of equals the later
    } else if (value > least + 1e-3 || value < least - 1e-3) {
      EXPECT_EQ(chosen, value > least)
          << "page " << page << " of " << last << " counts " << value << ", least " << least;
    }
  }
  return tokens;
}

void expect_attention(const BoundedRows& rows, const OnDevice& device) {
  const BoundsShape& s = rows.s;
  const auto out = on_host<float>(device.out);
  const auto log_sums = on_host<float>(device.log_sums);
  const auto units = on_host<int32_t>(device.units);
  const auto counts = on_host<int32_t>(device.counts);
  const double tolerance = s.format == Format::kF16 ? 4e-3 : 3e-2;
  for (size_t i = 0; i < s.lengths.size(); ++i) {
    for (int head = 0; head < s.n_kv_heads; ++head) {
      const size_t pair = i * static_cast<size_t>(s.n_kv_heads) + static_cast<size_t>(head);
      const std::set<int> tokens =
          expect_choice(rows, i, head, units.data() + pair * static_cast<size_t>(device.stride), counts[pair],
                        static_cast<double>(device.scale));
      if (testing::Test::HasFailure()) return;
      for (int h = 0; h < s.group; ++h) {
        const size_t row = pair * static_cast<size_t>(s.group) + static_cast<size_t>(h);
        std::vector<float> q(
            rows.queries.begin() + static_cast<ptrdiff_t>(row * static_cast<size_t>(s.head_dim)),
            rows.queries.begin() + static_cast<ptrdiff_t>((row + 1) * static_cast<size_t>(s.head_dim)));
        for (float& x : q) x *= device.scale;
        const Attended expected = attention(
            q.data(), q.size(), static_cast<size_t>(s.lengths[i]),
            [&](size_t t) { return tokens.contains(static_cast<int>(t)); },
            [&](size_t t, size_t d) {
              return static_cast<double>(rows.key(i, head, static_cast<int>(t), static_cast<int>(d)));
            },
            [&](size_t t, size_t d) {
              return static_cast<double>(rows.value(i, head, static_cast<int>(t), static_cast<int>(d)));
            });
        for (size_t d = 0; d < q.size(); ++d)
          ASSERT_NEAR(static_cast<double>(out[row * q.size() + d]), expected.output[d], tolerance * 3)
              << i << " " << h;
        if (tokens.empty()) {
          ASSERT_EQ(log_sums[row], -INFINITY);
        } else {
          ASSERT_NEAR(static_cast<double>(log_sums[row]), expected.log_sum, tolerance);
        }
      }
    }
  }
}

class PageBoundsTest : public DeviceTest {
 protected:
  static void expect_as_reference(const BoundsShape& shape, uint64_t seed) {
    const BoundedRows rows(shape, seed);
    OnDevice device(rows);
    device.bound(rows);
    expect_bounds(rows, on_host<uint16_t>(device.numbers));
    device.attend(shape, nullptr);
    cuda::wait_for(nullptr);
    expect_attention(rows, device);
  }
};

TEST_F(PageBoundsTest, OddLengthsAndAllShapes) {
  const std::vector<int> lengths = {0, 1, 63, 64, 65, 1000, 129, 300};
  uint64_t seed = 1;
  for (const int head_dim : {64, 80, 96, 128, 256}) {
    for (const int page_tokens : {16, 32, 64}) {
      const int group = 1 + static_cast<int>(seed) % 9;
      const Format format = seed % 2 == 0 ? Format::kF16 : Format::kBF16;
      SCOPED_TRACE(testing::Message() << head_dim << " " << page_tokens << " " << group);
      expect_as_reference({lengths, 2, group, head_dim, page_tokens, format, {0, 192}}, seed++);
      if (HasFailure()) return;
    }
  }
  for (int group = 1; group <= 9; ++group) {
    expect_as_reference({{777, 1400}, 1, group, 64, 16, Format::kF16, {0.1, 0}}, seed++);
    if (HasFailure()) return;
  }
}

// More pairs than a launch of attention takes, and budgets above and below what there is.
TEST_F(PageBoundsTest, ManySequencesAndAnyBudget) {
  std::vector<int> many(300);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int>(i * 37 % 200);
  expect_as_reference({many, 4, 1, 64, 16, Format::kF16, {0, 60}}, 50);
  for (const PageBudget budget : {PageBudget{0, 1}, {0, 47}, {0, 64}, {0, 5000}, {1.0, 0}, {0.5, 0}}) {
    expect_as_reference({{40, 48, 49, 64, 65, 257, 3000}, 1, 2, 64, 16, Format::kF16, budget}, 60);
  }
}

TEST_F(PageBoundsTest, OfEqualPagesTheLaterAreRead) {
  expect_as_reference({{1000, 5000, 640}, 2, 3, 64, 16, Format::kF16, {0, 320}, true}, 70);
}

// One captured launch chooses anew as sequences grow, and a page gets its bounds when its last row has come.
TEST_F(PageBoundsTest, AGraphStaysValidAsSequencesGrow) {
  BoundsShape shape{{330, 402}, 2, 3, 64, 16, Format::kF16, {0, 128}};
  const BoundedRows rows(shape, 80);
  OnDevice device(rows);
  std::vector<int32_t> lengths = {0, 72};
  for (size_t i = 0; i < 2; ++i) {
    cuda::bound_pages(device.pages, device.table.as<int32_t>() + i * rows.order().stride, lengths[i] / 16,
                      nullptr);
  }
  DeviceGraph graph([&](cuda::Stream stream) {
    cuda::bound_last_pages(device.pages, stream);
    device.attend(shape, stream);
  });
  while (lengths[0] < 330) {
    for (int32_t& n : lengths) ++n;
    device.lengths.write(lengths.data(), device.lengths.size_bytes());
    cuda::wait_for(nullptr);
    graph.replay();
    if (lengths[0] % 41 != 0 && lengths[0] != 330) continue;
    // What lies behind is read by nobody: of the same rows a shorter batch.
    BoundedRows now = rows;
    now.s.lengths.assign(lengths.begin(), lengths.end());
    expect_attention(now, device);
    if (HasFailure()) return;
  }
  expect_bounds(rows, on_host<uint16_t>(device.numbers));
}

TEST(PageBudgetTest, ReadsAsManyRowsAsTheCpu) {
  for (const RowBudget& budget :
       {RowBudget{0.075, 0}, RowBudget{0, 700}, RowBudget{0.5, 0}, RowBudget{1, 0}}) {
    for (const int page_tokens : {16, 32, 64}) {
      int most = 0;
      for (int n = 1; n < 9000; ++n) {
        const PageBudget same = {budget.share, static_cast<int>(budget.rows)};
        const auto of = static_cast<int>(budget.of(static_cast<size_t>(n)));
        const int n_short = std::max(of / page_tokens, 3);
        const int last = (n - 1) / page_tokens;
        const bool selects = of < n && n_short <= last;
        const int expected = selects ? (n_short - 1) * page_tokens + n - last * page_tokens : n;
        ASSERT_EQ(cuda::listed_rows(same, page_tokens, n), expected) << n;
        most = std::max(most, expected);
        if (n % 1000 == 0) {
          ASSERT_EQ(cuda::listed_units(same, page_tokens, n), (most + 15) / 16);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
