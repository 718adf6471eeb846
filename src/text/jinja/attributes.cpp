// object.name, object[key] and object[a:b:c], as Jinja's sandbox looks them up.
#include <algorithm>
#include <optional>

#include "text/jinja/ast.h"
#include "text/jinja/builtin.h"
#include "text/jinja/characters.h"
#include "text/jinja/lexer.h"
#include "text/jinja/operators.h"

namespace quire::jinja {
namespace {

// Methods that would change a list or a dict, which the sandbox forbids, also as the names of keys behind a
// dot.
bool changes_object(Value object, std::string_view name) {
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                        "insert", "sort",  "extend", "remove"};
  if (object.is(Kind::kDict)) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  if (!object.is(Kind::kSequence) || object.sequence().type != SequenceType::kList) return false;
  return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
}

Value missing(Value object, std::string_view what, Heap& heap) {
  return heap.undefined(std::string(type_name(object)) + " has no " + in_quotes(what) +
                        ", which thus is undefined");
}

Value bound(const Builtin* builtin, Value self, Heap& heap) {
  auto* function = heap.make<Function>();
  function->builtin = builtin;
  function->self = self;
  return Value::object(Kind::kFunction, function);
}

Value loop_attribute(const LoopState& loop, std::string_view name, Heap& heap) {
  const std::vector<Value>& items = *loop.items;
  const auto index = static_cast<int64_t>(loop.index);
  const auto length = static_cast<int64_t>(items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == length);
  if (name == "length") return Value::integer(length);
  // Of loops that are not recursive, also inside others.
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return index > 0 ? items[loop.index - 1] : heap.undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < length ? items[loop.index + 1] : heap.undefined("there is no next item");
  return Value();
}

Value macro_attribute(const MacroNode& macro, std::string_view name, Heap& heap) {
  if (name == "name") return heap.text(macro.name, Origin::kTemplate);
  if (name == "catch_kwargs") return Value::boolean(macro.uses_more_named);
  if (name == "catch_varargs") return Value::boolean(macro.uses_more_positional);
  if (name == "caller") return Value::boolean(macro.uses_caller);
  if (name != "arguments") return Value();
  std::vector<Value> names;
  for (const std::string& parameter : macro.parameters)
    names.push_back(heap.text(parameter, Origin::kTemplate));
  return heap.sequence(SequenceType::kTuple, std::move(names));
}

// Attributes that the object itself has, not its keys.
Value own_attribute(Value object, std::string_view name, Heap& heap) {
  const auto method = [&](const Builtin* builtin) {
    return builtin == nullptr ? Value() : bound(builtin, object, heap);
  };
  switch (object.kind()) {
    case Kind::kText: return method(find_text_method(name));
    case Kind::kDict: return method(find_dict_method(name));
    case Kind::kSequence: {
      const Sequence& sequence = object.sequence();
      if (sequence.type == SequenceType::kGroup && name == "grouper") return sequence.items[0];
      if (sequence.type == SequenceType::kGroup && name == "list") return sequence.items[1];
      return method(find_sequence_method(name, sequence.type));
    }
    case Kind::kNamespace: {
      const Value* value = object.dict().find(name);
      return value == nullptr ? Value() : *value;
    }
    case Kind::kLoop: {
      const Value value = loop_attribute(object.loop(), name, heap);
      return value.is_undefined() && value.hint().empty() ? method(find_loop_method(name)) : value;
    }
    case Kind::kCycler:
      if (name == "current") return object.cycler().items[object.cycler().at];
      return method(find_cycler_method(name));
    case Kind::kFunction: {
      const MacroNode* macro = object.function().macro;
      return macro == nullptr ? Value() : macro_attribute(*macro, name, heap);
    }
    default: return Value();
  }
}

bool is_found(Value value) { return !value.is_undefined() || value.identity() != nullptr; }

std::optional<size_t> index_in(int64_t index, size_t length) {
  const auto n = static_cast<int64_t>(length);
  if (index < -n || index >= n) return std::nullopt;
  return static_cast<size_t>(index < 0 ? index + n : index);
}

bool has_indices(SequenceType type) {
  return type == SequenceType::kList || type == SequenceType::kTuple || type == SequenceType::kRange ||
         type == SequenceType::kGroup;
}

// Python's slice.indices(): which items are taken, in their order.
struct Range {
  int64_t start;
  int64_t step;
  size_t n;
};

Range slice_range(Value start, Value stop, Value step, size_t length) {
  const auto bound = [](Value v) -> std::optional<int64_t> {
    if (v.is(Kind::kNone) || v.is_undefined()) return std::nullopt;
    if (!v.is_integral()) throw Trouble(std::string("slices with a value of type ") + type_name(v));
    return v.integer();
  };
  const int64_t by = bound(step).value_or(1);
  if (by == 0) throw Trouble("slices with a step of zero");
  const auto n = static_cast<int64_t>(length);
  const int64_t low = by < 0 ? -1 : 0;
  const int64_t high = by < 0 ? n - 1 : n;
  const auto clamp = [&](std::optional<int64_t> b, int64_t otherwise) {
    if (!b) return otherwise;
    return *b < 0 ? std::max(*b < -n ? low : *b + n, low) : std::min(*b, high);
  };
  const int64_t first = clamp(bound(start), by < 0 ? high : low);
  const int64_t end = clamp(bound(stop), by < 0 ? low : high);
  const int64_t span = by < 0 ? first - end : end - first;
  if (span <= 0) return {first, by, 0};
  const uint64_t stride = by < 0 ? uint64_t{0} - static_cast<uint64_t>(by) : static_cast<uint64_t>(by);
  return {first, by, static_cast<size_t>((static_cast<uint64_t>(span) - 1) / stride + 1)};
}

Value slice_text(Value object, Value start, Value stop, Value step, Heap& heap) {
  const Text& text = object.text();
  heap.budget().take_bytes(text.size());
  const Range range = slice_range(start, stop, step, length_of(object));
  const std::string_view bytes = text.bytes();
  if (range.step == 1) {
    const size_t begin = byte_of_character(bytes, static_cast<size_t>(range.start));
    return heap.text(text.part(begin, range.n == 0 ? 0 : byte_of_character(bytes.substr(begin), range.n)));
  }
  heap.budget().check_memory((length_of(object) + 1) * sizeof(size_t));
  std::vector<size_t> begins;
  begins.reserve(length_of(object) + 1);
  for (size_t at = 0; at < bytes.size(); at += first_character(bytes.substr(at)).size_bytes)
    begins.push_back(at);
  begins.push_back(bytes.size());
  Text out;
  for (size_t i = 0; i < range.n; ++i) {
    const auto at = static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step);
    out.append_part(text, begins[at], begins[at + 1] - begins[at]);
  }
  return heap.text(std::move(out));
}

Value get_index(Value object, int64_t index, Heap& heap) {
  if (object.is(Kind::kText)) {
    const auto at = index_in(index, length_of(object));
    if (!at) return missing(object, std::to_string(index), heap);
    const Text& text = object.text();
    heap.budget().take_bytes(*at);
    const size_t begin = byte_of_character(text.bytes(), *at);
    return heap.text(
        text.part(begin, first_character(std::string_view(text.bytes()).substr(begin)).size_bytes));
  }
  const auto at = index_in(index, object.sequence().items.size());
  return at ? object.sequence().items[*at] : missing(object, std::to_string(index), heap);
}

}  // namespace

Value get_attribute(Value object, std::string_view name, Heap& heap) {
  require_defined(object, "asked for an attribute");
  if (changes_object(object, name)) {
    return heap.undefined("changing a " + std::string(type_name(object)) +
                          " is not allowed in templates: " + in_quotes(name));
  }
  const Value own = own_attribute(object, name, heap);
  if (is_found(own)) return own;
  if (object.is(Kind::kDict)) {
    heap.budget().take_steps(1 + object.dict().entries.size() / 8);
    if (const Value* value = object.dict().find(name)) return *value;
  }
  return missing(object, name, heap);
}

Value get_item(Value object, Value key, Heap& heap) {
  require_defined(object, "asked for an item");
  if (object.is(Kind::kDict)) {
    if (const Value* value = find_key(object.dict(), key, heap.budget())) return *value;
  }
  const bool indexed =
      object.is(Kind::kText) || (object.is(Kind::kSequence) && has_indices(object.sequence().type));
  if (indexed && key.is_integral()) return get_index(object, key.integer(), heap);
  if (key.is(Kind::kText)) {
    if (changes_object(object, key.bytes())) return get_attribute(object, key.bytes(), heap);
    const Value own = own_attribute(object, key.bytes(), heap);
    if (is_found(own)) return own;
    return missing(object, key.bytes(), heap);
  }
  return missing(object, key.is_integral() ? std::to_string(key.integer()) : std::string("such an item"),
                 heap);
}

Value get_slice(Value object, Value start, Value stop, Value step, Heap& heap) {
  require_defined(object, "sliced");
  if (object.is(Kind::kText)) return slice_text(object, start, stop, step, heap);
  if (!object.is(Kind::kSequence) || !has_indices(object.sequence().type)) {
    throw Trouble(std::string("a value of type ") + type_name(object) + " cannot be sliced");
  }
  const Sequence& sequence = object.sequence();
  const Range range = slice_range(start, stop, step, sequence.items.size());
  std::vector<Value> items;
  items.reserve(range.n);
  for (size_t i = 0; i < range.n; ++i) {
    items.push_back(sequence.items[static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step)]);
  }
  const SequenceType type = sequence.type == SequenceType::kGroup   ? SequenceType::kTuple
                            : sequence.type == SequenceType::kRange ? SequenceType::kList
                                                                    : sequence.type;
  return heap.sequence(type, std::move(items));
}

}  // namespace quire::jinja
