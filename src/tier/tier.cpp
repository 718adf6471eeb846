#include "tier/tier.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace quire {

namespace {

constexpr size_t kMostRecords = size_t{1} << 24;  // of a page, see Fetch::key()
// Where rows are selected one by one, layers that are swept over get no more than this while those need more.
constexpr uint64_t kLeastSwept = uint64_t{32} << 20;

TierOptions checked(TierOptions options, const SlabDevice& device) {
  const size_t unit = std::max<size_t>(device.alignment(), 64);
  const size_t n_records = options.row_bytes > 0 ? kPieceRows : 1;
  const size_t least = options.head_bytes + n_records * 2 * sizeof(uint64_t) + 2 * device.alignment();
  options.buffer_bytes = (std::max(options.buffer_bytes, least) + unit - 1) / unit * unit;
  options.n_buffers = std::clamp<size_t>(options.n_buffers, 1, device.depth());
  return options;
}

}  // namespace

OutsidePage::~OutsidePage() { tier->give_back(*this); }

WantedPieces WantedPieces::of_head(OutsidePageRef page, size_t head, uint64_t rows, PieceUse use) {
  const auto n = static_cast<uint32_t>(page->layout.records_per_head());
  const auto first = static_cast<uint32_t>(head) * n;
  const bool whole = use == PieceUse::kSwept || n == 1;
  return {std::move(page), first, first + n, whole, rows};
}

WantedPieces WantedPieces::of_page(OutsidePageRef page) {
  const auto n = static_cast<uint32_t>(page->layout.n_records());
  return {std::move(page), 0, n, true, 0};
}

Tier::Tier(std::unique_ptr<SlabDevice> device, const TierOptions& options, MemoryAccount& account)
    : options_(checked(options, *device)),
      account_(account),
      device_(std::move(device)),
      buffers_(options_.n_buffers * options_.buffer_bytes, options_.name, account),
      space_(options_.most_bytes, std::max<size_t>(device_->alignment(), 64)),
      plan_room_(options_.plan_bytes, options_.name, account),
      heads_(options_.head_bytes, options_.cache_bytes, account) {
  if (options_.row_bytes > 0) {
    rows_.emplace(options_.row_bytes, options_.cache_bytes, account);
    rows_->share_limit(heads_);
    heads_.share_limit(*rows_);
  }
  constexpr size_t kWritesBeside = 8;
  operations_.resize(std::min(device_->depth(), options_.n_buffers + kWritesBeside));
  for (size_t i = options_.n_buffers; i-- > 0;) free_buffers_.push_back(i);
  thread_ = std::thread([this] { serve(); });
  account_.add(*this);
}

// Pages that only plans and reads still held give their room back here.
Tier::~Tier() {
  account_.remove(*this);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    drop_plans();
  }
  work_.raise();
  thread_.join();
  demanded_.clear();
}

std::shared_ptr<OutsidePage> Tier::place(const PieceLayout& layout) {
  QUIRE_CHECK(layout.head_bytes() <= options_.head_bytes && layout.n_records() <= kMostRecords);
  QUIRE_CHECK(!layout.by_rows || layout.payload_bytes() <= options_.row_bytes);
  auto page = std::make_shared<OutsidePage>(*this, layout);
  page->number = next_number_.fetch_add(1, std::memory_order_relaxed);
  std::optional<uint64_t> offset;
  {
    const std::lock_guard lock(space_mutex_);
    offset = space_.take(layout.page_bytes());
  }
  if (!offset) {
    const std::lock_guard lock(mutex_);
    fail(options_.name + " is full: it may take " + std::to_string(options_.most_bytes) +
         " bytes (size=), and there are more rows to keep");
  }
  page->offset = offset.value_or(OutsidePage::kNowhere);
  return page;
}

void Tier::give_back(const OutsidePage& page) {
  if (page.offset == OutsidePage::kNowhere) return;
  const std::lock_guard lock(space_mutex_);
  space_.give_back(page.offset, page.layout.page_bytes());
}

uint64_t Tier::outside_bytes() const {
  const std::lock_guard lock(space_mutex_);
  return space_.used_bytes();
}

void Tier::write(std::span<const std::shared_ptr<OutsidePage>> pages, std::span<std::byte* const> records) {
  QUIRE_CHECK(pages.size() == records.size());
  std::unique_lock lock(mutex_);
  if (is_faulty()) return;
  size_t n_unwritten = pages.size();
  for (size_t i = 0; i < pages.size(); ++i) {
    writes_.push_back({pages[i]->offset, records[i], slab_bytes(pages[i]->layout), &n_unwritten});
  }
  work_.raise();
  // Whatever happens, the thread lets go of the records before this returns.
  arrived_.wait(lock, [&] { return n_unwritten == 0; });
}

// One piece of a load().
struct Tier::Pending {
  enum class State : uint8_t { kNew, kPinned, kDone };

  const PieceRead* read;
  Fetch piece;
  State state = State::kNew;

  // To the reader, without the lock.
  void copy() const {
    const PieceLayout& layout = piece.page->layout;
    if (piece.n_records == 1) {
      return unpack_record(layout, piece.data, piece.first % layout.records_per_head(), read->to);
    }
    for (size_t row = 0; row < piece.n_records; ++row) {
      unpack_record(layout, piece.data + row * layout.payload_bytes(), row, read->to);
    }
  }
};

Tier::Fetch Tier::piece_at(const OutsidePageRef& page, uint32_t first, bool whole) {
  const auto n = static_cast<uint32_t>(whole ? page->layout.records_per_head() : 1);
  return {page, first, n, whole ? &heads_ : &*rows_};
}

std::vector<Tier::Pending> Tier::pieces_of(std::span<const PieceRead> reads, PieceUse use) {
  std::vector<Pending> pending;
  for (const PieceRead& read : reads) {
    const PieceLayout& layout = (*read.page)->layout;
    const auto first = static_cast<uint32_t>(read.head * layout.records_per_head());
    if (use == PieceUse::kSwept || !layout.by_rows) {
      pending.push_back({&read, piece_at(*read.page, first, true)});
      continue;
    }
    for (uint64_t rows = read.rows; rows != 0; rows &= rows - 1) {
      const auto row = static_cast<uint32_t>(std::countr_zero(rows));
      pending.push_back({&read, piece_at(*read.page, first + row, false)});
    }
  }
  return pending;
}

// False where no cell is free.
bool Tier::ask_for(Pending& pending) {
  Fetch& piece = pending.piece;
  piece.cell = piece.cache->find(piece.key());
  const bool known = piece.cell != PieceCache::kNone;
  if (known) {
    ++(piece.cache->is_coming(piece.cell) ? counts_.late : counts_.hits);
  } else {
    piece.cell = piece.cache->take(piece.key());
    if (piece.cell == PieceCache::kNone) return false;
  }
  piece.data = piece.cache->data(piece.cell);
  if (!known) demanded_.push_back(piece);
  piece.cache->pin(piece.cell);
  pending.state = Pending::State::kPinned;
  return true;
}

// What is wanted and not yet there. True where something was asked for that nobody else had.
bool Tier::ask_for_all(std::span<Pending> pending) {
  const size_t n_before = demanded_.size();
  for (Pending& piece : pending) {
    if (piece.state == Pending::State::kNew && !ask_for(piece)) break;
  }
  return demanded_.size() > n_before;
}

void Tier::load(std::span<const PieceRead> reads, PieceUse use) {
  std::vector<Pending> pending = pieces_of(reads, use);
  std::vector<Pending*> there;
  there.reserve(pending.size());  // as cells are pinned when it is filled
  size_t n_left = pending.size();
  std::unique_lock lock(mutex_);
  counts_.pieces += n_left;
  while (n_left > 0 && !is_faulty()) {
    if (ask_for_all(pending)) work_.raise();
    there.clear();
    for (Pending& each : pending) {
      if (each.state == Pending::State::kPinned && !each.piece.cache->is_coming(each.piece.cell)) {
        there.push_back(&each);
      }
    }
    if (there.empty()) {
      wait_for_arrival(lock);
      continue;
    }
    lock.unlock();
    for (const Pending* each : there) each->copy();
    lock.lock();
    for (Pending* each : there) {
      each->piece.cache->unpin(each->piece.cell, use);
      each->state = Pending::State::kDone;
    }
    n_left -= there.size();
    let_others_on();
  }
  if (n_left == 0) return;
  for (const Pending& each : pending) {
    if (each.state == Pending::State::kPinned) each.piece.cache->unpin(each.piece.cell);
  }
  arrived_.raise();
}

void Tier::wait_for_arrival(std::unique_lock<std::mutex>& lock) {
  const auto start = std::chrono::steady_clock::now();
  ++n_waiting_;
  arrived_.wait(lock);
  --n_waiting_;
  const auto waited = std::chrono::steady_clock::now() - start;
  counts_.waited_ns += static_cast<uint64_t>(std::chrono::nanoseconds(waited).count());
}

// Cells have become free.
void Tier::let_others_on() {
  if (n_waiting_ > 0) arrived_.raise();
  if (plans_wait_ == nullptr || !plans_wait_->has_room_ahead()) return;
  plans_wait_ = nullptr;
  work_.raise();
}

size_t Tier::want(std::vector<WantedPieces> wanted) {
  const std::lock_guard lock(mutex_);
  const uint64_t n_room = (options_.plan_bytes - plan_bytes_) / sizeof(WantedPieces);
  if (n_room < wanted.size()) {
    // Their memory too is what counts.
    wanted =
        std::vector<WantedPieces>(std::make_move_iterator(wanted.begin()),
                                  std::make_move_iterator(wanted.begin() + static_cast<ptrdiff_t>(n_room)));
  }
  const size_t n_taken = wanted.size();
  if (n_taken == 0 || is_faulty()) return n_taken;
  const uint64_t n_bytes = n_taken * sizeof(WantedPieces);
  plan_bytes_ += n_bytes;
  counts_.wanted += n_taken;
  plans_.push_back({std::move(wanted), 0, 0, n_bytes});
  plans_wait_ = nullptr;
  work_.raise();
  return n_taken;
}

void Tier::begin_round() {
  const std::lock_guard lock(mutex_);
  drop_plans();
  // What something on its way has kept from being given back in an earlier round.
  if (heads_.is_shrinking()) heads_.finish_shrinking();
  heads_.begin_round();
  if (!rows_) return;
  // Else what is swept over takes back at once what it has given.
  heads_.allow_growth(rows_->missing_bytes() == 0);
  give_rows_memory();
  rows_->begin_round();
}

// What rows lack goes over to them, as far as heads can do without it.
void Tier::give_rows_memory() {
  uint64_t missing = rows_->missing_bytes();
  while (missing > 0 && heads_.spare_bytes() > kLeastSwept) {
    const uint64_t before = heads_.spare_bytes();
    if (!heads_.is_shrinking()) heads_.begin_shrinking();
    if (!heads_.finish_shrinking()) return;  // something is on its way to it: the next round
    missing -= std::min(missing, before - std::min(before, heads_.spare_bytes()));
  }
}

void Tier::drop_plans() {
  plan_bytes_ = 0;
  plans_.clear();
  plans_wait_ = nullptr;
}

void Tier::yield(uint64_t n_bytes) {
  std::unique_lock lock(mutex_);
  uint64_t n_given = 0;
  while (n_given < n_bytes && heads_.spare_bytes() + (rows_ ? rows_->spare_bytes() : 0) > 0) {
    PieceCache& cache = rows_ && rows_->spare_bytes() > heads_.spare_bytes() ? *rows_ : heads_;
    const uint64_t before = cache.spare_bytes();
    if (!cache.is_shrinking()) cache.begin_shrinking();
    ++n_waiting_;
    arrived_.wait(lock, [&] { return cache.finish_shrinking(); });
    --n_waiting_;
    n_given += before - std::min(before, cache.spare_bytes());
  }
}

// The first fault is the one that is told.
void Tier::fail(const std::string& what) {
  if (is_faulty()) return;
  fault_ = what;
  faulty_.store(true, std::memory_order_release);
  arrived_.raise();
  work_.raise();
}

void Tier::check() const {
  if (!is_faulty()) return;
  const std::lock_guard lock(mutex_);
  throw Error(fault_);
}

TierCounts Tier::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

uint64_t Tier::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return buffers_.size_bytes() + heads_.size_bytes() + (rows_ ? rows_->size_bytes() : 0) +
         options_.plan_bytes;
}

}  // namespace quire
