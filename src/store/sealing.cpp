#include "store/sealing.h"

#include <cstring>
#include <memory>

#include "kernels/ops.h"
#include "store/store.h"

namespace quire {

namespace {

// A page of one head in f32, in the layout of the open page.
std::unique_ptr<float[]> expand(Format format, size_t head_dim, const std::byte* open) {
  auto rows = std::make_unique<float[]>(kTokensPerPage * head_dim);
  ops().unpack[static_cast<size_t>(format)](open, kTokensPerPage * head_dim, rows.get());
  return rows;
}

}  // namespace

void seal_keys(Format open_format, const SideFormat& format, const HeadFrames& frames, size_t head_dim,
               size_t first_position, const std::byte* open, std::byte* index, std::byte* coded) {
  if (!format.coded && format.rows == open_format) {
    std::memcpy(coded, open, row_bytes(open_format, kTokensPerPage * head_dim));
    return;
  }
  const auto keys = expand(open_format, head_dim, open);
  const int dim = static_cast<int>(head_dim);
  if (format.coded) {
    if (frames.key_bias != nullptr) frames.key_bias->take_off_page(first_position, keys.get());
    ops().codes.seal_keys[static_cast<size_t>(format.code)](
        frames.key_framed ? &frames.key : nullptr, *frames.key_book, dim, keys.get(),
        reinterpret_cast<uint8_t*>(index), reinterpret_cast<uint8_t*>(coded));
  } else {
    // Keys [head_dim][64] are stored like values of rows of 64: the layout is the same.
    ops().store_values[static_cast<size_t>(format.rows)](coded, 0, dim, kPageTokens, keys.get(), kPageTokens);
  }
}

void seal_values(Format open_format, const SideFormat& format, const HeadFrames& frames, size_t head_dim,
                 const std::byte* open, std::byte* coded) {
  if (!format.coded && format.rows == open_format) {
    std::memcpy(coded, open, row_bytes(open_format, kTokensPerPage * head_dim));
    return;
  }
  const auto values = expand(open_format, head_dim, open);
  const int dim = static_cast<int>(head_dim);
  if (format.coded) {
    ops().codes.seal_values[static_cast<size_t>(format.code)](frames.value_framed ? &frames.value : nullptr,
                                                              *frames.value_book, dim, values.get(),
                                                              reinterpret_cast<uint8_t*>(coded));
  } else {
    ops().store_values[static_cast<size_t>(format.rows)](coded, 0, kPageTokens, dim, values.get(), head_dim);
  }
}

}  // namespace quire
