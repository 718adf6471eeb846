// Launches of attention over turbo pages, one file of kernels for every number of bits of the keys.
#pragma once

#include "kernels/cuda/device/launch_attention.cuh"
#include "kernels/cuda/device/turbo_rows.cuh"

namespace quire::cuda {

template <int kKeyBits, int kValueBits>
void launch_turbo(const DecodeAttention& attention, const TurboTables& tables, Stream stream) {
  visit_head_dim(attention.head_dim, [&](auto head_dim) {
    launch_attention<TurboRows<kKeyBits, kValueBits, head_dim()>>(attention, tables, stream);
  });
}

// Each in its file; value_bits as in attend_turbo().
void attend_turbo4(const DecodeAttention& attention, int value_bits, const TurboTables& tables,
                   Stream stream);
void attend_turbo3(const DecodeAttention& attention, int value_bits, const TurboTables& tables,
                   Stream stream);
void attend_turbo2(const DecodeAttention& attention, const TurboTables& tables, Stream stream);

}  // namespace quire::cuda
