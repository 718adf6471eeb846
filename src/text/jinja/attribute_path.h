// "author.name" and "0.role": what filters such as map(attribute=...) look up in each item.
#pragma once

#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace quire::jinja {

class AttributePath {
 public:
  // An undefined or none attribute is the item itself; a text is taken apart at its dots.
  AttributePath(Value attribute, Heap& heap);

  // `otherwise`, if given, stands for what is not defined.
  Value of(Value item, const Value* otherwise = nullptr) const;

 private:
  std::vector<Value> parts_;
  Heap& heap_;
};

// The paths of "name,age", one after the other.
std::vector<AttributePath> attribute_paths(Value attributes, Heap& heap);

// The key by which texts are sorted and compared: in lower case unless case counts.
Value case_key(Value value, bool case_sensitive, Heap& heap);

}  // namespace quire::jinja
