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

// What is read soon is asked for line by line: everything that is read in decoding is bound by memory as soon
// as it is fused, and a page is too short for the hardware's own prefetcher to get going. Lines are asked for
// into the second cache: a core has more of them under way than into the first one (ADR 12).
QUIRE_INLINE void fetch_at(const void* line) { __builtin_prefetch(line, 0, 2); }
QUIRE_INLINE void fetch_ahead(BytesAhead next) {
  for (size_t i = 0; i < next.n_bytes; i += 64) fetch_at((const uint8_t*)next.data + i);
}

}  // namespace
}  // namespace QUIRE_ISA
}  // namespace quire
