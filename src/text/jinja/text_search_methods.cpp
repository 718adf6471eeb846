// Methods of texts that look for something or cut at it. Pieces keep their origin.
#include <algorithm>
#include <optional>

#include "text/jinja/builtin.h"
#include "text/jinja/characters.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_pieces.h"

namespace quire::jinja {
namespace {
namespace searching {

std::string_view bytes_of_self(Given& given) {
  const std::string_view bytes = given.self.bytes();
  given.budget().take_bytes(bytes.size());
  return bytes;
}

// A text, or any of a tuple of texts.
template <typename Fits>
Value begins_or_ends(Given& given, const Fits& fits) {
  const std::string_view bytes = bytes_of_self(given);
  const Value what = given.at(0);
  if (!what.is(Kind::kSequence) || what.sequence().type != SequenceType::kTuple) {
    return Value::boolean(fits(bytes, given.text(0).bytes()));
  }
  const auto& items = what.sequence().items;
  return Value::boolean(std::any_of(items.begin(), items.end(), [&](Value item) {
    if (!item.is(Kind::kText))
      throw Trouble(std::string("needs texts, not a value of type ") + type_name(item));
    given.budget().take_bytes(std::min(bytes.size(), item.bytes().size()));
    return fits(bytes, item.bytes());
  }));
}

Value starts_with(Given& given) {
  return begins_or_ends(given, [](std::string_view a, std::string_view b) { return a.starts_with(b); });
}

Value ends_with(Given& given) {
  return begins_or_ends(given, [](std::string_view a, std::string_view b) { return a.ends_with(b); });
}

// The part of the text between the optional bounds, counted in characters, and where it begins.
struct Part {
  std::string_view bytes;
  size_t begin_characters;
};

std::optional<Part> part_between(Given& given, size_t i) {
  const std::string_view bytes = bytes_of_self(given);
  if (!given.has(i) && !given.has(i + 1)) return Part{bytes, 0};
  const auto length = static_cast<int64_t>(length_of(given.self));
  const auto bound = [&](size_t at, int64_t otherwise) {
    if (!given.is_given_and_not_none(at)) return otherwise;
    const int64_t b = given.integer(at, otherwise);
    return b < 0 ? std::max<int64_t>(b < -length ? 0 : b + length, 0) : b;
  };
  const int64_t begin = bound(i, 0);
  const int64_t end = std::min(bound(i + 1, length), length);
  if (begin > end) return std::nullopt;
  const size_t from = byte_of_character(bytes, static_cast<size_t>(begin));
  const size_t to = byte_of_character(bytes, static_cast<size_t>(end));
  return Part{bytes.substr(from, to - from), static_cast<size_t>(begin)};
}

Value find_in_text(Given& given, bool last, bool must_be_there) {
  const auto part = part_between(given, 1);
  const std::string& what = given.text(0).bytes();
  const size_t at = !part  ? std::string_view::npos
                    : last ? find_last_text(part->bytes, what, given.budget())
                           : find_text(part->bytes, what, 0, given.budget());
  if (at != std::string_view::npos) {
    return Value::integer(
        static_cast<int64_t>(part->begin_characters + count_characters(part->bytes.substr(0, at))));
  }
  if (must_be_there) throw Trouble("looks for a text that is not there");
  return Value::integer(-1);
}

Value find(Given& given) { return find_in_text(given, false, false); }
Value rfind(Given& given) { return find_in_text(given, true, false); }
Value index(Given& given) { return find_in_text(given, false, true); }
Value rindex(Given& given) { return find_in_text(given, true, true); }

Value count(Given& given) {
  const auto part = part_between(given, 1);
  const std::string& what = given.text(0).bytes();
  if (!part) return Value::integer(0);
  if (what.empty()) return Value::integer(static_cast<int64_t>(count_characters(part->bytes)) + 1);
  int64_t n = 0;
  for (size_t at = 0; (at = find_text(part->bytes, what, at, given.budget())) != std::string_view::npos;
       at += what.size())
    ++n;
  return Value::integer(n);
}

const Text& separator(Given& given, size_t i) {
  const Text& text = given.text(i);
  if (text.empty()) throw Trouble("splits at an empty text");
  return text;
}

Value split_at(Given& given, bool from_right) {
  const Text& self = given.self.text();
  given.budget().take_bytes(self.size());
  const int64_t most = given.integer(1, -1);
  const size_t limit = most < 0 ? std::string_view::npos : static_cast<size_t>(most);
  std::vector<Piece> pieces;
  if (given.is_given_and_not_none(0)) {
    pieces = split_text(self.bytes(), separator(given, 0).bytes(), limit, from_right, given.budget());
  } else {
    pieces = split_words(self.bytes(), limit, from_right, given.budget());
  }
  return piece_list(given.heap, self, pieces);
}

Value split(Given& given) { return split_at(given, false); }
Value rsplit(Given& given) { return split_at(given, true); }

Value splitlines(Given& given) {
  const Text& self = given.self.text();
  given.budget().take_bytes(self.size());
  return piece_list(given.heap, self, split_lines(self.bytes(), given.flag(0, false), given.budget()));
}

// Before, the separator, behind; without a separator the text and two empty ones.
Value partition_at(Given& given, bool last) {
  const Text& self = given.self.text();
  given.budget().take_bytes(self.size());
  const std::string& what = separator(given, 0).bytes();
  const size_t at = last ? find_last_text(self.bytes(), what, given.budget())
                         : find_text(self.bytes(), what, 0, given.budget());
  std::vector<Piece> pieces;
  if (at != std::string_view::npos) {
    pieces = {{0, at}, {at, what.size()}, {at + what.size(), self.size() - at - what.size()}};
  } else if (last) {
    pieces = {{0, 0}, {0, 0}, {0, self.size()}};
  } else {
    pieces = {{0, self.size()}, {0, 0}, {0, 0}};
  }
  const Value list = piece_list(given.heap, self, pieces);
  list.sequence().type = SequenceType::kTuple;
  return list;
}

Value partition(Given& given) { return partition_at(given, false); }
Value rpartition(Given& given) { return partition_at(given, true); }

Value strip_ends(Given& given, bool left, bool right) {
  const Text& self = given.self.text();
  const bool has_set = given.is_given_and_not_none(0);
  const Piece piece =
      strip_text(self.bytes(), has_set ? &given.text(0).bytes() : nullptr, left, right, given.budget());
  return given.heap.text(self.part(piece.begin, piece.n));
}

Value strip(Given& given) { return strip_ends(given, true, true); }
Value lstrip(Given& given) { return strip_ends(given, true, false); }
Value rstrip(Given& given) { return strip_ends(given, false, true); }

Value removeprefix(Given& given) {
  const Text& self = given.self.text();
  const std::string& what = given.text(0).bytes();
  const size_t n = self.bytes().starts_with(what) ? what.size() : 0;
  return given.heap.text(self.part(n, self.size() - n));
}

Value removesuffix(Given& given) {
  const Text& self = given.self.text();
  const std::string& what = given.text(0).bytes();
  return given.heap.text(self.part(0, self.size() - (self.bytes().ends_with(what) ? what.size() : 0)));
}

constexpr Builtin kMethods[] = {
    {"count", count, "sub start end", 1},
    {"endswith", ends_with, "suffix", 1},
    {"find", find, "sub start end", 1},
    {"index", index, "sub start end", 1},
    {"lstrip", lstrip, "chars"},
    {"partition", partition, "sep", 1},
    {"removeprefix", removeprefix, "prefix", 1},
    {"removesuffix", removesuffix, "suffix", 1},
    {"rfind", rfind, "sub start end", 1},
    {"rindex", rindex, "sub start end", 1},
    {"rpartition", rpartition, "sep", 1},
    {"rsplit", rsplit, "sep maxsplit"},
    {"rstrip", rstrip, "chars"},
    {"split", split, "sep maxsplit"},
    {"splitlines", splitlines, "keepends"},
    {"startswith", starts_with, "prefix", 1},
    {"strip", strip, "chars"},
};

}  // namespace searching
}  // namespace

std::span<const Builtin> text_search_methods() { return searching::kMethods; }

}  // namespace quire::jinja
