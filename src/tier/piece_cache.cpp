#include "tier/piece_cache.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"

namespace quire {

namespace {
constexpr size_t kArenaBytes = size_t{256} << 10;
constexpr size_t kFewestCells = 8;
}  // namespace

PieceCache::PieceCache(size_t piece_bytes, uint64_t most_bytes, MemoryAccount& account)
    : stride_((piece_bytes + 63) / 64 * 64),
      cells_per_arena_(std::max(kFewestCells, kArenaBytes / stride_)),
      most_bytes_(most_bytes),
      account_(account) {
  if (!grow(true)) {
    throw Error("the rows fetched from a tier need " + std::to_string(arena_bytes()) +
                " bytes at least, and the cache's budget of " + std::to_string(account.limit_bytes()) +
                " bytes has " + std::to_string(account.limit_bytes() - account.firm_bytes()) + " left");
  }
}

PieceCache::~PieceCache() {
  account_.give_back_spare(spare_bytes());
  account_.give_back(arena_bytes());
}

bool PieceCache::grow(bool firm) {
  if (shrinking_ || (!firm && !may_grow_)) return false;
  const uint64_t n_beside = beside_ != nullptr ? beside_->size_bytes() : 0;
  if (!firm && most_bytes_ != 0 && size_bytes() + n_beside + arena_bytes() > most_bytes_) return false;
  if (firm ? !account_.take(arena_bytes()) : !account_.take_spare(arena_bytes())) return false;
  const auto first = static_cast<Cell>(meta_.size());
  try {
    arenas_.emplace_back(cells_per_arena_ * stride_);
  } catch (const Error&) {
    firm ? account_.give_back(arena_bytes()) : account_.give_back_spare(arena_bytes());
    return false;
  }
  meta_.resize(meta_.size() + cells_per_arena_);
  for (Cell cell = first + static_cast<Cell>(cells_per_arena_); cell > first;) empty_.push_back(--cell);
  if (table_.size() < 2 * meta_.size()) rebuild_table();
  return true;
}

void PieceCache::rebuild_table() {
  table_.assign(std::bit_ceil(2 * meta_.size()), kNone);
  for (Cell cell = 0; cell < meta_.size(); ++cell) {
    if (meta_[cell].filled) insert(cell);
  }
}

void PieceCache::insert(Cell cell) {
  size_t at = home(meta_[cell].key);
  while (table_[at] != kNone) at = (at + 1) & (table_.size() - 1);
  table_[at] = cell;
}

// What stands behind it moves up, so that no gap lies between a piece and its home.
void PieceCache::erase(Cell cell) {
  const size_t mask = table_.size() - 1;
  size_t gap = home(meta_[cell].key);
  while (table_[gap] != cell) gap = (gap + 1) & mask;
  for (size_t at = (gap + 1) & mask; table_[at] != kNone; at = (at + 1) & mask) {
    const size_t distance = (at - home(meta_[table_[at]].key)) & mask;
    if (distance < ((at - gap) & mask)) continue;
    table_[gap] = table_[at];
    gap = at;
  }
  table_[gap] = kNone;
}

PieceCache::Cell PieceCache::find(uint64_t key) const {
  for (size_t at = home(key); table_[at] != kNone; at = (at + 1) & (table_.size() - 1)) {
    if (meta_[table_[at]].key == key) return table_[at];
  }
  return kNone;
}

PieceCache::Cell PieceCache::take(uint64_t key) {
  Cell cell = pick(false);
  if (cell == kNone) cell = sweep(true);
  return cell == kNone ? kNone : fill(cell, key);
}

PieceCache::Cell PieceCache::take_ahead(uint64_t key) {
  if (n_expected_ >= usable() / 2 && !grow(false)) return kNone;
  const Cell cell = pick(false);
  if (cell == kNone) return kNone;
  fill(cell, key);
  expect(cell);
  return cell;
}

PieceCache::Cell PieceCache::pick(bool expected_too) {
  while (true) {
    while (!empty_.empty()) {
      const Cell cell = empty_.back();
      empty_.pop_back();
      if (cell < usable() && !meta_[cell].filled) return cell;
    }
    if (!grow(false)) break;
  }
  while (!spent_.empty()) {
    const Cell cell = spent_.back();
    spent_.pop_back();
    if (cell >= meta_.size() || !meta_[cell].spent) continue;
    meta_[cell].spent = false;
    if (is_free(cell) && !is_expected(meta_[cell])) return cell;
  }
  return sweep(expected_too);
}

// The hand goes around twice at most: in the first round it takes the marks away.
PieceCache::Cell PieceCache::sweep(bool expected_too) {
  for (size_t i = 0; i < 2 * usable(); ++i) {
    hand_ = hand_ + 1 < usable() ? hand_ + 1 : 0;
    Meta& meta = meta_[hand_];
    if (!is_free(hand_) || (is_expected(meta) && !expected_too)) continue;
    if (meta.recent) {
      meta.recent = false;
      continue;
    }
    return hand_;
  }
  return kNone;
}

PieceCache::Cell PieceCache::fill(Cell cell, uint64_t key) {
  Meta& meta = meta_[cell];
  if (meta.filled) erase(cell);
  forget_expected(meta);
  meta = {};
  meta.key = key;
  meta.coming = true;
  meta.filled = true;
  insert(cell);
  return cell;
}

void PieceCache::fail(Cell cell) {
  Meta& meta = meta_[cell];
  erase(cell);
  forget_expected(meta);
  meta.filled = false;
  meta.coming = false;
}

void PieceCache::unpin(Cell cell, PieceUse use) {
  Meta& meta = meta_[cell];
  --meta.pins;
  forget_expected(meta);
  if (use == PieceUse::kSelected) {
    meta.recent = true;
    meta.spent = false;
    ++n_selected_;
  } else if (!meta.recent && !meta.spent) {
    meta.spent = true;
    spent_.push_back(cell);
    // Those that were selected since are still in it.
    if (spent_.size() > 2 * meta_.size()) std::erase_if(spent_, [&](Cell at) { return !meta_[at].spent; });
  }
}

void PieceCache::expect(Cell cell) {
  Meta& meta = meta_[cell];
  if (is_expected(meta)) return;
  meta.round = round_;
  ++n_expected_;
}

void PieceCache::forget_expected(Meta& meta) {
  if (!is_expected(meta)) return;
  meta.round = 0;
  --n_expected_;
}

void PieceCache::begin_round() {
  ++round_;
  n_expected_ = 0;
  n_selected_ = 0;
}

uint64_t PieceCache::missing_bytes() const {
  const size_t n_wanted = n_selected_ + n_selected_ / 4;
  return n_wanted <= n_cells() ? 0 : (n_wanted - n_cells()) * (arena_bytes() / cells_per_arena_);
}

void PieceCache::begin_shrinking() {
  QUIRE_CHECK(arenas_.size() > 1);
  shrinking_ = true;
}

bool PieceCache::finish_shrinking() {
  if (!shrinking_) return true;  // somebody else has finished it
  for (size_t cell = usable(); cell < meta_.size(); ++cell) {
    if (meta_[cell].pins > 0 || meta_[cell].coming) return false;
  }
  for (auto cell = static_cast<Cell>(usable()); cell < meta_.size(); ++cell) {
    forget_expected(meta_[cell]);
    if (meta_[cell].filled) erase(cell);
  }
  meta_.resize(usable());
  const auto is_gone = [&](Cell cell) { return cell >= meta_.size(); };
  std::erase_if(empty_, is_gone);
  std::erase_if(spent_, is_gone);
  shrinking_ = false;
  arenas_.pop_back();
  account_.give_back_spare(arena_bytes());
  return true;
}

}  // namespace quire
