// Methods that say what kind of characters a text has.
#include "text/jinja/builtin.h"
#include "text/jinja/characters.h"

namespace quire::jinja {
namespace {
namespace kinds {

// Whether the text has characters, all of which are such.
template <typename Is>
Value all_are(Given& given, const Is& is) {
  std::string_view text = given.self.bytes();
  given.budget().take_bytes(text.size());
  if (text.empty()) return Value::boolean(false);
  while (!text.empty()) {
    const Character c = first_character(text);
    if (!is(c.code_point)) return Value::boolean(false);
    text.remove_prefix(c.size_bytes);
  }
  return Value::boolean(true);
}

// Whether some characters have case, and all of these the one asked for.
Value is_cased_as(Given& given, bool (*wanted)(uint32_t)) {
  std::string_view text = given.self.bytes();
  given.budget().take_bytes(text.size());
  bool any = false;
  while (!text.empty()) {
    const Character c = first_character(text);
    if (is_cased(c.code_point)) {
      if (!wanted(c.code_point)) return Value::boolean(false);
      any = true;
    }
    text.remove_prefix(c.size_bytes);
  }
  return Value::boolean(any);
}

Value isalpha(Given& given) { return all_are(given, is_letter); }
Value isdigit(Given& given) { return all_are(given, is_decimal); }
Value isnumeric(Given& given) { return all_are(given, is_numeral); }
Value isspace(Given& given) { return all_are(given, is_space); }
Value isalnum(Given& given) {
  return all_are(given, [](uint32_t c) { return is_letter(c) || is_numeral(c); });
}
Value isupper(Given& given) { return is_cased_as(given, is_upper); }
Value islower(Given& given) { return is_cased_as(given, is_lower); }
Value isascii(Given& given) {
  for (const char c : given.self.bytes()) {
    if (static_cast<uint8_t>(c) >= 0x80) return Value::boolean(false);
  }
  return Value::boolean(true);
}

constexpr Builtin kMethods[] = {
    {"isalnum", isalnum},     {"isalpha", isalpha}, {"isascii", isascii},
    {"isdecimal", isdigit},   {"isdigit", isdigit}, {"islower", islower},
    {"isnumeric", isnumeric}, {"isspace", isspace}, {"isupper", isupper},
};

}  // namespace kinds
}  // namespace

std::span<const Builtin> text_kind_methods() { return kinds::kMethods; }

}  // namespace quire::jinja
