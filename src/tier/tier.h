// Rows outside the memory of the cache: where they are put, how they come back.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/memory_account.h"
#include "tier/charged_bytes.h"
#include "tier/event.h"
#include "tier/outside_page.h"
#include "tier/piece_cache.h"
#include "tier/piece_layout.h"
#include "tier/piece_read.h"
#include "tier/slab_device.h"
#include "tier/slab_space.h"
#include "tier/tier_counts.h"

namespace quire {

struct TierOptions {
  std::string name = "the tier";  // "the disk tier in /tmp", for messages
  uint64_t most_bytes = 0;        // of the slab; 0: no limit
  uint64_t cache_bytes = 0;       // most memory for fetched pieces; 0: as much as the account has room for
  size_t head_bytes = 0;          // of all pages alike: a head's rows
  size_t row_bytes = 0;           // and where pages lie by rows: a row; else 0
  size_t buffer_bytes = size_t{128} << 10;  // one read at most
  size_t n_buffers = 32;                    // reads under way at most
  uint64_t plan_bytes =
      uint64_t{4} << 20;  // most memory for what is wanted; the rest is fetched when asked for
};

// Pieces that will be read, of the records first..last - 1 of a page: whole heads, or those whose bit
// (record - first) is set.
struct WantedPieces {
  OutsidePageRef page;
  uint32_t first;
  uint32_t last;
  bool whole;
  uint64_t rows;

  // Of a KV head these rows, as they will be used.
  static WantedPieces of_head(OutsidePageRef page, size_t head, uint64_t rows, PieceUse use);
  // Everything, swept over.
  static WantedPieces of_page(OutsidePageRef page);
};

// A slab of pages, the pieces of it that are in memory, and the thread that moves bytes between the two.
// Shared by the sequences that have pages in it, and outlives these pages. Safe to use from several threads;
// nothing is handed out that could be overwritten while it is read: load() copies.
//
// What goes wrong with a page's bytes (no room, an error of the device, a piece that is not what was written)
// is kept as the tier's fault, the first one: from then on readers get nothing of worth, at once, and
// check() throws. Whoever takes results must call it before believing them.
class Tier : private MemoryAccount::Holder {
 public:
  // The account outlives the tier, and is charged for its memory. Throws Error where the least of it does not
  // fit.
  Tier(std::unique_ptr<SlabDevice> device, const TierOptions& options, MemoryAccount& account);
  ~Tier() override;

  // Room for a page, which is to be written then. Without room it is a fault.
  std::shared_ptr<OutsidePage> place(const PieceLayout& layout);
  // Bytes of a page with its padding; records to be written are so long.
  size_t slab_bytes(const PieceLayout& layout) const { return space_.rounded(layout.page_bytes()); }
  // Writes pages, records[i] being those of pages[i]: memory as MappedBytes at multiples of slab_bytes().
  // Returns when they are written, or there is a fault.
  void write(std::span<const std::shared_ptr<OutsidePage>> pages, std::span<std::byte* const> records);

  // Brings pieces in and copies them. Waits for what is not there.
  void load(std::span<const PieceRead> reads, PieceUse use);
  // Fetches ahead, in this order, behind what was wanted before. How many of the first were taken: as many as
  // there is room to remember.
  size_t want(std::vector<WantedPieces> wanted);
  // A step begins: what was wanted in the last one, and is not on its way, is no longer.
  void begin_round();

  // Throws Error of one sentence if anything has gone wrong.
  void check() const;
  bool is_faulty() const { return faulty_.load(std::memory_order_acquire); }

  const std::string& name() const { return options_.name; }
  const char* device_name() const { return device_->name(); }
  TierCounts counts() const;
  uint64_t outside_bytes() const;
  // Memory at hand for pieces and for what is under way.
  uint64_t memory_bytes() const;

 private:
  friend struct OutsidePage;

  // A piece and where it goes.
  struct Fetch {
    OutsidePageRef page;
    uint32_t first;      // record
    uint32_t n_records;  // 1, or a head's
    PieceCache* cache;
    PieceCache::Cell cell = PieceCache::kNone;
    std::byte* data = nullptr;  // of the cell

    uint64_t key() const { return page->number << 24 | first; }
    uint64_t offset() const { return page->offset + first * page->layout.record_bytes(); }
    uint64_t end() const { return offset() + n_records * page->layout.record_bytes(); }
  };
  struct Write {
    uint64_t offset;
    std::byte* data;
    size_t n_bytes;
    size_t* n_unwritten;  // of the call that waits for it
  };
  // What is at the device: a read into a buffer, or a write.
  struct Operation {
    bool active = false;
    Transfer transfer{};
    size_t n_done = 0;
    int n_stalls = 0;  // since it got on, from then
    std::chrono::steady_clock::time_point stalled_at{};
    size_t buffer = 0;
    std::vector<Fetch> fetches;
    size_t* n_unwritten = nullptr;
  };
  struct Plan {
    std::vector<WantedPieces> wanted;
    size_t at;
    uint32_t record;  // of wanted[at]
    uint64_t n_bytes;
  };
  struct Pending;

  // The piece that begins with a record, without a cell.
  Fetch piece_at(const OutsidePageRef& page, uint32_t first, bool whole);
  void yield(uint64_t n_bytes) override;
  void give_back(const OutsidePage& page);

  std::vector<Pending> pieces_of(std::span<const PieceRead> reads, PieceUse use);

  // With the lock.
  bool ask_for(Pending& pending);
  bool ask_for_all(std::span<Pending> pending);
  void wait_for_arrival(std::unique_lock<std::mutex>& lock);
  void let_others_on();
  void drop_plans();
  void give_rows_memory();
  void fail(const std::string& what);

  // Of the thread (tier_thread.cpp), with the lock.
  void abandon();
  bool start_operations(std::vector<Transfer>& transfers);
  bool start_write(Operation& operation);
  bool start_read(Operation& operation, bool& looks_on);
  bool gather_demanded(std::vector<Fetch>& fetches);
  bool gather_wanted(std::vector<Fetch>& fetches);
  static bool has_next(Plan& plan);
  bool joins(const std::vector<Fetch>& fetches, uint64_t offset, uint64_t end) const;
  void end_operation(Operation& operation, bool whole);
  // Without it.
  void serve();
  void finish_transfer(const FinishedTransfer& finished, std::vector<Transfer>& again);
  bool goes_on(Operation& operation, int64_t result);
  void copy_pieces(Operation& operation);
  void fail_record(const Fetch& fetch, size_t at);
  void fail_at(const Operation& operation, const char* what);

  const TierOptions options_;
  MemoryAccount& account_;
  const std::unique_ptr<SlabDevice> device_;
  ChargedBytes buffers_;
  std::atomic<uint64_t> next_number_{1};
  mutable std::mutex space_mutex_;  // pages may go while the other one is held
  SlabSpace space_;

  mutable std::mutex mutex_;
  Event arrived_;  // readers, writers and yield() wait
  Event work_;     // the thread waits
  const FirmBytes plan_room_;
  PieceCache heads_;                // pieces of whole heads
  std::optional<PieceCache> rows_;  // pieces of a row
  std::deque<Fetch> demanded_;
  std::deque<Plan> plans_;
  uint64_t plan_bytes_ = 0;                 // of them
  const PieceCache* plans_wait_ = nullptr;  // for cells of it
  std::deque<Write> writes_;
  size_t n_waiting_ = 0;  // for cells or pieces
  bool stopping_ = false;
  TierCounts counts_;
  std::atomic<bool> faulty_{false};
  std::string fault_;

  // Of the thread alone.
  std::vector<Operation> operations_;
  std::vector<size_t> free_buffers_;
  size_t n_active_ = 0;
  std::thread thread_;
};

}  // namespace quire
