// One byte string for every token, by id, one after the other in one allocation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class TokenTexts {
 public:
  TokenTexts() : offsets_{0} {}

  void reserve(size_t n_tokens, size_t n_bytes) {
    offsets_.reserve(n_tokens + 1);
    arena_.reserve(n_bytes);
  }

  // The text of the token size(). The whole must stay below 4 GiB.
  void append(std::string_view bytes) {
    arena_ += bytes;
    offsets_.push_back(static_cast<uint32_t>(arena_.size()));
  }

  // The view lives as long as nothing is appended.
  std::string_view operator[](int32_t id) const {
    const auto i = static_cast<size_t>(id);
    return {arena_.data() + offsets_[i], offsets_[i + 1] - offsets_[i]};
  }

  size_t size() const { return offsets_.size() - 1; }

 private:
  std::string arena_;
  std::vector<uint32_t> offsets_;  // size() + 1
};

}  // namespace quire
