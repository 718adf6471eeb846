// A model file's metadata of its architecture, each asked for by what follows "ARCHITECTURE." in its key.
// Internal to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "weights/gguf.h"

namespace quire {

// Checks what it hands out, and notices what nobody asked for.
class ModelKeys {
 public:
  // Throws Error where the file names no architecture.
  explicit ModelKeys(const GgufFile& file);

  const GgufFile& file() const { return file_; }
  std::string_view architecture() const { return architecture_; }
  std::string full(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) { return find(name) != nullptr; }
  // nullptr where there is none; asked for in either case.
  const MetadataValue* find(std::string_view name);

  // A count in [1, most]. These throw Error that names the key.
  size_t count(std::string_view name, uint64_t most);
  size_t count_or(std::string_view name, uint64_t otherwise, uint64_t most);
  // A finite number above 0.
  double positive(std::string_view name);
  double positive_or(std::string_view name, double otherwise);
  // A finite number, not negative; 0 means none.
  double positive_or_zero(std::string_view name, double otherwise);

  // Throws Error "FILE: WHAT".
  [[noreturn]] void refuse(const std::string& what) const;
  // Throws Error for an entry of the architecture that was not asked for and is neither 0 nor false: what is
  // not understood may change the answer.
  void refuse_rest() const;

 private:
  double number(std::string_view name);

  const GgufFile& file_;
  std::string architecture_;
  std::string prefix_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace quire
