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
#if defined(QUIRE_ISA_avx512)
#include "kernels/single_rows_avx512.inl"
#include "kernels/turbo_rows_avx512.inl"
#include "kernels/signvq_avx512.inl"
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
#if defined(QUIRE_ISA_avx512)
template <int bits>
struct SingleRows<Turbo<bits>> {
  static constexpr auto score = turbo_score_rows<bits>;
  static constexpr auto accumulate = turbo_accumulate_rows<bits>;
};
template <>
struct SingleRows<SignVq> {
  static constexpr auto score = signvq_score_rows;
  static constexpr auto accumulate = signvq_accumulate_rows;
};
template <>
struct Fused<SignVq> {
  static constexpr auto score = signvq_score;
  static constexpr auto accumulate = signvq_accumulate;
  static constexpr auto open_keys = quire::QUIRE_ISA::open_keys<SignVq, KeyPage>;
  static constexpr auto open_values = quire::QUIRE_ISA::open_values<SignVq>;
};
#endif

template <int bits>
constexpr bool kBuiltHere<Turbo<bits>> = true;
template <>
constexpr bool kBuiltHere<SignVq> = true;

}  // namespace

void add_plane_codes(Ops& ops) { add_codes_here(Codes{}, ops.codes); }

}  // namespace QUIRE_ISA
}  // namespace quire
