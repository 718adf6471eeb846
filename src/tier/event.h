// Something that happens again and again, and that threads wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace quire {

// What is waited for stands under a lock: a waiter looks at it, notes count() while it holds the lock, and
// waits for the next time; whoever changes it raises the event afterwards. (Condition variables lose wake-ups
// in glibc before 2.41, its bug 25847: rarely, and a run then hangs.)
class Event {
 public:
  uint32_t count() const { return count_.load(std::memory_order_acquire); }
  void raise() {
    count_.fetch_add(1, std::memory_order_release);
    count_.notify_all();
  }
  // Until it is raised, without the lock.
  void wait(std::unique_lock<std::mutex>& lock) {
    const uint32_t seen = count();
    lock.unlock();
    count_.wait(seen, std::memory_order_acquire);
    lock.lock();
  }
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    while (!condition()) wait(lock);
  }

 private:
  std::atomic<uint32_t> count_{0};
};

}  // namespace quire
