#include "text/jinja/template.h"

#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"
#include "text/jinja/renderer.h"

namespace quire::jinja {

Template Template::parse(std::string_view source) {
  Template made;
  made.ast_ = std::make_shared<const Ast>(jinja::parse(source));
  return made;
}

Text Template::render(const DataObject& values, const std::tm& now, const Limits& limits) const {
  Budget budget(limits);
  Heap heap(budget);
  const Moment moment{[&](const char* format) {
    char text[1000];
    return std::string(text, std::strftime(text, sizeof text, format, &now));
  }};
  int line = 1;
  try {
    Renderer renderer(*ast_, heap, moment);
    try {
      for (const auto& [name, value] : values) renderer.set(name, heap.from_data(value));
      return renderer.run();
    } catch (const Trouble&) {
      line = renderer.line();
      throw;
    }
  } catch (const Trouble& trouble) {
    fail_at(line, trouble.what());
  }
}

Text Template::render(const DataObject& values) const {
  const std::time_t seconds = std::time(nullptr);
  std::tm now{};
  localtime_r(&seconds, &now);
  return render(values, now);
}

}  // namespace quire::jinja
