#include "weights/split_file.h"

#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace quire {
namespace {

constexpr uint64_t kMaxPartsLookedFor = 1000;  // a file can claim 2^64
constexpr size_t kSuffixBytes = sizeof("-00001-of-00003.gguf") - 1;

// "-00001-of-00003.gguf" for part 0 of 3.
std::string part_suffix(uint64_t part, uint64_t n_parts) {
  char suffix[64];
  std::snprintf(suffix, sizeof suffix, "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(part + 1),
                static_cast<unsigned long long>(n_parts));
  return suffix;
}

// The parts that are not in the folder of `stem`, as " (NAME and 2 more are missing)".
std::string describe_missing(const std::string& stem, uint64_t n_parts) {
  std::string first_missing;
  uint64_t n_missing = 0;
  for (uint64_t part = 0; part < n_parts; ++part) {
    const std::filesystem::path name = stem + part_suffix(part, n_parts);
    std::error_code ignored;
    if (std::filesystem::exists(name, ignored)) continue;
    if (n_missing++ == 0) first_missing = name.filename().string();
  }
  if (n_missing == 0) return "";
  if (n_missing == 1) return " (" + first_missing + " is missing)";
  return " (" + first_missing + " and " + std::to_string(n_missing - 1) + " more are missing)";
}

}  // namespace

std::string describe_split(const std::string& path, uint64_t part, uint64_t n_parts) {
  const std::string count = std::to_string(n_parts);
  std::string sentence =
      part < n_parts ? "this is part " + std::to_string(part + 1) + " of " + count + " of a split model"
                     : "this is one of " + count + " parts of a split model";
  sentence += ", and only whole models are read; merge ";
  const std::string suffix = part < n_parts ? part_suffix(part, n_parts) : "";
  if (n_parts > kMaxPartsLookedFor || suffix.size() != kSuffixBytes || !path.ends_with(suffix)) {
    return sentence + "its " + count + " parts with 'llama-gguf-split --merge'";
  }
  const std::string stem = path.substr(0, path.size() - kSuffixBytes);
  const auto name_of = [&](uint64_t i) {
    return std::filesystem::path(stem + part_suffix(i, n_parts)).filename().string();
  };
  return sentence + name_of(0) + " to " + name_of(n_parts - 1) + describe_missing(stem, n_parts) +
         " with 'llama-gguf-split --merge'";
}

}  // namespace quire
