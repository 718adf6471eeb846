// The thread that moves bytes between a tier's slab and its memory.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "tier/tier.h"

namespace quire {

namespace {

// Bytes between two pieces that are read along with them: shorter than what another read would cost.
constexpr uint64_t kMostGap = 4096;
// Plans are looked through in portions, so that readers get the lock.
constexpr size_t kMostLookUps = 256;
// Transfers may be cut short or interrupted; not for ever.
constexpr int kMostStalls = 100;
// Or put off by a device that is short of something: then they are tried again, with pauses that grow.
constexpr auto kLongestStall = std::chrono::milliseconds(500);
constexpr auto kFirstPause = std::chrono::microseconds(50);
constexpr auto kLongestPause = std::chrono::microseconds(10'000);

void pause_before(int attempt) {
  const auto pause = kFirstPause * (1 << std::min(attempt - 1, 20));
  std::this_thread::sleep_for(std::min<std::chrono::microseconds>(pause, kLongestPause));
}

}  // namespace

void Tier::serve() {
  std::vector<Transfer> transfers;
  std::vector<FinishedTransfer> finished(device_->depth());
  while (true) {
    {
      std::unique_lock lock(mutex_);
      while (true) {
        if (is_faulty() || stopping_) abandon();
        if (start_operations(transfers) || n_active_ > 0) break;
        if (stopping_) return;
        work_.wait(lock);
      }
    }
    if (!transfers.empty()) device_->start(transfers);
    transfers.clear();
    if (n_active_ == 0) continue;
    const size_t n = device_->finish(finished);
    for (size_t i = 0; i < n; ++i) finish_transfer(finished[i], transfers);
    arrived_.raise();
  }
}

// Nobody gets anything any more, and whoever waits is told so.
void Tier::abandon() {
  drop_plans();
  for (const Fetch& fetch : demanded_) fetch.cache->fail(fetch.cell);
  demanded_.clear();
  for (const Write& write : writes_) --*write.n_unwritten;
  writes_.clear();
  arrived_.raise();
}

// As much as the device takes. True where something was started, or there may be more in the plans.
bool Tier::start_operations(std::vector<Transfer>& transfers) {
  bool more = !transfers.empty();  // those that go on
  for (size_t i = 0; i < operations_.size() && n_active_ < operations_.size(); ++i) {
    Operation& operation = operations_[i];
    if (operation.active) continue;
    bool looks_on = false;
    if (!start_write(operation) && !start_read(operation, looks_on)) return more || looks_on;
    operation.active = true;
    operation.n_done = 0;
    operation.n_stalls = 0;
    operation.transfer.tag = i;
    transfers.push_back(operation.transfer);
    ++n_active_;
    more = true;
  }
  return more;
}

bool Tier::start_write(Operation& operation) {
  if (writes_.empty()) return false;
  const Write& write = writes_.front();
  operation.transfer = {true, write.offset, write.data, write.n_bytes, 0};
  operation.n_unwritten = write.n_unwritten;
  writes_.pop_front();
  return true;
}

bool Tier::start_read(Operation& operation, bool& looks_on) {
  if (free_buffers_.empty()) return false;
  operation.fetches.clear();
  if (!gather_demanded(operation.fetches)) looks_on = gather_wanted(operation.fetches);
  if (operation.fetches.empty()) return false;
  const uint64_t unit = device_->alignment();
  const uint64_t begin = operation.fetches.front().offset() / unit * unit;
  const uint64_t end = (operation.fetches.back().end() + unit - 1) / unit * unit;
  operation.buffer = free_buffers_.back();
  free_buffers_.pop_back();
  operation.transfer = {false, begin, buffers_.data() + operation.buffer * options_.buffer_bytes, end - begin,
                        0};
  return true;
}

// Whether a piece lies close enough behind others to be read with them.
bool Tier::joins(const std::vector<Fetch>& fetches, uint64_t offset, uint64_t end) const {
  if (fetches.empty()) return true;
  if (offset < fetches.back().end() || offset - fetches.back().end() > kMostGap) return false;
  const uint64_t unit = device_->alignment();
  return (end + unit - 1) / unit * unit - fetches.front().offset() / unit * unit <= options_.buffer_bytes;
}

bool Tier::gather_demanded(std::vector<Fetch>& fetches) {
  while (!demanded_.empty() && joins(fetches, demanded_.front().offset(), demanded_.front().end())) {
    fetches.push_back(std::move(demanded_.front()));
    demanded_.pop_front();
  }
  return !fetches.empty();
}

// True where the look through the plans has ended early.
bool Tier::gather_wanted(std::vector<Fetch>& fetches) {
  size_t n_looks = 0;
  while (!plans_.empty() && plans_wait_ == nullptr) {
    Plan& plan = plans_.front();
    if (!has_next(plan)) {
      plan_bytes_ -= plan.n_bytes;
      plans_.pop_front();
      continue;
    }
    if (++n_looks > kMostLookUps) return true;
    const WantedPieces& wanted = plan.wanted[plan.at];
    Fetch fetch = piece_at(wanted.page, plan.record, wanted.whole);
    const PieceCache::Cell known = fetch.cache->find(fetch.key());
    const uint32_t n_records = fetch.n_records;
    if (known != PieceCache::kNone) {
      fetch.cache->expect(known);
    } else {
      if (!joins(fetches, fetch.offset(), fetch.end())) return true;
      fetch.cell = fetch.cache->take_ahead(fetch.key());
      if (fetch.cell == PieceCache::kNone) {
        plans_wait_ = fetch.cache;
        return false;
      }
      fetch.data = fetch.cache->data(fetch.cell);
      fetches.push_back(std::move(fetch));
    }
    plan.record += n_records;
  }
  return false;
}

// Goes to the next piece that is wanted, if the one at hand is not.
bool Tier::has_next(Plan& plan) {
  for (; plan.at < plan.wanted.size(); ++plan.at) {
    const WantedPieces& wanted = plan.wanted[plan.at];
    plan.record = std::max(plan.record, wanted.first);
    for (; plan.record < wanted.last; ++plan.record) {
      if (wanted.whole || (wanted.rows >> (plan.record - wanted.first) & 1) != 0) return true;
    }
    plan.record = 0;
  }
  return false;
}

// Cut short, a transfer goes on where it ended.
void Tier::finish_transfer(const FinishedTransfer& finished, std::vector<Transfer>& again) {
  Operation& operation = operations_[finished.tag];
  if (goes_on(operation, finished.result)) {
    Transfer rest = operation.transfer;
    rest.offset += operation.n_done;
    rest.data += operation.n_done;
    rest.n_bytes -= operation.n_done;
    again.push_back(rest);
    return;
  }
  const bool whole = operation.n_done == operation.transfer.n_bytes;
  if (whole && !operation.transfer.writes) copy_pieces(operation);
  const std::lock_guard lock(mutex_);
  end_operation(operation, whole);
}

bool Tier::goes_on(Operation& operation, int64_t result) {
  const size_t n_left = operation.transfer.n_bytes - operation.n_done;
  const size_t unit = device_->alignment();
  if (result > 0) {
    const size_t n = std::min(static_cast<size_t>(result), n_left);
    const size_t n_taken = n == n_left ? n : n / unit * unit;
    operation.n_done += n_taken;
    if (n == n_left) return false;
    if (n_taken > 0) operation.n_stalls = 0;
  }
  const auto now = std::chrono::steady_clock::now();
  if (operation.n_stalls == 0) operation.stalled_at = now;
  ++operation.n_stalls;
  if (result == -EAGAIN && now - operation.stalled_at < kLongestStall) {
    pause_before(operation.n_stalls);
    return true;
  }
  if ((result == -EINTR || result > 0) && operation.n_stalls <= kMostStalls) return true;
  const char* what = result < 0                  ? std::strerror(static_cast<int>(-result))
                     : operation.transfer.writes ? "nothing more was taken"
                                                 : "the slab has been cut short";
  fail_at(operation, what);
  return false;
}

void Tier::fail_at(const Operation& operation, const char* what) {
  const std::lock_guard lock(mutex_);
  fail(options_.name + ": " + std::to_string(operation.transfer.n_bytes - operation.n_done) +
       " bytes could not be " + (operation.transfer.writes ? "written" : "read") + " at offset " +
       std::to_string(operation.transfer.offset + operation.n_done) + ": " + what);
}

// To the cells, which are nobody else's until the pieces have arrived.
void Tier::copy_pieces(Operation& operation) {
  for (const Fetch& fetch : operation.fetches) {
    const PieceLayout& layout = fetch.page->layout;
    const std::byte* record = operation.transfer.data + (fetch.offset() - operation.transfer.offset);
    for (uint32_t i = 0; i < fetch.n_records; ++i, record += layout.record_bytes()) {
      if (!is_intact(layout, fetch.page->number, fetch.first + i, record)) return fail_record(fetch, i);
      std::memcpy(fetch.data + i * layout.payload_bytes(), record, layout.payload_bytes());
    }
  }
}

void Tier::fail_record(const Fetch& fetch, size_t at) {
  const size_t n_bytes = fetch.page->layout.record_bytes();
  const std::lock_guard lock(mutex_);
  fail(options_.name + ": the " + std::to_string(n_bytes) + " bytes at offset " +
       std::to_string(fetch.offset() + at * n_bytes) + " are not what was written there");
}

void Tier::end_operation(Operation& operation, bool whole) {
  if (operation.transfer.writes) {
    counts_.written_bytes += operation.n_done;
    --*operation.n_unwritten;
  } else {
    counts_.fetched_bytes += operation.n_done;
    counts_.fetched_pieces += operation.fetches.size();
    for (const Fetch& fetch : operation.fetches) {
      whole && !is_faulty() ? fetch.cache->arrive(fetch.cell) : fetch.cache->fail(fetch.cell);
    }
    free_buffers_.push_back(operation.buffer);
  }
  operation.fetches.clear();
  operation.active = false;
  --n_active_;
}

}  // namespace quire
