// What the isa_*.cpp begin with. Each is built once per instruction set with QUIRE_ISA = scalar | avx2 |
// avx512 into a namespace of its own; everything but the function that adds to the table is anonymous or
// force-inlined, so no symbol of these objects can be picked by the linker for code of another set.
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if !defined(QUIRE_ISA_scalar)
#include <immintrin.h>
#endif

#include "base/fp8.h"
#include "base/half.h"
#include "format/code_catalogue.h"
#include "format/frame.h"
#include "kernels/ops.h"

// A file uses some of the parts that it includes.
#pragma GCC diagnostic ignored "-Wunused-function"

namespace quire {
namespace QUIRE_ISA {
namespace {

#if defined(QUIRE_ISA_avx512)
#include "kernels/simd_avx512.inl"
constexpr int kLinearTile = 8;    // tokens whose sums stay in registers
constexpr int kScoreRows = 6;     // query rows and
constexpr int kScoreVectors = 4;  // key vectors of one register tile
constexpr const char* kName = "avx512";
#elif defined(QUIRE_ISA_avx2)
#include "kernels/simd_avx2.inl"
constexpr int kLinearTile = 2;
constexpr int kScoreRows = 3;
constexpr int kScoreVectors = 2;
constexpr const char* kName = "avx2";
#else
#include "kernels/simd_scalar.inl"
constexpr int kLinearTile = 1;
constexpr int kScoreRows = 1;
constexpr int kScoreVectors = 1;
constexpr const char* kName = "scalar";
#endif

#include "kernels/math.inl"

}  // namespace
}  // namespace QUIRE_ISA
}  // namespace quire
