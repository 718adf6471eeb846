// The index of sealed pages: tables, estimates, their sum, levels and marks, on every instruction set,
// against plain arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/ops.h"
#include "property/isa.h"
#include "property/random.h"

namespace quire::test {
namespace {

constexpr int kHeadDims[] = {40, 64, 72, 80, 96, 100, 128, 256};
const double kPerNat = 128 / std::log(2.0);

int n_groups(int dim) { return 2 * ((dim + 7) / 8); }

enum class Query { kNormal, kZero, kOneHot, kFlat, kHuge, kDenormal };
constexpr Query kQueries[] = {Query::kNormal, Query::kZero, Query::kOneHot,
                              Query::kFlat,   Query::kHuge, Query::kDenormal};

std::vector<float> query_of(Query kind, int dim, Random& random) {
  std::vector<float> q = random.normals(static_cast<size_t>(dim));
  for (size_t d = 0; d < q.size(); ++d) {
    switch (kind) {
      case Query::kNormal: break;
      case Query::kZero: q[d] = 0; break;
      case Query::kOneHot: q[d] = d == 5 ? -3.0f : 0.0f; break;
      case Query::kFlat: q[d] = 1; break;
      case Query::kHuge: q[d] *= 1e36f; break;
      case Query::kDenormal: q[d] *= 1e-40f; break;
    }
  }
  return q;
}

// Of group g and a word of four bits: what its entry stands for.
double sign_sum(const std::vector<float>& q, int g, int bits) {
  double sum = 0;
  for (size_t j = 0; j < 4; ++j) {
    const size_t d = 4 * static_cast<size_t>(g) + j;
    if (d < q.size()) sum += bits >> j & 1 ? static_cast<double>(q[d]) : -static_cast<double>(q[d]);
  }
  return sum;
}

template <typename Exact>
void check_tables(const IndexTables& tables, int dim, const Exact& exact, const std::string& what) {
  int most = 0;
  for (int g = 0; g < n_groups(dim); ++g) {
    int largest = 0;
    for (int bits = 0; bits < 16; ++bits) {
      const int entry = tables.entries[g][bits];
      largest = std::max(largest, std::abs(entry));
      if (tables.unit > 0) {
        ASSERT_NEAR(entry, exact(g, bits) / tables.unit, 0.501) << what << " group " << g;
      } else {
        ASSERT_EQ(entry, 0) << what;
      }
    }
    most += largest;
  }
  ASSERT_LE(most, 127) << what << ": some row's sum leaves a byte";
  if (tables.unit > 0) {
    ASSERT_GT(most, 127 - 2 * n_groups(dim)) << what << ": bits are wasted";
  }
}

TEST(IndexTablesTest, OfSignsNeverLeaveAByte) {
  Random random(1);
  for (const int dim : kHeadDims) {
    for (const Query kind : kQueries) {
      for (int round = 0; round < 20; ++round) {
        const std::vector<float> q = query_of(kind, dim, random);
        IndexTables first{};
        for (const Ops* table : tables()) {
          IndexTables made{};
          table->index.sign_tables(q.data(), dim, &made);
          check_tables(
              made, dim, [&](int g, int bits) { return sign_sum(q, g, bits); },
              std::string(table->name) + " " + std::to_string(dim) + " " +
                  std::to_string(static_cast<int>(kind)));
          if (HasFatalFailure()) return;
          if (table == tables().front()) first = made;
          ASSERT_EQ(std::memcmp(first.entries, made.entries, static_cast<size_t>(n_groups(dim)) * 16), 0);
          ASSERT_EQ(first.unit, made.unit) << table->name;
        }
      }
    }
  }
}

TEST(IndexTablesTest, OfCodeWordsNeverLeaveAByte) {
  Random random(2);
  for (const int dim : kHeadDims) {
    for (const Query kind : kQueries) {
      const std::vector<float> q = query_of(kind, dim, random);
      const std::vector<float> book = random.normals(static_cast<size_t>(n_groups(dim)) * 64);
      for (const Ops* table : tables()) {
        IndexTables made{};
        table->index.codebook_tables(q.data(), book.data(), dim, &made);
        const auto exact = [&](int g, int word) {
          double sum = 0;
          for (int j = 0; j < 4 && 4 * g + j < dim; ++j) {
            sum += static_cast<double>(q[static_cast<size_t>(4 * g + j)]) *
                   book[static_cast<size_t>((16 * g + word) * 4 + j)];
          }
          return sum;
        };
        check_tables(made, dim, exact, std::string(table->name) + " " + std::to_string(dim));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// SignPages of random sign planes and norms.
struct SignPages {
  SignPages(int head_dim, int n, bool with_norms, Random& random, double scale = 1.0)
      : dim(head_dim), norms_offset(with_norms ? 64 * ((dim + 7) / 8) : -1) {
    for (int p = 0; p < n; ++p) {
      std::vector<uint8_t>& page =
          bytes.emplace_back(64 * static_cast<size_t>((dim + 7) / 8) + 128 + kSpareBytes);
      for (uint8_t& byte : page) byte = static_cast<uint8_t>(random.next());
      for (size_t t = 0; with_norms && t < 64; ++t) {
        const double norm =
            scale == 0 ? 0 : scale * std::exp(random.normal() * 0.3) * (random.below(20) == 0 ? 5 : 1);
        const uint16_t half = f32_to_f16(static_cast<float>(std::min(norm, 65504.0)));
        std::memcpy(page.data() + norms_offset + 2 * t, &half, 2);
      }
    }
    for (const auto& page : bytes) pages.push_back(page.data());
  }

  int n() const { return static_cast<int>(pages.size()); }
  double norm(size_t page, size_t token) const {
    if (norms_offset < 0) return 1;
    uint16_t half = 0;
    std::memcpy(&half, pages[page] + norms_offset + 2 * token, 2);
    return f16_to_f32(half);
  }
  int sum(const IndexTables& tables, size_t page, size_t token) const {
    int total = 0;
    for (size_t g = 0; g < static_cast<size_t>((dim + 7) / 8); ++g) {
      const uint8_t byte = pages[page][64 * g + token];
      total += tables.entries[2 * g][byte & 15] + tables.entries[2 * g + 1][byte >> 4];
    }
    return total;
  }
  // Not rounded, not saturated.
  double estimate(const IndexTables& tables, size_t page, size_t token) const {
    return kPerNat * tables.unit * norm(page, token) * sum(tables, page, token);
  }

  int dim;
  int norms_offset;
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<const uint8_t*> pages;
};

std::vector<IndexTables> tables_of(const Ops& table, int n, int dim, double scale, Random& random) {
  std::vector<IndexTables> made(static_cast<size_t>(n));
  for (IndexTables& own : made) {
    std::vector<float> q = random.normals(static_cast<size_t>(dim), scale);
    table.index.sign_tables(q.data(), dim, &own);
    own.unit *= 0.1f;
  }
  return made;
}

// [n][pages * 64], with room for pages that are not there: it must stay as it is.
std::vector<int16_t> estimates_of(const Ops& table, const std::vector<IndexTables>& queries,
                                  const SignPages& pages) {
  const size_t ld = 64 * static_cast<size_t>(pages.n() + 1);
  std::vector<int16_t> estimates(queries.size() * ld, 12345);
  table.index.estimate(queries.data(), static_cast<int>(queries.size()), pages.dim, pages.pages.data(),
                       pages.n(), pages.n(), pages.norms_offset, estimates.data(), ld);
  for (size_t h = 0; h < queries.size(); ++h) {
    for (size_t i = ld - 64; i < ld; ++i) EXPECT_EQ(estimates[h * ld + i], 12345) << "beyond the pages";
  }
  return estimates;
}

// Estimates of one page lie in an order of the set's own: as sets they are equal on all, and near what they
// stand for.
TEST(IndexEstimates, AreNearUnitTimesNormTimesSum) {
  Random random(3);
  for (const int dim : kHeadDims) {
    for (int n_pages = 1; n_pages <= 9; ++n_pages) {
      const int n = 1 + static_cast<int>(random.below(9));
      const SignPages pages(dim, n_pages, random.below(3) > 0, random);
      const auto queries = tables_of(*tables()[0], n, dim, 0.3, random);
      const size_t ld = 64 * static_cast<size_t>(n_pages + 1);
      std::vector<int16_t> first;
      for (const Ops* table : tables()) {
        std::vector<int16_t> estimates = estimates_of(*table, queries, pages);
        for (size_t h = 0; h < queries.size(); ++h) {
          for (size_t p = 0; p < static_cast<size_t>(n_pages); ++p) {
            int16_t* page = estimates.data() + h * ld + 64 * p;
            std::sort(page, page + 64);
            std::vector<double> wanted;
            for (size_t t = 0; t < 64; ++t) wanted.push_back(pages.estimate(queries[h], p, t));
            std::sort(wanted.begin(), wanted.end());
            for (size_t t = 0; t < 64; ++t) {
              ASSERT_NEAR(page[t], wanted[t], 2.5) << table->name << " dim " << dim << " pages " << n_pages;
            }
          }
        }
        if (first.empty()) first = estimates;
        ASSERT_EQ(estimates, first) << table->name << " dim " << dim << " pages " << n_pages;
      }
    }
  }
}

// A query whose scores are beyond what estimates can say: they saturate, and stay in the order of the sums.
TEST(IndexEstimates, SaturateInOrder) {
  Random random(4);
  for (const double scale : {30.0, 1e4, 1e30, 1e-30, 0.0}) {
    for (const double norms : {1.0, 0.0, 65504.0, 1e-7}) {
      const SignPages pages(64, 5, true, random, norms);
      const auto queries = tables_of(*tables()[0], 3, 64, scale, random);
      std::vector<int16_t> first;
      for (const Ops* table : tables()) {
        std::vector<int16_t> estimates = estimates_of(*table, queries, pages);
        for (size_t i = 0; i < estimates.size(); i += 64)
          std::sort(estimates.data() + i, estimates.data() + i + 64);
        if (first.empty()) first = estimates;
        ASSERT_EQ(estimates, first) << table->name << " " << scale << " " << norms;
        for (size_t h = 0; h < 3 && norms > 0; ++h) {
          for (size_t p = 0; p < 5; ++p) {
            const int16_t* page = estimates.data() + h * 384 + 64 * p;
            double largest = -INFINITY;
            for (size_t t = 0; t < 64; ++t) largest = std::max(largest, pages.estimate(queries[h], p, t));
            if (largest > 40000) {
              ASSERT_GT(page[63], 0) << scale << " " << norms;
            }
            if (std::fabs(largest) < 0.4) {
              ASSERT_LE(std::abs(page[63]), 1) << scale << " " << norms;
            }
          }
        }
      }
    }
  }
}

TEST(IndexMass, IsTheSumWithinSixPercent) {
  Random random(5);
  for (int n_pages = 1; n_pages <= 9; ++n_pages) {
    for (const double spread : {0.0, 10.0, 200.0, 3000.0, 20000.0}) {
      std::vector<int16_t> estimates(64 * static_cast<size_t>(n_pages));
      for (int16_t& x : estimates) {
        x = static_cast<int16_t>(
            std::clamp(random.normal() * spread + random.below(3) * 500.0, -32768.0, 32767.0));
      }
      const double top = *std::max_element(estimates.begin(), estimates.end());
      double sum = 0;
      for (const int16_t x : estimates) sum += std::exp2((x - top) / 128);
      const double exact = top + 128 * std::log2(sum);
      for (const Ops* table : tables()) {
        const double mass = table->index.mass(estimates.data(), n_pages);
        ASSERT_GE(mass, exact - 0.1) << table->name << " " << n_pages << " " << spread;
        ASSERT_LE(mass, exact + 128 * std::log2(1.0615) + 0.1)
            << table->name << " " << n_pages << " " << spread;
      }
    }
  }
}

TEST(IndexMass, OfTheEnds) {
  for (const Ops* table : tables()) {
    for (const int16_t x : {int16_t{-32768}, int16_t{32767}, int16_t{0}}) {
      const std::vector<int16_t> estimates(128, x);
      ASSERT_NEAR(table->index.mass(estimates.data(), 2), x + 128 * 7, 0.1) << table->name;
    }
    std::vector<int16_t> mixed(128, -32768);
    mixed[70] = 32767;
    ASSERT_NEAR(table->index.mass(mixed.data(), 2), 32767, 0.1) << table->name;
  }
}

// In the order of the tokens, and equal on all sets.
TEST(IndexLevels, AreTheBestEstimatesAboveTheOffset) {
  Random random(6);
  for (const double scale : {0.05, 0.3, 3.0, 100.0}) {
    for (int n_pages = 1; n_pages <= 9; ++n_pages) {
      const int n = 1 + static_cast<int>(random.below(9));
      const SignPages pages(64, n_pages, n_pages % 2 == 0, random);
      const auto queries = tables_of(*tables()[0], n, 64, scale, random);
      const size_t ld = 64 * static_cast<size_t>(n_pages + 1);
      std::vector<int16_t> offsets;
      for (int h = 0; h < n; ++h) offsets.push_back(static_cast<int16_t>(random.uniform(-2000, 4000)));
      if (n_pages == 5) offsets[0] = 32767;
      if (n_pages == 6) offsets[0] = -32768;
      std::vector<uint8_t> first;
      for (const Ops* table : tables()) {
        const std::vector<int16_t> estimates = estimates_of(*table, queries, pages);
        std::vector<uint8_t> levels(64 * static_cast<size_t>(n_pages), 77);
        table->index.levels(estimates.data(), ld, n, offsets.data(), n_pages, levels.data());
        if (first.empty()) first = levels;
        ASSERT_EQ(levels, first) << table->name << " " << n_pages << " pages of " << n;
        for (size_t i = 0; i < levels.size() && scale < 1; ++i) {
          double best = -INFINITY;
          for (size_t h = 0; h < queries.size(); ++h) {
            best = std::max(best, pages.estimate(queries[h], i / 64, i % 64) - offsets[h]);
          }
          const double wanted = std::clamp(255 + std::floor(best / 16), 0.0, 255.0);
          ASSERT_NEAR(levels[i], wanted, 1) << table->name << " token " << i;
        }
      }
    }
  }
}

// An eighth of an octave a level, stretched; the fraction of a power taken linearly is at most 6.2 % too
// large.
TEST(IndexLevels, HaveTheMassOfTheirPowers) {
  Random random(8);
  for (int n_words = 1; n_words <= 40; ++n_words) {
    std::vector<uint8_t> levels(64 * static_cast<size_t>(n_words));
    const size_t most = n_words % 3 == 0 ? 256 : 40;
    for (uint8_t& level : levels) level = static_cast<uint8_t>(255 - random.below(most));
    if (n_words % 5 == 0) std::fill(levels.begin(), levels.end(), uint8_t{0});
    double wanted = 0;
    for (const int level : levels) wanted += std::exp2(1.25 * (level - 255) / 8);
    for (const Ops* table : tables()) {
      const double mass = static_cast<double>(table->index.level_mass(levels.data(), n_words));
      ASSERT_GE(mass, wanted * 0.9999) << table->name << " " << n_words;
      ASSERT_LE(mass, wanted * 1.0626) << table->name << " " << n_words;
    }
  }
}

TEST(IndexLevels, OfScores) {
  Random random(7);
  for (const double spread : {0.5, 5.0, 100.0, 1e20}) {
    for (int n = 1; n <= 9; ++n) {
      std::vector<float> scores = random.normals(64 * static_cast<size_t>(n), spread);
      const std::vector<float> offsets = random.normals(static_cast<size_t>(n), spread);
      const int n_rows = 1 + static_cast<int>(random.below(64));
      for (int h = 0; h < n; ++h) {  // what lies behind the rows must not matter
        for (int i = n_rows; i < 64; ++i) scores[static_cast<size_t>(64 * h + i)] = NAN;
      }
      for (const Ops* table : tables()) {
        std::vector<uint8_t> levels(64, 77);
        table->index.row_levels(scores.data(), n, offsets.data(), n_rows, levels.data());
        for (size_t i = 0; i < 64; ++i) {
          double best = -INFINITY;
          for (size_t h = 0; h < static_cast<size_t>(n); ++h) {
            best = std::max(best, static_cast<double>(scores[64 * h + i] - offsets[h]));
          }
          const double level = std::clamp(255 + 8 / std::log(2.0) * best, 0.0, 255.0);
          if (i < static_cast<size_t>(n_rows)) {
            ASSERT_NEAR(levels[i], level, 0.51) << table->name << " " << n << " " << spread;
          } else {
            ASSERT_EQ(levels[i], 0) << table->name;
          }
        }
      }
    }
  }
}

// Within the 6 % of its powers of two, over tiles of any number of rows one after the other.
TEST(IndexRowMass, SumsProbabilities) {
  Random random(9);
  for (const int n : {1, 3, 9}) {
    for (const float spread : {0.5f, 8.0f, 300.0f}) {
      for (const Ops* table : tables()) {
        std::vector<float> m(static_cast<size_t>(n), -INFINITY), l(static_cast<size_t>(n), 0.0f);
        std::vector<std::vector<double>> seen(static_cast<size_t>(n));
        for (const int n_rows : {64, 1, 17, 63, 32}) {
          std::vector<float> scores(static_cast<size_t>(n) * 64, std::nanf(""));
          for (size_t h = 0; h < seen.size(); ++h) {
            for (size_t i = 0; i < static_cast<size_t>(n_rows); ++i) {
              scores[64 * h + i] = spread * static_cast<float>(random.unit() - 0.5);
              seen[h].push_back(static_cast<double>(scores[64 * h + i]));
            }
          }
          table->index.row_mass(scores.data(), n, n_rows, m.data(), l.data());
        }
        for (size_t h = 0; h < seen.size(); ++h) {
          const double largest = *std::max_element(seen[h].begin(), seen[h].end());
          double sum = 0;
          for (const double x : seen[h]) sum += std::exp(x - largest);
          EXPECT_EQ(static_cast<double>(m[h]), largest);
          EXPECT_GE(l[h], sum * 0.9999) << table->name << " " << spread;
          EXPECT_LE(l[h], sum * 1.07) << table->name << " " << spread;
        }
      }
    }
  }
}

// The highest levels above 0, of equal ones the newest.
TEST(IndexMark, TakesTheHighestAndOfEqualOnesTheNewest) {
  Random random(8);
  for (const int n_words : {1, 2, 3, 9, 40}) {
    for (const size_t n_levels : {1, 2, 4, 60, 256}) {
      std::vector<uint8_t> levels(64 * static_cast<size_t>(n_words));
      for (uint8_t& level : levels) {
        level =
            static_cast<uint8_t>(n_levels == 1 ? 3 : 255 - random.below(n_levels) * (255 / (n_levels - 1)));
      }
      std::vector<size_t> order(levels.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::sort(order.begin(), order.end(),
                [&](size_t a, size_t b) { return levels[a] != levels[b] ? levels[a] > levels[b] : a > b; });
      const size_t above =
          static_cast<size_t>(std::count_if(levels.begin(), levels.end(), [](int x) { return x > 0; }));
      for (const size_t wanted : {size_t{0}, size_t{1}, size_t{7}, size_t{64}, above / 2, above, above + 1,
                                  levels.size(), size_t{1000000}}) {
        std::vector<bool> chosen(levels.size());
        const size_t n = std::min(wanted, above);
        for (size_t i = 0; i < n; ++i) chosen[order[i]] = true;
        for (const Ops* table : tables()) {
          std::vector<uint64_t> words(static_cast<size_t>(n_words), ~uint64_t{0});
          ASSERT_EQ(table->index.mark(levels.data(), n_words, static_cast<int>(wanted), words.data()),
                    static_cast<int>(n))
              << table->name << " " << n_words << " " << n_levels;
          for (size_t i = 0; i < levels.size(); ++i) {
            ASSERT_EQ((words[i / 64] >> (i % 64) & 1) != 0, chosen[i])
                << table->name << " " << wanted << " " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
