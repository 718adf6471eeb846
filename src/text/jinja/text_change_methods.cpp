// Methods of texts that give a changed text. What stays keeps its origin; what is filled in is from outside,
// unless it is given as a text.
#include <algorithm>

#include "text/jinja/builtin.h"
#include "text/jinja/characters.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/text_formatting.h"
#include "text/jinja/text_pieces.h"

namespace quire::jinja {
namespace {
namespace changing {

Value upper(Given& given) { return given.heap.text(map_characters(given.self.text(), to_upper)); }
Value lower(Given& given) { return given.heap.text(map_characters(given.self.text(), to_lower)); }

Value swapcase(Given& given) {
  return given.heap.text(
      map_characters(given.self.text(), [](uint32_t c) { return is_upper(c) ? to_lower(c) : to_upper(c); }));
}

Value capitalize(Given& given) {
  bool first = true;
  return given.heap.text(map_characters(given.self.text(), [&](uint32_t c) {
    return std::exchange(first, false) ? to_title(c) : to_lower(c);
  }));
}

// A letter is upper case where the character before it is none.
Value title(Given& given) {
  bool inside = false;
  return given.heap.text(map_characters(given.self.text(), [&](uint32_t c) {
    const bool was_inside = std::exchange(inside, is_cased(c) || is_cased(to_upper(c)));
    return was_inside ? to_lower(c) : to_title(c);
  }));
}

Value replace(Given& given) {
  const int64_t most = given.integer(2, -1);
  const size_t limit = most < 0 ? std::string_view::npos : static_cast<size_t>(most);
  return given.heap.text(
      replace_text(given.self.text(), given.text(0).bytes(), given.text(1), limit, given.budget()));
}

Value join(Given& given) {
  Text out;
  bool first = true;
  for (const Value item : items_of(given.at(0), given.heap)) {
    if (!item.is(Kind::kText)) {
      throw Trouble(std::string("join() needs texts, not a value of type ") + type_name(item));
    }
    if (!std::exchange(first, false)) append_printed(given.self, out, given.budget());
    append_printed(item, out, given.budget());
  }
  return given.heap.text(std::move(out));
}

Value format(Given& given) { return brace_format(given.self, given.rest, given.heap); }

// n fill characters, of a given text or spaces.
Text filling(Given& given, int64_t n) {
  Text out;
  if (n <= 0) return out;
  given.budget().check_memory(static_cast<size_t>(n));
  given.budget().take_bytes(static_cast<size_t>(n));
  if (!given.has(1)) return Text(std::string(static_cast<size_t>(n), ' '), Origin::kOutside);
  if (length_of(given.at(1)) != 1) throw Trouble("fills with a text that is not one character");
  for (int64_t i = 0; i < n; ++i) out.append(given.text(1));
  return out;
}

// `left_share` of the missing characters, given as how many of them stand on the left.
template <typename LeftOf>
Value pad(Given& given, const LeftOf& left_of) {
  const int64_t missing = given.integer(0, 0) - static_cast<int64_t>(length_of(given.self));
  const int64_t left = missing > 0 ? left_of(missing) : 0;
  Text out = filling(given, left);
  out.append(given.self.text());
  out.append(filling(given, missing - left));
  return given.heap.text(std::move(out));
}

Value center(Given& given) {
  const int64_t width = given.integer(0, 0);
  return pad(given, [&](int64_t missing) { return missing / 2 + (missing & width & 1); });
}
Value ljust(Given& given) {
  return pad(given, [](int64_t) { return int64_t{0}; });
}
Value rjust(Given& given) {
  return pad(given, [](int64_t missing) { return missing; });
}

Value zfill(Given& given) {
  const Text& self = given.self.text();
  const int64_t missing = given.integer(0, 0) - static_cast<int64_t>(length_of(given.self));
  if (missing <= 0) return given.self;
  given.budget().check_memory(static_cast<size_t>(missing));
  given.budget().take_bytes(static_cast<size_t>(missing));
  const size_t sign = self.bytes().starts_with('-') || self.bytes().starts_with('+') ? 1 : 0;
  Text out = self.part(0, sign);
  out.append(std::string(static_cast<size_t>(missing), '0'), Origin::kOutside);
  out.append_part(self, sign, self.size() - sign);
  return given.heap.text(std::move(out));
}

constexpr Builtin kMethods[] = {
    {"capitalize", capitalize},
    {"casefold", lower},
    {"center", center, "width fillchar", 1},
    {"format", format, "*"},
    {"join", join, "iterable", 1},
    {"ljust", ljust, "width fillchar", 1},
    {"lower", lower},
    {"replace", replace, "old new count", 2},
    {"rjust", rjust, "width fillchar", 1},
    {"swapcase", swapcase},
    {"title", title},
    {"upper", upper},
    {"zfill", zfill, "width", 1},
};

}  // namespace changing
}  // namespace

std::span<const Builtin> text_change_methods() { return changing::kMethods; }

}  // namespace quire::jinja
