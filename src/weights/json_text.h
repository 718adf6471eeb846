// JSON from files that nobody vouches for: parsed with limits, and read by key with sentences. Internal to
// the room; sources that use it include <nlohmann/json.hpp> themselves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace quire {

// Throws Error "PATH: ..." for what is no JSON object, nests deeper than 64, or has a key twice in one
// object.
nlohmann::json parse_json_object(std::string_view text, const std::string& path);

// The text of a file, of at most so many bytes. Throws Error.
std::string read_text_file(const std::string& path, uint64_t most_bytes);

// An object that outlives this view of it. A null counts as a key that is not there, as it does for
// transformers. Everything throws Error "PATH: KEY ..." for another type or range than asked for.
class JsonReader {
 public:
  // `prefix` stands before keys in sentences: "text_config.".
  JsonReader(const nlohmann::json& object, std::string path, std::string prefix = {});

  bool has(const char* key) const { return find(key) != nullptr; }
  bool says_null(const char* key) const;
  // nullptr: absent or null.
  const nlohmann::json* find(const char* key) const;

  uint64_t count(const char* key, uint64_t most) const;  // 1 to most
  uint64_t count_or(const char* key, uint64_t otherwise, uint64_t most) const;
  double positive(const char* key) const;
  double positive_or(const char* key, double otherwise) const;
  bool flag_or(const char* key, bool otherwise) const;
  std::string text(const char* key) const;
  std::string text_or(const char* key, const char* otherwise) const;
  std::vector<std::string> texts(const char* key) const;
  std::vector<float> positives(const char* key) const;  // an array of positive numbers
  JsonReader object(const char* key) const;

  // Throws Error "PATH: KEY `what`".
  [[noreturn]] void fail(const char* key, const std::string& what) const;
  const std::string& path() const { return path_; }

 private:
  const nlohmann::json& require(const char* key) const;
  double checked(const char* key, const nlohmann::json& value) const;

  const nlohmann::json* object_;
  std::string path_;
  std::string prefix_;
};

// A value for a sentence: short, on one line.
std::string shown_json(const nlohmann::json& value);

}  // namespace quire
