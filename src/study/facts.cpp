#include "study/facts.h"

#include <unordered_set>

#include "base/error.h"
#include "study/chance.h"
#include "study/words.h"

namespace quire {
namespace {

// Of the salt that parts facts from other things made of the same seed.
constexpr uint64_t kSalt = 0xfac75;

Fact number_fact(Random& random, std::string_view name) {
  Fact fact{FactKind::kNumber, {}, {}, {}};
  fact.question = concat({"The ", pick(random, place_nouns()), " code of ", name, " is"});
  fact.answer = concat({" ", decimal_number(random, 5)});
  fact.statement = concat({fact.question, fact.answer, "."});
  return fact;
}

Fact words_fact(Random& random, std::string_view name) {
  Fact fact{FactKind::kWords, {}, {}, {}};
  fact.question = concat({"The ", pick(random, place_nouns()), " password of ", name, " is"});
  fact.answer =
      concat({" ", pick(random, adjectives()), " ", pick(random, nouns()), " ", pick(random, nouns())});
  fact.statement = concat({fact.question, fact.answer, "."});
  return fact;
}

Fact quote_fact(Random& random, std::string_view name) {
  Fact fact{FactKind::kQuote, {}, {}, {}};
  fact.question = concat(
      {"Passing the ", pick(random, adjectives()), " ", pick(random, place_nouns()), ", ", name, " said:"});
  fact.answer = concat({" \"The ", pick(random, adjectives()), " ", pick(random, nouns()), " was ",
                        pick(random, past_verbs()), " by ", pick(random, number_words()), " ",
                        pick(random, adjectives()), " ", pick(random, plural_beings())});
  fact.statement = concat({fact.question, fact.answer, ".\""});
  return fact;
}

Fact make_fact(Random& random, FactKind kind, std::string_view name) {
  switch (kind) {
    case FactKind::kNumber: return number_fact(random, name);
    case FactKind::kWords: return words_fact(random, name);
    case FactKind::kQuote: break;
  }
  return quote_fact(random, name);
}

}  // namespace

const char* fact_kind_name(FactKind kind) {
  switch (kind) {
    case FactKind::kNumber: return "numbers";
    case FactKind::kWords: return "words";
    case FactKind::kQuote: break;
  }
  return "quotes";
}

std::vector<Fact> make_facts(uint64_t seed, size_t n) {
  QUIRE_CHECK(n <= kMostFacts && first_names().size() == kMostFacts);
  Random random = random_of(seed, kSalt);
  const std::vector<size_t> names = choose(random, kMostFacts, n);
  std::unordered_set<std::string> answers;
  std::vector<Fact> facts;
  while (facts.size() < n) {
    const FactKind kind = kFactKinds[facts.size() % kFactKinds.size()];
    Fact fact = make_fact(random, kind, first_names()[names[facts.size()]]);
    if (answers.insert(fact.answer).second) facts.push_back(std::move(fact));
  }
  return facts;
}

}  // namespace quire
