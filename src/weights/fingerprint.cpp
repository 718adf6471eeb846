// The fingerprint of a model file: a hash of everything before the tensor data and of a piece of each tensor.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <vector>

#include "weights/gguf.h"
#include "weights/gguf_header.h"

namespace quire {
namespace {

// Bytes hashed from the middle of each tensor: enough to tell a fine-tune from its base, and at most two
// pages read from the disk.
constexpr uint64_t kSampleBytes = 256;

// Eight bytes at a time with two multiplications each (the round of xxHash64), because a vocabulary is
// megabytes. Fingerprints are stored with calibrations: changing anything here forgets those.
class Hash {
 public:
  void add(uint64_t word) {
    state_ = std::rotl(state_ ^ (std::rotl(word * kPrime2, 31) * kPrime1), 27) * kPrime1 + kPrime4;
  }

  void add(std::span<const std::byte> bytes) {
    add(bytes.size());
    while (bytes.size() >= sizeof(uint64_t)) {
      add(load(bytes.first(sizeof(uint64_t))));
      bytes = bytes.subspan(sizeof(uint64_t));
    }
    if (!bytes.empty()) add(load(bytes));
  }

  uint64_t finish() const {
    uint64_t hash = (state_ ^ state_ >> 33) * kPrime2;
    hash = (hash ^ hash >> 29) * kPrime3;
    return hash ^ hash >> 32;
  }

 private:
  static constexpr uint64_t kPrime1 = 0x9e3779b185ebca87;
  static constexpr uint64_t kPrime2 = 0xc2b2ae3d27d4eb4f;
  static constexpr uint64_t kPrime3 = 0x165667b19e3779f9;
  static constexpr uint64_t kPrime4 = 0x85ebca77c2b2ae63;

  static uint64_t load(std::span<const std::byte> bytes) {  // at most 8
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), bytes.size());
    return word;
  }

  uint64_t state_ = 0;
};

}  // namespace

std::string GgufFile::fingerprint() const {
  Hash hash;
  if (data_offset_ > 0) {
    hash.add(files_[0].bytes().first(data_offset_));
  } else {
    // Of a folder the name is that of the folder, which may lie elsewhere tomorrow.
    std::vector<MetadataEntry> metadata(metadata_.begin(), metadata_.end());
    std::erase_if(metadata, [](const MetadataEntry& entry) { return entry.key == "general.name"; });
    hash.add(gguf_header(metadata, tensors_, alignment_bytes_));
  }
  for (const TensorInfo& tensor : tensors_) {
    const uint64_t n_bytes = std::min(tensor.size_bytes, kSampleBytes);
    hash.add({tensor.data + (tensor.size_bytes - n_bytes) / 2, n_bytes});
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash.finish()));
  return digits;
}

}  // namespace quire
