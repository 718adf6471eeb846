#include "study/sentences.h"

#include <algorithm>
#include <array>

namespace quire {
namespace {

constexpr std::array<std::string_view, 8> kTitles = {"Mr.", "Mrs.", "Ms.", "Dr.",
                                                     "St.", "Esq.", "No.", "Col."};
constexpr std::string_view kCloseQuote = "\xe2\x80\x9d";  // U+201D

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The words of the text: what stands between white space.
std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t i = 0; i < text.size();) {
    if (is_space(text[i])) {
      ++i;
      continue;
    }
    const size_t first = i;
    while (i < text.size() && !is_space(text[i])) ++i;
    words.push_back(text.substr(first, i - first));
  }
  return words;
}

std::string_view without_closing(std::string_view word) {
  while (!word.empty()) {
    if (word.ends_with(kCloseQuote)) {
      word.remove_suffix(kCloseQuote.size());
    } else if (std::string_view("\"')]_*").find(word.back()) != std::string_view::npos) {
      word.remove_suffix(1);
    } else {
      break;
    }
  }
  return word;
}

bool ends_sentence(std::string_view word, std::string_view next) {
  const std::string_view bare = without_closing(word);
  if (bare.empty() || std::string_view(".!?").find(bare.back()) == std::string_view::npos) return false;
  if (std::find(kTitles.begin(), kTitles.end(), bare) != kTitles.end()) return false;
  return next.empty() || next.front() < 'a' || next.front() > 'z';
}

}  // namespace

std::vector<std::string> split_sentences(std::string_view text) {
  const std::vector<std::string_view> words = split_words(text);
  std::vector<std::string> sentences;
  std::string sentence;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!sentence.empty()) sentence += ' ';
    sentence += words[i];
    const bool is_last = i + 1 == words.size();
    if (is_last || ends_sentence(words[i], words[i + 1]) || sentence.size() >= kLongestSentenceBytes) {
      sentences.push_back(std::move(sentence));
      sentence.clear();
    }
  }
  return sentences;
}

}  // namespace quire
