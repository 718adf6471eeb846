#include "tier/charged_bytes.h"

#include "base/error.h"

namespace quire {

FirmBytes::FirmBytes(uint64_t n_bytes, const std::string& user, MemoryAccount& account)
    : account_(account), n_bytes_(n_bytes) {
  if (account.take(n_bytes)) return;
  throw Error(user + " needs " + std::to_string(n_bytes) + " bytes of memory, and the cache's budget of " +
              std::to_string(account.limit_bytes()) + " bytes has no room for them");
}

}  // namespace quire
