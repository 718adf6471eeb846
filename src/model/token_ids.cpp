#include "model/token_ids.h"

#include <string>

#include "base/error.h"

namespace quire {

void check_token_ids(std::span<const int32_t> ids, size_t vocabulary) {
  for (const int32_t id : ids) {
    if (id >= 0 && static_cast<size_t>(id) < vocabulary) continue;
    throw Error("token id " + std::to_string(id) + " is outside the vocabulary of " +
                std::to_string(vocabulary) + " tokens");
  }
}

}  // namespace quire
