// Memory that counts against an account.
#pragma once

#include <string>

#include "base/memory_account.h"
#include "tier/mapped_bytes.h"

namespace quire {

// Firm bytes of an account, for as long as this lives.
class FirmBytes {
 public:
  // Throws Error, which begins with `user`, where the account has no room.
  FirmBytes(uint64_t n_bytes, const std::string& user, MemoryAccount& account);
  FirmBytes(const FirmBytes&) = delete;
  FirmBytes& operator=(const FirmBytes&) = delete;
  ~FirmBytes() { account_.give_back(n_bytes_); }

  uint64_t size() const { return n_bytes_; }

 private:
  MemoryAccount& account_;
  uint64_t n_bytes_;
};

class ChargedBytes {
 public:
  // As FirmBytes; also where the system refuses.
  ChargedBytes(size_t n_bytes, const std::string& user, MemoryAccount& account)
      : charge_(n_bytes, user, account), bytes_(n_bytes) {}

  std::byte* data() const { return bytes_.data(); }
  size_t size_bytes() const { return bytes_.size_bytes(); }

 private:
  FirmBytes charge_;
  MappedBytes bytes_;
};

}  // namespace quire
