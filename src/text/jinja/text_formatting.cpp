#include "text/jinja/text_formatting.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "text/jinja/characters.h"
#include "text/jinja/lexer.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"

namespace quire::jinja {
namespace {

constexpr int kMaxWidth = 1000;

// What stands between "%" and its letter, or behind the ":" of "{}".
struct Spec {
  std::string fill = " ";
  char align = '\0';  // '<' '>' '^'; none: as the type has it
  bool plus = false;
  bool zero = false;
  bool grouped = false;
  int width = 0;
  int precision = -1;
  char type = '\0';
};

int read_number(std::string_view& text) {
  int number = 0;
  const auto got = std::from_chars(text.data(), text.data() + text.size(), number);
  if (got.ec == std::errc::result_out_of_range || number > kMaxWidth) {
    throw Trouble("formats with a width of more than " + std::to_string(kMaxWidth));
  }
  text.remove_prefix(static_cast<size_t>(got.ptr - text.data()));
  return number;
}

bool skip(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

std::string grouped(std::string digits) {
  const size_t begin = digits.starts_with('-') || digits.starts_with('+') ? 1 : 0;
  size_t end = std::min(digits.find('.'), digits.size());
  for (; end > begin + 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

std::string float_in(const Spec& spec, double value) {
  char form[] = {'%', '+', '.', '*', spec.type, '\0'};
  if (!spec.plus) form[1] = '%';
  char text[1500];
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  const int n = std::snprintf(text, sizeof text, spec.plus ? form : form + 1, precision, value);
  return std::string(text, static_cast<size_t>(std::clamp(n, 0, static_cast<int>(sizeof text) - 1)));
}

std::string integer_in(const Spec& spec, int64_t value) {
  const bool negative = value < 0;
  const uint64_t magnitude =
      negative ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  char digits[70];
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  const auto end = std::to_chars(digits, digits + sizeof digits, magnitude, base).ptr;
  std::string text(digits, end);
  if (spec.type == 'X')
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return static_cast<char>(std::toupper(c)); });
  return std::string(negative ? "-" : spec.plus ? "+" : "").append(text);
}

// The value as its type letter wants it, before it is padded.
Text formatted(const Spec& spec, Value value, Budget& budget) {
  constexpr std::string_view kFloats = "feEgGF";
  const auto outside = [](std::string text) { return Text(std::move(text), Origin::kOutside); };
  if (spec.type == '%' || kFloats.find(spec.type) != std::string_view::npos) {
    if (!value.is_number())
      throw Trouble(std::string("formats a value of type ") + type_name(value) + " as a number");
    Spec as = spec;
    if (spec.type == '%') as.type = 'f';
    std::string text =
        float_in(as, value.as_float() * (spec.type == '%' ? 100 : 1)) + (spec.type == '%' ? "%" : "");
    return outside(spec.grouped ? grouped(std::move(text)) : std::move(text));
  }
  const bool is_integer_type = std::string_view("dixXob").find(spec.type) != std::string_view::npos;
  if (spec.type != '\0' && is_integer_type) {
    if (!value.is_number())
      throw Trouble(std::string("formats a value of type ") + type_name(value) + " as a number");
    if (!value.is_integral() && !(std::abs(value.as_float()) < 9e18))
      throw Trouble("formats a number beyond 64 bits");
    std::string text =
        integer_in(spec, value.is_integral() ? value.integer() : static_cast<int64_t>(value.as_float()));
    return outside(spec.grouped ? grouped(std::move(text)) : std::move(text));
  }
  if (spec.type != 's' && spec.type != 'r' && spec.type != '\0') {
    throw Trouble("formats with the type " + in_quotes({&spec.type, 1}) + ", which is not supported");
  }
  if (spec.grouped && value.is(Kind::kInt)) return outside(grouped(std::to_string(value.integer())));
  Text text;
  if (spec.type == 'r') {
    append_repr(value, text, budget);
  } else {
    append_printed(value, text, budget);
  }
  if (spec.precision < 0) return text;
  return text.part(0, byte_of_character(text.bytes(), static_cast<size_t>(spec.precision)));
}

void append_padded(const Spec& spec, Value value, char default_align, Text& out, Budget& budget) {
  const Text text = formatted(spec, value, budget);
  const int missing =
      spec.width - static_cast<int>(std::min<size_t>(count_characters(text.bytes()), kMaxWidth));
  const auto fill = [&](int n) {
    for (int i = 0; i < n; ++i) out.append(spec.fill, Origin::kOutside);
  };
  const char align = spec.align != '\0' ? spec.align : default_align;
  const bool signed_zeros = spec.zero && (text.bytes().starts_with('-') || text.bytes().starts_with('+'));
  if (signed_zeros) out.append_part(text, 0, 1);
  const int left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  if (missing > 0) fill(left);
  out.append_part(text, signed_zeros ? 1 : 0, text.size() - (signed_zeros ? 1 : 0));
  if (missing > 0) fill(missing - left);
  budget.take_bytes(out.size() / 64);
}

class PercentFormatter {
 public:
  PercentFormatter(const Text& format, Heap& heap) : format_(format), heap_(heap) {}

  // `take` gives the value for a directive, by the name in its parentheses (none: empty).
  template <typename Take>
  Text run(const Take& take) {
    Text out;
    const std::string_view bytes = format_.bytes();
    size_t at = 0;
    while (true) {
      const size_t percent = std::min(bytes.find('%', at), bytes.size());
      out.append_part(format_, at, percent - at);
      if (percent == bytes.size()) return out;
      std::string_view rest = bytes.substr(percent + 1);
      if (rest.starts_with('%')) {
        out.append_part(format_, percent, 1);
        at = percent + 2;
        continue;
      }
      std::string_view name;
      if (skip(rest, '(')) {
        const size_t end = rest.find(')');
        if (end == std::string_view::npos) throw Trouble("formats with '%(' that is not closed");
        name = rest.substr(0, end);
        rest.remove_prefix(end + 1);
      }
      const Spec spec = read_spec(rest);
      append_padded(spec, take(name), '>', out, heap_.budget());
      heap_.budget().check_memory(out.memory_bytes());
      at = bytes.size() - rest.size();
    }
  }

 private:
  static Spec read_spec(std::string_view& rest) {
    Spec spec;
    while (true) {
      if (skip(rest, '-')) {
        spec.align = '<';
      } else if (skip(rest, '+')) {
        spec.plus = true;
      } else if (skip(rest, '0')) {
        spec.zero = true;
      } else {
        break;
      }
    }
    spec.width = read_number(rest);
    if (skip(rest, '.')) spec.precision = read_number(rest);
    if (rest.empty()) throw Trouble("formats with '%' that has no type");
    spec.type = rest.front();
    rest.remove_prefix(1);
    if (spec.zero && spec.align == '\0' && spec.type != 's' && spec.type != 'r') spec.fill.assign(1, '0');
    spec.zero = spec.fill == "0";
    return spec;
  }

  const Text& format_;
  Heap& heap_;
};

class BraceFormatter {
 public:
  BraceFormatter(const Text& format, const Arguments& arguments, Heap& heap)
      : format_(format), arguments_(arguments), heap_(heap) {}

  Text run() {
    Text out;
    const std::string_view bytes = format_.bytes();
    for (size_t at = 0; at < bytes.size();) {
      const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.append_part(format_, at, brace - at);
      if (brace == bytes.size()) break;
      if (bytes.substr(brace, 2) == "{{" || bytes.substr(brace, 2) == "}}") {
        out.append_part(format_, brace, 1);
        at = brace + 2;
        continue;
      }
      const size_t end = bytes.find('}', brace);
      if (bytes[brace] == '}' || end == std::string_view::npos)
        throw Trouble("formats with a brace that stands alone");
      put(bytes.substr(brace + 1, end - brace - 1), out);
      at = end + 1;
    }
    return out;
  }

 private:
  void put(std::string_view field, Text& out) {
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    std::string_view spec_text = field.substr(std::min(colon + 1, field.size()));
    Spec spec;
    if (name.ends_with("!r") || name.ends_with("!s")) {
      spec.type = name.back();
      name.remove_suffix(2);
    }
    const Value value = find(name);
    read_spec(spec_text, spec);
    append_padded(spec, value, value.is_number() && spec.type != 's' && spec.type != 'r' ? '>' : '<', out,
                  heap_.budget());
    heap_.budget().check_memory(out.memory_bytes());
  }

  Value find(std::string_view name) {
    if (name.empty()) return at(next_++);
    size_t index = 0;
    const auto got = std::from_chars(name.data(), name.data() + name.size(), index);
    if (got.ec == std::errc() && got.ptr == name.data() + name.size()) return at(index);
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    throw Trouble("formats with " + in_quotes(name) + ", which is not given");
  }

  Value at(size_t index) const {
    if (index < arguments_.positional.size()) return arguments_.positional[index];
    throw Trouble("formats with more values than are given");
  }

  static void read_spec(std::string_view text, Spec& spec) {
    constexpr std::string_view kAligns = "<>^";
    if (!text.empty()) {
      const size_t n = first_character(text).size_bytes;
      if (n < text.size() && kAligns.find(text[n]) != std::string_view::npos) {
        spec.fill = text.substr(0, n);
        spec.align = text[n];
        text.remove_prefix(n + 1);
      } else if (kAligns.find(text.front()) != std::string_view::npos) {
        spec.align = text.front();
        text.remove_prefix(1);
      }
    }
    spec.plus = skip(text, '+');
    if (spec.align == '\0' && text.starts_with('0') && text.size() > 1) {
      spec.zero = true;
      spec.fill.assign(1, '0');
    }
    spec.width = read_number(text);
    spec.grouped = skip(text, ',');
    if (skip(text, '.')) spec.precision = read_number(text);
    if (!text.empty()) {
      spec.type = text.front();
      text.remove_prefix(1);
    }
    if (!text.empty()) throw Trouble("formats with " + in_quotes(text) + ", which is not supported");
  }

  const Text& format_;
  const Arguments& arguments_;
  Heap& heap_;
  size_t next_ = 0;
};

}  // namespace

Value percent_format(Value format, const std::vector<Value>& values, Heap& heap) {
  size_t n_taken = 0;
  bool by_name = false;
  PercentFormatter formatter(format.text(), heap);
  Text out = formatter.run([&](std::string_view name) {
    if (!name.empty() && values.size() == 1 && values.front().is(Kind::kDict)) {
      by_name = true;
      const Value* value = values.front().dict().find(name);
      if (value == nullptr) throw Trouble("formats with " + in_quotes(name) + ", which is not given");
      return *value;
    }
    if (n_taken == values.size()) throw Trouble("formats with more values than are given");
    return values[n_taken++];
  });
  const bool is_one_object =
      values.size() == 1 && (values.front().is(Kind::kDict) || values.front().is(Kind::kSequence));
  if (n_taken < values.size() && !by_name && !is_one_object)
    throw Trouble("formats with fewer values than are given");
  return heap.text(std::move(out));
}

Value percent_format_named(Value format, const Arguments& arguments, Heap& heap) {
  PercentFormatter formatter(format.text(), heap);
  return heap.text(formatter.run([&](std::string_view name) {
    for (const auto& [key, value] : arguments.named) {
      if (key == name) return value;
    }
    throw Trouble("formats with " + in_quotes(name) + ", which is not given");
  }));
}

Value brace_format(Value format, const Arguments& arguments, Heap& heap) {
  return heap.text(BraceFormatter(format.text(), arguments, heap).run());
}

}  // namespace quire::jinja
