// The coders built for avx512, with fused multiply-add on offer but contraction off, as kernels are.
#include <stdint.h>
#include <string.h>

#include <concepts>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,popcnt,fma,f16c")
#pragma GCC optimize("O3", "fp-contract=off")
#define QUIRE_TEST_ISA_BUILT 1
#else
#define QUIRE_TEST_ISA_BUILT 0
#endif

#include "format/code_catalogue.h"
#include "format/frame.h"

namespace quire::test_avx512 {

extern const bool kBuilt;
const bool kBuilt = QUIRE_TEST_ISA_BUILT != 0;

int code_all(const Frame& frame, const float* rows, const Codebook* books, float* framed, uint8_t* bytes,
             float* back);
#include "unit/format/code_isa.inl"

}  // namespace quire::test_avx512
