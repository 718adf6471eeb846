// Bytes of a file that ends in a checksum of 64 bits over all before it, changed by a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace quire::test {

// Writes the checksum that the bytes should have; there are at least eight.
template <typename Checksum>
void repair_checksum(std::vector<std::byte>& bytes, const Checksum& checksum_of) {
  const size_t n_body = bytes.size() - sizeof(uint64_t);
  const uint64_t checksum = checksum_of(std::span<const std::byte>(bytes).first(n_body));
  std::memcpy(bytes.data() + n_body, &checksum, sizeof checksum);
}

// The bytes with `value` at `at`, under the right checksum.
template <typename T, typename Checksum>
std::vector<std::byte> with_value(std::vector<std::byte> bytes, size_t at, T value,
                                  const Checksum& checksum_of) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  repair_checksum(bytes, checksum_of);
  return bytes;
}

}  // namespace quire::test
