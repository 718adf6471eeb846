// Fuzz target of chat templates: any text either prints something, in which no byte of a message counts as
// the template's, or ends with an Error of one line. The input is a template, then, behind a NUL, the text of
// a message.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/jinja/template.h"

namespace {

using quire::jinja::DataList;
using quire::jinja::DataObject;
using quire::jinja::Origin;
using quire::jinja::Text;

// A letter that is taken out of templates, so that it can come from messages only.
constexpr char kMark = 'Q';

void require(bool condition) {
  if (!condition) std::abort();
}

DataObject values(const std::string& content) {
  DataObject user{{"role", "user"}, {"content", content}, {"n", int64_t{3}}, {"f", 2.5}, {"nil", nullptr}};
  DataObject assistant{
      {"role", "assistant"}, {"content", "Q<think>Q</think>Q"}, {"tags", DataList{"Qa", "Qb", true}}};
  DataObject all{{"messages", DataList{user, assistant, user}}, {"add_generation_prompt", true}};
  all.emplace_back("bos_token", Text("<s>", Origin::kTemplate));
  return all;
}

void check(const Text& text) {
  size_t n_bytes = 0;
  text.for_each_run([&](std::string_view run, Origin origin) {
    n_bytes += run.size();
    require(!run.empty());
    if (origin == Origin::kTemplate) require(run.find(kMark) == std::string_view::npos);
  });
  require(n_bytes == text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  const std::string_view input(reinterpret_cast<const char*>(data), n_bytes);
  const size_t end = std::min(input.find('\0'), input.size());
  std::string source(input.substr(0, end));
  // Also where an escape or a change of case would make it.
  for (char& c : source) {
    if (c == kMark || c == 'q') c = 'k';
  }
  if (source.find('\\') != std::string::npos) {
    for (size_t at = source.find('\\'); at != std::string::npos; at = source.find('\\', at + 1)) {
      if (at + 1 < source.size() && source[at + 1] != 'n') source[at + 1] = 'n';
    }
  }
  const std::string content(input.substr(std::min(end + 1, input.size())));
  quire::jinja::Limits limits;
  limits.steps = 100'000;
  limits.memory_bytes = 8 << 20;
  limits.output_bytes = 1 << 20;
  std::tm now{};
  now.tm_mday = 1;
  try {
    check(quire::jinja::Template::parse(source).render(values(content), now, limits));
  } catch (const quire::Error& error) {
    const std::string message = error.what();
    require(message.size() < 1000 && message.find('\n') == std::string::npos);
  }
  return 0;
}
