// Methods of dicts, lists, loops and cyclers; those that would change one are not there, as in Jinja's
// sandbox.
#include <algorithm>

#include "text/jinja/builtin.h"
#include "text/jinja/operators.h"

namespace quire::jinja {
namespace {

Value get(Given& given) {
  const Value* found = find_key(given.self.dict(), given.at(0), given.budget());
  if (found != nullptr) return *found;
  return given.has(1) ? given.at(1) : Value::none();
}

Value keys(Given& given) {
  return given.heap.sequence(SequenceType::kKeys, items_of(given.self, given.heap));
}

Value values(Given& given) {
  std::vector<Value> all;
  for (const auto& entry : given.self.dict().entries) all.push_back(entry.second);
  return given.heap.sequence(SequenceType::kValues, std::move(all));
}

Value pairs(Given& given) {
  std::vector<Value> all;
  for (const auto& [key, value] : given.self.dict().entries) all.push_back(given.heap.pair(key, value));
  return given.heap.sequence(SequenceType::kItems, std::move(all));
}

Value copy_dict(Given& given) {
  given.budget().take_memory(given.self.dict().entries.size() * 2 * sizeof(Value));
  auto* dict = given.heap.make<Dict>();
  dict->entries = given.self.dict().entries;
  return Value::object(Kind::kDict, dict);
}

Value copy_list(Given& given) { return given.heap.list(items_of(given.self, given.heap)); }

Value count(Given& given) {
  const std::vector<Value> all = items_of(given.self, given.heap);
  return Value::integer(std::count_if(all.begin(), all.end(),
                                      [&](Value item) { return equals(item, given.at(0), given.budget()); }));
}

Value index(Given& given) {
  const std::vector<Value> all = items_of(given.self, given.heap);
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](Value item) { return equals(item, given.at(0), given.budget()); });
  if (found == all.end()) throw Trouble("looks for an item that is not there");
  return Value::integer(found - all.begin());
}

Value cycle(Given& given) {
  const auto& all = given.rest.positional;
  if (all.empty()) throw Trouble("loop.cycle() has nothing to cycle through");
  return all[given.self.loop().index % all.size()];
}

// Whether the arguments differ from those of the call before.
Value changed(Given& given) {
  LoopState& loop = given.self.loop();
  const Value now = given.heap.sequence(SequenceType::kTuple, given.rest.positional);
  const bool differs = !loop.has_last_changed || !equals(loop.last_changed, now, given.budget());
  loop.has_last_changed = true;
  loop.last_changed = now;
  return Value::boolean(differs);
}

Value next(Given& given) {
  Cycler& cycler = given.self.cycler();
  const Value current = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return current;
}

Value reset(Given& given) {
  given.self.cycler().at = 0;
  return Value::none();
}

// The separator, but nothing the first time.
Value call_joiner(Given& given) {
  Joiner& joiner = given.self.joiner();
  if (joiner.used) return joiner.separator;
  joiner.used = true;
  return given.heap.text(Text());
}

constexpr Builtin kDictMethods[] = {
    {"copy", copy_dict}, {"get", get, "key default", 1}, {"items", pairs}, {"keys", keys}, {"values", values},
};
constexpr Builtin kListMethods[] = {
    {"copy", copy_list},
    {"count", count, "value", 1},
    {"index", index, "value", 1},
};
constexpr Builtin kLoopMethods[] = {{"changed", changed, "*"}, {"cycle", cycle, "*"}};
constexpr Builtin kCyclerMethods[] = {{"next", next}, {"reset", reset}};
constexpr Builtin kJoinerCall = {"joiner", call_joiner};

const Builtin* find_method(std::span<const Builtin> table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Builtin& b) { return b.name == name; });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

const Builtin* find_dict_method(std::string_view name) { return find_method(kDictMethods, name); }

const Builtin* find_sequence_method(std::string_view name, SequenceType type) {
  const bool is_list = type == SequenceType::kList;
  const bool has_methods =
      is_list || type == SequenceType::kTuple || type == SequenceType::kGroup || type == SequenceType::kRange;
  if (!has_methods || (name == "copy" && !is_list)) return nullptr;
  return find_method(kListMethods, name);
}

const Builtin* find_loop_method(std::string_view name) { return find_method(kLoopMethods, name); }
const Builtin* find_cycler_method(std::string_view name) { return find_method(kCyclerMethods, name); }
const Builtin& joiner_call() { return kJoinerCall; }

}  // namespace quire::jinja
