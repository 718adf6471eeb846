// Variable tracking: a chain of assignments among noise, and all variables that have its value.
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "study/chance.h"
#include "study/ruler_generate.h"
#include "study/words.h"

namespace quire {
namespace {

constexpr size_t kVariables = kVariableHops + 1;
constexpr size_t kVariableLetters = 5;
constexpr int kValueDigits = 5;
// Lines of noise in the example before the text; one for each of so many tokens of a short prompt.
constexpr size_t kExampleNoise = 10;
constexpr size_t kTokensPerExampleLine = 256;

struct Chain {
  std::string value;
  std::vector<std::string> names;
  std::vector<std::string> statements;
};

Chain make_chain(Random& random, std::unordered_set<std::string>& used) {
  Chain chain;
  do chain.value = decimal_number(random, kValueDigits);
  while (!used.insert(chain.value).second);
  while (chain.names.size() < kVariables) {
    std::string name = letters(random, kVariableLetters, 'A');
    if (used.insert(name).second) chain.names.push_back(std::move(name));
  }
  for (size_t i = 0; i < kVariables; ++i) {
    const std::string& source = i == 0 ? chain.value : chain.names[i - 1];
    chain.statements.push_back(concat({"LET ", chain.names[i], " = ", source, "."}));
  }
  return chain;
}

// The statements in their order, each on a line of its own.
std::string hide_chain(const Chain& chain, Random& random, size_t n_noise) {
  std::vector<size_t> places = choose(random, n_noise + chain.statements.size(), chain.statements.size());
  std::sort(places.begin(), places.end());
  std::vector<std::string> lines(n_noise + chain.statements.size(), std::string(noise_line()));
  for (size_t i = 0; i < places.size(); ++i) lines[places[i]] = chain.statements[i];
  return join(lines, "\n");
}

std::string context_of(const Chain& chain, Random& random, size_t n_noise) {
  return concat({"Follow the assignments of variables that are hidden in this text.\n\n",
                 hide_chain(chain, random, n_noise), "\n"});
}

std::string question_of(const Chain& chain) {
  return concat({"Question: Which variables of the text have the value ", chain.value,
                 ", directly or by way of others?"});
}

std::string prefix_of(const Chain& chain) {
  return concat({" Answer: By the assignments of the text ", std::to_string(kVariables),
                 " variables have the value ", chain.value, ", namely"});
}

}  // namespace

RulerSample make_variables(size_t length_tokens, Random& random, size_t n_hay) {
  std::unordered_set<std::string> used;
  const Chain example = make_chain(random, used);
  const Chain chain = make_chain(random, used);
  const size_t n_example = std::clamp<size_t>(length_tokens / kTokensPerExampleLine, 1, kExampleNoise);
  RulerSample sample;
  sample.context = concat({context_of(example, random, n_example), question_of(example), prefix_of(example),
                           " ", join(example.names, " "), "\n\n", context_of(chain, random, n_hay)});
  sample.question = question_of(chain);
  sample.answer_prefix = prefix_of(chain);
  sample.answers = chain.names;
  sample.answer = concat({" ", join(chain.names, " ")});
  return sample;
}

}  // namespace quire
