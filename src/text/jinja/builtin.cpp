#include "text/jinja/builtin.h"

#include <algorithm>
#include <array>
#include <string>

#include "text/jinja/lexer.h"
#include "text/jinja/printing.h"

namespace quire::jinja {
namespace {

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    all.push_back(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return all;
}

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Builtin& b) { return b.name == name; });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

int64_t Given::integer(size_t i, int64_t otherwise) const {
  if (!has(i)) return otherwise;
  require_defined(at(i), "used as a number");
  if (!at(i).is_integral())
    throw Trouble(std::string("needs an integer, not a value of type ") + type_name(at(i)));
  return at(i).integer();
}

const Text& Given::text(size_t i) const {
  require_defined(at(i), "used as a text");
  if (!at(i).is(Kind::kText))
    throw Trouble(std::string("needs a text, not a value of type ") + type_name(at(i)));
  return at(i).text();
}

Text Given::self_text() const { return printed(self, heap.budget()); }

Value invoke(Renderer& renderer, Heap& heap, const Builtin& builtin, Value self, Arguments arguments) {
  Given given(renderer, heap, self);
  const auto refuse = [&](const std::string& what) {
    throw Trouble(in_quotes(builtin.name) + " is called with " + what);
  };
  if (builtin.parameters == "*") {
    given.rest = std::move(arguments);
    return builtin.run(given);
  }
  const std::vector<std::string_view> names = words(builtin.parameters);
  given.values_.resize(names.size());
  if (arguments.positional.size() > names.size()) {
    refuse(std::to_string(arguments.positional.size()) + " arguments, more than it takes");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) given.values_[i] = {arguments.positional[i], true};
  for (const auto& [name, value] : arguments.named) {
    const auto at = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (at == names.size()) refuse("the argument " + in_quotes(name) + ", which it does not know");
    if (given.values_[at].second) refuse("the argument " + in_quotes(name) + " twice");
    given.values_[at] = {value, true};
  }
  for (size_t i = 0; i < builtin.n_required; ++i) {
    if (!given.has(i)) refuse("no argument " + in_quotes(names[i]));
  }
  return builtin.run(given);
}

const Builtin* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), number_filters(), list_filters(), choosing_filters()}) {
    if (const Builtin* found = find_in(table, name)) return found;
  }
  return nullptr;
}

const Builtin* find_text_method(std::string_view name) {
  for (const auto table : {text_search_methods(), text_change_methods(), text_kind_methods()}) {
    if (const Builtin* found = find_in(table, name)) return found;
  }
  return nullptr;
}

}  // namespace quire::jinja
