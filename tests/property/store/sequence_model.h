// Stores beside plain vectors that say what they must hold.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/fp8.h"
#include "base/half.h"
#include "property/random.h"
#include "store/store.h"

namespace quire::test {

// Two layers of different shapes: heads, and formats of keys and values.
inline std::vector<RowLayout> two_layouts() {
  return {{2, 8, Format::kF32, Format::kF16}, {1, 8, Format::kBF16, Format::kF32}};
}

// Small integers, which every format holds exactly.
inline float row_value(uint32_t tag, size_t layer, size_t head, size_t dim, bool is_key) {
  return static_cast<float>((tag * 31 + layer * 7 + head * 5 + dim * 3 + (is_key ? 1 : 0)) % 251) - 125.0f;
}

// A store and the tags of the tokens it holds; the rows of a token follow from its tag.
struct Sequence {
  Store store;
  std::vector<uint32_t> tags;
  size_t room_tokens = 0;  // made by extend() behind the committed tokens
};

inline void write_token(Store& store, size_t position, uint32_t tag) {
  for (size_t layer = 0; layer < store.n_layers(); ++layer) {
    const RowLayout& layout = store.layout(layer);
    for (size_t head = 0; head < layout.n_kv_heads; ++head) {
      std::vector<float> k(layout.head_dim);
      std::vector<float> v(layout.head_dim);
      for (size_t d = 0; d < layout.head_dim; ++d) {
        k[d] = row_value(tag, layer, head, d, true);
        v[d] = row_value(tag, layer, head, d, false);
      }
      store.write(layer, head, position, 1, k.data(), v.data(), layout.head_dim);
    }
  }
}

// One stored number.
inline float stored_value(const std::byte* rows, Format format, size_t index) {
  if (format == Format::kF32) {
    float value = 0;
    std::memcpy(&value, rows + 4 * index, sizeof value);
    return value;
  }
  if (format == Format::kFP8) return fp8_to_f32(static_cast<uint8_t>(rows[index]));
  uint16_t bits = 0;
  std::memcpy(&bits, rows + 2 * index, sizeof bits);
  return format == Format::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

inline float stored_key(const LayerView& view, size_t head, size_t token, size_t dim) {
  const size_t index = dim * kTokensPerPage + token % kTokensPerPage;
  return stored_value(view.keys(head, token / kTokensPerPage), view.layout->key_format, index);
}

inline float stored_output(const LayerView& view, size_t head, size_t token, size_t dim) {
  const size_t index = token % kTokensPerPage * view.layout->head_dim + dim;
  return stored_value(view.values(head, token / kTokensPerPage), view.layout->value_format, index);
}

// The first row of the store that is not what its tag says, as "layer/head/token/dim"; empty when all are.
inline std::string first_difference(const Sequence& sequence) {
  for (size_t layer = 0; layer < sequence.store.n_layers(); ++layer) {
    const LayerView view = sequence.store.view(layer, sequence.store.n_tokens());
    for (size_t head = 0; head < view.layout->n_kv_heads; ++head) {
      for (size_t token = 0; token < sequence.tags.size(); ++token) {
        for (size_t d = 0; d < view.layout->head_dim; ++d) {
          const uint32_t tag = sequence.tags[token];
          if (stored_key(view, head, token, d) == row_value(tag, layer, head, d, true) &&
              stored_output(view, head, token, d) == row_value(tag, layer, head, d, false)) {
            continue;
          }
          return std::to_string(layer) + "/" + std::to_string(head) + "/" + std::to_string(token) + "/" +
                 std::to_string(d);
        }
      }
    }
  }
  return "";
}

// Distinct pages that the sequences hold, and their bytes.
inline uint64_t distinct_page_bytes(const std::vector<std::unique_ptr<Sequence>>& sequences) {
  std::set<const Page*> seen;
  uint64_t total = 0;
  for (const auto& sequence : sequences) {
    for (size_t layer = 0; layer < sequence->store.n_layers(); ++layer) {
      for (const PageRef& page : sequence->store.view(layer, 0).pages) {
        if (seen.insert(page.get()).second) total += page->size_bytes;
      }
    }
  }
  return total;
}

}  // namespace quire::test
