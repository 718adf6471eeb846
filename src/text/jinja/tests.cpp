// Tests: what stands behind "is".
#include <algorithm>

#include "text/jinja/builtin.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"

namespace quire::jinja {
namespace {
namespace testing {

Value is_kind(Given& given, Kind kind) { return Value::boolean(given.self.is(kind)); }

Value defined(Given& given) { return Value::boolean(!given.self.is_undefined()); }
Value undefined(Given& given) { return Value::boolean(given.self.is_undefined()); }
Value none(Given& given) { return is_kind(given, Kind::kNone); }
Value boolean(Given& given) { return is_kind(given, Kind::kBool); }
Value integer(Given& given) { return is_kind(given, Kind::kInt); }
Value floating(Given& given) { return is_kind(given, Kind::kFloat); }
Value string(Given& given) { return is_kind(given, Kind::kText); }
Value mapping(Given& given) { return is_kind(given, Kind::kDict); }
Value number(Given& given) { return Value::boolean(given.self.is_number()); }
Value is_false(Given& given) {
  return Value::boolean(given.self.is(Kind::kBool) && given.self.integer() == 0);
}
Value is_true_itself(Given& given) {
  return Value::boolean(given.self.is(Kind::kBool) && given.self.integer() == 1);
}
Value escaped(Given&) { return Value::boolean(false); }

Value callable(Given& given) {
  return Value::boolean(given.self.is(Kind::kFunction) || given.self.is(Kind::kJoiner) ||
                        given.self.is_undefined());
}

Value iterable(Given& given) {
  const Kind kind = given.self.kind();
  return Value::boolean(kind == Kind::kUndefined || kind == Kind::kText || kind == Kind::kSequence ||
                        kind == Kind::kDict || kind == Kind::kLoop);
}

// What has a length and items by key.
Value sequence(Given& given) {
  const Value value = given.self;
  if (value.is(Kind::kText) || value.is(Kind::kDict) || value.is_undefined()) return Value::boolean(true);
  if (!value.is(Kind::kSequence)) return Value::boolean(false);
  const SequenceType type = value.sequence().type;
  return Value::boolean(type == SequenceType::kList || type == SequenceType::kTuple ||
                        type == SequenceType::kRange || type == SequenceType::kGroup);
}

Value remainder(Given& given, Value divisor) {
  if (given.self.is(Kind::kText)) throw Trouble("divides a text");
  return calculate(BinaryOp::kModulo, given.self, divisor, given.heap);
}

Value odd(Given& given) { return Value::boolean(remainder(given, Value::integer(2)).as_float() == 1); }
Value even(Given& given) { return Value::boolean(remainder(given, Value::integer(2)).as_float() == 0); }
Value divisibleby(Given& given) { return Value::boolean(remainder(given, given.at(0)).as_float() == 0); }

Value case_test(Given& given, std::string_view method) {
  const Value text = given.heap.text(given.self_text());
  return invoke(given.renderer, given.heap, *find_text_method(method), text, {});
}
Value lower(Given& given) { return case_test(given, "islower"); }
Value upper(Given& given) { return case_test(given, "isupper"); }

Value compared(Given& given, CompareOp op) {
  return Value::boolean(compare(op, given.self, given.at(0), given.heap));
}
Value equal(Given& given) { return compared(given, CompareOp::kEqual); }
Value not_equal(Given& given) { return compared(given, CompareOp::kNotEqual); }
Value greater(Given& given) { return compared(given, CompareOp::kGreater); }
Value greater_equal(Given& given) { return compared(given, CompareOp::kGreaterEqual); }
Value less(Given& given) { return compared(given, CompareOp::kLess); }
Value less_equal(Given& given) { return compared(given, CompareOp::kLessEqual); }
Value in(Given& given) { return compared(given, CompareOp::kIn); }

// Of numbers and texts, which have no identity here, the value and the type count.
Value sameas(Given& given) {
  const Value a = given.self;
  const Value b = given.at(0);
  if (a.kind() != b.kind()) return Value::boolean(false);
  const bool by_value = a.is_number() || a.is(Kind::kText) || a.is(Kind::kNone);
  if (by_value) return Value::boolean(equals(a, b, given.budget()));
  return Value::boolean(a.identity() == b.identity());
}

Value is_filter(Given& given) {
  return Value::boolean(given.self.is(Kind::kText) && find_filter(given.self.bytes()) != nullptr);
}
Value is_test(Given& given) {
  return Value::boolean(given.self.is(Kind::kText) && find_test(given.self.bytes()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"!=", not_equal, "other", 1},
    {"<", less, "other", 1},
    {"<=", less_equal, "other", 1},
    {"==", equal, "other", 1},
    {">", greater, "other", 1},
    {">=", greater_equal, "other", 1},
    {"boolean", boolean},
    {"callable", callable},
    {"defined", defined},
    {"divisibleby", divisibleby, "num", 1},
    {"eq", equal, "other", 1},
    {"equalto", equal, "other", 1},
    {"escaped", escaped},
    {"even", even},
    {"false", is_false},
    {"filter", is_filter},
    {"float", floating},
    {"ge", greater_equal, "other", 1},
    {"greaterthan", greater, "other", 1},
    {"gt", greater, "other", 1},
    {"in", in, "seq", 1},
    {"integer", integer},
    {"iterable", iterable},
    {"le", less_equal, "other", 1},
    {"lessthan", less, "other", 1},
    {"lower", lower},
    {"lt", less, "other", 1},
    {"mapping", mapping},
    {"ne", not_equal, "other", 1},
    {"none", none},
    {"number", number},
    {"odd", odd},
    {"sameas", sameas, "other", 1},
    {"sequence", sequence},
    {"string", string},
    {"test", is_test},
    {"true", is_true_itself},
    {"undefined", undefined},
    {"upper", upper},
};

}  // namespace testing
}  // namespace

const Builtin* find_test(std::string_view name) {
  const auto* found = std::find_if(std::begin(testing::kTests), std::end(testing::kTests),
                                   [&](const Builtin& b) { return b.name == name; });
  return found == std::end(testing::kTests) ? nullptr : found;
}

}  // namespace quire::jinja
