// Memory for pieces that were fetched: which are there, and which leave for others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/memory_account.h"
#include "tier/mapped_bytes.h"
#include "tier/piece_read.h"

namespace quire {

// Cells of memory for a piece each, found by the piece's key. A piece that was selected stays while it is
// used (second chance); one that was swept over may leave at once, the last used first, so that of a sweep
// larger than the cache the same part is found there again each time. A cell that is pinned, or whose piece
// is on its way, is never used for another piece. Not safe for several threads: the tier's lock is held.
class PieceCache {
 public:
  using Cell = uint32_t;
  static constexpr Cell kNone = ~Cell{0};

  // Memory grows up to most_bytes (0: no limit of its own) as long as the account has room; the first cells
  // are firm. Throws Error where these do not fit.
  PieceCache(size_t piece_bytes, uint64_t most_bytes, MemoryAccount& account);
  ~PieceCache();
  // While it may not, memory that others give back is not taken.
  void allow_growth(bool allowed) { may_grow_ = allowed; }
  // From now on most_bytes is of both.
  void share_limit(const PieceCache& other) { beside_ = &other; }
  PieceCache(const PieceCache&) = delete;
  PieceCache& operator=(const PieceCache&) = delete;

  Cell find(uint64_t key) const;
  // A cell for a piece that is not there, on its way from now on; kNone: all are in use.
  Cell take(uint64_t key);
  // The same for a piece that is fetched ahead of its use: leaves what others are expected to use alone.
  Cell take_ahead(uint64_t key);
  // It is there, or never will be.
  void arrive(Cell cell) { meta_[cell].coming = false; }
  void fail(Cell cell);
  bool is_coming(Cell cell) const { return meta_[cell].coming; }
  std::byte* data(Cell cell) const {
    return arenas_[cell / cells_per_arena_].data() + cell % cells_per_arena_ * stride_;
  }

  void pin(Cell cell) { ++meta_[cell].pins; }
  // After its use.
  void unpin(Cell cell, PieceUse use);
  // After none.
  void unpin(Cell cell) { --meta_[cell].pins; }
  // Keeps a piece that is there until it is used, within this round.
  void expect(Cell cell);
  // Enough of it has been used for reads worth making.
  bool has_room_ahead() const { return n_expected_ <= usable() * 3 / 8; }
  // What was expected and not used is so no longer.
  void begin_round();

  // Spare memory shrinks: no cell of the last arena is taken any more, then it is given back. False while
  // some of its cells are in use. Bytes that there are to give back: spare_bytes().
  void begin_shrinking();
  bool finish_shrinking();
  uint64_t spare_bytes() const { return (arenas_.size() - 1) * arena_bytes(); }
  uint64_t size_bytes() const { return arenas_.size() * arena_bytes(); }
  bool is_shrinking() const { return shrinking_; }
  // By how much it is smaller than what was selected in the round that ends, and a quarter more.
  uint64_t missing_bytes() const;
  size_t n_cells() const { return meta_.size(); }

 private:
  struct Meta {
    uint64_t key = 0;
    uint32_t round = 0;  // in which it is expected to be used
    uint16_t pins = 0;
    bool coming = false;
    bool filled = false;  // has a key
    bool recent = false;  // selected since the hand passed it
    bool spent = false;   // swept over, and in spent_
  };

  // With what is kept of each cell: two places in empty_ and four in spent_, as vectors that double have up
  // to twice what they need, and four in table_.
  static constexpr size_t kCellBytes = sizeof(Meta) + 10 * sizeof(Cell);
  uint64_t arena_bytes() const { return cells_per_arena_ * (stride_ + kCellBytes); }
  size_t usable() const { return shrinking_ ? meta_.size() - cells_per_arena_ : meta_.size(); }
  bool is_expected(const Meta& meta) const { return meta.round == round_; }
  bool is_free(Cell cell) const { return cell < usable() && meta_[cell].pins == 0 && !meta_[cell].coming; }
  bool grow(bool firm);
  Cell pick(bool expected_too);
  Cell sweep(bool expected_too);
  Cell fill(Cell cell, uint64_t key);
  void forget_expected(Meta& meta);
  void insert(Cell cell);
  void erase(Cell cell);
  size_t home(uint64_t key) const {
    return static_cast<size_t>(key * 0x9e3779b97f4a7c15u >> 20) & (table_.size() - 1);
  }
  void rebuild_table();

  size_t stride_;
  size_t cells_per_arena_;
  uint64_t most_bytes_;
  const PieceCache* beside_ = nullptr;
  MemoryAccount& account_;
  std::vector<MappedBytes> arenas_;
  std::deque<Meta> meta_;    // [cell]; not a vector, which would hold it twice while it grows
  std::vector<Cell> empty_;  // without a piece
  std::vector<Cell> spent_;
  std::vector<Cell> table_;  // open addressing, a power of two
  Cell hand_ = 0;
  uint32_t round_ = 1;
  size_t n_expected_ = 0;
  size_t n_selected_ = 0;  // uses in this round
  bool shrinking_ = false;
  bool may_grow_ = true;
};

}  // namespace quire
