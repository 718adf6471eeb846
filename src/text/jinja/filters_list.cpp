// Filters of lists and dicts that do not call others.
#include <algorithm>
#include <optional>

#include "text/jinja/attribute_path.h"
#include "text/jinja/builtin.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"

namespace quire::jinja {
namespace {
namespace of_lists {

Value length(Given& given) { return Value::integer(static_cast<int64_t>(length_of(given.self))); }

Value default_to(Given& given) {
  const Value otherwise = given.has(0) ? given.at(0) : given.heap.text(Text());
  const bool missing = given.self.is_undefined() || (given.flag(1, false) && !is_true(given.self));
  return missing ? otherwise : given.self;
}

Value join(Given& given) {
  const AttributePath path(given.at(1), given.heap);
  const Text separator = given.has(0) ? printed(given.at(0), given.budget()) : Text();
  Text out;
  bool first = true;
  for (const Value item : items_of(given.self, given.heap)) {
    if (!std::exchange(first, false)) {
      given.budget().take_bytes(separator.size());
      out.append(separator);
    }
    append_printed(path.of(item), out, given.budget());
  }
  return given.heap.text(std::move(out));
}

Value first(Given& given) {
  if (given.self.is(Kind::kSequence) && given.self.sequence().type == SequenceType::kIterator) {
    Sequence& rest = given.self.sequence();
    if (rest.next < rest.items.size()) return rest.items[rest.next++];
    return given.heap.undefined("there is no first item, which thus is undefined");
  }
  const std::vector<Value> items = items_of(given.self, given.heap);
  return items.empty() ? given.heap.undefined("there is no first item, which thus is undefined")
                       : items.front();
}

Value last(Given& given) {
  if (given.self.is(Kind::kSequence) && given.self.sequence().type == SequenceType::kIterator) {
    throw Trouble("a generator has no last item");
  }
  const std::vector<Value> items = items_of(given.self, given.heap);
  return items.empty() ? given.heap.undefined("there is no last item, which thus is undefined")
                       : items.back();
}

Value to_list(Given& given) { return given.heap.list(items_of(given.self, given.heap)); }

Value iterator(Given& given, std::vector<Value> items) {
  return given.heap.sequence(SequenceType::kIterator, std::move(items));
}

Value reverse(Given& given) {
  std::vector<Value> items = items_of(given.self, given.heap);
  std::reverse(items.begin(), items.end());
  const bool is_iterator =
      given.self.is(Kind::kSequence) && given.self.sequence().type == SequenceType::kIterator;
  if (is_iterator) return given.heap.list(std::move(items));
  if (!given.self.is(Kind::kText)) return iterator(given, std::move(items));
  Text out;
  for (const Value item : items) out.append(item.text());
  return given.heap.text(std::move(out));
}

Value pairs_of(Heap& heap, const Dict& dict, SequenceType type) {
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries) items.push_back(heap.pair(key, value));
  return heap.sequence(type, std::move(items));
}

Value items(Given& given) {
  if (given.self.is_undefined()) return iterator(given, {});
  if (!given.self.is(Kind::kDict))
    throw Trouble(std::string("a value of type ") + type_name(given.self) + " has no pairs");
  return pairs_of(given.heap, given.self.dict(), SequenceType::kIterator);
}

// Sorts by keys that are made once for each item; the order of equal ones stays.
template <typename KeyOf>
std::vector<Value> sorted(std::vector<Value> all, bool descending, const KeyOf& key_of, Heap& heap) {
  std::vector<std::pair<Value, Value>> keyed;
  keyed.reserve(all.size());
  for (const Value item : all) keyed.emplace_back(key_of(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return descending ? is_less(b.first, a.first, heap.budget()) : is_less(a.first, b.first, heap.budget());
  });
  for (size_t i = 0; i < all.size(); ++i) all[i] = keyed[i].second;
  return all;
}

Value dictsort(Given& given) {
  if (!given.self.is(Kind::kDict))
    throw Trouble(std::string("dictsort needs a dict, not ") + type_name(given.self));
  const std::string by = given.has(1) ? given.text(1).bytes() : "key";
  if (by != "key" && by != "value") throw Trouble("dictsort sorts by 'key' or by 'value'");
  const bool case_sensitive = given.flag(0, false);
  const Value all = pairs_of(given.heap, given.self.dict(), SequenceType::kList);
  const auto key_of = [&](Value pair) {
    return case_key(pair.sequence().items[by == "key" ? 0 : 1], case_sensitive, given.heap);
  };
  return given.heap.list(sorted(all.sequence().items, given.flag(2, false), key_of, given.heap));
}

Value sort(Given& given) {
  const std::vector<AttributePath> paths = attribute_paths(given.at(2), given.heap);
  const bool case_sensitive = given.flag(1, false);
  const auto key_of = [&](Value item) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths)
      keys.push_back(case_key(path.of(item), case_sensitive, given.heap));
    return given.heap.list(std::move(keys));
  };
  return given.heap.list(sorted(items_of(given.self, given.heap), given.flag(0, false), key_of, given.heap));
}

Value unique(Given& given) {
  const AttributePath path(given.at(1), given.heap);
  std::vector<Value> kept;
  std::vector<Value> seen;
  for (const Value item : items_of(given.self, given.heap)) {
    const Value key = case_key(path.of(item), given.flag(0, false), given.heap);
    const bool is_there = std::any_of(seen.begin(), seen.end(),
                                      [&](Value other) { return equals(other, key, given.budget()); });
    if (is_there) continue;
    seen.push_back(key);
    kept.push_back(item);
  }
  return iterator(given, std::move(kept));
}

Value sum(Given& given) {
  const AttributePath path(given.at(0), given.heap);
  Value total = given.has(1) ? given.at(1) : Value::integer(0);
  if (total.is(Kind::kText)) throw Trouble("sum() cannot add texts");
  for (const Value item : items_of(given.self, given.heap)) {
    total = calculate(BinaryOp::kAdd, total, path.of(item), given.heap);
  }
  return total;
}

Value extreme(Given& given, bool largest) {
  const AttributePath path(given.at(1), given.heap);
  std::optional<std::pair<Value, Value>> best;
  for (const Value item : items_of(given.self, given.heap)) {
    const Value key = case_key(path.of(item), given.flag(0, false), given.heap);
    const bool better = !best || (largest ? is_less(best->first, key, given.budget())
                                          : is_less(key, best->first, given.budget()));
    if (better) best.emplace(key, item);
  }
  return best ? best->second
              : given.heap.undefined("there are no items, of which the extreme thus is undefined");
}

Value min_of(Given& given) { return extreme(given, false); }
Value max_of(Given& given) { return extreme(given, true); }

Value groupby(Given& given) {
  const AttributePath path(given.at(0), given.heap);
  const bool case_sensitive = given.flag(2, false);
  const Value otherwise = given.at(1);
  const auto value_of = [&](Value item) { return path.of(item, given.has(1) ? &otherwise : nullptr); };
  const auto key_of = [&](Value item) { return case_key(value_of(item), case_sensitive, given.heap); };
  std::vector<Value> groups;
  Value key;
  for (const Value item : sorted(items_of(given.self, given.heap), false, key_of, given.heap)) {
    const Value its_key = key_of(item);
    if (groups.empty() || !equals(key, its_key, given.budget())) {
      key = its_key;
      groups.push_back(given.heap.sequence(SequenceType::kGroup, {value_of(item), given.heap.list({})}));
    }
    given.budget().take_memory(sizeof(Value));
    groups.back().sequence().items[1].sequence().items.push_back(item);
  }
  return given.heap.list(std::move(groups));
}

Value batch(Given& given) {
  const int64_t n = given.integer(0, 0);
  if (n < 1) throw Trouble("makes batches of no items");
  std::vector<Value> batches;
  std::vector<Value> batch;
  const auto finish = [&] {
    batches.push_back(given.heap.list(batch));
    batch.clear();
  };
  for (const Value item : items_of(given.self, given.heap)) {
    if (static_cast<int64_t>(batch.size()) == n) finish();
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (given.is_given_and_not_none(1) && static_cast<int64_t>(batch.size()) < n) {
      if (n > kMaxRange) throw Trouble("makes batches of more than " + std::to_string(kMaxRange) + " items");
      batch.resize(static_cast<size_t>(n), given.at(1));
    }
    finish();
  }
  return iterator(given, std::move(batches));
}

// So many lists, of which the first ones are longer by one where the items do not divide.
Value slice(Given& given) {
  const int64_t n = given.integer(0, 0);
  if (n < 1 || n > kMaxRange)
    throw Trouble("slices into a number of lists between 1 and " + std::to_string(kMaxRange));
  const std::vector<Value> all = items_of(given.self, given.heap);
  const size_t n_each = all.size() / static_cast<size_t>(n);
  const size_t n_longer = all.size() % static_cast<size_t>(n);
  std::vector<Value> slices;
  size_t at = 0;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const size_t size = n_each + (i < n_longer ? 1 : 0);
    std::vector<Value> part(all.begin() + static_cast<ptrdiff_t>(at),
                            all.begin() + static_cast<ptrdiff_t>(at + size));
    if (given.is_given_and_not_none(1) && i >= n_longer) part.push_back(given.at(1));
    slices.push_back(given.heap.list(std::move(part)));
    at += size;
  }
  return iterator(given, std::move(slices));
}

Value attr(Given& given) {
  const Value found = get_attribute(given.self, given.text(0).bytes(), given.heap);
  const bool is_key = given.self.is(Kind::kDict) && !found.is(Kind::kFunction);
  return is_key ? given.heap.undefined("dict has no such attribute, which thus is undefined") : found;
}

constexpr Builtin kFilters[] = {
    {"attr", attr, "name", 1},
    {"batch", batch, "linecount fill_with", 1},
    {"count", length},
    {"d", default_to, "default_value boolean"},
    {"default", default_to, "default_value boolean"},
    {"dictsort", dictsort, "case_sensitive by reverse"},
    {"first", first},
    {"groupby", groupby, "attribute default case_sensitive", 1},
    {"items", items},
    {"join", join, "d attribute"},
    {"last", last},
    {"length", length},
    {"list", to_list},
    {"max", max_of, "case_sensitive attribute"},
    {"min", min_of, "case_sensitive attribute"},
    {"reverse", reverse},
    {"slice", slice, "slices fill_with", 1},
    {"sort", sort, "reverse case_sensitive attribute"},
    {"sum", sum, "attribute start"},
    {"unique", unique, "case_sensitive attribute"},
};

}  // namespace of_lists
}  // namespace

std::span<const Builtin> list_filters() { return of_lists::kFilters; }

}  // namespace quire::jinja
