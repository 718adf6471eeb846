// Coded formats of KV rows: what every one of them declares and offers.
//
// A page holds 64 rows (tokens) of one KV head; its keys and its values are coded apart. A format is a
// stateless struct: one header here, and one line in code_catalogue.h. The headers are included in files
// compiled once per instruction set with -ffp-contract=off, so they are plain C-like code: every sum has a
// fixed order, and no function of the maths library but sqrt, rint and fabs (exact in IEEE) is called. The
// bytes are therefore the same from every build.
//
// Rows are expected to be finite. From a NaN or an infinity an encoder makes some finite code, and writes
// nowhere else.
#pragma once

#include <stdint.h>

#include "base/half.h"

namespace quire {

constexpr int kPageRows = 64;
constexpr int kMaxHeadDim = 256;

// What a coder looks values up in; it depends on the format and the head size, never on the data.
// With b bits, `half` = 2^(b-1) magnitudes:
//
//   code = sign << (b-1) | magnitude      sign 1: positive or zero
//   centroids[code]:  [0, half) = -c_0 -c_1 ...   [half, 2 half) = +c_0 +c_1 ...   0 < c_0 < c_1 < ...
//   thresholds[i]  :  separates magnitudes i and i + 1, i < half - 1
//
// Pair codes (polar.h) keep radii in centroids[0, 8), and thresholds between them.
struct Codebook {
  float centroids[16];
  float thresholds[8];
  const float* sketch;  // [head_dim][head_dim] Gaussian matrix of sketch.h; null for formats without one
};

enum class CodebookKind : uint8_t {
  kNone,
  kCoordinate,  // of a coordinate of a unit vector
  kPair,        // of the length of two coordinates of a unit vector
  kSketched,    // as kCoordinate, and the sketch
};

struct CodebookSpec {
  CodebookKind kind;
  int bits;
};

// What every format declares about itself.
struct CodeInfo {
  const char* name;
  int key_bits;  // nominal bits a value, parameters not counted
  int value_bits;
  // Bounds of E|x - x^|^2 / E|x|^2 for Gaussian rows of any head size (the tests hold formats to them).
  double key_distortion;
  double value_distortion;
  bool wants_rotation;  // made for rows in a rotated frame (frame.h); others are published without one
  const char* source;
};

// A key page in memory. Of a format with an index its first index_page_bytes lie apart, so that the index of
// many pages is read in one go; of others `rows` is the whole page.
struct KeyPage {
  const uint8_t* index;
  const uint8_t* rows;
};

// A format whose key pages begin with an index plane (kernels/index.inl) says so by these: the bytes of the
// plane and of the rows' norms, where the norms begin, and both ways between rows and a page in two parts.
template <class F>
concept IndexedFormat = requires(const float* rows, float* out, uint8_t* bytes, const Codebook& book) {
  F::index_page_bytes(64);
  F::index_norms_offset(64);
  F::encode_keys(rows, 64, book, bytes, bytes);  // rows [64][head_dim], (..., index, rows)
  F::decode_key_row(KeyPage{}, 64, 0, book, out);
};

template <class F>
concept CodeFormat = requires(const float* rows, float* out, const uint8_t* page, uint8_t* bytes, int n,
                              const Codebook& book) {
  CodeInfo{F::kInfo};
  CodebookSpec{F::kCodebook};
  requires F::key_page_bytes(64)
  > 0;  // (head_dim) -> bytes of 64 rows
  requires F::value_page_bytes(64)
  > 0;
  F::encode_keys(rows, n, book, bytes);  // rows [64][head_dim]
  F::encode_values(rows, n, book, bytes);
  F::decode_key_row(page, n, n, book, out);  // (page, head_dim, row, book, out [head_dim])
  F::decode_value_row(page, n, n, book, out);
};

}  // namespace quire
