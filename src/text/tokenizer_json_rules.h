// From the parts of a tokenizer.json that say what happens to a text to TextRules. For the reader only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "text/text_rules.h"

namespace quire {

// One part of the file: an object with a "type" and fields that depend on it. `where` names it in messages.
class JsonPart {
 public:
  // An Error if `json` is no object with a type.
  JsonPart(const nlohmann::json& json, std::string where);

  const std::string& type() const { return type_; }
  const std::string& where() const { return where_; }

  // Refuses every field that is not among these: an unknown field may change what the part does.
  void allow(std::initializer_list<std::string_view> fields) const;

  // Typed fields; null counts as missing.
  bool flag(const char* field, bool otherwise) const;
  std::string text(const char* field, std::string_view otherwise) const;
  std::string text(const char* field) const;  // must be there
  uint64_t number(const char* field, uint64_t otherwise) const;
  const nlohmann::json& array(const char* field) const;
  const nlohmann::json& object(const char* field) const;
  const nlohmann::json* find(const char* field) const;  // nullptr: missing or null

  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse_type() const { refuse("is not supported"); }

 private:
  const nlohmann::json& json_;
  std::string where_;
  std::string type_;
};

// What the decoder and the pre-tokenizer say beyond TextRules.
struct TokenizerJsonRules {
  TextRules text;
  bool byte_level = false;     // tokens are written in GPT-2's byte alphabet
  bool byte_fallback = false;  // the decoder makes bytes of tokens like <0x0A>
};

TokenizerJsonRules read_text_rules(const nlohmann::json& tree);

// The tokens that the post-processor puts before and after a text.
struct AddedEnds {
  std::optional<int64_t> before;
  std::optional<int64_t> after;
};
AddedEnds read_post_processor(const nlohmann::json& tree);

}  // namespace quire
