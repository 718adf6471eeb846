// Values of a running template: Python's, as far as templates see them. A Value is two words and free to
// copy; what it points to belongs to the Heap of one rendering, so values may refer to each other in circles.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/data.h"
#include "text/jinja/limits.h"
#include "text/jinja/text.h"

namespace quire::jinja {

struct Builtin;
struct MacroNode;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kSequence,  // list, tuple, range, views of dicts, iterators
  kDict,
  kNamespace,  // namespace(): the one thing that templates may change
  kFunction,   // macros, functions, methods with their object
  kLoop,
  kCycler,
  kJoiner,
};

struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

struct TextObject;
struct Sequence;
struct Dict;
struct Function;
struct LoopState;
struct Cycler;
struct Joiner;
struct Hint;

class Value {
 public:
  Value() = default;  // undefined
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b) {
    Value v(Kind::kBool);
    v.int_ = b ? 1 : 0;
    return v;
  }
  static Value integer(int64_t i) {
    Value v(Kind::kInt);
    v.int_ = i;
    return v;
  }
  static Value floating(double d) {
    Value v(Kind::kFloat);
    v.float_ = d;
    return v;
  }
  static Value object(Kind kind, Object* object) {
    Value v(kind);
    v.object_ = object;
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  // As in Python, where True is 1.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  int64_t integer() const { return int_; }  // of kInt and kBool
  double floating() const { return float_; }
  double as_float() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }
  const Object* identity() const { return object_; }

  // Of the kind that the name says only.
  const Text& text() const;
  std::string_view bytes() const { return text().bytes(); }
  TextObject& text_object() const;
  Sequence& sequence() const;
  Dict& dict() const;  // of kDict and kNamespace
  Function& function() const;
  LoopState& loop() const;
  Cycler& cycler() const;
  Joiner& joiner() const;
  // Why it is undefined, in words that complete a sentence; empty where nothing is known.
  std::string hint() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  union {
    Object* object_ = nullptr;
    int64_t int_;
    double float_;
  };
};

struct TextObject : Object {
  Text text;
  bool counted = false;
  size_t n_characters = 0;  // once counted
};

enum class SequenceType : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kGroup, kIterator };

struct Sequence : Object {
  SequenceType type = SequenceType::kList;
  std::vector<Value> items;
  size_t next = 0;               // of an iterator: items before it are used up
  int64_t range[3] = {0, 0, 1};  // start, stop, step of a range
};

struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;  // keys in their order, each once
  const Value* find(std::string_view key) const;
};

// Names and their values; the one that was set last hides those of the parents.
struct Scope : Object {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;           // views into the template, or literals
  const Value* find(std::string_view name, Budget& budget) const;  // here and in the parents
  void set(std::string_view name, Value value, Budget& budget);    // here
};

struct Function : Object {
  const Builtin* builtin = nullptr;  // or
  const MacroNode* macro = nullptr;
  Scope* scope = nullptr;  // where the macro was defined
  Value self;              // of a method
};

struct LoopState : Object {
  const std::vector<Value>* items = nullptr;
  size_t index = 0;
  bool has_last_changed = false;
  Value last_changed;  // what changed() was given, a tuple
};

struct Cycler : Object {
  std::vector<Value> items;
  size_t at = 0;
};

struct Joiner : Object {
  Value separator;
  bool used = false;
};

struct Hint : Object {
  std::string words;
};

// Owns all objects of one rendering and charges its budget for them.
class Heap {
 public:
  explicit Heap(Budget& budget) : budget_(budget) {}

  template <typename T>
  T* make() {
    budget_.take_memory(sizeof(T) + 32);
    auto owned = std::make_unique<T>();
    T* object = owned.get();
    objects_.push_back(std::move(owned));
    return object;
  }
  Value text(Text text);
  Value text(std::string bytes, Origin origin) { return this->text(Text(std::move(bytes), origin)); }
  Value sequence(SequenceType type, std::vector<Value> items);
  Value list(std::vector<Value> items) { return sequence(SequenceType::kList, std::move(items)); }
  Value pair(Value first, Value second) { return sequence(SequenceType::kTuple, {first, second}); }
  Value undefined(std::string words);
  Value from_data(const Data& data);
  Budget& budget() { return budget_; }

 private:
  Budget& budget_;
  std::vector<std::unique_ptr<Object>> objects_;
};

// As Python's type() names it, for messages.
const char* type_name(Value value);
bool is_true(Value value);

// Throws Trouble with the hint if the value is undefined; `use` says what was to be done with it.
void require_defined(Value value, const char* use);

}  // namespace quire::jinja
