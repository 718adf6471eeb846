// Facts to plant in a text and to ask for: numbers, words and quotes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace quire {

enum class FactKind : uint8_t { kNumber, kWords, kQuote };
constexpr std::array<FactKind, 3> kFactKinds = {FactKind::kNumber, FactKind::kWords, FactKind::kQuote};

// "numbers", "words", "quotes"
const char* fact_kind_name(FactKind kind);

// Every fact is of another person, so that there are no more than names.
constexpr size_t kMostFacts = 64;

// The question is the beginning of the statement, and the answer is how it goes on:
//   number  The harbour code of Petra is| 48213.
//   words   The cellar password of Otto is| marble kettle raven.
//   quote   Passing the old mill, Ilse said:| "The pale drum was stolen by six quiet sailors."
// Answers stand without the full stop of the statement; that of a quote goes on to its last word.
struct Fact {
  FactKind kind;
  std::string statement;  // a sentence
  std::string question;   // statement.starts_with(question + answer)
  std::string answer;     // with the blank before it
};

// n <= kMostFacts facts: kinds in turn, names and answers all different. The same for a seed.
std::vector<Fact> make_facts(uint64_t seed, size_t n);

}  // namespace quire
