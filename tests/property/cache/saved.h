// Caches as files in memory, whole and damaged.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "cache/cache_file.h"

namespace quire::test {

inline constexpr SectionFileKind kSavedKind{"TESTFILE", 1, "test file"};
using Bytes = std::vector<std::byte>;

inline void append_bytes(Bytes& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

inline Bytes write(const std::vector<Section>& sections) {
  Bytes bytes;
  write_sections(kSavedKind, sections, [&](std::span<const std::byte> more) { append_bytes(bytes, more); });
  return bytes;
}

inline Bytes save(const Cache& cache) { return write(cache_sections(cache)); }

// Empty, or why the cache cannot take it.
inline std::string load(const Bytes& bytes, Cache& cache) {
  const SectionFile file(bytes, "x", kSavedKind);
  const SavedCache saved = SavedCache::read(file);
  const std::string mismatch = saved.mismatch(cache);
  if (mismatch.empty()) saved.restore(cache);
  return mismatch;
}

// The file of a cache, with one section's values changed.
template <typename T>
Bytes changed(const Cache& cache, const std::string& name,
              const std::function<void(std::vector<T>&)>& change) {
  std::vector<Section> sections = cache_sections(cache);
  for (Section& section : sections) {
    if (section.name != name) continue;
    Bytes bytes;
    section.write([&](std::span<const std::byte> more) { append_bytes(bytes, more); });
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    change(values);
    section = value_section<T>(name, values);
  }
  return write(sections);
}

// The same without a section.
inline Bytes without(const Cache& cache, const std::string& name) {
  std::vector<Section> sections = cache_sections(cache);
  std::erase_if(sections, [&](const Section& section) { return section.name == name; });
  return write(sections);
}

// The message of the Error; empty: it is read.
inline std::string refusal(const Bytes& bytes) {
  try {
    const SectionFile file(bytes, "x", kSavedKind);
    SavedCache::read(file);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// In one line that names the section.
inline bool is_refused_for(const std::string& section, const Bytes& bytes) {
  const std::string error = refusal(bytes);
  return error.find(section) != std::string::npos && error.find('\n') == std::string::npos;
}

}  // namespace quire::test
