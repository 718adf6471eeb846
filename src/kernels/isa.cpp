// The kernels of one instruction set. Built once per set with QUIRE_ISA = scalar | avx2 | avx512 into a
// namespace of its own; everything but the table is anonymous and force-inlined, so no symbol of this object
// can be picked by the linker for code of another set.
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if !defined(QUIRE_ISA_scalar)
#include <immintrin.h>
#endif

#include "base/half.h"
#include "format/code_catalogue.h"
#include "format/frame.h"
#include "kernels/ops.h"

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

// Each builds on those before it.
// clang-format off
#include "kernels/math.inl"
#include "kernels/linear.inl"
#include "kernels/rows.inl"
#include "kernels/codes.inl"
#include "kernels/index.inl"
// clang-format on

}  // namespace

extern const Ops kOps;
const Ops kOps = {
    kName,
    {linear_fast<Q4_0>, linear_fast<Q4_1>, linear_fast<Q5_0>, linear_fast<Q5_1>, linear_fast<Q8_0>,
     linear_fast<Q4_K>, linear_fast<Q5_K>, linear_fast<Q6_K>, linear_float<float, false>,
     linear_float<uint16_t, false>, linear_float<uint16_t, true>},
    {linear_precise<Q4_0>, linear_precise<Q4_1>, linear_precise<Q5_0>, linear_precise<Q5_1>,
     linear_precise<Q8_0>, linear_precise<Q4_K>, linear_precise<Q5_K>, linear_precise<Q6_K>,
     linear_float<float, false>, linear_float<uint16_t, false>, linear_float<uint16_t, true>},
    quantize_tile,
    rms_norm,
    silu_multiply,
    rope,
    {store_keys<RowF32>, store_keys<RowF16>, store_keys<RowBF16>},
    {store_values<RowF32>, store_values<RowF16>, store_values<RowBF16>},
    {unpack<RowF32>, unpack<RowF16>, unpack<RowBF16>},
    {score<RowF32>, score<RowF16>, score<RowBF16>},
    {score_few<RowF32>, score_few<RowF16>, score_few<RowBF16>},
    softmax,
    {accumulate<RowF32>, accumulate<RowF16>, accumulate<RowBF16>},
    merge,
    code_ops(Codes{}),
    {index_sign_tables, index_codebook_tables, index_estimate, index_mass, index_levels, index_row_levels,
     index_mark},
};

}  // namespace QUIRE_ISA
}  // namespace quire
