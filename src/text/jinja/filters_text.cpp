// Filters of texts; other values are printed first.
#include <algorithm>

#include "text/jinja/builtin.h"
#include "text/jinja/characters.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/text_formatting.h"
#include "text/jinja/text_pieces.h"

namespace quire::jinja {
namespace {
namespace of_texts {

Value upper(Given& given) { return given.heap.text(map_characters(given.self_text(), to_upper)); }
Value lower(Given& given) { return given.heap.text(map_characters(given.self_text(), to_lower)); }

Value capitalize(Given& given) {
  bool first = true;
  return given.heap.text(map_characters(given.self_text(), [&](uint32_t c) {
    return std::exchange(first, false) ? to_title(c) : to_lower(c);
  }));
}

// Words begin behind white space and behind - ( { [ <, as Jinja has them.
Value title(Given& given) {
  bool begins = true;
  return given.heap.text(map_characters(given.self_text(), [&](uint32_t c) {
    const bool first = begins;
    begins = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    return first ? to_upper(c) : to_lower(c);
  }));
}

Value trim(Given& given) {
  const Text text = given.self_text();
  const bool has_set = given.is_given_and_not_none(0);
  const Piece piece =
      strip_text(text.bytes(), has_set ? &given.text(0).bytes() : nullptr, true, true, given.budget());
  return given.heap.text(text.part(piece.begin, piece.n));
}

Value replace(Given& given) {
  const int64_t most = given.is_given_and_not_none(2) ? given.integer(2, -1) : -1;
  const size_t limit = most < 0 ? std::string_view::npos : static_cast<size_t>(most);
  const Text from = printed(given.at(0), given.budget());
  return given.heap.text(replace_text(given.self_text(), from.bytes(), printed(given.at(1), given.budget()),
                                      limit, given.budget()));
}

Value string(Given& given) {
  return given.self.is(Kind::kText) ? given.self : given.heap.text(given.self_text());
}

Value escape(Given& given) {
  Text out;
  given.self_text().for_each_run([&](std::string_view run, Origin origin) {
    for (const char c : run) {
      switch (c) {
        case '&': out.append("&amp;", Origin::kOutside); break;
        case '<': out.append("&lt;", Origin::kOutside); break;
        case '>': out.append("&gt;", Origin::kOutside); break;
        case '\'': out.append("&#39;", Origin::kOutside); break;
        case '"': out.append("&#34;", Origin::kOutside); break;
        default: out.append({&c, 1}, origin);
      }
      given.budget().check_memory(out.memory_bytes());
    }
  });
  return given.heap.text(std::move(out));
}

Value indent(Given& given) {
  const Text& self =
      given.self.is(Kind::kText) ? given.self.text() : throw Trouble("indents what is no text");
  Text indention;
  if (given.has(0) && given.at(0).is(Kind::kText)) {
    indention = given.text(0);
  } else {
    const int64_t width = std::max<int64_t>(given.integer(0, 4), 0);
    given.budget().check_memory(static_cast<size_t>(width));
    indention = Text(std::string(static_cast<size_t>(width), ' '), Origin::kOutside);
  }
  const bool first = given.flag(1, false);
  const bool blank = given.flag(2, false);
  std::vector<Piece> lines = split_lines(self.bytes() + "\n", false, given.budget());
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", Origin::kOutside);
    if (i == 0 ? first : blank || lines[i].n > 0) {
      given.budget().take_bytes(indention.size());
      out.append(indention);
    }
    out.append_part(self, lines[i].begin, lines[i].n);
    given.budget().check_memory(out.memory_bytes());
  }
  return given.heap.text(std::move(out));
}

Value wordcount(Given& given) {
  int64_t n = 0;
  bool inside = false;
  const Text text = given.self_text();
  for (std::string_view rest = text.bytes(); !rest.empty();) {
    const Character c = first_character(rest);
    const bool is_word = is_letter(c.code_point) || is_numeral(c.code_point) || c.code_point == '_';
    if (is_word && !inside) ++n;
    inside = is_word;
    rest.remove_prefix(c.size_bytes);
  }
  return Value::integer(n);
}

// Keeps `length` characters with the end mark, and cuts at a space unless words may be cut.
Value truncate(Given& given) {
  const Text& self =
      given.self.is(Kind::kText) ? given.self.text() : throw Trouble("truncates what is no text");
  const int64_t length = given.integer(0, 255);
  const Text end = given.has(2) ? given.text(2) : Text("...", Origin::kOutside);
  const auto n_end = static_cast<int64_t>(count_characters(end.bytes()));
  const int64_t leeway = given.is_given_and_not_none(3) ? given.integer(3, 5) : 5;
  if (length < n_end || leeway < 0) throw Trouble("truncates to less than the mark at the end needs");
  if (static_cast<int64_t>(length_of(given.self)) <= length + leeway) return given.self;
  Text out = self.part(0, byte_of_character(self.bytes(), static_cast<size_t>(length - n_end)));
  if (!given.flag(1, false)) {
    const size_t space = out.bytes().rfind(' ');
    if (space != std::string::npos) out = out.part(0, space);
  }
  out.append(end);
  return given.heap.text(std::move(out));
}

Value center(Given& given) {
  const Text text = given.self_text();
  const int64_t width = given.integer(0, 80);
  const int64_t missing = width - static_cast<int64_t>(count_characters(text.bytes()));
  if (missing <= 0) return given.heap.text(text);
  given.budget().check_memory(static_cast<size_t>(missing));
  const int64_t left = missing / 2 + (missing & width & 1);
  Text out(std::string(static_cast<size_t>(left), ' '), Origin::kOutside);
  out.append(text);
  out.append(std::string(static_cast<size_t>(missing - left), ' '), Origin::kOutside);
  return given.heap.text(std::move(out));
}

Value format(Given& given) {
  if (!given.self.is(Kind::kText)) throw Trouble("formats with what is no text");
  if (given.rest.named.empty()) return percent_format(given.self, given.rest.positional, given.heap);
  if (!given.rest.positional.empty()) throw Trouble("formats with named values and with others at once");
  return percent_format_named(given.self, given.rest, given.heap);
}

// As transformers defines it: json.dumps(), with no character made safe for HTML.
Value tojson(Given& given) {
  JsonStyle style;
  style.ascii = given.flag(0, false);
  if (given.is_given_and_not_none(1)) {
    style.indented = true;
    style.item_separator.assign(1, ',');
    if (given.at(1).is(Kind::kText)) {
      style.indent = given.text(1).bytes();
    } else {
      const int64_t width = std::max<int64_t>(given.integer(1, 0), 0);
      if (width > 1000) throw Trouble("indents JSON by more than 1000 characters");
      style.indent = std::string(static_cast<size_t>(width), ' ');
    }
  }
  if (given.is_given_and_not_none(2)) {
    const std::vector<Value> separators = items_of(given.at(2), given.heap);
    if (separators.size() != 2 || !separators[0].is(Kind::kText) || !separators[1].is(Kind::kText)) {
      throw Trouble("tojson needs two texts as separators");
    }
    style.item_separator = separators[0].bytes();
    style.key_separator = separators[1].bytes();
  }
  style.sort_keys = given.flag(3, false);
  Text out;
  append_json(given.self, style, out, given.budget());
  return given.heap.text(std::move(out));
}

constexpr Builtin kFilters[] = {
    {"capitalize", capitalize},
    {"center", center, "width"},
    {"e", escape},
    {"escape", escape},
    {"forceescape", escape},
    {"format", format, "*"},
    {"indent", indent, "width first blank"},
    {"lower", lower},
    {"replace", replace, "old new count", 2},
    {"safe", string},
    {"string", string},
    {"title", title},
    {"tojson", tojson, "ensure_ascii indent separators sort_keys"},
    {"trim", trim, "chars"},
    {"truncate", truncate, "length killwords end leeway"},
    {"upper", upper},
    {"wordcount", wordcount},
};

}  // namespace of_texts
}  // namespace

std::span<const Builtin> text_filters() { return of_texts::kFilters; }

}  // namespace quire::jinja
