#include "text/piece_trie.h"

#include <bit>

namespace quire {

PieceTrie::PieceTrie(size_t n_bytes) : edges_(std::bit_ceil(2 * n_bytes + 1), Edge{0, 0}), ids_{-1} {}

void PieceTrie::insert(std::string_view bytes, int32_t id) {
  uint32_t node = 0;
  for (const char c : bytes) {
    const uint64_t key = key_of(node, static_cast<uint8_t>(c));
    size_t i = start(key);
    while (edges_[i].key != key && edges_[i].key != 0) i = (i + 1) & (edges_.size() - 1);
    if (edges_[i].key == 0) {
      edges_[i] = {key, static_cast<uint32_t>(ids_.size())};
      ids_.push_back(-1);
    }
    node = edges_[i].node;
  }
  ids_[node] = id;
}

}  // namespace quire
