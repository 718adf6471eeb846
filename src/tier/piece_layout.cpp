#include "tier/piece_layout.h"

#include <xxhash.h>

#include <cstring>

namespace quire {

namespace {

// Other bytes at the same place, of a page that was there before, do not pass.
uint64_t checksum(const PieceLayout& layout, uint64_t page_number, size_t at, const std::byte* bytes) {
  return XXH3_64bits_withSeed(bytes, layout.payload_bytes(), page_number * 0x9e3779b97f4a7c15u + at);
}

// A column of keys [head_dim][64] and a row, either way.
template <typename Value>
void copy_column(std::byte* columns, size_t row, std::byte* values, size_t head_dim, bool to_row) {
  for (size_t d = 0; d < head_dim; ++d) {
    std::byte* at = columns + (d * kPieceRows + row) * sizeof(Value);
    std::byte* value = values + d * sizeof(Value);
    std::memcpy(to_row ? value : at, to_row ? at : value, sizeof(Value));
  }
}

void copy_key(const PieceLayout& layout, std::byte* columns, size_t row, std::byte* values, bool to_row) {
  const size_t value_size = layout.key_bytes / kPieceRows / layout.head_dim;
  if (value_size == 2) return copy_column<uint16_t>(columns, row, values, layout.head_dim, to_row);
  return copy_column<uint32_t>(columns, row, values, layout.head_dim, to_row);
}

}  // namespace

void pack_head(const PieceLayout& layout, uint64_t page_number, size_t head, const std::byte* rows,
               std::byte* page_records) {
  const size_t first = head * layout.records_per_head();
  for (size_t i = 0; i < layout.records_per_head(); ++i) {
    std::byte* record = page_records + (first + i) * layout.record_bytes();
    std::memset(record + layout.payload_bytes(), 0, layout.record_bytes() - layout.payload_bytes());
    if (layout.by_rows) {
      const size_t key_row = layout.key_bytes / kPieceRows;
      const size_t value_row = layout.value_bytes / kPieceRows;
      copy_key(layout, const_cast<std::byte*>(rows), i, record, true);
      std::memcpy(record + key_row, rows + layout.key_bytes + i * value_row, value_row);
    } else {
      std::memcpy(record, rows, layout.head_bytes());
    }
    const uint64_t sum = checksum(layout, page_number, first + i, record);
    std::memcpy(record + layout.payload_bytes(), &sum, sizeof sum);
  }
}

bool is_intact(const PieceLayout& layout, uint64_t page_number, size_t at, const std::byte* record) {
  uint64_t sum = 0;
  std::memcpy(&sum, record + layout.payload_bytes(), sizeof sum);
  return sum == checksum(layout, page_number, at, record);
}

void unpack_record(const PieceLayout& layout, const std::byte* payload, size_t row, std::byte* rows) {
  if (!layout.by_rows) {
    std::memcpy(rows, payload, layout.head_bytes());
    return;
  }
  const size_t key_row = layout.key_bytes / kPieceRows;
  const size_t value_row = layout.value_bytes / kPieceRows;
  copy_key(layout, rows, row, const_cast<std::byte*>(payload), false);
  std::memcpy(rows + layout.key_bytes + row * value_row, payload + key_row, value_row);
}

}  // namespace quire
