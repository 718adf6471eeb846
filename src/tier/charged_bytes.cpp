#include "tier/charged_bytes.h"

#include "base/error.h"

namespace quire {

ChargedBytes::ChargedBytes(size_t n_bytes, const std::string& user, MemoryAccount& account)
    : account_(account) {
  if (!account.take(n_bytes)) {
    throw Error(user + " needs " + std::to_string(n_bytes) + " bytes of memory, and the cache's budget of " +
                std::to_string(account.limit_bytes()) + " bytes has no room for them");
  }
  try {
    bytes_ = MappedBytes(n_bytes);
  } catch (...) {
    account.give_back(n_bytes);
    throw;
  }
}

}  // namespace quire
