// place=disk through io_uring: one call into the kernel starts and collects many transfers.
#include <liburing.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "tier/slab_device.h"
#include "tier/slab_file.h"

namespace quire {

namespace {

constexpr unsigned kDepth = 64;

class UringDevice : public SlabDevice {
 public:
  UringDevice(const io_uring& ring, SlabFile file) : ring_(ring), file_(std::move(file)) {}

  ~UringDevice() override {
    FinishedTransfer finished[kDepth];
    while (n_under_way_ > 0) finish(finished);
    io_uring_queue_exit(&ring_);
  }

  const char* name() const override { return "io_uring"; }
  size_t alignment() const override { return file_.alignment(); }
  size_t depth() const override { return kDepth; }

  void start(std::span<const Transfer> transfers) override {
    for (const Transfer& transfer : transfers) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      QUIRE_CHECK(entry != nullptr);  // as many as depth() allows
      const auto n = static_cast<unsigned>(transfer.n_bytes);
      if (transfer.writes) {
        io_uring_prep_write(entry, file_.descriptor(), transfer.data, n, transfer.offset);
      } else {
        io_uring_prep_read(entry, file_.descriptor(), transfer.data, n, transfer.offset);
      }
      io_uring_sqe_set_data64(entry, transfer.tag);
    }
    n_under_way_ += transfers.size();
    while (io_uring_sq_ready(&ring_) > 0) {
      const int result = io_uring_submit(&ring_);
      QUIRE_CHECK(result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY);
    }
  }

  size_t finish(std::span<FinishedTransfer> finished) override {
    if (n_under_way_ == 0) return 0;
    io_uring_cqe* first = nullptr;
    int result = 0;
    do result = io_uring_wait_cqe(&ring_, &first);
    while (result == -EINTR || result == -EAGAIN);
    QUIRE_CHECK(result == 0);
    size_t n = 0;
    for (io_uring_cqe* entry = first; entry != nullptr && n < finished.size();) {
      finished[n++] = {io_uring_cqe_get_data64(entry), entry->res};
      io_uring_cqe_seen(&ring_, entry);
      entry = nullptr;
      if (io_uring_peek_cqe(&ring_, &entry) != 0) entry = nullptr;
    }
    n_under_way_ -= n;
    return n;
  }

 private:
  io_uring ring_;
  SlabFile file_;
  size_t n_under_way_ = 0;
};

}  // namespace

std::unique_ptr<SlabDevice> make_uring_device(SlabFile& file) {
  io_uring ring{};
  if (io_uring_queue_init(kDepth, &ring, 0) != 0) return nullptr;
  return std::make_unique<UringDevice>(ring, std::move(file));
}

}  // namespace quire
