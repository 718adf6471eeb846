// Our templates against what PyPI `jinja2` prints in the settings of transformers (freeze.py).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/jinja/template.h"

namespace quire::jinja {
namespace {

using Json = nlohmann::json;

const std::string kData = QUIRE_SOURCE_DIR "/tests/golden/jinja/data/";

// 2024-07-26 14:05:09, a Friday; freeze.py has the same.
std::tm frozen_time() {
  std::tm time{};
  time.tm_year = 124;
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 14;
  time.tm_min = 5;
  time.tm_sec = 9;
  time.tm_wday = 5;
  time.tm_yday = 207;
  return time;
}

DataObject object_from(const std::string& json) {
  return std::get<DataObject>(data_from_json(json, "the context").value);
}

std::string render(const std::string& source, const DataObject& context) {
  return Template::parse(source).render(context, frozen_time()).bytes();
}

// Lines of JSON, see freeze.py.
void check_file(const std::string& name, size_t n_expected) {
  std::ifstream in(kData + name);
  ASSERT_TRUE(in) << name;
  std::map<std::string, std::string> sources;
  DataObject context;
  size_t n = 0;
  for (std::string line; std::getline(in, line); ++n) {
    const Json frozen = Json::parse(line);
    if (frozen.contains("source")) sources[frozen["name"]] = frozen["source"];
    const std::string title = frozen.value("name", "");
    const std::string source =
        frozen.contains("template") ? frozen["template"].get<std::string>() : sources[title];
    if (frozen.contains("context")) context = object_from(frozen["context"].get<std::string>());
    if (frozen.contains("text")) {
      try {
        EXPECT_EQ(render(source, context), frozen["text"].get<std::string>()) << title << "\n" << source;
      } catch (const Error& error) {
        ADD_FAILURE() << title << ": " << error.what() << "\n" << source << "\n" << line.substr(0, 600);
      }
    } else {
      EXPECT_THROW(render(source, context), Error) << title << "\n" << source << "\n" << frozen["error"];
    }
  }
  EXPECT_GE(n, n_expected) << name;
}

TEST(GoldenJinja, ExpressionsAndTags) { check_file("small.jsonl", 300); }
TEST(GoldenJinja, ChatTemplates) { check_file("chat.jsonl", 400); }

}  // namespace
}  // namespace quire::jinja
