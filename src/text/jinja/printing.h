// Values as text: as Python's str() and repr() print them, and as JSON.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/characters.h"
#include "text/jinja/value.h"

namespace quire::jinja {

// What {{ value }} prints: texts as they are, with their origin. All else is from outside but the texts
// within.
void append_printed(Value value, Text& out, Budget& budget);
Text printed(Value value, Budget& budget);
// As within a list: texts in quotes and with escapes.
void append_repr(Value value, Text& out, Budget& budget);

// As Python prints it: the shortest digits that give the number again.
std::string float_text(double value);

// Every character of the text by append(its bytes, the character, std::string& out), with the origin that it
// had.
template <typename Append>
void append_escaped(const Text& text, Text& out, const Append& append) {
  text.for_each_run([&](std::string_view run, Origin origin) {
    std::string escaped;
    while (!run.empty()) {
      const Character c = first_character(run);
      append(run.substr(0, c.size_bytes), c, escaped);
      run.remove_prefix(c.size_bytes);
    }
    out.append(escaped, origin);
  });
}

struct JsonStyle {
  bool indented = false;
  std::string indent = {};  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ascii = false;
  bool sort_keys = false;
};

// As json.dumps(). Throws Trouble for what JSON has not.
void append_json(Value value, const JsonStyle& style, Text& out, Budget& budget);

}  // namespace quire::jinja
