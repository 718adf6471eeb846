// How the rows of a sealed page become bytes outside: pieces, each with a checksum behind it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

constexpr size_t kPieceRows = 64;  // of a page

// A piece is what is fetched at once. Of codes it is a page's rows of one KV head, keys and then values, as
// they lie in memory: a few kilobytes, which is what a disk gives at a time anyway. Of exact rows that are
// selected one by one it is a row: its key and then its value. A record is a piece and its checksum:
//
//   page: | head 0: piece, checksum | head 1: ... |            by_rows: | head 0: row 0, checksum; row 1 ...
//   |
struct PieceLayout {
  size_t n_heads = 0;
  // Of 64 rows of a head. In memory keys lie [head_dim][64], values [64][head_dim].
  size_t key_bytes = 0;
  size_t value_bytes = 0;
  bool by_rows = false;
  size_t head_dim = 0;  // where by rows

  size_t head_bytes() const { return key_bytes + value_bytes; }
  size_t pieces_per_head() const { return by_rows ? kPieceRows : 1; }
  size_t n_pieces() const { return n_heads * pieces_per_head(); }
  size_t piece_bytes() const { return head_bytes() / pieces_per_head(); }
  size_t record_bytes() const { return (piece_bytes() + sizeof(uint64_t) + 7) / 8 * 8; }
  size_t page_bytes() const { return n_pieces() * record_bytes(); }
};

// Rows of one head, keys and then values as in memory, become records of the page with that number.
void pack_head(const PieceLayout& layout, uint64_t page_number, size_t head, const std::byte* rows,
               std::byte* page_records);
// Whether the record of a piece is what was written for that page.
bool is_whole(const PieceLayout& layout, uint64_t page_number, size_t piece, const std::byte* record);
// Copies a piece, of row `row` where by rows, to where the head's rows lie in memory.
void unpack_piece(const PieceLayout& layout, const std::byte* piece, size_t row, std::byte* rows);

}  // namespace quire
