#include "weights/split_file.h"

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "weights/byte_cursor.h"

namespace quire {
namespace {

constexpr uint64_t kMostParts = 65535;  // split.count is a u16
constexpr size_t kSuffixBytes = sizeof("-00001-of-00003.gguf") - 1;

// "-00001-of-00003.gguf" for part 0 of 3.
std::string part_suffix(uint64_t part, uint64_t n_parts) {
  char suffix[64];
  std::snprintf(suffix, sizeof suffix, "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(part + 1),
                static_cast<unsigned long long>(n_parts));
  return suffix;
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// Refuses a model of which parts are not beside the others.
void check_presence(const std::string& path, const std::string& stem, uint64_t n_parts) {
  std::string first_missing;
  uint64_t n_missing = 0;
  for (uint64_t part = 0; part < n_parts; ++part) {
    const std::string name = stem + part_suffix(part, n_parts);
    std::error_code ignored;
    if (std::filesystem::exists(name, ignored)) continue;
    if (n_missing++ == 0) first_missing = file_name(name);
  }
  if (n_missing == 0) return;
  std::string what = in_quotes(first_missing);
  if (n_missing > 1) what.append(" and ").append(std::to_string(n_missing - 1)).append(" more");
  throw Error(path + ": of the " + std::to_string(n_parts) + " parts of this split model " + what +
              (n_missing == 1 ? " is missing" : " are missing"));
}

// Appends a part's tensors and files to the whole.
class Joiner {
 public:
  Joiner(std::string path, uint64_t n_parts, uint64_t n_tensors) : n_parts_(n_parts), n_tensors_(n_tensors) {
    whole_.path = std::move(path);
    whole_.form = std::to_string(n_parts) + " GGUF parts";
  }

  void append(GgufFile file, uint64_t part) {
    check(file, part);
    ModelParts parts = std::move(file).into_parts();
    for (const MetadataEntry& entry : parts.metadata) {
      if (part == 0 && !entry.key.starts_with("split.")) whole_.metadata.push_back(entry);
    }
    if (part == 0) {
      whole_.version = parts.version;
      whole_.alignment_bytes = parts.alignment_bytes;
    }
    std::move(parts.tensors.begin(), parts.tensors.end(), std::back_inserter(whole_.tensors));
    std::move(parts.files.begin(), parts.files.end(), std::back_inserter(whole_.files));
  }

  GgufFile finish() && {
    if (whole_.tensors.size() != n_tensors_) {
      throw Error(whole_.path + ": the parts of this split model have " +
                  std::to_string(whole_.tensors.size()) + " tensors together, where " +
                  std::to_string(n_tensors_) + " are wanted");
    }
    return GgufFile::from_parts(std::move(whole_));
  }

 private:
  void check(const GgufFile& file, uint64_t part) const {
    const uint64_t count = file.get_uint_or("split.count", 1);
    const uint64_t number = file.get_uint_or("split.no", 0);
    if (count != n_parts_ || number != part) {
      throw Error(file.path() + ": by its name this is part " + std::to_string(part + 1) + " of " +
                  std::to_string(n_parts_) + " of a split model, but " +
                  (count > 1 ? "it says that " + describe_part(number, count) : "it is a whole model"));
    }
    const uint64_t n_tensors = file.get_uint("split.tensors.count");
    if (n_tensors != n_tensors_) refuse_foreign(file);
    // Only the first part need have more than the split's own keys; what others repeat must be the same.
    constexpr std::string_view kArchitecture = "general.architecture";
    if (part > 0 && file.find(kArchitecture) != nullptr &&
        file.get_string(kArchitecture) != architecture_of(whole_)) {
      refuse_foreign(file);
    }
  }

  static std::string_view architecture_of(const ModelParts& parts) {
    for (const MetadataEntry& entry : parts.metadata) {
      const auto* text = std::get_if<std::string_view>(&entry.value);
      if (entry.key == "general.architecture" && text != nullptr) return *text;
    }
    return {};
  }

  [[noreturn]] void refuse_foreign(const GgufFile& file) const {
    throw Error(file.path() + ": this part belongs to another model than " +
                in_quotes(file_name(whole_.path)));
  }

  ModelParts whole_;
  uint64_t n_parts_;
  uint64_t n_tensors_;
};

}  // namespace

std::string describe_part(uint64_t part, uint64_t n_parts) {
  const std::string count = std::to_string(n_parts);
  if (part >= n_parts) return "this is one of " + count + " parts of a split model";
  return std::string("this is part ")
      .append(std::to_string(part + 1))
      .append(" of ")
      .append(count)
      .append(" of a split model");
}

bool is_part_of_split(const GgufFile& file) { return file.get_uint_or("split.count", 1) > 1; }

GgufFile join_split(GgufFile part) {
  const std::string path = part.path();
  const uint64_t n_parts = part.get_uint("split.count");
  const uint64_t number = part.get_uint_or("split.no", 0);
  const std::string suffix = number < n_parts ? part_suffix(number, n_parts) : "";
  if (n_parts > kMostParts || suffix.size() != kSuffixBytes || !path.ends_with(suffix)) {
    std::string sentence =
        path + ": " + describe_part(number, n_parts) + ", and the others are found by their names";
    if (suffix.size() == kSuffixBytes && n_parts <= kMostParts) {
      sentence.append("; this one has to be called NAME").append(suffix);
    }
    throw Error(sentence);
  }
  const std::string stem = path.substr(0, path.size() - kSuffixBytes);
  check_presence(path, stem, n_parts);
  Joiner joiner(path, n_parts, part.get_uint("split.tensors.count"));
  for (uint64_t i = 0; i < n_parts; ++i) {
    joiner.append(i == number ? std::move(part) : GgufFile::open_part(stem + part_suffix(i, n_parts)), i);
  }
  return std::move(joiner).finish();
}

}  // namespace quire
