// Where sealed pages lie: the last part of a recipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace quire {

// Pages that are full and older than the tail leave for a tier, coded or exact as the recipe says. What is
// read for every row stays in memory: indexes, digests, exact rows beside coded pages.
struct PagePlace {
  enum class Kind : uint8_t { kMemory, kHost, kDisk };
  enum class Device : uint8_t {
    kBest,
    kUring,
    kThreads
  };  // of a disk; best: io_uring where the kernel has it

  Kind kind = Kind::kMemory;
  std::string path = {};     // of a disk: a folder
  uint64_t size_bytes = 0;   // most bytes outside; 0: no limit
  size_t ahead_layers = 4;   // so many layers before they run, their rows are fetched
  uint64_t cache_bytes = 0;  // most memory for rows that were fetched; 0: what the budget leaves
  Device device = Device::kBest;

  bool operator==(const PagePlace&) const = default;
  bool given() const { return kind != Kind::kMemory; }
};

}  // namespace quire
