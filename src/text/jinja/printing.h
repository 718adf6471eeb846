// Values as text: as Python's str() and repr() print them, and as JSON.
#pragma once

#include <string>

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
