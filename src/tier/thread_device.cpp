// place=disk where the kernel has no io_uring: threads that call pread and pwrite.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tier/event.h"
#include "tier/slab_device.h"
#include "tier/slab_file.h"

namespace quire {

namespace {

constexpr size_t kThreads = 8;  // as many transfers are at the disk at a time
constexpr size_t kThreadedTransfers = 64;

int64_t move(int descriptor, const Transfer& transfer) {
  while (true) {
    const auto offset = static_cast<off_t>(transfer.offset);
    const ssize_t n = transfer.writes ? pwrite(descriptor, transfer.data, transfer.n_bytes, offset)
                                      : pread(descriptor, transfer.data, transfer.n_bytes, offset);
    if (n >= 0) return n;
    if (errno != EINTR) return -errno;
  }
}

class ThreadDevice : public SlabDevice {
 public:
  explicit ThreadDevice(SlabFile file) : file_(std::move(file)) {
    threads_.reserve(kThreads);
    try {
      while (threads_.size() < kThreads) threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;  // fewer do as well
    }
  }

  ~ThreadDevice() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.raise();
    for (std::thread& thread : threads_) thread.join();
  }

  const char* name() const override { return "threads"; }
  size_t alignment() const override { return file_.alignment(); }
  size_t depth() const override { return kThreadedTransfers; }

  void start(std::span<const Transfer> transfers) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.insert(waiting_.end(), transfers.begin(), transfers.end());
      n_under_way_ += transfers.size();
    }
    work_.raise();
  }

  size_t finish(std::span<FinishedTransfer> finished) override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return !finished_.empty() || n_under_way_ == 0; });
    const size_t n = std::min(finished.size(), finished_.size());
    std::copy_n(finished_.begin(), n, finished.begin());
    finished_.erase(finished_.begin(), finished_.begin() + static_cast<ptrdiff_t>(n));
    n_under_way_ -= n;
    return n;
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [&] { return !waiting_.empty() || stopping_; });
      if (waiting_.empty()) return;
      const Transfer transfer = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const int64_t result = move(file_.descriptor(), transfer);
      lock.lock();
      finished_.push_back({transfer.tag, result});
      done_.raise();
    }
  }

  SlabFile file_;
  std::mutex mutex_;
  Event work_;
  Event done_;
  std::deque<Transfer> waiting_;
  std::deque<FinishedTransfer> finished_;
  size_t n_under_way_ = 0;  // started and not handed back
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<SlabDevice> make_thread_device(SlabFile file) {
  return std::make_unique<ThreadDevice>(std::move(file));
}

}  // namespace quire
