#include "butler_texts.h"

#include <algorithm>

#include "base/error.h"
#include "options.h"
#include "terminal.h"

namespace quire::cli {
namespace {

Tokens take_validation(std::vector<Tokens>& texts, size_t n_sequences, size_t seq) {
  Tokens& longest = *std::max_element(texts.begin(), texts.end(),
                                      [](const Tokens& a, const Tokens& b) { return a.size() < b.size(); });
  const size_t n = std::min(longest.size() / 4, std::max(longest.size() / 20, n_sequences * seq));
  if (n < seq) {
    throw Error("a quarter of the longest text, which validation takes, has " + std::to_string(n) +
                " tokens; a sequence needs " + std::to_string(seq) +
                ": give more text, or another with --val");
  }
  Tokens validation(longest.end() - static_cast<ptrdiff_t>(n), longest.end());
  longest.resize(longest.size() - n);
  return validation;
}

}  // namespace

size_t ButlerTexts::n_tokens() const {
  size_t n = 0;
  for (const Tokens& text : training) n += text.size();
  return n;
}

ButlerTexts read_butler_texts(const std::vector<std::string>& files, const std::string& validation,
                              size_t n_sequences, size_t seq, const Engine& engine) {
  const auto encode = [&](const std::string& text) {
    return engine.tokenizer().encode(text, ControlTokens::kAsText);
  };
  const std::string validation_text = validation.empty() ? std::string() : read_file(validation);
  ButlerTexts texts;
  for (const std::string& file : files) {
    const std::string text = read_file(file);
    if (!validation.empty() && text == validation_text) {
      throw Error("--val " + printable(validation) + " is the text of -f " + printable(file) +
                  ": validation would be on what was trained on");
    }
    texts.training.push_back(encode(text));
  }
  texts.validation =
      validation.empty() ? take_validation(texts.training, n_sequences, seq) : encode(validation_text);
  return texts;
}

}  // namespace quire::cli
