// Kernels of the codes in bit planes, whose keys have an index.
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
#include "kernels/row_bytes.inl"
#include "kernels/row_nested.inl"
#if !defined(QUIRE_ISA_scalar)  // whose rows are decoded by words sooner than by bytes
#include "kernels/single_rows.inl"
#include "kernels/single_nested.inl"
#include "kernels/single_signvq.inl"
#endif
// clang-format on

template <class Keys, class Values>
struct FusedRows {
  static constexpr auto score = row_score<Keys>;
  static constexpr auto accumulate = row_accumulate<Values>;
  static constexpr auto open_keys = row_open_keys<Keys>;
  static constexpr auto open_values = row_open_values<Values>;
};
template <int bits>
struct Fused<Turbo<bits>> : FusedRows<NestedKeys<bits>, NestedValues<bits>> {};
#if !defined(QUIRE_ISA_scalar)
template <int bits>
struct SingleRows<Turbo<bits>> {
  static constexpr auto score = score_single_rows<SingleNestedKeys<bits>>;
  static constexpr auto accumulate = accumulate_single_rows<SingleNestedValues<bits>>;
};
template <>
struct SingleRows<SignVq> {
  static constexpr auto score = score_single_rows<SingleVqKeys>;
  static constexpr auto accumulate = accumulate_single_rows<SingleVqValues>;
};
template <>
struct Fused<SignVq> {
  static constexpr auto score = row_score<VqPageKeys>;
  static constexpr auto accumulate = row_accumulate<VqPageValues>;
  static constexpr auto open_keys = quire::QUIRE_ISA::open_keys<SignVq, KeyPage>;
  static constexpr auto open_values = quire::QUIRE_ISA::open_values<SignVq>;
};
#endif

}  // namespace

void add_plane_codes(Ops& ops) { add_codes<true>(Codes{}, ops.codes); }

}  // namespace QUIRE_ISA
}  // namespace quire
