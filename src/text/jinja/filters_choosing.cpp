// Filters that call other filters or tests for each item: map, select, reject and their kin.
#include <algorithm>

#include "text/jinja/attribute_path.h"
#include "text/jinja/builtin.h"
#include "text/jinja/operators.h"
#include "text/jinja/renderer.h"

namespace quire::jinja {
namespace {
namespace choosing {

// None, empty texts and the like have no items here, where elsewhere they would be refused.
std::vector<Value> items_if_any(Given& given) {
  return is_true(given.self) ? items_of(given.self, given.heap) : std::vector<Value>();
}

std::string_view name_argument(const Arguments& all, size_t i, const char* what) {
  if (i >= all.positional.size()) throw Trouble(std::string("there is no ") + what);
  if (!all.positional[i].is(Kind::kText)) throw Trouble(std::string("the ") + what + " is no text");
  return all.positional[i].bytes();
}

// Made anew for each item, as what is called takes its arguments for itself.
Arguments without_first(const Arguments& all, size_t n, Budget& budget) {
  const size_t n_left = all.positional.size() - n;
  budget.take_steps(n_left + all.named.size());
  budget.take_memory(n_left * sizeof(Value) + all.named.size() * sizeof(all.named[0]));
  Arguments rest;
  rest.positional.assign(all.positional.begin() + static_cast<ptrdiff_t>(n), all.positional.end());
  rest.named = all.named;
  return rest;
}

std::vector<Value> mapped_attribute(Given& given) {
  Value attribute;
  Value otherwise = Value::none();
  for (const auto& [name, value] : given.rest.named) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      otherwise = value;
    } else {
      throw Trouble("map() does not know one of its arguments");
    }
  }
  const AttributePath path(attribute, given.heap);
  std::vector<Value> out;
  for (const Value item : items_if_any(given)) out.push_back(path.of(item, &otherwise));
  return out;
}

Value map(Given& given) {
  const Arguments& all = given.rest;
  const auto& named = all.named;
  const bool by_attribute = all.positional.empty() &&
                            std::any_of(named.begin(), named.end(),
                                        [](const auto& argument) { return argument.first == "attribute"; });
  std::vector<Value> out;
  if (by_attribute) {
    out = mapped_attribute(given);
  } else {
    const std::string_view name = name_argument(all, 0, "filter to map with");
    for (const Value item : items_if_any(given)) {
      out.push_back(given.renderer.apply_filter(name, item, without_first(all, 1, given.budget())));
    }
  }
  return given.heap.sequence(SequenceType::kIterator, std::move(out));
}

Value choose(Given& given, bool by_attribute, bool wanted) {
  const Arguments& all = given.rest;
  const size_t n_before = by_attribute ? 1 : 0;
  if (all.positional.size() < n_before) throw Trouble("there is no attribute to choose by");
  const AttributePath path(by_attribute ? all.positional[0] : Value(), given.heap);
  const bool has_test = all.positional.size() > n_before;
  std::vector<Value> kept;
  for (const Value item : items_if_any(given)) {
    const Value value = by_attribute ? path.of(item) : item;
    const bool holds =
        has_test ? given.renderer.apply_test(name_argument(all, n_before, "test to choose by"), value,
                                             without_first(all, n_before + 1, given.budget()))
                 : is_true(value);
    if (holds == wanted) kept.push_back(item);
  }
  return given.heap.sequence(SequenceType::kIterator, std::move(kept));
}

Value select(Given& given) { return choose(given, false, true); }
Value reject(Given& given) { return choose(given, false, false); }
Value selectattr(Given& given) { return choose(given, true, true); }
Value rejectattr(Given& given) { return choose(given, true, false); }

constexpr Builtin kFilters[] = {
    {"map", map, "*"},       {"reject", reject, "*"},         {"rejectattr", rejectattr, "*"},
    {"select", select, "*"}, {"selectattr", selectattr, "*"},
};

}  // namespace choosing
}  // namespace

std::span<const Builtin> choosing_filters() { return choosing::kFilters; }

}  // namespace quire::jinja
