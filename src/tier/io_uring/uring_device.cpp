// place=disk through io_uring: one call into the kernel starts and collects many transfers.
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include "base/error.h"
#include "tier/slab_device.h"
#include "tier/slab_file.h"

namespace quire {

namespace {

constexpr unsigned kRingTransfers = 64;
// The kernel may be short of something for a while: about half a second of growing pauses in all.
constexpr int kMostPauses = 30;

void wait_for_kernel(int attempt) {
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(50 << std::min(attempt, 10), 20'000)));
}

// A transfer that the kernel does not take, or that it cannot be asked about, ends with the kernel's error,
// and so do all after it: the ring is given up.
class UringDevice : public SlabDevice {
 public:
  UringDevice(const io_uring& ring, SlabFile file) : ring_(ring), file_(std::move(file)) {}

  ~UringDevice() override {
    FinishedTransfer finished[kRingTransfers];
    while (finish(finished) > 0) {
    }
    io_uring_queue_exit(&ring_);
  }

  const char* name() const override { return "io_uring"; }
  size_t alignment() const override { return file_.alignment(); }
  size_t depth() const override { return kRingTransfers; }

  void start(std::span<const Transfer> transfers) override {
    for (const Transfer& transfer : transfers) {
      if (error_ != 0) {
        finished_.push_back({transfer.tag, error_});
        continue;
      }
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      QUIRE_CHECK(entry != nullptr);  // as many as depth() allows
      const auto n = static_cast<unsigned>(transfer.n_bytes);
      if (transfer.writes) {
        io_uring_prep_write(entry, file_.descriptor(), transfer.data, n, transfer.offset);
      } else {
        io_uring_prep_read(entry, file_.descriptor(), transfer.data, n, transfer.offset);
      }
      io_uring_sqe_set_data64(entry, transfer.tag);
      waiting_.push_back(transfer.tag);
    }
    submit();
  }

  size_t finish(std::span<FinishedTransfer> finished) override {
    collect();
    for (int attempt = 0; finished_.empty() && n_in_kernel_ > 0; ++attempt) {
      io_uring_cqe* entry = nullptr;
      const int result = io_uring_wait_cqe(&ring_, &entry);
      // What the kernel has taken ends by itself, and is told in memory shared with it: until then nobody
      // else may have the transfer's bytes.
      if (result < 0 && result != -EINTR) wait_for_kernel(attempt);
      if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) error_ = result;
      collect();
    }
    const size_t n = std::min(finished.size(), finished_.size());
    std::copy_n(finished_.begin(), n, finished.begin());
    finished_.erase(finished_.begin(), finished_.begin() + static_cast<ptrdiff_t>(n));
    return n;
  }

 private:
  void submit() {
    for (int n_pauses = 0; !waiting_.empty();) {
      const int result = io_uring_submit(&ring_);
      if (result > 0) {
        waiting_.erase(waiting_.begin(), waiting_.begin() + result);
        n_in_kernel_ += static_cast<size_t>(result);
        n_pauses = 0;
        continue;
      }
      if (result == -EINTR) continue;
      const bool put_off = result == 0 || result == -EAGAIN || result == -EBUSY;
      if (!put_off || n_pauses == kMostPauses) return give_up(result == 0 ? -EAGAIN : result);
      // What has ended makes room.
      if (!collect()) wait_for_kernel(n_pauses++);
    }
  }

  // The kernel has seen nothing of those that wait, and is not called for them again.
  void give_up(int error) {
    error_ = error;
    for (const uint64_t tag : waiting_) finished_.push_back({tag, error});
    waiting_.clear();
  }

  // What has ended, without waiting; whether there was anything.
  bool collect() {
    const size_t n_before = n_in_kernel_;
    io_uring_cqe* entry = nullptr;
    while (n_in_kernel_ > 0 && io_uring_peek_cqe(&ring_, &entry) == 0 && entry != nullptr) {
      finished_.push_back({io_uring_cqe_get_data64(entry), entry->res});
      io_uring_cqe_seen(&ring_, entry);
      --n_in_kernel_;
    }
    return n_in_kernel_ < n_before;
  }

  io_uring ring_;
  SlabFile file_;
  int error_ = 0;                 // negative; of the ring, for good
  std::deque<uint64_t> waiting_;  // tags of entries of the ring that the kernel has not taken yet
  size_t n_in_kernel_ = 0;
  std::deque<FinishedTransfer> finished_;  // and not handed back
};

// There are rings from Linux 5.1 on; reads and writes of plain memory, and the question for them, from 5.6.
bool can_transfer(io_uring& ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  if (probe == nullptr) return false;
  const bool can = io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                   io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  io_uring_free_probe(probe);
  return can;
}

}  // namespace

std::unique_ptr<SlabDevice> make_uring_device(SlabFile& file) {
  io_uring ring{};
  if (io_uring_queue_init(kRingTransfers, &ring, 0) != 0) return nullptr;
  if (!can_transfer(ring)) {
    io_uring_queue_exit(&ring);
    return nullptr;
  }
  return std::make_unique<UringDevice>(ring, std::move(file));
}

}  // namespace quire
