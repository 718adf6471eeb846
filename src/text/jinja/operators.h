// Python's operators over values. All throw Trouble for what they are not defined for.
#pragma once

#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace quire::jinja {

bool equals(Value a, Value b, Budget& budget);
bool is_less(Value a, Value b, Budget& budget);
bool compare(CompareOp op, Value a, Value b, Heap& heap);
bool contains(Value container, Value item, Heap& heap);

// All of BinaryOp but kAnd and kOr.
Value calculate(BinaryOp op, Value a, Value b, Heap& heap);
Value negated(Value value);
Value unchanged(Value value);  // unary plus

// What a loop over the value sees: items, keys, characters. An iterator is used up by it.
std::vector<Value> items_of(Value value, Heap& heap);
size_t length_of(Value value);
// Throws Trouble for what cannot be a key: lists and dicts.
void require_key(Value key);
// The value under a key that may be of any kind; nullptr where there is none.
const Value* find_key(const Dict& dict, Value key, Budget& budget);

// object[key], or undefined.
Value get_item(Value object, Value key, Heap& heap);
// object.name, or undefined.
Value get_attribute(Value object, std::string_view name, Heap& heap);
// object[start:stop:step]; a bound may be none or undefined.
Value get_slice(Value object, Value start, Value stop, Value step, Heap& heap);

// text % values, as Python's printf-like formatting: d i s r f g e x c and %.
Value percent_format(Value format, const std::vector<Value>& values, Heap& heap);

}  // namespace quire::jinja
