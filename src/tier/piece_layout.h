// How the rows of a sealed page become bytes outside: pieces, each with a checksum behind it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

constexpr size_t kPieceRows = 64;  // of a page

// A record is rows of one KV head and their checksum: of codes all 64 of the page, keys and then values, as
// they lie in memory; of exact rows that are selected one by one a row, its key and then its value:
//
//   page: | head 0: keys, values, checksum | head 1: ... |
//   by_rows: | head 0: row 0, checksum | row 1, checksum | ... | head 1: ... |
//
// A piece is what is fetched at once: one record, or all of a head's.
struct PieceLayout {
  size_t n_heads = 0;
  // Of 64 rows of a head. In memory keys lie [head_dim][64], values [64][head_dim].
  size_t key_bytes = 0;
  size_t value_bytes = 0;
  bool by_rows = false;
  size_t head_dim = 0;  // where by rows

  size_t head_bytes() const { return key_bytes + value_bytes; }
  size_t records_per_head() const { return by_rows ? kPieceRows : 1; }
  size_t n_records() const { return n_heads * records_per_head(); }
  // Without the checksum, and with it.
  size_t payload_bytes() const { return head_bytes() / records_per_head(); }
  size_t record_bytes() const { return (payload_bytes() + sizeof(uint64_t) + 7) / 8 * 8; }
  size_t page_bytes() const { return n_records() * record_bytes(); }
};

// Rows of one head, keys and then values as in memory, become records of the page with that number.
void pack_head(const PieceLayout& layout, uint64_t page_number, size_t head, const std::byte* rows,
               std::byte* page_records);
// Whether a record is what was written as number `at` of that page.
bool is_intact(const PieceLayout& layout, uint64_t page_number, size_t at, const std::byte* record);
// Copies a record's payload, of row `row` where by rows, to where the head's rows lie in memory.
void unpack_record(const PieceLayout& layout, const std::byte* payload, size_t row, std::byte* rows);

}  // namespace quire
