// The functions of format/ for host and device alike: included by the compiler's command line in front of
// every CUDA source, so before base/half.h has its own word.
#pragma once

#define QUIRE_INLINE static inline __host__ __device__ __attribute__((always_inline))
