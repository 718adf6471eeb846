// A Jinja template, as chat templates are written: parsed once, rendered with values from outside. Our own
// small interpreter of what these use, in the settings of transformers: no access to anything but the values
// given, and limits on steps, memory, nesting and output, so that any template ends, at worst with an Error
// of one sentence.
//
// What is left out is refused by name: inheritance, includes and imports, recursive loops, autoescape, and
// the filters filesizeformat, pprint, random, striptags, urlencode, urlize, wordwrap and xmlattr. Integers
// have 64 bits, and case mappings go from one character to one.
#pragma once

#include <ctime>
#include <memory>
#include <string_view>

#include "text/jinja/data.h"
#include "text/jinja/limits.h"
#include "text/jinja/text.h"

namespace quire::jinja {

struct Ast;

// Immutable and cheap to copy; any number of threads may render it at once.
class Template {
 public:
  // Throws Error with the line.
  static Template parse(std::string_view source);

  // What the template prints for the values, with the origin of each byte; literals are the template's, and
  // so is what `values` marks as such. `now` is what strftime_now() knows. Throws Error with the line.
  Text render(const DataObject& values, const std::tm& now, const Limits& limits = {}) const;
  // At the present local time.
  Text render(const DataObject& values) const;

 private:
  std::shared_ptr<const Ast> ast_;
};

}  // namespace quire::jinja
