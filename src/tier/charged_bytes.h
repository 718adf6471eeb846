// Memory that counts against an account.
#pragma once

#include <string>

#include "base/memory_account.h"
#include "tier/mapped_bytes.h"

namespace quire {

class ChargedBytes {
 public:
  // Throws Error, which begins with `user`, where the account has no room.
  ChargedBytes(size_t n_bytes, const std::string& user, MemoryAccount& account);
  ChargedBytes(const ChargedBytes&) = delete;
  ChargedBytes& operator=(const ChargedBytes&) = delete;
  ~ChargedBytes() { account_.give_back(bytes_.size_bytes()); }

  std::byte* data() const { return bytes_.data(); }
  size_t size_bytes() const { return bytes_.size_bytes(); }

 private:
  MemoryAccount& account_;
  MappedBytes bytes_;
};

}  // namespace quire
