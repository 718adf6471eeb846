// Pages of rows for the tests of the coded formats, and how far a decoded page lies from its rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "format/code_format.h"
#include "format/lloyd_max.h"
#include "format/sketch.h"
#include "property/random.h"

namespace quire::test {

constexpr int kHeadDims[] = {40, 64, 72, 80, 96, 100, 112, 128, 256};

inline size_t page_values(int head_dim) {
  return static_cast<size_t>(kPageRows) * static_cast<size_t>(head_dim);
}

inline std::vector<float> gaussian_page(int head_dim, uint64_t seed) {
  return Random(seed).normals(page_values(head_dim));
}

// The codebook of F, with the sketch where F has one; both are made once a head size.
template <class F>
Codebook codebook_of(int head_dim) {
  static std::map<int, Codebook> books;
  static std::map<int, std::vector<float>> sketches;
  const auto found = books.find(head_dim);
  if (found != books.end()) return found->second;
  Codebook book = make_codebook(F::kCodebook, head_dim);
  if (F::kCodebook.kind == CodebookKind::kSketched) {
    sketches[head_dim] = make_sketch(0, head_dim);
    book.sketch = sketches[head_dim].data();
  }
  return books[head_dim] = book;
}

template <class F>
std::vector<uint8_t> encoded(const std::vector<float>& rows, int head_dim, const Codebook& book, bool keys) {
  const int bytes = keys ? F::key_page_bytes(head_dim) : F::value_page_bytes(head_dim);
  std::vector<uint8_t> page(static_cast<size_t>(bytes));
  if (keys) {
    F::encode_keys(rows.data(), head_dim, book, page.data());
  } else {
    F::encode_values(rows.data(), head_dim, book, page.data());
  }
  return page;
}

template <class F>
std::vector<float> decoded(const std::vector<uint8_t>& page, int head_dim, const Codebook& book, bool keys) {
  std::vector<float> rows(page_values(head_dim));
  for (int t = 0; t < kPageRows; ++t) {
    float* out = rows.data() + t * head_dim;
    if (keys) {
      F::decode_key_row(page.data(), head_dim, t, book, out);
    } else {
      F::decode_value_row(page.data(), head_dim, t, book, out);
    }
  }
  return rows;
}

template <class F>
std::vector<float> round_trip(const std::vector<float>& rows, int head_dim, bool keys) {
  const Codebook book = codebook_of<F>(head_dim);
  return decoded<F>(encoded<F>(rows, head_dim, book, keys), head_dim, book, keys);
}

inline double squared_norm(const float* x, int n) {
  double sum = 0.0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

inline double squared_norm(const std::vector<float>& x) {
  return squared_norm(x.data(), static_cast<int>(x.size()));
}

inline double squared_distance(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - y[i];
    sum += d * d;
  }
  return sum;
}

// E|x - x^|^2 / E|x|^2 over `n_pages` pages of Gaussian rows.
template <class F>
double distortion(int head_dim, bool keys, int n_pages = 8) {
  double error = 0.0;
  double size = 0.0;
  for (int p = 0; p < n_pages; ++p) {
    const std::vector<float> rows = gaussian_page(head_dim, 1000u + static_cast<uint64_t>(p));
    error += squared_distance(rows, round_trip<F>(rows, head_dim, keys));
    size += squared_norm(rows);
  }
  return error / size;
}

}  // namespace quire::test
