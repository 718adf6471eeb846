// place=host: the slab is memory of the host. Without a device of its own that is the memory everything lies
// in; the way of the bytes is the same.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "tier/slab_device.h"

namespace quire {

namespace {

constexpr size_t kMemoryTransfers = 64;
constexpr size_t kBlockBytes = size_t{4} << 20;

class MemoryDevice : public SlabDevice {
 public:
  const char* name() const override { return "memory"; }
  size_t depth() const override { return kMemoryTransfers; }

  void start(std::span<const Transfer> transfers) override {
    for (const Transfer& transfer : transfers) finished_.push_back({transfer.tag, move(transfer)});
  }

  size_t finish(std::span<FinishedTransfer> finished) override {
    const size_t n = std::min(finished.size(), finished_.size());
    std::copy_n(finished_.begin(), n, finished.begin());
    finished_.erase(finished_.begin(), finished_.begin() + static_cast<ptrdiff_t>(n));
    return n;
  }

 private:
  int64_t move(const Transfer& transfer) {
    size_t done = 0;
    while (done < transfer.n_bytes) {
      const uint64_t at = transfer.offset + done;
      const size_t in_block = at % kBlockBytes;
      const size_t n = std::min(transfer.n_bytes - done, kBlockBytes - in_block);
      std::byte* block = block_of(at / kBlockBytes, transfer.writes);
      if (block == nullptr) return done > 0 || !transfer.writes ? static_cast<int64_t>(done) : -ENOMEM;
      if (transfer.writes) {
        std::memcpy(block + in_block, transfer.data + done, n);
      } else {
        std::memcpy(transfer.data + done, block + in_block, n);
      }
      done += n;
    }
    return static_cast<int64_t>(done);
  }

  std::byte* block_of(uint64_t at, bool makes) {
    if (at >= blocks_.size()) {
      if (!makes) return nullptr;
      blocks_.resize(at + 1);
    }
    if (blocks_[at].data() == nullptr && makes) {
      try {
        blocks_[at] = Memory(kBlockBytes);
      } catch (const Error&) {
        return nullptr;
      }
    }
    return blocks_[at].data();
  }

  std::vector<Memory> blocks_;
  std::deque<FinishedTransfer> finished_;
};

}  // namespace

std::unique_ptr<SlabDevice> make_memory_device() { return std::make_unique<MemoryDevice>(); }

}  // namespace quire
