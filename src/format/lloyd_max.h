// Scalar quantizers of least mean square error (Lloyd 1957, Max 1960) for the densities that rotated rows
// have, and the codebooks that coded formats make of them.
//
// Solved in double by sums, products and square roots alone, so that every machine finds the same numbers.
#pragma once

#include <vector>

#include "format/code_format.h"

namespace quire {

// Of a density on the positive half line; signs, where there are any, are coded apart.
struct Quantizer {
  std::vector<double> centroids;   // rising
  std::vector<double> thresholds;  // one fewer, half-way between
  double distortion;               // E (x - c)^2 / E x^2
};

// b bits of which one is the sign, so 2^(b-1) magnitudes; b in 1..5.
Quantizer normal_quantizer(int bits);                    // of N(0, 1)
Quantizer coordinate_quantizer(int bits, int head_dim);  // of a coordinate of a unit vector in R^head_dim

// 2^b lengths of two coordinates of a unit vector.
Quantizer pair_quantizer(int bits, int head_dim);

// head_dim in 3..kMaxHeadDim. The sketch is left null.
Codebook make_codebook(CodebookSpec spec, int head_dim);

}  // namespace quire
