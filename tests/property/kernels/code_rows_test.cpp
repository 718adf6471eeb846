// Scores and sums of single rows of several coded pages: those of the same rows decoded one by one, for every
// format, head size and instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "format/lloyd_max.h"
#include "format/sketch.h"
#include "kernels/ops.h"
#include "property/isa.h"
#include "property/random.h"

namespace quire::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Kernels on bytes round queries, centroids and weights to 1/254 of the largest.
bool on_bytes(const Ops& table, Code code) {
  const std::string name = info(code).name;
  return std::string(table.name) != "scalar" && (name.starts_with("nested") || name == "signvq");
}

struct CodePages {
  CodePages(Code code_in, int head_dim_in, int n_pages, Random& random) : code(code_in), dim(head_dim_in) {
    const CodebookSpec spec = codebook_spec(code);
    book = make_codebook(spec, dim);
    if (spec.kind == CodebookKind::kSketched) {
      sketch = make_sketch(1, dim);
      book.sketch = sketch.data();
    }
    for (int p = 0; p < n_pages; ++p) {
      const std::vector<float> rows = random.normals(64 * static_cast<size_t>(dim));
      std::vector<uint8_t>& key_page = keys.emplace_back(key_page_bytes(code, dim) + kSpareBytes, 0xff);
      std::vector<uint8_t>& value_page = values.emplace_back(value_page_bytes(code, dim) + kSpareBytes, 0xff);
      visit_code(code, [&](auto format) {
        decltype(format)::encode_keys(rows.data(), dim, book, key_page.data());
        decltype(format)::encode_values(rows.data(), dim, book, value_page.data());
      });
    }
    for (int p = 0; p < n_pages; ++p) {
      const uint8_t* key_page = keys[static_cast<size_t>(p)].data();
      key_pages.push_back({key_page, key_page + index_page_bytes(code, dim)});
      value_pages.push_back(values[static_cast<size_t>(p)].data());
    }
  }

  std::vector<float> row(uint16_t at, bool of_keys) const {
    std::vector<float> out(static_cast<size_t>(dim));
    visit_code(code, [&](auto format) {
      using F = decltype(format);
      of_keys ? F::decode_key_row(keys[at / 64].data(), dim, at % 64, book, out.data())
              : F::decode_value_row(value_pages[at / 64], dim, at % 64, book, out.data());
    });
    return out;
  }

  Code code;
  int dim;
  Codebook book{};
  std::vector<float> sketch;
  std::vector<std::vector<uint8_t>> keys, values;
  std::vector<KeyPage> key_pages;
  std::vector<const uint8_t*> value_pages;
};

// n rising rows of n_pages pages.
std::vector<uint16_t> some_rows(size_t n, size_t n_pages, Random& random) {
  std::vector<uint16_t> rows;
  const size_t all = 64 * n_pages;
  for (size_t t = 0; t < all && rows.size() < n; ++t) {
    if (random.below(all - t) < n - rows.size()) rows.push_back(static_cast<uint16_t>(t));
  }
  return rows;
}

double norm(const float* x, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

void check_scores(const Ops& table, const CodePages& pages, const std::vector<uint16_t>& rows, int n,
                  Random& random) {
  const auto dim = static_cast<size_t>(pages.dim);
  const std::vector<float> q = random.normals(static_cast<size_t>(n) * dim);
  const size_t n_tiles = (rows.size() + 63) / 64;
  std::vector<float> scores(n_tiles * static_cast<size_t>(n) * 64, kNan);
  table.codes.score_rows[static_cast<size_t>(pages.code)](
      pages.book, q.data(), n, pages.dim,
      {pages.key_pages.data(), rows.data(), static_cast<int>(rows.size())}, scores.data(), {});
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<float> key = pages.row(rows[i], true);
    for (size_t h = 0; h < static_cast<size_t>(n); ++h) {
      double wanted = 0;
      for (size_t d = 0; d < dim; ++d) wanted += static_cast<double>(q[h * dim + d]) * key[d];
      const double size = norm(q.data() + h * dim, pages.dim) * norm(key.data(), pages.dim);
      ASSERT_NEAR(scores[(i / 64 * static_cast<size_t>(n) + h) * 64 + i % 64], wanted,
                  size * (on_bytes(table, pages.code) ? 0.012 : 2e-6))
          << table.name << " " << info(pages.code).name << " dim " << dim << " row " << i << " of "
          << rows.size();
    }
  }
}

// One tile; probabilities of rows that are not kept are NaN, and so is what lies behind the rows.
void check_sums(const Ops& table, const CodePages& pages, const std::vector<uint16_t>& rows, uint64_t kept,
                int n, Random& random) {
  const auto dim = static_cast<size_t>(pages.dim);
  std::vector<float> p(static_cast<size_t>(n) * 64, kNan);
  std::vector<float> correction;
  for (int h = 0; h < n; ++h) {
    correction.push_back(h % 3 == 0 ? 0.0f : static_cast<float>(random.unit()));
    for (size_t i = 0; i < 64; ++i) {
      if (kept >> i & 1) p[static_cast<size_t>(h) * 64 + i] = static_cast<float>(random.unit());
    }
  }
  std::vector<float> o = random.normals(static_cast<size_t>(n) * dim);
  o.resize(o.size() + 16, 7.0f);
  const std::vector<float> before = o;
  table.codes.accumulate_rows[static_cast<size_t>(pages.code)](
      pages.book, p.data(), correction.data(),
      {pages.value_pages.data(), rows.data(), static_cast<int>(rows.size())}, kept, n, pages.dim, o.data(),
      {}, 0);
  for (size_t h = 0; h < static_cast<size_t>(n); ++h) {
    std::vector<double> wanted(dim);
    double size = 1e-3;
    for (size_t d = 0; d < dim; ++d) wanted[d] = static_cast<double>(before[h * dim + d]) * correction[h];
    for (size_t i = 0; i < rows.size(); ++i) {
      if ((kept >> i & 1) == 0) continue;
      const std::vector<float> value = pages.row(rows[i], false);
      size += std::pow(p[h * 64 + i] * norm(value.data(), pages.dim), 2) / static_cast<double>(dim);
      for (size_t d = 0; d < dim; ++d) wanted[d] += static_cast<double>(p[h * 64 + i]) * value[d];
    }
    for (size_t d = 0; d < dim; ++d) {
      ASSERT_NEAR(o[h * dim + d], wanted[d],
                  1e-5 + std::sqrt(size) * (on_bytes(table, pages.code) ? 0.06 : 1e-5))
          << table.name << " " << info(pages.code).name << " dim " << dim << " kept " << kept;
    }
  }
  for (size_t i = static_cast<size_t>(n) * dim; i < o.size(); ++i) ASSERT_EQ(o[i], 7.0f);
}

TEST(CodeRows, ScoresOfAnyRows) {
  Random random(1);
  for (int code = 0; code < kCodeCount; ++code) {
    for (const int head_dim : {40, 64, 100, 128, 256}) {
      const CodePages pages(static_cast<Code>(code), head_dim, 16, random);
      for (const size_t n_rows : {1, 2, 15, 16, 17, 63, 64, 65, 200}) {
        const std::vector<uint16_t> rows = some_rows(n_rows, 1 + n_rows / 64 + random.below(12), random);
        for (const Ops* table : tables()) {
          check_scores(*table, pages, rows, 1 + static_cast<int>(random.below(9)), random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(CodeRows, ScoresOfAThousandRows) {
  Random random(2);
  for (int code = 0; code < kCodeCount; ++code) {
    const CodePages pages(static_cast<Code>(code), 64, 16, random);
    for (const Ops* table : tables()) {
      check_scores(*table, pages, some_rows(1024, 16, random), 3, random);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CodeRows, SumsOfAnyRows) {
  Random random(3);
  for (int code = 0; code < kCodeCount; ++code) {
    for (const int head_dim : {40, 64, 72, 100, 128, 256}) {
      const CodePages pages(static_cast<Code>(code), head_dim, 16, random);
      for (const size_t n_rows : {1, 5, 16, 63, 64}) {
        const std::vector<uint16_t> rows = some_rows(n_rows, 1 + random.below(16), random);
        const uint64_t all = ~uint64_t{0} >> (64 - n_rows);
        for (const uint64_t kept : {all, all & random.next(), uint64_t{1} << (n_rows - 1), uint64_t{0}}) {
          for (const Ops* table : tables()) {
            check_sums(*table, pages, rows, kept, 1 + static_cast<int>(random.below(9)), random);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
