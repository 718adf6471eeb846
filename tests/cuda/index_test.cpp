// Rows marked by the index on the device against estimates in double precision over the same planes.
#include "kernels/cuda/index.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "cuda/device_test.h"
#include "format/lloyd_max.h"
#include "format/turbo.h"
#include "property/random.h"

namespace quire::test {
namespace {

using cuda::DeviceBuffer;
using Nested = Turbo<4>;

struct IndexCase {
  std::vector<int> lengths;  // whole pages
  std::vector<int> n_wanted;
  int n_kv_heads;
  int group;
  int head_dim;
  int first_token = 0;

  size_t n_pairs() const { return lengths.size() * static_cast<size_t>(n_kv_heads); }
};

// Coded pages in random order, and what a search leaves.
struct Search {
  explicit Search(const IndexCase& c);
  void run(const IndexCase& c);
  const uint8_t* page(const IndexCase& c, size_t sequence, int kv_head, int at) const {
    const auto number =
        static_cast<size_t>(table[sequence * static_cast<size_t>(stride) + static_cast<size_t>(at)]);
    return bytes.data() +
           (number * static_cast<size_t>(c.n_kv_heads) + static_cast<size_t>(kv_head)) * page_bytes;
  }

  size_t page_bytes;
  int stride = 1;
  std::vector<int32_t> table;
  std::vector<uint8_t> bytes;
  std::vector<float> queries;
  std::vector<uint64_t> words;
  std::vector<int32_t> n_marked;
};

Search::Search(const IndexCase& c) : page_bytes(static_cast<size_t>(Nested::key_page_bytes(c.head_dim))) {
  Random random(17);
  const Codebook book = make_codebook(Nested::kCodebook, c.head_dim);
  int n_pages = 1;
  for (const int length : c.lengths) {
    stride = std::max(stride, length / 64);
    n_pages += length / 64;
  }
  std::vector<int32_t> order(static_cast<size_t>(n_pages));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  table.assign(c.lengths.size() * static_cast<size_t>(stride), -1);
  bytes.assign(static_cast<size_t>(n_pages * c.n_kv_heads) * page_bytes, 0xff);
  queries = random.normals(c.n_pairs() * static_cast<size_t>(c.group * c.head_dim), 2.0);
  size_t next = 0;
  for (size_t sequence = 0; sequence < c.lengths.size(); ++sequence) {
    for (int at = 0; at < c.lengths[sequence] / 64; ++at) {
      table[sequence * static_cast<size_t>(stride) + static_cast<size_t>(at)] = order[next++];
      for (int head = 0; head < c.n_kv_heads; ++head) {
        const std::vector<float> rows = random.normals(static_cast<size_t>(64 * c.head_dim));
        Nested::encode_keys(rows.data(), c.head_dim, book, const_cast<uint8_t*>(page(c, sequence, head, at)));
      }
    }
  }
}

void Search::run(const IndexCase& c) {
  const DeviceBuffer pages = on_device(bytes), device_table = on_device(table),
                     device_queries = on_device(queries);
  const DeviceBuffer lengths = on_device(c.lengths), wanted = on_device(c.n_wanted);
  const int n_sequences = static_cast<int>(c.lengths.size());
  DeviceBuffer device_words(c.n_pairs() * static_cast<size_t>(stride) * sizeof(uint64_t));
  DeviceBuffer marked(c.n_pairs() * sizeof(int32_t));
  DeviceBuffer workspace(cuda::index_workspace_bytes(n_sequences, c.n_kv_heads, c.group, stride));
  device_words.fill(0);
  marked.fill(0xff);
  workspace.fill(0xff);
  const auto head_stride = static_cast<int64_t>(page_bytes);
  const int64_t page_stride = head_stride * c.n_kv_heads;
  const uint8_t* norms = pages.as<uint8_t>() + Nested::key_norms_offset(c.head_dim);
  cuda::search_index({n_sequences,
                      c.n_kv_heads,
                      c.group,
                      c.head_dim,
                      device_queries.as<float>(),
                      1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                      {pages.as<uint8_t>(), page_stride, head_stride},
                      {norms, page_stride, head_stride},
                      device_table.as<int32_t>(),
                      stride,
                      lengths.as<int32_t>(),
                      c.first_token,
                      wanted.as<int32_t>(),
                      device_words.as<uint64_t>(),
                      marked.as<int32_t>(),
                      workspace.as<void>()},
                     nullptr);
  cuda::wait_for(nullptr);
  words = on_host<uint64_t>(device_words);
  n_marked = on_host<int32_t>(marked);
}

// Best log2 probability over the group of every row of a pair.
std::vector<double> best_octaves(const IndexCase& c, const Search& search, size_t sequence, int kv_head) {
  const auto n = static_cast<size_t>(c.lengths[sequence]);
  std::vector<double> best(n, -1e30);
  for (int g = 0; g < c.group; ++g) {
    const size_t head = (sequence * static_cast<size_t>(c.n_kv_heads) + static_cast<size_t>(kv_head)) *
                            static_cast<size_t>(c.group) +
                        static_cast<size_t>(g);
    const float* q = search.queries.data() + head * static_cast<size_t>(c.head_dim);
    std::vector<double> octaves(n);
    double sum = 0;
    for (size_t t = 0; t < n; ++t) {
      const uint8_t* page = search.page(c, sequence, kv_head, static_cast<int>(t / 64));
      double dot = 0;
      for (int d = 0; d < c.head_dim; ++d) {
        dot += (page[static_cast<size_t>(d / 8) * 64 + t % 64] >> (d % 8) & 1) != 0 ? q[d] : -q[d];
      }
      const double norm = get_half(page + Nested::key_norms_offset(c.head_dim) + 2 * (t % 64));
      octaves[t] = dot * norm * std::sqrt(2 / (M_PI * c.head_dim)) / std::sqrt(c.head_dim) * M_LOG2E;
      if (static_cast<int>(t) >= c.first_token) sum += std::exp2(octaves[t]);
    }
    for (size_t t = 0; t < n; ++t) best[t] = std::max(best[t], octaves[t] - std::log2(sum));
  }
  return best;
}

// As many as wanted, and none that is clearly less probable than one left out: levels are an eighth of an
// octave apart.
void check_pair(const IndexCase& c, const Search& search, size_t sequence, int kv_head) {
  const size_t pair = sequence * static_cast<size_t>(c.n_kv_heads) + static_cast<size_t>(kv_head);
  const std::vector<double> best = best_octaves(c, search, sequence, kv_head);
  double least_marked = 1e30, best_left = -1e30;
  int n = 0, n_readable = 0;
  for (size_t t = 0; t < best.size(); ++t) {
    const bool marked =
        (search.words[pair * static_cast<size_t>(search.stride) + t / 64] >> (t % 64) & 1) != 0;
    n += marked;
    if (static_cast<int>(t) < c.first_token) {
      EXPECT_FALSE(marked);
      continue;
    }
    n_readable += best[t] > -31;  // level 0 is never marked
    (marked ? least_marked : best_left) =
        marked ? std::min(least_marked, best[t]) : std::max(best_left, best[t]);
  }
  EXPECT_EQ(n, search.n_marked[pair]);
  EXPECT_EQ(n, std::min(c.n_wanted[sequence], n_readable)) << "sequence " << sequence;
  if (n > 0 && n < n_readable) {
    EXPECT_GT(least_marked, best_left - 0.15) << "sequence " << sequence;
  }
}

void check(const IndexCase& c) {
  Search search(c);
  search.run(c);
  for (size_t sequence = 0; sequence < c.lengths.size(); ++sequence) {
    for (int head = 0; head < c.n_kv_heads; ++head) check_pair(c, search, sequence, head);
  }
}

class CudaIndex : public DeviceTest {};

TEST_F(CudaIndex, MarksTheMostProbableRowsOfAllHeadSizes) {
  for (const int head_dim : {64, 80, 96, 128, 256}) {
    check({{0, 64, 1024, 640}, {10, 5, 100, 0}, 2, 4, head_dim});
  }
}

TEST_F(CudaIndex, AnyGroupUpToEight) {
  for (const int group : {1, 3, 8}) check({{2048}, {154}, 3, group, 128});
}

TEST_F(CudaIndex, LongSequencesAndManyOfThem) {
  check({{131072}, {9830}, 1, 4, 128});
  check({std::vector<int>(64, 640), std::vector<int>(64, 48), 2, 4, 64});
}

TEST_F(CudaIndex, LeavesFirstTokensOutAndMarksAllThatThereAre) {
  IndexCase c = {{256, 128}, {1000, 124}, 2, 2, 64};
  c.first_token = 4;
  check(c);
}

TEST_F(CudaIndex, OfEqualRowsTheNewestAreMarked) {
  const IndexCase c = {{640}, {100}, 1, 1, 64};
  Search search(c);
  for (int at = 1; at < 10; ++at) {  // all pages like the first, and its rows like its first
    std::copy_n(search.page(c, 0, 0, 0), search.page_bytes, const_cast<uint8_t*>(search.page(c, 0, 0, at)));
  }
  for (int at = 0; at < 10; ++at) {
    auto* page = const_cast<uint8_t*>(search.page(c, 0, 0, at));
    for (int g = 0; g < 8; ++g) std::fill_n(page + 64 * g, 64, page[64 * g]);
    for (int t = 1; t < 64; ++t) std::copy_n(page + 64 * 8, 2, page + 64 * 8 + 2 * t);
  }
  search.run(c);
  EXPECT_EQ(search.n_marked[0], 100);
  EXPECT_EQ(search.words[9], ~uint64_t{0});
  EXPECT_EQ(search.words[8], ~uint64_t{0} << 28);
  EXPECT_EQ(search.words[7], 0u);
}

}  // namespace
}  // namespace quire::test
