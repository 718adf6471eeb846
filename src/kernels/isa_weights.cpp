// Kernels of weights: products with packed panels.
#include "kernels/isa_begin.inl"

namespace quire {
namespace QUIRE_ISA {
namespace {

#include "kernels/linear.inl"

}  // namespace

void add_weights(Ops& ops) {
  constexpr LinearFn kFast[kPanelKinds] = {linear_fast<Q4_0>,           linear_fast<Q4_1>,
                                           linear_fast<Q5_0>,           linear_fast<Q5_1>,
                                           linear_fast<Q8_0>,           linear_fast<Q4_K>,
                                           linear_fast<Q5_K>,           linear_fast<Q6_K>,
                                           linear_float<float, false>,  linear_float<uint16_t, false>,
                                           linear_float<uint16_t, true>};
  constexpr LinearFn kPrecise[kPanelKinds] = {
      linear_precise<Q4_0>,          linear_precise<Q4_1>,        linear_precise<Q5_0>,
      linear_precise<Q5_1>,          linear_precise<Q8_0>,        linear_precise<Q4_K>,
      linear_precise<Q5_K>,          linear_precise<Q6_K>,        linear_float<float, false>,
      linear_float<uint16_t, false>, linear_float<uint16_t, true>};
  for (int kind = 0; kind < kPanelKinds; ++kind) {
    ops.linear_fast[kind] = kFast[kind];
    ops.linear_precise[kind] = kPrecise[kind];
  }
  ops.quantize_tile = quantize_tile;
}

}  // namespace QUIRE_ISA
}  // namespace quire
