// Finds the token with given bytes: an open-addressing hash table over the tokenizer's arena. Its point
// is construction time: one allocation for 49,152 tokens instead of one per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace quire {

// Keys are views into memory owned by someone else (the tokenizer's arena), passed to every call, so
// that the table stays valid when its owner is moved.
class PieceTable {
 public:
  static constexpr int32_t kNone = -1;

  // `arena` and `offsets` as in Tokenizer: token id covers arena[offsets[id] .. offsets[id + 1]).
  struct Keys {
    const char* arena;
    const uint32_t* offsets;
    std::string_view operator[](int32_t id) const {
      return {arena + offsets[id], offsets[id + 1] - offsets[id]};
    }
  };

  // Room for n_tokens without growing.
  void reserve(size_t n_tokens);

  // Adds a token under its own bytes; if these are taken, changes nothing and returns the id that has them.
  int32_t insert(int32_t id, Keys keys);

  // Id of the token with these bytes, or kNone.
  int32_t find(std::string_view bytes, Keys keys) const;

 private:
  struct Entry {
    uint32_t tag;  // high half of the hash, so that most mismatches never touch the arena
    int32_t id;    // kNone: free
  };

  std::vector<Entry> entries_;  // power of two, at most half full
};

}  // namespace quire
