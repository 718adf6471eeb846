#include "text/piece_table.h"

#include <bit>
#include <cstring>
#include <utility>

namespace quire {
namespace {

// Eight bytes at a time, multiplied into each other; tokens are short, so start-up cost is what counts.
uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio, Knuth's multiplier
  uint64_t hash = bytes.size() * kOdd;
  const char* at = bytes.data();
  size_t left = bytes.size();
  while (left > 0) {
    const size_t n = left < 8 ? left : 8;
    uint64_t word = 0;
    std::memcpy(&word, at, n);
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 32;
    at += n;
    left -= n;
  }
  return hash * kOdd;
}

}  // namespace

PieceTable::PieceTable(TokenTexts texts)
    : texts_(std::move(texts)), entries_(std::bit_ceil(2 * texts_.size() + 1), Entry{0, kNone}) {}

int32_t PieceTable::insert(int32_t id) {
  const std::string_view bytes = texts_[id];
  const uint64_t hash = hash_bytes(bytes);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = entries_.size() - 1;
  size_t i = hash & mask;
  for (; entries_[i].id != kNone; i = (i + 1) & mask) {
    if (entries_[i].tag == tag && texts_[entries_[i].id] == bytes) return entries_[i].id;
  }
  entries_[i] = {tag, id};
  return id;
}

int32_t PieceTable::find(std::string_view bytes) const {
  const uint64_t hash = hash_bytes(bytes);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = entries_.size() - 1;
  for (size_t i = hash & mask; entries_[i].id != kNone; i = (i + 1) & mask) {
    if (entries_[i].tag == tag && texts_[entries_[i].id] == bytes) return entries_[i].id;
  }
  return kNone;
}

}  // namespace quire
