// The distortion of every coded format and of fp8 rows on Gaussian rows, beside what theory says of its
// codebook: a table in Markdown for docs/results.
//
//   distortion [HEAD_DIM ...]      64 and 128 where none is given
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "base/fp8.h"
#include "format/code_catalogue.h"
#include "format/lloyd_max.h"
#include "format/row_format.h"
#include "format/sketch.h"

namespace {

using namespace quire;

constexpr int kPages = 200;

struct Distortion {
  double keys = 0;
  double values = 0;
};

// E|x - x^|^2 / E|x|^2 over kPages pages of keys and of values.
template <class F>
Distortion measure(int head_dim, const Codebook& book) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> rows(static_cast<size_t>(kPageRows * head_dim));
  std::vector<uint8_t> keys(static_cast<size_t>(F::key_page_bytes(head_dim)) + 64);
  std::vector<uint8_t> values(static_cast<size_t>(F::value_page_bytes(head_dim)) + 64);
  double power = 0;
  Distortion lost;
  for (int page = 0; page < kPages; ++page) {
    for (float& x : rows) x = normal(random);
    F::encode_keys(rows.data(), head_dim, book, keys.data());
    F::encode_values(rows.data(), head_dim, book, values.data());
    for (int t = 0; t < kPageRows; ++t) {
      float key[kMaxHeadDim], value[kMaxHeadDim];
      F::decode_key_row(keys.data(), head_dim, t, book, key);
      F::decode_value_row(values.data(), head_dim, t, book, value);
      for (int d = 0; d < head_dim; ++d) {
        const double x = rows[static_cast<size_t>(t * head_dim + d)];
        power += x * x;
        lost.keys += (x - key[d]) * (x - key[d]);
        lost.values += (x - value[d]) * (x - value[d]);
      }
    }
  }
  return {lost.keys / power, lost.values / power};
}

// Of the Lloyd-Max code of a coordinate of a unit vector (algorithm 1 of arXiv 2504.19874, without the norm
// correction), by integration over its density f(x) ~ (1 - x^2)^((d - 3) / 2).
double lloyd_max_distortion(const Codebook& book, int bits, int head_dim) {
  constexpr int kSteps = 200000;
  const int half = 1 << (bits - 1);
  double mass = 0, lost = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double x = (i + 0.5) / kSteps;
    const double density = std::pow(1 - x * x, (head_dim - 3) / 2.0);
    int magnitude = 0;
    while (magnitude < half - 1 && x > book.thresholds[magnitude]) ++magnitude;
    const double error = x - book.centroids[half + magnitude];
    mass += density;
    lost += density * error * error;
  }
  return lost / mass * head_dim;
}

template <class F>
void print_row(int head_dim) {
  Codebook book = make_codebook(F::kCodebook, head_dim);
  std::vector<float> sketch;
  if (F::kCodebook.kind == CodebookKind::kSketched) {
    sketch = make_sketch(0, head_dim);
    book.sketch = sketch.data();
  }
  const Distortion lost = measure<F>(head_dim, book);
  const CodeInfo info = F::kInfo;
  std::printf("| %s | %d | %.1f | %.1f | %.5f | %.5f | %.5f | ", info.name, head_dim,
              8.0 * F::key_page_bytes(head_dim) / kPageRows, 8.0 * F::value_page_bytes(head_dim) / kPageRows,
              lost.keys, lost.values, info.key_distortion);
  if (F::kCodebook.kind == CodebookKind::kCoordinate) {
    std::printf("%.5f |\n", lloyd_max_distortion(book, F::kCodebook.bits, head_dim));
  } else {
    std::printf("|\n");
  }
}

// Declared is the square of the largest relative error of a number.
void print_fp8_row(int head_dim) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  double power = 0, lost = 0;
  for (int i = 0; i < kPages * kPageRows * head_dim; ++i) {
    const double x = normal(random);
    const double error = x - fp8_to_f32(f32_to_fp8(static_cast<float>(x)));
    power += x * x;
    lost += error * error;
  }
  const FormatInfo& fp8 = info(Format::kFP8);
  const double n_bits = 8.0 * static_cast<double>(row_bytes(Format::kFP8, static_cast<size_t>(head_dim)));
  std::printf("| %s | %d | %.1f | %.1f | %.5f | %.5f | %.5f | |\n", fp8.name, head_dim, n_bits, n_bits,
              lost / power, lost / power, fp8.relative_error * fp8.relative_error);
}

template <class... Entries>
void print_rows(CodeList<Entries...>, int head_dim) {
  (print_row<typename Entries::Type>(head_dim), ...);
  print_fp8_row(head_dim);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {64, 128};
  for (const int size : sizes) {
    if (size >= 8 && size <= kMaxHeadDim) continue;
    std::fprintf(stderr, "distortion: head sizes from 8 to %d are possible\n", kMaxHeadDim);
    return 2;
  }
  std::printf(
      "| format | head size | bits a key row | bits a value row | keys | values | declared | theory |\n");
  std::printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const int size : sizes) print_rows(Codes{}, size);
  return 0;
}
