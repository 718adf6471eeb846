#include "butler_texts.h"

#include <algorithm>

#include "base/error.h"
#include "options.h"
#include "study/shared_text.h"
#include "terminal.h"

namespace quire::cli {
namespace {

// Texts of one kind have a sentence, a licence or a pattern of code in common; beyond so much of the
// validation it is the same text.
constexpr double kMostShared = 0.01;

size_t longest_of(const std::vector<Tokens>& texts) {
  const auto shorter = [](const Tokens& a, const Tokens& b) { return a.size() < b.size(); };
  return static_cast<size_t>(std::max_element(texts.begin(), texts.end(), shorter) - texts.begin());
}

Tokens take_validation(Tokens& longest, size_t n_sequences, size_t seq) {
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

void check_different(const std::vector<std::string>& files, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (texts[i] != texts[k]) continue;
      throw Error("-f " + printable(files[i]) + " is the text of -f " + printable(files[k]) +
                  ": each text is to be given once");
    }
  }
}

// others: what is trained on, but for the text that the validation was cut from.
void check_unseen(const Tokens& validation, const std::string& name, const std::vector<Tokens>& others,
                  const std::vector<std::string>& files) {
  const SharedText shared = shared_text(validation, others);
  if (shared.n_shared == 0) return;
  const std::string how_much = fixed(shared.share() * 100, 2) + " % of " + name + " (" +
                               std::to_string(shared.n_shared) + " of " + std::to_string(shared.n_windows) +
                               " runs of " + std::to_string(std::min(kSharedTokens, validation.size())) +
                               " tokens)";
  if (shared.share() <= kMostShared) return write_note(how_much + " stand in what is trained on too");
  throw Error(how_much + " stand in -f " + printable(files[shared.text]) +
              " too: validation would be on what was trained on");
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
  std::vector<std::string> read;
  for (const std::string& file : files) read.push_back(read_file(file));
  check_different(files, read);
  ButlerTexts texts;
  for (const std::string& text : read) texts.training.push_back(encode(text));
  if (!validation.empty()) {
    texts.validation = encode(read_file(validation));
    check_unseen(texts.validation, "--val " + printable(validation), texts.training, files);
    return texts;
  }
  const size_t longest = longest_of(texts.training);
  texts.validation = take_validation(texts.training[longest], n_sequences, seq);
  std::vector<Tokens> others = texts.training;
  others[longest].clear();
  check_unseen(texts.validation, "the end of " + printable(files[longest]) + ", which validation takes,",
               others, files);
  return texts;
}

}  // namespace quire::cli
