// Filters that make or change numbers.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>

#include "text/jinja/builtin.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_pieces.h"

namespace quire::jinja {
namespace {
namespace of_numbers {

std::string without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between_digits = i > 0 && i + 1 < text.size() &&
                                std::isdigit(static_cast<unsigned char>(text[i - 1])) &&
                                std::isdigit(static_cast<unsigned char>(text[i + 1]));
    if (text[i] != '_' || !between_digits) out += text[i];
  }
  return out;
}

std::string stripped(std::string_view text, Budget& budget) {
  const Piece piece = strip_text(text, nullptr, true, true, budget);
  return without_underscores(text.substr(piece.begin, piece.n));
}

std::optional<int64_t> read_integer(std::string_view text, int64_t base, Budget& budget) {
  std::string digits = stripped(text, budget);
  std::string_view rest = digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  const char prefix = rest.size() > 1 && rest[0] == '0' ? static_cast<char>(rest[1] | 0x20) : '\0';
  if ((prefix == 'x' && base == 16) || (prefix == 'o' && base == 8) || (prefix == 'b' && base == 2))
    rest.remove_prefix(2);
  if (rest.empty() || base < 2 || base > 36 || rest.starts_with('-')) return std::nullopt;
  int64_t value = 0;
  const auto got = std::from_chars(rest.data(), rest.data() + rest.size(), value, static_cast<int>(base));
  if (got.ec == std::errc::result_out_of_range) throw Trouble("reads a number beyond 64 bits");
  if (got.ec != std::errc() || got.ptr != rest.data() + rest.size()) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> read_float(std::string_view text, Budget& budget) {
  std::string digits = stripped(text, budget);
  if (digits.empty() || digits.find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (end != digits.c_str() + digits.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> truncated(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) >= 9.2e18) throw Trouble("makes a number beyond 64 bits");
  return static_cast<int64_t>(value);
}

Value to_int(Given& given) {
  const Value otherwise = given.has(0) ? given.at(0) : Value::integer(0);
  std::optional<int64_t> value;
  if (given.self.is(Kind::kText)) {
    value = read_integer(given.self.bytes(), given.integer(1, 10), given.budget());
    if (!value) {
      if (const auto number = read_float(given.self.bytes(), given.budget())) value = truncated(*number);
    }
  } else if (given.self.is_integral()) {
    value = given.self.integer();
  } else if (given.self.is(Kind::kFloat)) {
    value = truncated(given.self.floating());
  } else {
    require_defined(given.self, "made a number");
  }
  return value ? Value::integer(*value) : otherwise;
}

Value to_float(Given& given) {
  const Value otherwise = given.has(0) ? given.at(0) : Value::floating(0);
  if (given.self.is_number()) return Value::floating(given.self.as_float());
  if (given.self.is(Kind::kText)) {
    const auto value = read_float(given.self.bytes(), given.budget());
    return value ? Value::floating(*value) : otherwise;
  }
  require_defined(given.self, "made a number");
  return otherwise;
}

Value abs_of(Given& given) {
  const Value value = unchanged(given.self);
  const bool negative = value.is(Kind::kFloat) ? std::signbit(value.floating()) : value.integer() < 0;
  return negative ? negated(value) : value;
}

// Half to even on the exact binary value, as Python rounds.
double rounded(double value, int precision) {
  if (!std::isfinite(value)) return value;
  if (precision < 0) {
    const double scale = std::pow(10.0, -precision);
    return std::nearbyint(value / scale) * scale;
  }
  char text[400];
  std::snprintf(text, sizeof text, "%.*f", precision, value);
  return std::strtod(text, nullptr);
}

Value round_to(Given& given) {
  const Value value = unchanged(given.self);
  const int64_t precision = given.integer(0, 0);
  if (precision < -300 || precision > 60) throw Trouble("rounds to more digits than numbers have");
  const std::string method = given.has(1) ? given.text(1).bytes() : "common";
  if (method == "common") {
    if (!value.is_integral()) return Value::floating(rounded(value.floating(), static_cast<int>(precision)));
    if (precision >= 0) return value;
    return Value::integer(static_cast<int64_t>(rounded(value.as_float(), static_cast<int>(precision))));
  }
  if (method != "ceil" && method != "floor")
    throw Trouble("rounds neither to 'common' nor to 'ceil' or 'floor'");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.as_float() * scale;
  return Value::floating((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr Builtin kFilters[] = {
    {"abs", abs_of},
    {"float", to_float, "default"},
    {"int", to_int, "default base"},
    {"round", round_to, "precision method"},
};

}  // namespace of_numbers
}  // namespace

std::span<const Builtin> number_filters() { return of_numbers::kFilters; }

}  // namespace quire::jinja
