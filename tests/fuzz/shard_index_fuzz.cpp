// Fuzz target of the reader of model.safetensors.index.json: any bytes either give plain names of files, each
// of which has some tensor, or an Error of one line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "weights/shard_index.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), n_bytes);
    const quire::ShardIndex index = quire::read_shard_index(text, "index.json");
    require(!index.files.empty() && std::is_sorted(index.files.begin(), index.files.end()));
    for (const std::string& file : index.files) {
      require(file.find('/') == std::string::npos && file.find('\0') == std::string::npos &&
              file.front() != '.');
      require(std::any_of(index.file_of.begin(), index.file_of.end(),
                          [&](const auto& entry) { return entry.second == file; }));
    }
    for (const auto& [tensor, file] : index.file_of) {
      require(std::binary_search(index.files.begin(), index.files.end(), file));
    }
  } catch (const quire::Error& error) {
    const std::string message = error.what();
    require(message.size() < 1000 && message.find('\n') == std::string::npos);
  }
  return 0;
}
