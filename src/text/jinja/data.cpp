#include "text/jinja/data.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"

namespace quire::jinja {
namespace {

constexpr size_t kMostNesting = 100;

// Called by the parser with one event after the other: no tree of its own, and no recursion.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  Data take() { return std::move(root_); }

  bool null() override { return add(Data()); }
  bool boolean(bool b) override { return add(Data(b)); }
  bool number_integer(int64_t i) override { return add(Data(i)); }
  bool number_unsigned(uint64_t u) override {
    if (u > static_cast<uint64_t>(INT64_MAX))
      throw Error(name_ + ": the number " + std::to_string(u) + " is too large");
    return add(Data(static_cast<int64_t>(u)));
  }
  bool number_float(double d, const std::string&) override { return add(Data(d)); }
  bool string(std::string& text) override { return add(Data(std::move(text))); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Data(DataObject())); }
  bool key(std::string& key) override {
    keys_.back() = std::move(key);
    return true;
  }
  bool end_object() override {
    keep_last_of_each_key(std::get<DataObject>(open_.back().value));
    return close();
  }
  bool start_array(size_t) override { return open(Data(DataList())); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw Error(name_ + " is no JSON: byte " + std::to_string(position) + " does not belong there");
  }

 private:
  // A key keeps the place where it first stood, as in Python's dict.
  static void keep_last_of_each_key(DataObject& object) {
    std::unordered_map<std::string_view, size_t> first;
    std::vector<size_t> target(object.size());
    bool twice = false;
    for (size_t i = 0; i < object.size(); ++i) {
      target[i] = first.emplace(object[i].first, i).first->second;
      twice = twice || target[i] != i;
    }
    if (!twice) return;
    DataObject kept;
    std::vector<size_t> place(object.size());
    for (size_t i = 0; i < object.size(); ++i) {
      if (target[i] == i) {
        place[i] = kept.size();
        kept.emplace_back(object[i].first, Data());
      }
      kept[place[target[i]]].second = std::move(object[i].second);
    }
    object = std::move(kept);
  }

  bool open(Data data) {
    if (open_.size() >= kMostNesting)
      throw Error(name_ + " nests deeper than " + std::to_string(kMostNesting) + " levels");
    open_.push_back(std::move(data));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    Data done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return add(std::move(done));
  }
  bool add(Data data) {
    if (open_.empty()) {
      root_ = std::move(data);
    } else if (auto* list = std::get_if<DataList>(&open_.back().value)) {
      list->push_back(std::move(data));
    } else {
      std::get<DataObject>(open_.back().value).emplace_back(std::move(keys_.back()), std::move(data));
    }
    return true;
  }

  const std::string& name_;
  Data root_;
  std::vector<Data> open_;
  std::vector<std::string> keys_;  // of each that is open: the key that waits for its value
};

}  // namespace

Data data_from_json(std::string_view json, const std::string& name) {
  Reader reader(name);
  if (!nlohmann::json::sax_parse(json, &reader)) throw Error(name + " is no JSON");
  return reader.take();
}

}  // namespace quire::jinja
