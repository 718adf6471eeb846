#include "text/tokenizer_json_rules.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/pre_tokenizer.h"

namespace quire {
namespace {

using Json = nlohmann::json;

const Json* find_part(const Json& tree, const char* name) {
  const auto found = tree.find(name);
  return found == tree.end() || found->is_null() ? nullptr : &*found;
}

// Calls part(JsonPart) for the part `name`, or for each of a Sequence in its place, however deep.
template <typename OnPart>
void for_each_part(const Json& json, const std::string& where, const char* list, const OnPart& on_part) {
  const JsonPart part(json, where);
  if (part.type() != "Sequence") return on_part(part);
  part.allow({list});
  for (const Json& inner : part.array(list)) for_each_part(inner, where, list, on_part);
}

// A text as an expression that matches it and nothing else.
std::string literal_expression(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool special = std::string_view("\\^$.[]|()?*+{}-&#").find(c) != std::string_view::npos;
    if (special) out += '\\';
    out += c;
  }
  return out;
}

// "pattern": {"String": ...} or {"Regex": ...}.
struct Pattern {
  bool is_expression;
  std::string text;
};

Pattern read_pattern(const JsonPart& part) {
  const Json& pattern = part.object("pattern");
  const bool plain = pattern.size() == 1 && pattern.begin()->is_string() &&
                     (pattern.begin().key() == "String" || pattern.begin().key() == "Regex");
  if (!plain) part.refuse("has a pattern that is neither a String nor a Regex");
  Pattern read{pattern.begin().key() == "Regex", pattern.begin()->get<std::string>()};
  if (read.text.empty()) part.refuse("has an empty pattern");
  return read;
}

SplitBehavior read_behavior(const JsonPart& part, std::string_view otherwise) {
  const std::string name = part.text("behavior", otherwise);
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  part.refuse("has the behavior '" + name + "', which is not supported");
}

void read_normalizer(const JsonPart& part, std::vector<NormalStep>& steps) {
  using Kind = NormalStep::Kind;
  constexpr std::pair<std::string_view, Kind> kPlain[] = {{"NFC", Kind::kNfc},
                                                          {"NFD", Kind::kNfd},
                                                          {"NFKC", Kind::kNfkc},
                                                          {"NFKD", Kind::kNfkd},
                                                          {"Lowercase", Kind::kLowercase}};
  const auto plain = std::ranges::find(kPlain, part.type(), [](const auto& pair) { return pair.first; });
  if (plain != std::end(kPlain)) {
    part.allow({});
    steps.push_back({plain->second});
  } else if (part.type() == "Prepend") {
    part.allow({"prepend"});
    steps.push_back({Kind::kPrepend, {}, part.text("prepend")});
  } else if (part.type() == "Replace") {
    part.allow({"pattern", "content"});
    Pattern pattern = read_pattern(part);
    steps.push_back({pattern.is_expression ? Kind::kReplaceExpression : Kind::kReplaceText,
                     std::move(pattern.text), part.text("content")});
  } else if (part.type() == "Strip") {
    part.allow({"strip_left", "strip_right"});
    if (part.flag("strip_left", true)) steps.push_back({Kind::kStripLeft});
    if (part.flag("strip_right", true)) steps.push_back({Kind::kStripRight});
  } else if (part.type() == "Precompiled") {
    part.allow({"precompiled_charsmap"});
    if (!part.text("precompiled_charsmap", "").empty())
      part.refuse("has a table of replacements, which is not supported");
  } else {
    part.refuse_type();
  }
}

// Metaspace: marks spaces, puts one in front, and cuts before each.
void read_metaspace(const JsonPart& part, TextRules& rules) {
  part.allow({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  if (!rules.splits.empty() || !rules.marking.empty()) part.refuse("behind another step is not supported");
  const std::string mark = part.text("replacement", "\xE2\x96\x81");
  const std::string scheme =
      part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
  rules.marking.push_back({NormalStep::Kind::kReplaceText, " ", mark});
  if (scheme == "always") {
    rules.marking.push_back({NormalStep::Kind::kPrependOnce, {}, mark});
  } else if (scheme == "first") {
    rules.marking.push_back({NormalStep::Kind::kPrependFirst, {}, mark});
  } else if (scheme != "never") {
    part.refuse("has the prepend_scheme '" + scheme + "', which is not supported");
  }
  if (part.flag("split", true))
    rules.splits.push_back({literal_expression(mark), SplitBehavior::kMergedWithNext, false});
}

void read_byte_level(const JsonPart& part, TextRules& rules) {
  part.allow({"add_prefix_space", "trim_offsets", "use_regex"});
  if (part.flag("add_prefix_space", true)) {
    if (!rules.splits.empty()) part.refuse("with add_prefix_space behind another step is not supported");
    rules.marking.push_back({NormalStep::Kind::kPrependOnce, {}, " "});
  }
  if (part.flag("use_regex", true)) rules.splits.push_back({std::string(kGpt2Expression)});
}

void read_pre_tokenizer(const JsonPart& part, TokenizerJsonRules& rules) {
  std::vector<SplitStep>& splits = rules.text.splits;
  // What follows would see the byte alphabet.
  if (rules.byte_level) part.refuse("behind ByteLevel is not supported");
  if (part.type() == "ByteLevel") {
    read_byte_level(part, rules.text);
    rules.byte_level = true;
  } else if (part.type() == "Metaspace") {
    read_metaspace(part, rules.text);
  } else if (part.type() == "Split") {
    part.allow({"pattern", "behavior", "invert"});
    const Pattern pattern = read_pattern(part);
    if (part.find("behavior") == nullptr) part.refuse("has no behavior");
    splits.push_back({pattern.is_expression ? pattern.text : literal_expression(pattern.text),
                      read_behavior(part, ""), part.flag("invert", false)});
  } else if (part.type() == "Digits") {
    part.allow({"individual_digits"});
    const bool individual = part.flag("individual_digits", false);
    splits.push_back({R"(\p{N})", individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (part.type() == "Punctuation") {
    part.allow({"behavior"});
    splits.push_back({R"([!-/:-@\[-`{-~\p{P}])", read_behavior(part, "Isolated")});
  } else if (part.type() == "Whitespace") {
    part.allow({});
    splits.push_back({R"(\w+|[^\w\s]+)", SplitBehavior::kRemoved, true});
  } else if (part.type() == "WhitespaceSplit") {
    part.allow({});
    splits.push_back({R"(\s)", SplitBehavior::kRemoved});
  } else if (part.type() == "CharDelimiterSplit") {
    part.allow({"delimiter"});
    splits.push_back({literal_expression(part.text("delimiter")), SplitBehavior::kRemoved});
  } else {
    part.refuse_type();
  }
}

void set_mark(const JsonPart& part, std::string mark, TextRules& rules) {
  if (!rules.space_mark.empty() && rules.space_mark != mark) part.refuse("makes a second mark into a space");
  if (mark.empty()) part.refuse("has an empty mark for the space");
  rules.space_mark = std::move(mark);
}

void read_decoder(const JsonPart& part, TokenizerJsonRules& rules, bool& is_byte_level) {
  if (part.type() == "ByteLevel") {
    part.allow({"add_prefix_space", "trim_offsets", "use_regex"});
    is_byte_level = true;
  } else if (part.type() == "ByteFallback") {
    part.allow({});
    rules.byte_fallback = true;
  } else if (part.type() == "Fuse") {
    part.allow({});
  } else if (part.type() == "Replace") {
    part.allow({"pattern", "content"});
    Pattern pattern = read_pattern(part);
    if (pattern.is_expression || part.text("content") != " ")
      part.refuse("that makes no spaces is not supported");
    set_mark(part, std::move(pattern.text), rules.text);
  } else if (part.type() == "Strip") {
    part.allow({"content", "start", "stop"});
    const uint64_t start = part.number("start", 0);
    if (part.text("content", " ") != " " || start > 1 || part.number("stop", 0) > 0) {
      part.refuse("of more than one space at the start is not supported");
    }
    if (start == 1) rules.text.leading_space = LeadingSpace::kOneDropped;
  } else if (part.type() == "Metaspace") {
    part.allow({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    set_mark(part, part.text("replacement", "\xE2\x96\x81"), rules.text);
    const std::string scheme =
        part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
    if (scheme != "never") rules.text.leading_space = LeadingSpace::kAllOfFirstTokenDropped;
  } else {
    part.refuse_type();
  }
}

// The id of "SpecialToken": {"id": NAME} of a template, by its special_tokens.
int64_t template_token(const JsonPart& part, const Json& item) {
  const auto name = item.find("id");
  if (name != item.end() && name->is_string()) {
    const Json& tokens = part.object("special_tokens");
    const auto token = tokens.find(name->get<std::string>());
    if (token != tokens.end() && token->is_object()) {
      const auto ids = token->find("ids");
      const bool one =
          ids != token->end() && ids->is_array() && ids->size() == 1 && ids->front().is_number_integer();
      if (one) return ids->front().get<int64_t>();
    }
  }
  part.refuse("names a special token without an id of its own");
}

void read_template(const JsonPart& part, AddedEnds& ends) {
  part.allow({"single", "pair", "special_tokens"});
  bool seen_text = false;
  for (const Json& item : part.array("single")) {
    const bool valid = item.is_object() && item.size() == 1 && item.begin()->is_object();
    if (valid && item.begin().key() == "Sequence" && !seen_text) {
      seen_text = true;
      continue;
    }
    std::optional<int64_t>& end = seen_text ? ends.after : ends.before;
    if (!valid || item.begin().key() != "SpecialToken" || end) part.refuse("of this form is not supported");
    end = template_token(part, *item.begin());
  }
  if (!seen_text) part.refuse("without the text is not supported");
}

}  // namespace

JsonPart::JsonPart(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
  if (!json.is_object()) throw Error("its " + where_ + " is not an object");
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) throw Error("its " + where_ + " has no type");
  type_ = type->get<std::string>();
}

void JsonPart::refuse(const std::string& what) const { throw Error(where_ + " '" + type_ + "' " + what); }

void JsonPart::allow(std::initializer_list<std::string_view> fields) const {
  for (const auto& item : json_.items()) {
    const std::string& field = item.key();
    if (field != "type" && std::ranges::find(fields, field) == fields.end()) {
      refuse("has the field '" + field + "', which is not known");
    }
  }
}

const Json* JsonPart::find(const char* field) const {
  const auto found = json_.find(field);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonPart::flag(const char* field, bool otherwise) const {
  const Json* value = find(field);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(std::string(field) + " is neither true nor false");
  return value->get<bool>();
}

std::string JsonPart::text(const char* field, std::string_view otherwise) const {
  const Json* value = find(field);
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_string()) refuse(std::string(field) + " is not a text");
  return value->get<std::string>();
}

std::string JsonPart::text(const char* field) const {
  if (find(field) == nullptr) refuse(std::string("has no ").append(field));
  return text(field, "");
}

uint64_t JsonPart::number(const char* field, uint64_t otherwise) const {
  const Json* value = find(field);
  if (value == nullptr) return otherwise;
  if (!value->is_number_unsigned()) refuse(std::string(field) + " is not a whole number");
  return value->get<uint64_t>();
}

const Json& JsonPart::array(const char* field) const {
  const Json* value = find(field);
  if (value == nullptr || !value->is_array()) refuse(std::string("has no list ").append(field));
  return *value;
}

const Json& JsonPart::object(const char* field) const {
  const Json* value = find(field);
  if (value == nullptr || !value->is_object()) refuse(std::string("has no object ").append(field));
  return *value;
}

TokenizerJsonRules read_text_rules(const Json& tree) {
  TokenizerJsonRules rules;
  if (const Json* json = find_part(tree, "normalizer")) {
    for_each_part(*json, "normalizer", "normalizers",
                  [&](const JsonPart& part) { read_normalizer(part, rules.text.normalizer); });
  }
  if (const Json* json = find_part(tree, "pre_tokenizer")) {
    for_each_part(*json, "pre_tokenizer", "pretokenizers",
                  [&](const JsonPart& part) { read_pre_tokenizer(part, rules); });
  }
  bool byte_level_decoder = false;
  const Json* decoder = find_part(tree, "decoder");
  if (decoder == nullptr) throw Error("it has no decoder");
  for_each_part(*decoder, "decoder", "decoders",
                [&](const JsonPart& part) { read_decoder(part, rules, byte_level_decoder); });
  if (byte_level_decoder != rules.byte_level) {
    throw Error("of pre_tokenizer and decoder only one is ByteLevel");
  }
  if (rules.byte_level && (!rules.text.space_mark.empty() || rules.byte_fallback)) {
    throw Error("its decoder is ByteLevel and something else");
  }
  return rules;
}

AddedEnds read_post_processor(const Json& tree) {
  AddedEnds ends;
  const Json* json = find_part(tree, "post_processor");
  if (json == nullptr) return ends;
  for_each_part(*json, "post_processor", "processors", [&](const JsonPart& part) {
    if (part.type() == "ByteLevel") return;  // moves offsets only
    if (part.type() != "TemplateProcessing") part.refuse_type();
    if (ends.before || ends.after) part.refuse("stands there twice");
    read_template(part, ends);
  });
  return ends;
}

}  // namespace quire
