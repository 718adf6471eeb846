#include "text/jinja/printing.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/characters.h"

namespace quire::jinja {
namespace {

void append_hex(const char* form, uint32_t code_point, std::string& out) {
  char escaped[16];
  std::snprintf(escaped, sizeof escaped, form, code_point);
  out += escaped;
}

// One character as repr() writes it between quotes.
void append_repr_character(std::string_view bytes, const Character& c, char quote, std::string& out) {
  const bool is_invalid = c.size_bytes == 1 && static_cast<uint8_t>(bytes[0]) >= 0x80;
  if (is_invalid) {
    out += bytes;
  } else if (c.code_point == '\\' || c.code_point == static_cast<uint32_t>(quote)) {
    (out += '\\') += bytes;
  } else if (c.code_point == '\n') {
    out += "\\n";
  } else if (c.code_point == '\r') {
    out += "\\r";
  } else if (c.code_point == '\t') {
    out += "\\t";
  } else if (is_printable(c.code_point)) {
    out += bytes;
  } else {
    append_hex(c.code_point < 0x100     ? "\\x%02x"
               : c.code_point < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
               c.code_point, out);
  }
}

void append_text_repr(const Text& text, Text& out) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const char quote = has_single && text.bytes().find('"') == std::string::npos ? '"' : '\'';
  out.append({&quote, 1}, Origin::kOutside);
  append_escaped(text, out, [&](std::string_view bytes, const Character& c, std::string& to) {
    append_repr_character(bytes, c, quote, to);
  });
  out.append({&quote, 1}, Origin::kOutside);
}

class ReprPrinter {
 public:
  ReprPrinter(Text& out, Budget& budget) : out_(out), budget_(budget) {}

  void print(Value value, size_t depth = 0) {
    if (depth > kMaxValueDepth) throw Trouble("prints values that lie deeper in each other than they may");
    const size_t before = out_.size();
    print_one(value, depth);
    budget_.take_bytes(out_.size() - before);
    budget_.check_memory(out_.memory_bytes());
  }

 private:
  void put(std::string_view bytes) { out_.append(bytes, Origin::kOutside); }

  void print_one(Value value, size_t depth) {
    switch (value.kind()) {
      case Kind::kUndefined: return put("Undefined");
      case Kind::kNone: return put("None");
      case Kind::kBool: return put(value.integer() != 0 ? "True" : "False");
      case Kind::kInt: return put(std::to_string(value.integer()));
      case Kind::kFloat: return put(float_text(value.floating()));
      case Kind::kText: return append_text_repr(value.text(), out_);
      case Kind::kSequence: return print_sequence(value.sequence(), depth);
      case Kind::kDict: return print_dict(value.dict(), depth);
      case Kind::kNamespace:
        put("<Namespace ");
        print_dict(value.dict(), depth);
        return put(">");
      case Kind::kFunction:
      case Kind::kLoop:
      case Kind::kCycler:
      case Kind::kJoiner: return put(std::string("<").append(type_name(value)).append(">"));
    }
  }

  void print_items(const Sequence& sequence, const char* open, const char* close, size_t depth) {
    put(open);
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) put(", ");
      print(sequence.items[i], depth + 1);
    }
    put(close);
  }

  void print_sequence(const Sequence& sequence, size_t depth) {
    switch (sequence.type) {
      case SequenceType::kList: return print_items(sequence, "[", "]", depth);
      case SequenceType::kTuple:
      case SequenceType::kGroup:
        return print_items(sequence, "(", sequence.items.size() == 1 ? ",)" : ")", depth);
      case SequenceType::kKeys: return print_items(sequence, "dict_keys([", "])", depth);
      case SequenceType::kValues: return print_items(sequence, "dict_values([", "])", depth);
      case SequenceType::kItems: return print_items(sequence, "dict_items([", "])", depth);
      case SequenceType::kIterator: return put("<generator>");
      case SequenceType::kRange: break;
    }
    std::string text =
        "range(" + std::to_string(sequence.range[0]) + ", " + std::to_string(sequence.range[1]);
    if (sequence.range[2] != 1) text += ", " + std::to_string(sequence.range[2]);
    put(text + ")");
  }

  void print_dict(const Dict& dict, size_t depth) {
    put("{");
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) put(", ");
      print(dict.entries[i].first, depth + 1);
      put(": ");
      print(dict.entries[i].second, depth + 1);
    }
    put("}");
  }

  Text& out_;
  Budget& budget_;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  const size_t e = shortest.find('e');
  const int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(shortest);  // both write "1e+16", "1.5e-05"
  const bool negative = shortest.front() == '-';
  std::string digits;
  for (const char c : shortest.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = negative ? "-" : "";
  if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
    return out;
  }
  const auto n_whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < n_whole) digits.append(n_whole - digits.size(), '0');
  out.append(digits, 0, n_whole).append(".");
  return out + (digits.size() > n_whole ? digits.substr(n_whole) : "0");
}

void append_repr(Value value, Text& out, Budget& budget) { ReprPrinter(out, budget).print(value); }

void append_printed(Value value, Text& out, Budget& budget) {
  if (value.is_undefined()) return;
  if (!value.is(Kind::kText)) {
    append_repr(value, out, budget);
    return;
  }
  budget.take_bytes(value.text().size());
  budget.check_memory(out.memory_bytes() + value.text().memory_bytes());
  out.append(value.text());
}

Text printed(Value value, Budget& budget) {
  Text out;
  append_printed(value, out, budget);
  return out;
}

}  // namespace quire::jinja
