// Finds the token with given bytes: an open-addressing hash table over the tokens' texts. Its point is
// construction time: one allocation for 49,152 tokens instead of one per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/token_texts.h"

namespace quire {

// Immutable after the last insert, and safe to share between threads then.
class PieceTable {
 public:
  static constexpr int32_t kNone = -1;

  // Takes the texts of all tokens; none can be found yet.
  explicit PieceTable(TokenTexts texts);

  // Makes a token findable by its text; if another has it, changes nothing and returns the id of that one.
  int32_t insert(int32_t id);

  // Id of the token with these bytes, or kNone.
  int32_t find(std::string_view bytes) const;

  const TokenTexts& texts() const { return texts_; }

 private:
  struct Entry {
    uint32_t tag;  // high half of the hash, so that most mismatches never touch the texts
    int32_t id;    // kNone: free
  };

  TokenTexts texts_;
  std::vector<Entry> entries_;  // power of two, at most half full
};

}  // namespace quire
