// Kernels of the codes without an index: those that lie in panels, and any that have none of their own.
#include "kernels/isa_begin.inl"

namespace quire {
namespace QUIRE_ISA {
namespace {

// Each builds on those before it.
// clang-format off
#include "kernels/linear.inl"
#include "kernels/rows.inl"
#include "kernels/codes.inl"
#include "kernels/panels.inl"
#include "kernels/panel_groups.inl"
#include "kernels/panel_kivi.inl"
#include "kernels/row_bytes.inl"
#include "kernels/panel_open.inl"
#include "kernels/panel_signs.inl"
#include "kernels/panel_pairs.inl"
#include "kernels/panel_sketch.inl"
// clang-format on

template <class F>
struct FusedGroups {
  static constexpr auto score = group_score<F>;
  static constexpr auto accumulate = group_accumulate<F>;
  static constexpr auto open_keys = panel_open_keys<GroupOpener<F>>;
  static constexpr auto open_values = panel_open_values<GroupOpener<F>>;
};
template <>
struct Fused<Q8> : FusedGroups<Q8> {};
template <>
struct Fused<Q4> : FusedGroups<Q4> {};
template <int bits>
struct Fused<TurboPanel<bits>> : FusedGroups<TurboPanel<bits>> {};
template <int bits>
struct Fused<Kivi<bits>> {
  static constexpr auto score = kivi_score<bits>;
  static constexpr auto accumulate = kivi_accumulate<bits>;
  static constexpr auto open_keys = panel_open_keys<KiviOpener<bits, true>>;
  static constexpr auto open_values = panel_open_values<KiviOpener<bits, false>>;
};
template <>
struct Fused<Polar4> {
  static constexpr auto score = polar_score<false>;
  static constexpr auto accumulate = polar_accumulate<false>;
  static constexpr auto open_keys = polar_open_keys<false>;
  static constexpr auto open_values = polar_open_values<false>;
};
template <>
struct Fused<Polar4r> {
  static constexpr auto score = polar_score<true>;
  static constexpr auto accumulate = polar_accumulate<true>;
  static constexpr auto open_keys = polar_open_keys<true>;
  static constexpr auto open_values = polar_open_values<true>;
};
template <int bits>
struct Fused<TurboProd<bits>> {
  static constexpr auto score = prod_score<bits>;
  static constexpr auto accumulate = prod_accumulate<bits>;
  static constexpr auto open_keys = quire::QUIRE_ISA::open_keys<TurboProd<bits>, const uint8_t*>;
  static constexpr auto open_values = quire::QUIRE_ISA::open_values<TurboProd<bits>>;
};

}  // namespace

void add_panel_codes(Ops& ops) {
  add_codes<false>(Codes{}, ops.codes);
  ops.codes.frame_queries = frame_queries;
  ops.codes.unframe_output = unframe_output;
  ops.codes.sketch_queries = sketch_queries;
  ops.codes.fold_sketch = fold_sketch;
}

}  // namespace QUIRE_ISA
}  // namespace quire
