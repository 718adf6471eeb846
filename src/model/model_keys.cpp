#include "model/model_keys.h"

#include <cmath>
#include <type_traits>
#include <variant>

#include "base/error.h"

namespace quire {

namespace {

bool is_zero(const MetadataValue& value) {
  return std::visit(
      [](const auto& held) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(held)>>) return held == 0;
        return false;
      },
      value);
}

}  // namespace

ModelKeys::ModelKeys(const GgufFile& file)
    : file_(file), architecture_(file.get_string("general.architecture")), prefix_(architecture_ + ".") {}

const MetadataValue* ModelKeys::find(std::string_view name) {
  std::string key = full(name);
  const MetadataValue* value = file_.find(key);
  asked_.insert(std::move(key));
  return value;
}

size_t ModelKeys::count(std::string_view name, uint64_t most) {
  find(name);
  const uint64_t value = file_.get_uint(full(name));
  if (value < 1 || value > most) {
    refuse(full(name) + " is " + std::to_string(value) + ", outside 1 to " + std::to_string(most));
  }
  return value;
}

size_t ModelKeys::count_or(std::string_view name, uint64_t otherwise, uint64_t most) {
  return has(name) ? count(name, most) : otherwise;
}

double ModelKeys::number(std::string_view name) {
  find(name);
  return file_.get_float(full(name));
}

double ModelKeys::positive(std::string_view name) {
  const double value = number(name);
  if (!(value > 0) || !std::isfinite(value))
    refuse(full(name) + " is " + std::to_string(value) + ", not a positive number");
  return value;
}

double ModelKeys::positive_or(std::string_view name, double otherwise) {
  return has(name) ? positive(name) : otherwise;
}

double ModelKeys::positive_or_zero(std::string_view name, double otherwise) {
  return !has(name) ? otherwise : number(name) == 0 ? 0 : positive(name);
}

void ModelKeys::refuse(const std::string& what) const { throw Error(file_.path() + ": " + what); }

void ModelKeys::refuse_rest() const {
  for (const MetadataEntry& entry : file_.metadata()) {
    if (!entry.key.starts_with(prefix_) || asked_.contains(entry.key) || is_zero(entry.value)) continue;
    refuse(std::string(entry.key.substr(0, 80)) + " is not understood, and the model may need it");
  }
}

}  // namespace quire
