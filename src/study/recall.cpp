#include "study/recall.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"
#include "study/chance.h"
#include "study/haystack.h"
#include "study/stepper.h"
#include "study/words.h"

namespace quire {
namespace {

constexpr uint64_t kHaystackSalt = 0x57a27;
constexpr uint64_t kPlaceSalt = 0x91ace;

// A fact in tokens.
struct Question {
  FactKind kind;
  Tokens statement;
  Tokens question;
  Tokens answer;
};

// A question is a paragraph of its own, whatever the haystack ends with.
std::vector<Question> make_questions(const TokenText& text, const Tokenizer& tokenizer, uint64_t seed,
                                     size_t n) {
  std::vector<Question> questions;
  for (const Fact& fact : make_facts(seed, n)) {
    questions.push_back({fact.kind, text.encode(fact.statement),
                         tokenizer.encode(concat({"\n\n", fact.question}), ControlTokens::kAsText),
                         tokenizer.encode(fact.answer, ControlTokens::kAsText)});
  }
  return questions;
}

size_t longest_question(const std::vector<Question>& questions) {
  size_t longest = 0;
  for (const Question& question : questions) longest = std::max(longest, question.question.size());
  return longest;
}

size_t longest_answer(const std::vector<Question>& questions) {
  size_t longest = 0;
  for (const Question& question : questions) longest = std::max(longest, question.answer.size());
  return longest;
}

// The haystacks of a seed and length, and what is asked behind them.
struct Trial {
  std::vector<Question> questions;
  Tokens with_facts;
  Tokens without;
};

void check_lengths(const Engine& engine, const TokenText& text, const std::vector<Question>& questions,
                   size_t n_prompt) {
  size_t n_least = longest_question(questions) + 1;
  for (const Question& question : questions) n_least += question.statement.size();
  if (n_prompt <= n_least) {
    throw Error(std::to_string(questions.size()) + " facts do not fit into a prompt of " +
                std::to_string(n_prompt) + " tokens; they need more than " + std::to_string(n_least));
  }
  const size_t n_context = n_prompt + longest_answer(questions);
  if (n_context > engine.config().context_tokens) {
    throw Error("a prompt of " + std::to_string(n_prompt) + " tokens and an answer are " +
                std::to_string(n_context) + ", more than the model's context of " +
                std::to_string(engine.config().context_tokens));
  }
  if (text.n_tokens() < n_prompt) {
    throw Error("the text has " + std::to_string(text.n_tokens()) + " tokens, too few for a prompt of " +
                std::to_string(n_prompt));
  }
}

Trial make_trial(const Engine& engine, const TokenText& text, uint64_t seed, size_t n_facts,
                 size_t n_prompt) {
  const Tokenizer& tokenizer = engine.tokenizer();
  Trial trial{make_questions(text, tokenizer, seed, n_facts), {}, {}};
  check_lengths(engine, text, trial.questions, n_prompt);
  const bool begins = tokenizer.add_bos() && tokenizer.bos_id();
  const size_t n_haystack = n_prompt - longest_question(trial.questions) - size_t{begins};
  Random start_random = random_of(seed, kHaystackSalt);
  const size_t start = below(start_random, text.last_start(n_haystack) + 1);
  std::vector<Tokens> statements;
  for (const Question& question : trial.questions) statements.push_back(question.statement);
  Random random = random_of(seed, kPlaceSalt);
  trial.with_facts = plant(text, start, statements, n_haystack, random);
  trial.without = plant(text, start, {}, n_haystack, random);
  if (begins) trial.with_facts.insert(trial.with_facts.begin(), *tokenizer.bos_id());
  if (begins) trial.without.insert(trial.without.begin(), *tokenizer.bos_id());
  return trial;
}

// What was seen of one recipe, or of the haystacks without facts.
struct RecallRun {
  Recipe recipe;
  CacheTally tally;
  std::vector<AnswerScore> answers;  // in the order asked: seed, length, fact
};

// Which answers a score is of.
struct Answered {
  FactKind kind;
  size_t length;  // index of options.prompt_tokens
};

class RecallMeasurement {
 public:
  RecallMeasurement(Engine& engine, const RecallOptions& options)
      : engine_(engine), stepper_(engine), options_(options) {
    run_of(Recipe{});
    for (const Recipe& recipe : options.recipes) rows_.push_back(run_of(recipe));
  }

  void measure(const TokenText& text) {
    // So that what is wrong with a length is said before the first is computed.
    for (const size_t n : options_.prompt_tokens)
      make_trial(engine_, text, options_.seed, options_.n_facts, n);
    for (size_t i = 0; i < options_.n_seeds; ++i) {
      for (size_t length = 0; length < options_.prompt_tokens.size(); ++length) {
        ask_all(
            make_trial(engine_, text, options_.seed + i, options_.n_facts, options_.prompt_tokens[length]),
            length);
      }
    }
  }

  std::vector<Recall> rows() const {
    std::vector<Recall> rows;
    for (const size_t run : rows_) rows.push_back(row(runs_[run]));
    return rows;
  }

 private:
  size_t run_of(const Recipe& recipe) {
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].recipe == recipe) return i;
    }
    runs_.push_back({recipe, {}, {}});
    return runs_.size() - 1;
  }

  void ask_all(const Trial& trial, size_t length) {
    for (const Question& question : trial.questions) answered_.push_back({question.kind, length});
    ask(without_, trial.without, trial.questions);
    for (RecallRun& run : runs_) ask(run, trial.with_facts, trial.questions);
  }

  void ask(RecallRun& run, const Tokens& haystack, const std::vector<Question>& questions) {
    Cache cache = engine_.make_cache(run.recipe);
    stepper_.prefill(cache, haystack);
    for (const Question& question : questions) {
      Cache fork = cache.fork();
      stepper_.decode(fork, question.question, run.tally);
      run.answers.push_back(stepper_.score(fork, question.answer, run.tally));
      run.tally.add_size(fork);
      show_progress();
    }
  }

  void show_progress() {
    const size_t n_all =
        options_.n_seeds * options_.prompt_tokens.size() * (runs_.size() + 1) * options_.n_facts;
    if (options_.progress) options_.progress(static_cast<double>(++n_asked_) / static_cast<double>(n_all));
  }

  template <typename Wanted>
  RecallScore score_of(const RecallRun& run, const Wanted& wanted) const {
    RecallScore score;
    for (size_t i = 0; i < answered_.size(); ++i) {
      if (!wanted(answered_[i])) continue;
      ++score.n_answers;
      score.n_tokens += run.answers[i].n_tokens;
      score.nll += run.answers[i].nll;
      score.nll_full += runs_[0].answers[i].nll;
      score.nll_without += without_.answers[i].nll;
      score.exact += run.answers[i].is_exact;
    }
    for (double* sum : {&score.nll, &score.nll_full, &score.nll_without})
      *sum /= static_cast<double>(score.n_tokens);
    score.exact /= static_cast<double>(score.n_answers);
    return score;
  }

  Recall row(const RecallRun& run) const {
    Recall row;
    row.recipe = run.recipe;
    row.all = score_of(run, [](const Answered&) { return true; });
    for (size_t length = 0; length < options_.prompt_tokens.size(); ++length) {
      row.by_length.push_back(
          score_of(run, [&](const Answered& answered) { return answered.length == length; }));
    }
    for (const FactKind kind : kFactKinds) {
      row.by_kind[static_cast<size_t>(kind)] =
          score_of(run, [&](const Answered& answered) { return answered.kind == kind; });
    }
    row.bits_per_value = run.tally.bits_per_value();
    row.rows_read_per_token = run.tally.rows_per_token();
    row.bytes_read_per_token = run.tally.bytes_per_token();
    return row;
  }

  Engine& engine_;
  Stepper stepper_;
  const RecallOptions& options_;
  RecallRun without_;            // `full`, of haystacks without facts
  std::vector<RecallRun> runs_;  // the first is `full`
  std::vector<size_t> rows_;     // [recipe asked for] its run
  std::vector<Answered> answered_;
  size_t n_asked_ = 0;
};

void check(const RecallOptions& options) {
  if (options.recipes.empty()) throw Error("there is no recipe to compare");
  if (options.prompt_tokens.empty() || options.n_seeds == 0 || options.n_facts == 0) {
    throw Error("recall needs a prompt length, a seed and a fact");
  }
  if (options.n_facts > kMostFacts) {
    throw Error(std::to_string(options.n_facts) + " facts are more than the " + std::to_string(kMostFacts) +
                " that there are");
  }
}

}  // namespace

double RecallScore::score() const {
  const double use = nll_without - nll_full;
  return use > 0 ? (nll_without - nll) / use : std::numeric_limits<double>::quiet_NaN();
}

std::vector<Recall> measure_recall(Engine& engine, std::string_view text, const RecallOptions& options) {
  check(options);
  const TokenText tokens(engine.tokenizer(), text);
  RecallMeasurement measurement(engine, options);
  measurement.measure(tokens);
  return measurement.rows();
}

}  // namespace quire
