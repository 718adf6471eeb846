#include "text/jinja/value.h"

#include <algorithm>

namespace quire::jinja {

const Text& Value::text() const { return static_cast<const TextObject*>(object_)->text; }
TextObject& Value::text_object() const { return *static_cast<TextObject*>(object_); }
Sequence& Value::sequence() const { return *static_cast<Sequence*>(object_); }
Dict& Value::dict() const { return *static_cast<Dict*>(object_); }
Function& Value::function() const { return *static_cast<Function*>(object_); }
LoopState& Value::loop() const { return *static_cast<LoopState*>(object_); }
Cycler& Value::cycler() const { return *static_cast<Cycler*>(object_); }
Joiner& Value::joiner() const { return *static_cast<Joiner*>(object_); }

std::string Value::hint() const {
  return kind_ == Kind::kUndefined && object_ != nullptr ? static_cast<const Hint*>(object_)->words
                                                         : std::string();
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [k, v] : entries) {
    if (k.is(Kind::kText) && k.bytes() == key) return &v;
  }
  return nullptr;
}

const Value* Scope::find(std::string_view name, Budget& budget) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    budget.take_steps(scope->names.size() / 32);
    for (const auto& [n, v] : scope->names) {
      if (n == name) return &v;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value, Budget& budget) {
  budget.take_steps(names.size() / 32);
  for (auto& [n, v] : names) {
    if (n == name) {
      v = value;
      return;
    }
  }
  names.emplace_back(name, value);
}

Value Heap::text(Text text) {
  budget_.take_memory(text.memory_bytes());
  budget_.take_bytes(text.size());
  auto* object = make<TextObject>();
  object->text = std::move(text);
  return Value::object(Kind::kText, object);
}

Value Heap::sequence(SequenceType type, std::vector<Value> items) {
  budget_.take_memory(items.size() * sizeof(Value));
  budget_.take_steps(1 + items.size());
  auto* object = make<Sequence>();
  object->type = type;
  object->items = std::move(items);
  return Value::object(Kind::kSequence, object);
}

Value Heap::undefined(std::string words) {
  auto* object = make<Hint>();
  budget_.take_memory(words.size());
  object->words = std::move(words);
  return Value::object(Kind::kUndefined, object);
}

Value Heap::from_data(const Data& data) {
  if (const auto* b = std::get_if<bool>(&data.value)) return Value::boolean(*b);
  if (const auto* i = std::get_if<int64_t>(&data.value)) return Value::integer(*i);
  if (const auto* d = std::get_if<double>(&data.value)) return Value::floating(*d);
  if (const auto* t = std::get_if<Text>(&data.value)) return text(*t);
  if (const auto* list = std::get_if<DataList>(&data.value)) {
    std::vector<Value> items;
    items.reserve(list->size());
    for (const Data& item : *list) items.push_back(from_data(item));
    return this->list(std::move(items));
  }
  if (const auto* object = std::get_if<DataObject>(&data.value)) {
    budget_.take_memory(object->size() * 2 * sizeof(Value));
    auto* dict = make<Dict>();
    dict->entries.reserve(object->size());
    for (const auto& [key, item] : *object) {
      dict->entries.emplace_back(text(key, Origin::kOutside), from_data(item));
    }
    return Value::object(Kind::kDict, dict);
  }
  return Value::none();
}

namespace {

const char* sequence_name(SequenceType type) {
  switch (type) {
    case SequenceType::kList: return "list";
    case SequenceType::kTuple:
    case SequenceType::kGroup: return "tuple";
    case SequenceType::kRange: return "range";
    case SequenceType::kKeys: return "dict_keys";
    case SequenceType::kValues: return "dict_values";
    case SequenceType::kItems: return "dict_items";
    case SequenceType::kIterator: return "generator";
  }
  return "";
}

}  // namespace

const char* type_name(Value value) {
  switch (value.kind()) {
    case Kind::kUndefined: return "undefined";
    case Kind::kNone: return "none";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kText: return "str";
    case Kind::kSequence: return sequence_name(value.sequence().type);
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "namespace";
    case Kind::kFunction: return "function";
    case Kind::kLoop: return "loop";
    case Kind::kCycler: return "cycler";
    case Kind::kJoiner: return "joiner";
  }
  return "";
}

bool is_true(Value value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.integer() != 0;
    case Kind::kFloat: return value.floating() != 0;
    case Kind::kText: return !value.text().empty();
    case Kind::kSequence:
      return value.sequence().type == SequenceType::kIterator || !value.sequence().items.empty();
    case Kind::kDict: return !value.dict().entries.empty();
    case Kind::kLoop:
    case Kind::kNamespace:
    case Kind::kFunction:
    case Kind::kCycler:
    case Kind::kJoiner: return true;
  }
  return false;
}

void require_defined(Value value, const char* use) {
  if (!value.is_undefined()) return;
  const std::string hint = value.hint();
  throw Trouble((hint.empty() ? std::string("a value that is not defined") : hint) + " and cannot be " + use);
}

}  // namespace quire::jinja
