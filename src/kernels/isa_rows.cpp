// Kernels between the products, of exact rows, and of the index.
#include "kernels/isa_begin.inl"

namespace quire {
namespace QUIRE_ISA {
namespace {

// clang-format off
#include "kernels/linear.inl"
#include "kernels/rows.inl"
#include "kernels/index.inl"
// clang-format on

template <class R>
void add_row_format(int format, Ops& ops) {
  ops.store_keys[format] = store_keys<R>;
  ops.store_values[format] = store_values<R>;
  ops.unpack[format] = unpack<R>;
  ops.score[format] = score<R>;
  ops.score_rows[format] = score_few<R>;
  ops.accumulate[format] = accumulate<R>;
}

}  // namespace

void add_rows(Ops& ops) {
  ops.name = kName;
  ops.rms_norm = rms_norm;
  ops.silu_multiply = silu_multiply;
  ops.gelu_multiply = gelu_multiply;
  ops.rope = rope;
  add_row_format<RowF32>(0, ops);
  add_row_format<RowF16>(1, ops);
  add_row_format<RowBF16>(2, ops);
  add_row_format<RowFP8>(3, ops);
  ops.cap_scores = cap_scores;
  ops.softmax = softmax;
  ops.merge = merge;
  ops.index = {index_sign_tables, index_codebook_tables, index_estimate, index_mass, index_levels,
               index_level_mass,  index_row_levels,      index_row_mass, index_mark};
}

}  // namespace QUIRE_ISA
}  // namespace quire
