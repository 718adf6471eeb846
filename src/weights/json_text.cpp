#include "weights/json_text.h"

#include <cmath>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "weights/byte_cursor.h"
#include "weights/mapped_file.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 64;

}  // namespace

Json parse_json_object(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDeepest) throw Error(path + ": the JSON nests deeper than " + std::to_string(kDeepest));
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second)
        throw Error(path + ": the key " + in_quotes(key) + " is there twice");
    }
    return true;
  };
  try {
    Json parsed = Json::parse(text.begin(), text.end(), watch);
    if (!parsed.is_object()) throw Error(path + ": this is no JSON object");
    return parsed;
  } catch (const Json::parse_error& error) {
    throw Error(path + ": this is no valid JSON from byte " + std::to_string(error.byte) + " on");
  } catch (const Json::exception&) {
    throw Error(path + ": this JSON has a number beyond all range");
  }
}

std::string read_text_file(const std::string& path, uint64_t most_bytes) {
  const MappedFile file = MappedFile::open(path);
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() > most_bytes) {
    throw Error(path + ": the file has " + std::to_string(bytes.size()) + " bytes; at most " +
                std::to_string(most_bytes) + " are read");
  }
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("version https://git-lfs")) {
    throw Error(path + ": this is a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'");
  }
  return text;
}

std::string shown_json(const Json& value) {
  constexpr size_t kMostShown = 60;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array of " + std::to_string(value.size());
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, kMostShown);
}

JsonReader::JsonReader(const Json& object, std::string path, std::string prefix)
    : object_(&object), path_(std::move(path)), prefix_(std::move(prefix)) {}

void JsonReader::fail(const char* key, const std::string& what) const {
  throw Error(path_ + ": " + prefix_ + key + " " + what);
}

const Json* JsonReader::find(const char* key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonReader::says_null(const char* key) const {
  const auto found = object_->find(key);
  return found != object_->end() && found->is_null();
}

const Json& JsonReader::require(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) fail(key, "is missing");
  return *value;
}

uint64_t JsonReader::count(const char* key, uint64_t most) const {
  const Json& value = require(key);
  // Some tools write counts as 4096.0.
  const bool is_whole = value.is_number_integer() ||
                        (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
  const double number = is_whole ? value.get<double>() : 0;
  if (!is_whole || number < 1 || number > static_cast<double>(most)) {
    fail(key, "is " + shown_json(value) + ", not a whole number from 1 to " + std::to_string(most));
  }
  return value.is_number_integer() ? value.get<uint64_t>() : static_cast<uint64_t>(number);
}

uint64_t JsonReader::count_or(const char* key, uint64_t otherwise, uint64_t most) const {
  return has(key) ? count(key, most) : otherwise;
}

// Positive and finite also as f32, as it is going to be kept.
double JsonReader::checked(const char* key, const Json& value) const {
  const double number = value.is_number() ? value.get<double>() : 0;
  const auto kept = static_cast<float>(number);
  if (!(kept > 0) || !std::isfinite(kept)) {
    fail(key, "is " + shown_json(value) + ", not a positive number");
  }
  return number;
}

double JsonReader::positive(const char* key) const { return checked(key, require(key)); }

double JsonReader::positive_or(const char* key, double otherwise) const {
  return has(key) ? positive(key) : otherwise;
}

bool JsonReader::flag_or(const char* key, bool otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fail(key, "is " + shown_json(*value) + ", not true or false");
  return value->get<bool>();
}

std::string JsonReader::text(const char* key) const {
  const Json& value = require(key);
  if (!value.is_string()) fail(key, "is " + shown_json(value) + ", not a text");
  return value.get<std::string>();
}

std::string JsonReader::text_or(const char* key, const char* otherwise) const {
  return has(key) ? text(key) : otherwise;
}

std::vector<std::string> JsonReader::texts(const char* key) const {
  const Json& value = require(key);
  if (!value.is_array()) fail(key, "is " + shown_json(value) + ", not an array of texts");
  std::vector<std::string> values;
  for (const Json& each : value) {
    if (!each.is_string()) fail(key, "holds " + shown_json(each) + ", which is no text");
    values.push_back(each.get<std::string>());
  }
  return values;
}

std::vector<float> JsonReader::positives(const char* key) const {
  const Json& value = require(key);
  if (!value.is_array()) fail(key, "is " + shown_json(value) + ", not an array of numbers");
  std::vector<float> numbers;
  for (const Json& each : value) numbers.push_back(static_cast<float>(checked(key, each)));
  return numbers;
}

JsonReader JsonReader::object(const char* key) const {
  const Json& value = require(key);
  if (!value.is_object()) fail(key, "is " + shown_json(value) + ", not an object");
  return JsonReader(value, path_, prefix_ + key + ".");
}

}  // namespace quire
