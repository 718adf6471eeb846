// What a template is given: JSON's kinds of values, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/text.h"

namespace quire::jinja {

struct Data;
using DataList = std::vector<Data>;
using DataObject = std::vector<std::pair<std::string, Data>>;  // keys in their order, each once

struct Data {
  std::variant<std::nullptr_t, bool, int64_t, double, Text, DataList, DataObject> value = nullptr;

  Data() = default;
  Data(std::nullptr_t) {}
  Data(bool b) : value(b) {}
  Data(int64_t i) : value(i) {}
  Data(double d) : value(d) {}
  Data(Text text) : value(std::move(text)) {}
  Data(std::string text) : value(Text(std::move(text), Origin::kOutside)) {}
  Data(const char* text) : Data(std::string(text)) {}
  Data(DataList list) : value(std::move(list)) {}
  Data(DataObject object) : value(std::move(object)) {}
};

// The value that a JSON text says; its strings are from outside, and of a key that comes twice the last
// counts. `name` stands for the text in messages. Throws Error of one sentence for what is no JSON, nests
// deeper than 100 levels or has an integer beyond 64 bits.
Data data_from_json(std::string_view json, const std::string& name);

}  // namespace quire::jinja
