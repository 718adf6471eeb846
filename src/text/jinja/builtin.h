// Functions that templates can call: filters, tests, methods, globals. Each is a line in a table: its name,
// its code, the names of its parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace quire::jinja {

class Renderer;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// What a builtin is called with.
class Given {
 public:
  Given(Renderer& renderer_in, Heap& heap_in, Value self_in)
      : renderer(renderer_in), heap(heap_in), self(self_in) {}

  // By the parameters' order.
  bool has(size_t i) const { return i < values_.size() && values_[i].second; }
  Value at(size_t i) const { return i < values_.size() ? values_[i].first : Value(); }
  // The argument, or what stands for a missing one. Another type throws Trouble.
  int64_t integer(size_t i, int64_t otherwise) const;
  bool flag(size_t i, bool otherwise) const { return has(i) ? is_true(at(i)) : otherwise; }
  const Text& text(size_t i) const;
  bool is_given_and_not_none(size_t i) const { return has(i) && !at(i).is(Kind::kNone); }
  // `self` as str() has it.
  Text self_text() const;
  Budget& budget() const { return heap.budget(); }

  Renderer& renderer;
  Heap& heap;
  Value self;      // the filter's input, the method's object
  Arguments rest;  // of builtins with the parameters "*": all arguments

 private:
  friend Value invoke(Renderer&, Heap&, const Builtin&, Value, Arguments);
  std::vector<std::pair<Value, bool>> values_;
};

struct Builtin {
  std::string_view name;
  Value (*run)(Given& given);
  std::string_view parameters = {};  // names with spaces between; "*": any
  size_t n_required = 0;             // the first so many must be given
};

// Gives each argument to its parameter and runs it.
Value invoke(Renderer& renderer, Heap& heap, const Builtin& builtin, Value self, Arguments arguments);

// The tables; nullptr where there is no such name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_text_method(std::string_view name);
const Builtin* find_dict_method(std::string_view name);
const Builtin* find_sequence_method(std::string_view name, SequenceType type);
const Builtin* find_loop_method(std::string_view name);
const Builtin* find_cycler_method(std::string_view name);
const Builtin& joiner_call();
std::span<const Builtin> global_functions();

// Parts of the tables.
std::span<const Builtin> text_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> list_filters();
std::span<const Builtin> choosing_filters();
std::span<const Builtin> text_search_methods();
std::span<const Builtin> text_change_methods();
std::span<const Builtin> text_kind_methods();

}  // namespace quire::jinja
