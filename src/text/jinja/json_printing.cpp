// Values as JSON, as Python's json.dumps() writes it.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/characters.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"

namespace quire::jinja {
namespace {

void append_escape(uint32_t code, std::string& out) {
  char escaped[8];
  std::snprintf(escaped, sizeof escaped, "\\u%04x", code);
  out += escaped;
}

void append_json_character(std::string_view bytes, const Character& c, bool ascii, std::string& out) {
  constexpr std::string_view kFrom = "\"\\\n\r\t\b\f";
  constexpr std::string_view kTo = "\"\\nrtbf";
  const size_t at = bytes.size() == 1 ? kFrom.find(bytes[0]) : std::string_view::npos;
  if (at != std::string_view::npos) {
    (out += '\\') += kTo[at];
  } else if (c.code_point < 0x20) {
    append_escape(c.code_point, out);
  } else if (!ascii || c.code_point < 0x7f + 1) {
    out += bytes;
  } else if (c.code_point < 0x10000) {
    append_escape(c.code_point, out);
  } else {
    append_escape(0xd800 + ((c.code_point - 0x10000) >> 10), out);
    append_escape(0xdc00 + ((c.code_point - 0x10000) & 0x3ff), out);
  }
}

class JsonPrinter {
 public:
  JsonPrinter(const JsonStyle& style, Text& out, Budget& budget)
      : style_(style), out_(out), budget_(budget) {}

  void print(Value value, size_t depth = 0) {
    if (depth > kMaxValueDepth)
      throw Trouble("makes JSON of values that lie deeper in each other than they may");
    const size_t before = out_.size();
    print_one(value, depth);
    budget_.take_bytes(out_.size() - before);
    budget_.check_memory(out_.memory_bytes());
  }

 private:
  void put(std::string_view bytes) { out_.append(bytes, Origin::kOutside); }

  void print_one(Value value, size_t depth) {
    switch (value.kind()) {
      case Kind::kNone: return put("null");
      case Kind::kBool: return put(value.integer() != 0 ? "true" : "false");
      case Kind::kInt: return put(std::to_string(value.integer()));
      case Kind::kFloat: return put(number(value.floating()));
      case Kind::kText: return print_text(value.text());
      case Kind::kDict: return print_dict(value.dict(), depth);
      case Kind::kSequence:
        if (const SequenceType type = value.sequence().type;
            type == SequenceType::kList || type == SequenceType::kTuple || type == SequenceType::kGroup) {
          return print_list(value.sequence(), depth);
        }
        [[fallthrough]];
      default: throw Trouble(std::string("cannot make JSON of a value of type ") + type_name(value));
    }
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_text(value);
  }

  void print_text(const Text& text) {
    put("\"");
    append_escaped(text, out_, [&](std::string_view bytes, const Character& c, std::string& to) {
      append_json_character(bytes, c, style_.ascii, to);
    });
    put("\"");
  }

  void new_line(size_t depth) {
    if (!style_.indented) return;
    budget_.take_bytes(depth * style_.indent.size());
    std::string line = "\n";
    for (size_t i = 0; i < depth; ++i) line += style_.indent;
    put(line);
  }

  void separate(size_t i, size_t depth) {
    if (i > 0) put(style_.item_separator);
    new_line(depth);
  }

  void print_list(const Sequence& list, size_t depth) {
    if (list.items.empty()) return put("[]");
    put("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      separate(i, depth + 1);
      print(list.items[i], depth + 1);
    }
    new_line(depth);
    put("]");
  }

  void print_key(Value key) {
    if (key.is(Kind::kText)) return print_text(key.text());
    if (!key.is(Kind::kNone) && !key.is_number()) {
      throw Trouble(std::string("cannot make JSON of a key of type ") + type_name(key));
    }
    put("\"");
    print_one(key, 0);
    put("\"");
  }

  void print_dict(const Dict& dict, size_t depth) {
    if (dict.entries.empty()) return put("{}");
    std::vector<std::pair<Value, Value>> entries = dict.entries;
    budget_.take_steps(entries.size());
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto& a, const auto& b) { return is_less(a.first, b.first, budget_); });
    }
    put("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      separate(i, depth + 1);
      print_key(entries[i].first);
      put(style_.key_separator);
      print(entries[i].second, depth + 1);
    }
    new_line(depth);
    put("}");
  }

  const JsonStyle& style_;
  Text& out_;
  Budget& budget_;
};

}  // namespace

void append_json(Value value, const JsonStyle& style, Text& out, Budget& budget) {
  JsonPrinter(style, out, budget).print(value);
}

}  // namespace quire::jinja
