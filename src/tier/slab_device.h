// What a slab lies on: bytes by offset, written and read by many transfers at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace quire {

// One read or write. Where alignment() is more than 1, offset, length and data are multiples of it.
struct Transfer {
  bool writes;
  uint64_t offset;
  std::byte* data;  // stays until the transfer is finished
  size_t n_bytes;
  uint64_t tag;  // the caller's
};

struct FinishedTransfer {
  uint64_t tag;
  int64_t result;  // bytes transferred, which may be fewer than asked for; negative: -errno
};

// For one thread. Finishes everything that was started before it goes away.
class SlabDevice {
 public:
  virtual ~SlabDevice() = default;
  // "memory", "io_uring" or "threads"
  virtual const char* name() const = 0;
  virtual size_t alignment() const { return 1; }
  // At most so many transfers are started and not finished.
  virtual size_t depth() const = 0;
  virtual void start(std::span<const Transfer> transfers) = 0;
  // Some of the transfers that are done; waits for at least one if there are any under way.
  virtual size_t finish(std::span<FinishedTransfer> finished) = 0;
};

class SlabFile;

std::unique_ptr<SlabDevice> make_memory_device();
// A pool of threads that call pread and pwrite.
std::unique_ptr<SlabDevice> make_thread_device(SlabFile file);
// nullptr, and the file as it was, where this was built without io_uring or the kernel refuses it.
std::unique_ptr<SlabDevice> make_uring_device(SlabFile& file);

}  // namespace quire
