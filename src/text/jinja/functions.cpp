// Functions that every template can call by name.
#include "text/jinja/builtin.h"
#include "text/jinja/lexer.h"
#include "text/jinja/operators.h"
#include "text/jinja/renderer.h"

namespace quire::jinja {
namespace {

Value range(Given& given) {
  int64_t bounds[3] = {0, 0, 1};  // start, stop, step
  if (given.has(1)) {
    bounds[0] = given.integer(0, 0);
    bounds[1] = given.integer(1, 0);
    bounds[2] = given.integer(2, 1);
  } else {
    bounds[1] = given.integer(0, 0);
  }
  const int64_t step = bounds[2];
  if (step == 0) throw Trouble("range() has a step of zero");
  std::vector<Value> items;
  for (int64_t i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1];) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      throw Trouble("range() has more than " + std::to_string(kMaxRange) + " items");
    }
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  const Value made = given.heap.sequence(SequenceType::kRange, std::move(items));
  for (size_t i = 0; i < 3; ++i) made.sequence().range[i] = bounds[i];
  return made;
}

// The members of a dict (or pairs), then the named arguments.
Value make_entries(Given& given, Kind kind) {
  auto* dict = given.heap.make<Dict>();
  const auto put = [&](Value key, Value value) {
    given.budget().take_memory(2 * sizeof(Value));
    if (const Value* there = find_key(*dict, key, given.budget())) {
      *const_cast<Value*>(there) = value;  // the dict is ours
    } else {
      dict->entries.emplace_back(key, value);
    }
  };
  const auto& positional = given.rest.positional;
  if (positional.size() > 1) throw Trouble("a dict is made of one value at most");
  if (!positional.empty()) {
    if (positional[0].is(Kind::kDict)) {
      for (const auto& [key, value] : positional[0].dict().entries) put(key, value);
    } else {
      for (const Value pair : items_of(positional[0], given.heap)) {
        const std::vector<Value> two = items_of(pair, given.heap);
        if (two.size() != 2) throw Trouble("makes a dict of what are no pairs");
        put(two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : given.rest.named) {
    put(given.heap.text(std::string(name), Origin::kOutside), value);  // may come from a message, by **
  }
  return Value::object(kind, dict);
}

Value make_dict(Given& given) { return make_entries(given, Kind::kDict); }
Value make_namespace(Given& given) { return make_entries(given, Kind::kNamespace); }

Value make_cycler(Given& given) {
  if (given.rest.positional.empty()) throw Trouble("cycler() has nothing to cycle through");
  auto* cycler = given.heap.make<Cycler>();
  cycler->items = given.rest.positional;
  return Value::object(Kind::kCycler, cycler);
}

Value make_joiner(Given& given) {
  auto* joiner = given.heap.make<Joiner>();
  joiner->separator = given.has(0) ? given.at(0) : given.heap.text(", ", Origin::kTemplate);
  return Value::object(Kind::kJoiner, joiner);
}

Value raise_exception(Given& given) {
  throw Trouble("refuses the conversation: " + in_quotes(given.text(0).bytes()));
}

Value strftime_now(Given& given) {
  const std::string& format = given.text(0).bytes();
  if (format.size() > 200) throw Trouble("formats the date with more than 200 characters");
  return given.heap.text(given.renderer.now().format(format.c_str()), Origin::kOutside);
}

constexpr Builtin kFunctions[] = {
    {"cycler", make_cycler, "*"},
    {"dict", make_dict, "*"},
    {"joiner", make_joiner, "sep"},
    {"namespace", make_namespace, "*"},
    {"raise_exception", raise_exception, "message", 1},
    {"range", range, "start stop step", 1},
    {"strftime_now", strftime_now, "format", 1},
};

}  // namespace

std::span<const Builtin> global_functions() { return kFunctions; }

}  // namespace quire::jinja
