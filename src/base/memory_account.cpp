#include "base/memory_account.h"

#include <algorithm>

#include "base/error.h"

namespace quire {

bool MemoryAccount::try_take(uint64_t n_bytes) {
  const std::lock_guard lock(mutex_);
  if (!fits(n_bytes)) return false;
  firm_ += n_bytes;
  peak_ = std::max(peak_, firm_ + spare_);
  return true;
}

uint64_t MemoryAccount::missing(uint64_t n_bytes) const {
  const std::lock_guard lock(mutex_);
  return fits(n_bytes) ? 0 : firm_ + spare_ + n_bytes - limit_bytes_;
}

// What is asked for counts while spare bytes are given back, so that nobody takes these again meanwhile.
bool MemoryAccount::take(uint64_t n_bytes) {
  if (try_take(n_bytes)) return true;
  const std::lock_guard holders_lock(holders_mutex_);
  {
    const std::lock_guard lock(mutex_);
    firm_ += n_bytes;
  }
  for (Holder* holder : holders_) {
    const uint64_t n_missing = missing(0);
    if (n_missing > 0) holder->yield(n_missing);
  }
  const std::lock_guard lock(mutex_);
  if (fits(0)) {
    peak_ = std::max(peak_, firm_ + spare_);
    return true;
  }
  firm_ -= n_bytes;
  return false;
}

void MemoryAccount::give_back(uint64_t n_bytes) {
  const std::lock_guard lock(mutex_);
  QUIRE_CHECK(n_bytes <= firm_);
  firm_ -= n_bytes;
}

bool MemoryAccount::take_spare(uint64_t n_bytes) {
  const std::lock_guard lock(mutex_);
  if (!fits(n_bytes)) return false;
  spare_ += n_bytes;
  peak_ = std::max(peak_, firm_ + spare_);
  return true;
}

void MemoryAccount::give_back_spare(uint64_t n_bytes) {
  const std::lock_guard lock(mutex_);
  QUIRE_CHECK(n_bytes <= spare_);
  spare_ -= n_bytes;
}

void MemoryAccount::add(Holder& holder) {
  const std::lock_guard lock(holders_mutex_);
  holders_.push_back(&holder);
}

void MemoryAccount::remove(Holder& holder) {
  const std::lock_guard lock(holders_mutex_);
  std::erase(holders_, &holder);
}

uint64_t MemoryAccount::firm_bytes() const {
  const std::lock_guard lock(mutex_);
  return firm_;
}

uint64_t MemoryAccount::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return firm_ + spare_;
}

uint64_t MemoryAccount::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

}  // namespace quire
