// All tokens that a text begins with, found in one pass over it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace quire {

// A trie of bytes whose edges lie in one open-addressing table. Immutable after the last insert.
class PieceTrie {
 public:
  // Room for tokens of n_bytes in all; below 2^24 x 2^32.
  explicit PieceTrie(size_t n_bytes);

  void insert(std::string_view bytes, int32_t id);

  // Calls found(size in bytes, id) for every token that `text` begins with, from the shortest.
  template <typename Found>
  void prefixes(std::string_view text, const Found& found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == kNoNode) return;
      if (ids_[node] >= 0) found(i + 1, ids_[node]);
    }
  }

 private:
  static constexpr uint32_t kNoNode = 0;  // the root is nobody's child

  struct Edge {
    uint64_t key;  // (parent << 8 | byte) + 1; 0 if unused
    uint32_t node;
  };

  static uint64_t key_of(uint32_t parent, uint8_t byte) {
    return (static_cast<uint64_t>(parent) << 8 | byte) + 1;
  }
  size_t start(uint64_t key) const { return (key * 0x9e3779b97f4a7c15u >> 20) & (edges_.size() - 1); }

  uint32_t child(uint32_t parent, uint8_t byte) const {
    const uint64_t key = key_of(parent, byte);
    for (size_t i = start(key);; i = (i + 1) & (edges_.size() - 1)) {
      if (edges_[i].key == key) return edges_[i].node;
      if (edges_[i].key == 0) return kNoNode;
    }
  }

  std::vector<Edge> edges_;   // power of two, at most half full
  std::vector<int32_t> ids_;  // by node: the token that ends there, -1 for none
};

}  // namespace quire
