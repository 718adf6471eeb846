// How much memory something takes, and the most that it may.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace quire {

// Counts bytes against a limit. Firm bytes are needed as long as they are held. Spare bytes make something
// faster: they are taken only where there is room, and whoever holds them gives them back when firm bytes
// need it. Safe to use from several threads.
class MemoryAccount {
 public:
  // Holds spare bytes, or could.
  class Holder {
   public:
    virtual ~Holder() = default;
    // Gives at least n_bytes of spare bytes back, or all that it holds. May be called on any thread that
    // takes firm bytes; must not take any.
    virtual void yield(uint64_t n_bytes) = 0;
  };

  // limit_bytes 0: no limit.
  explicit MemoryAccount(uint64_t limit_bytes = 0) : limit_bytes_(limit_bytes) {}
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  // Firm bytes. False, with nothing taken, when they do not fit although all spare bytes were given back.
  bool take(uint64_t n_bytes);
  void give_back(uint64_t n_bytes);
  // Spare bytes. False where they do not fit.
  bool take_spare(uint64_t n_bytes);
  void give_back_spare(uint64_t n_bytes);

  // Between the two the holder is asked; remove() waits until it is no longer.
  void add(Holder& holder);
  void remove(Holder& holder);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t firm_bytes() const;
  // Firm and spare.
  uint64_t used_bytes() const;
  // The most that were ever used.
  uint64_t peak_bytes() const;

 private:
  bool fits(uint64_t n_bytes) const { return limit_bytes_ == 0 || firm_ + spare_ + n_bytes <= limit_bytes_; }
  uint64_t missing(uint64_t n_bytes) const;
  bool try_take(uint64_t n_bytes);

  const uint64_t limit_bytes_;
  std::mutex holders_mutex_;  // taken before mutex_ and whatever holders lock
  std::vector<Holder*> holders_;
  mutable std::mutex mutex_;
  uint64_t firm_ = 0;
  uint64_t spare_ = 0;
  uint64_t peak_ = 0;
};

}  // namespace quire
