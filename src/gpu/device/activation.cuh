// What a gate becomes.
#pragma once

#include "model/families.h"

namespace quire::gpu {

__device__ __forceinline__ float activated(float gate, Activation activation) {
  if (activation == Activation::kSilu) return gate / (1.0f + __expf(-gate));
  // 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
  const float u = 0.7978845608028654f * (gate + 0.044715f * gate * gate * gate);
  return gate / (1.0f + __expf(-2.0f * u));
}

}  // namespace quire::gpu
