#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/printing.h"
#include "text/jinja/text_pieces.h"

namespace quire::jinja {
namespace {

bool is_list_like(SequenceType type) {
  return type == SequenceType::kList || type == SequenceType::kTuple || type == SequenceType::kGroup;
}

// Lists equal lists, and tuples tuples, only.
SequenceType comparable_type(SequenceType type) {
  return type == SequenceType::kGroup ? SequenceType::kTuple : type;
}

bool equals_at(Value a, Value b, Budget& budget, size_t depth);

bool sequences_equal(const Sequence& a, const Sequence& b, Budget& budget, size_t depth) {
  if (comparable_type(a.type) != comparable_type(b.type) || a.items.size() != b.items.size()) return false;
  if (a.type == SequenceType::kIterator || a.type == SequenceType::kValues) return &a == &b;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equals_at(a.items[i], b.items[i], budget, depth)) return false;
  }
  return true;
}

bool dicts_equal(const Dict& a, const Dict& b, Budget& budget, size_t depth) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = find_key(b, key, budget);
    if (other == nullptr || !equals_at(value, *other, budget, depth)) return false;
  }
  return true;
}

bool equals_at(Value a, Value b, Budget& budget, size_t depth) {
  if (depth > kMaxValueDepth) throw Trouble("compares values that lie deeper in each other than they may");
  budget.take_steps(1);
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.integer() == b.integer() : a.as_float() == b.as_float();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kText:
      budget.take_bytes(std::min(a.bytes().size(), b.bytes().size()));
      return a.bytes() == b.bytes();
    case Kind::kSequence: return sequences_equal(a.sequence(), b.sequence(), budget, depth + 1);
    case Kind::kDict: return dicts_equal(a.dict(), b.dict(), budget, depth + 1);
    default: return a.identity() == b.identity();
  }
}

[[noreturn]] void fail_operator(const char* op, Value a, Value b) {
  require_defined(a, "calculated with");
  require_defined(b, "calculated with");
  throw Trouble(std::string("the operator '") + op + "' is not defined between " + type_name(a) + " and " +
                type_name(b));
}

bool is_less_at(Value a, Value b, Budget& budget, size_t depth) {
  if (depth > kMaxValueDepth) throw Trouble("compares values that lie deeper in each other than they may");
  budget.take_steps(1);
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.integer() < b.integer() : a.as_float() < b.as_float();
  }
  if (a.is(Kind::kText) && b.is(Kind::kText)) {
    budget.take_bytes(std::min(a.bytes().size(), b.bytes().size()));
    return a.bytes() < b.bytes();  // UTF-8 is in the order of code points
  }
  const bool both = a.is(Kind::kSequence) && b.is(Kind::kSequence);
  if (!both || !is_list_like(a.sequence().type) ||
      comparable_type(a.sequence().type) != comparable_type(b.sequence().type)) {
    fail_operator("<", a, b);
  }
  const auto& left = a.sequence().items;
  const auto& right = b.sequence().items;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!equals_at(left[i], right[i], budget, depth + 1))
      return is_less_at(left[i], right[i], budget, depth + 1);
  }
  return left.size() < right.size();
}

}  // namespace

bool equals(Value a, Value b, Budget& budget) { return equals_at(a, b, budget, 0); }
bool is_less(Value a, Value b, Budget& budget) { return is_less_at(a, b, budget, 0); }

bool compare(CompareOp op, Value a, Value b, Heap& heap) {
  Budget& budget = heap.budget();
  const bool is_nan =
      (a.is(Kind::kFloat) && std::isnan(a.floating())) || (b.is(Kind::kFloat) && std::isnan(b.floating()));
  switch (op) {
    case CompareOp::kEqual: return equals(a, b, budget);
    case CompareOp::kNotEqual: return !equals(a, b, budget);
    case CompareOp::kLess: return is_less(a, b, budget);
    case CompareOp::kGreater: return is_less(b, a, budget);
    case CompareOp::kLessEqual: return !is_less(b, a, budget) && !is_nan;
    case CompareOp::kGreaterEqual: return !is_less(a, b, budget) && !is_nan;
    case CompareOp::kIn: return contains(b, a, heap);
    case CompareOp::kNotIn: return !contains(b, a, heap);
  }
  return false;
}

void require_key(Value key) {
  const bool is_list = key.is(Kind::kSequence) && key.sequence().type == SequenceType::kList;
  if (is_list || key.is(Kind::kDict)) throw Trouble(std::string("a ") + type_name(key) + " cannot be a key");
}

const Value* find_key(const Dict& dict, Value key, Budget& budget) {
  budget.take_steps(1 + dict.entries.size() / 8);
  if (key.is(Kind::kText)) {
    budget.take_steps(dict.entries.size() * (key.bytes().size() / 64));
    return dict.find(key.bytes());
  }
  for (const auto& [k, v] : dict.entries) {
    if (!k.is(Kind::kText) && equals(k, key, budget)) return &v;
  }
  return nullptr;
}

bool contains(Value container, Value item, Heap& heap) {
  Budget& budget = heap.budget();
  switch (container.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kText:
      if (!item.is(Kind::kText)) {
        require_defined(item, "looked for in a text");
        throw Trouble(std::string("'in' of a text needs a text, not ") + type_name(item));
      }
      budget.take_bytes(container.text().size());
      return find_text(container.bytes(), item.bytes(), 0, budget) != std::string_view::npos;
    case Kind::kDict: require_key(item); return find_key(container.dict(), item, budget) != nullptr;
    case Kind::kSequence: {
      const std::vector<Value> items = items_of(container, heap);
      return std::any_of(items.begin(), items.end(), [&](Value each) { return equals(each, item, budget); });
    }
    default: throw Trouble(std::string("'in' is not defined for a value of type ") + type_name(container));
  }
}

std::vector<Value> items_of(Value value, Heap& heap) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined: break;
    case Kind::kText: {
      const Text& text = value.text();
      heap.budget().take_bytes(text.size());
      for (size_t at = 0; at < text.size();) {
        const size_t n = first_character(std::string_view(text.bytes()).substr(at)).size_bytes;
        items.push_back(heap.text(text.part(at, n)));
        at += n;
      }
      break;
    }
    case Kind::kSequence: {
      Sequence& sequence = value.sequence();
      const size_t begin = sequence.next;
      if (sequence.type == SequenceType::kIterator) sequence.next = sequence.items.size();
      heap.budget().take_steps(sequence.items.size() - begin);
      items.assign(sequence.items.begin() + static_cast<ptrdiff_t>(begin), sequence.items.end());
      break;
    }
    case Kind::kDict:
      heap.budget().take_steps(value.dict().entries.size());
      for (const auto& entry : value.dict().entries) items.push_back(entry.first);
      break;
    default:
      throw Trouble(std::string("a value of type ") + type_name(value) + " has no items to go through");
  }
  return items;
}

size_t length_of(Value value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kText: {
      TextObject& text = value.text_object();
      if (!text.counted) {
        text.n_characters = count_characters(text.text.bytes());
        text.counted = true;
      }
      return text.n_characters;
    }
    case Kind::kDict: return value.dict().entries.size();
    case Kind::kLoop: return value.loop().items->size();
    case Kind::kSequence:
      if (value.sequence().type != SequenceType::kIterator) return value.sequence().items.size();
      [[fallthrough]];
    default: throw Trouble(std::string("a value of type ") + type_name(value) + " has no length");
  }
}

namespace {

Value checked(bool overflows, int64_t result) {
  if (overflows) throw Trouble("calculates a number beyond 64 bits");
  return Value::integer(result);
}

// What each repetition adds: a text of one run stays one.
size_t bytes_to_repeat(Value value) {
  if (!value.is(Kind::kText)) return value.sequence().items.size() * sizeof(Value);
  return value.text().runs().size() > 1 ? value.text().memory_bytes() : value.text().size();
}

// By doubling, so that the pieces that are copied are long ones.
Text repeated_text(const Text& text, size_t n) {
  Text out;
  for (Text power = text;; power.append(Text(power))) {
    if (n % 2 == 1) out.append(power);
    n /= 2;
    if (n == 0) return out;
  }
}

Value repeated(Value value, int64_t times, Heap& heap) {
  const auto n = static_cast<size_t>(std::max<int64_t>(times, 0));
  const size_t size = bytes_to_repeat(value);
  if (size > 0 && n > 0) {
    if (n > (size_t{1} << 40) / size) heap.budget().check_memory(SIZE_MAX);
    heap.budget().check_memory(n * size);
    heap.budget().take_bytes(n * size);
  }
  if (value.is(Kind::kText)) return heap.text(size > 0 ? repeated_text(value.text(), n) : Text());
  const Sequence& sequence = value.sequence();
  std::vector<Value> items;
  for (size_t i = 0; i < n && size > 0; ++i)
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return heap.sequence(comparable_type(sequence.type), std::move(items));
}

Value add(Value a, Value b, Heap& heap) {
  if (a.is_number() && b.is_number()) {
    if (!a.is_integral() || !b.is_integral()) return Value::floating(a.as_float() + b.as_float());
    int64_t sum = 0;
    const bool overflows = __builtin_add_overflow(a.integer(), b.integer(), &sum);
    return checked(overflows, sum);
  }
  if (a.is(Kind::kText) && b.is(Kind::kText)) {
    heap.budget().check_memory(a.text().memory_bytes() + b.text().memory_bytes());
    Text out = a.text();
    out.append(b.text());
    return heap.text(std::move(out));
  }
  if (a.is(Kind::kSequence) && b.is(Kind::kSequence) && is_list_like(a.sequence().type) &&
      comparable_type(a.sequence().type) == comparable_type(b.sequence().type)) {
    const auto& more = b.sequence().items;
    heap.budget().check_memory((a.sequence().items.size() + more.size()) * sizeof(Value));
    std::vector<Value> items = a.sequence().items;
    items.insert(items.end(), more.begin(), more.end());
    return heap.sequence(comparable_type(a.sequence().type), std::move(items));
  }
  fail_operator("+", a, b);
}

Value multiply(Value a, Value b, Heap& heap) {
  if (a.is_number() && b.is_number()) {
    if (!a.is_integral() || !b.is_integral()) return Value::floating(a.as_float() * b.as_float());
    int64_t product = 0;
    const bool overflows = __builtin_mul_overflow(a.integer(), b.integer(), &product);
    return checked(overflows, product);
  }
  const auto repeats = [](Value v) {
    return v.is(Kind::kText) || (v.is(Kind::kSequence) && is_list_like(v.sequence().type));
  };
  if (repeats(a) && b.is_integral()) return repeated(a, b.integer(), heap);
  if (repeats(b) && a.is_integral()) return repeated(b, a.integer(), heap);
  fail_operator("*", a, b);
}

// Rounds down, and the remainder has the divisor's sign.
Value divide_down(BinaryOp op, Value a, Value b) {
  const bool wants_remainder = op == BinaryOp::kModulo;
  if (b.as_float() == 0) throw Trouble("divides by zero");
  if (!a.is_integral() || !b.is_integral()) {
    const double x = a.as_float();
    const double y = b.as_float();
    double remainder = std::fmod(x, y);
    if (remainder != 0 && (remainder < 0) != (y < 0)) remainder += y;
    if (remainder == 0) remainder = std::copysign(0.0, y);
    if (wants_remainder) return Value::floating(remainder);
    const double quotient = (x - remainder) / y;
    return Value::floating(quotient == 0 ? std::copysign(0.0, x / y) : std::floor(quotient + 0.5));
  }
  if (b.integer() == -1) {
    if (wants_remainder) return Value::integer(0);
    return negated(Value::integer(a.integer()));
  }
  int64_t quotient = a.integer() / b.integer();
  int64_t remainder = a.integer() % b.integer();
  if (remainder != 0 && (remainder < 0) != (b.integer() < 0)) {
    --quotient;
    remainder += b.integer();
  }
  return Value::integer(wants_remainder ? remainder : quotient);
}

Value power(Value a, Value b) {
  if (a.is_integral() && b.is_integral() && b.integer() >= 0) {
    int64_t result = 1;
    const int64_t base = a.integer();
    if (base == 0 || base == 1) return Value::integer(b.integer() == 0 ? 1 : base);
    if (base == -1) return Value::integer(b.integer() % 2 == 0 ? 1 : -1);
    for (int64_t i = 0; i < b.integer(); ++i) {  // over after 63 rounds
      if (__builtin_mul_overflow(result, base, &result)) return checked(true, 0);
    }
    return Value::integer(result);
  }
  if (a.as_float() == 0 && b.as_float() < 0) throw Trouble("divides by zero");
  const double result = std::pow(a.as_float(), b.as_float());
  if (std::isnan(result) && !std::isnan(a.as_float()) && !std::isnan(b.as_float())) {
    throw Trouble("takes a root of a negative number");
  }
  return Value::floating(result);
}

}  // namespace

Value negated(Value value) {
  if (value.is(Kind::kFloat)) return Value::floating(-value.floating());
  require_defined(value, "negated");
  if (!value.is_integral())
    throw Trouble(std::string("a value of type ") + type_name(value) + " has no negative");
  int64_t result = 0;
  const bool overflows = __builtin_sub_overflow(int64_t{0}, value.integer(), &result);
  return checked(overflows, result);
}

Value unchanged(Value value) {
  require_defined(value, "calculated with");
  if (!value.is_number()) throw Trouble(std::string("a value of type ") + type_name(value) + " is no number");
  return value.is(Kind::kBool) ? Value::integer(value.integer()) : value;
}

Value calculate(BinaryOp op, Value a, Value b, Heap& heap) {
  if (op == BinaryOp::kAdd) return add(a, b, heap);
  if (op == BinaryOp::kMultiply) return multiply(a, b, heap);
  if (op == BinaryOp::kModulo && a.is(Kind::kText)) {
    const bool is_tuple = b.is(Kind::kSequence) && comparable_type(b.sequence().type) == SequenceType::kTuple;
    return percent_format(a, is_tuple ? b.sequence().items : std::vector<Value>{b}, heap);
  }
  const bool numbers = a.is_number() && b.is_number();
  switch (op) {
    case BinaryOp::kSubtract:
      if (!numbers) fail_operator("-", a, b);
      if (a.is_integral() && b.is_integral()) {
        int64_t difference = 0;
        const bool overflows = __builtin_sub_overflow(a.integer(), b.integer(), &difference);
        return checked(overflows, difference);
      }
      return Value::floating(a.as_float() - b.as_float());
    case BinaryOp::kDivide:
      if (!numbers) fail_operator("/", a, b);
      if (b.as_float() == 0) throw Trouble("divides by zero");
      return Value::floating(a.as_float() / b.as_float());
    case BinaryOp::kFloorDivide:
      if (!numbers) fail_operator("//", a, b);
      return divide_down(op, a, b);
    case BinaryOp::kModulo:
      if (!numbers) fail_operator("%", a, b);
      return divide_down(op, a, b);
    case BinaryOp::kPower:
      if (!numbers) fail_operator("**", a, b);
      return power(a, b);
    default: return Value();
  }
}

}  // namespace quire::jinja
