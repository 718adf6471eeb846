#include "study/ruler.h"

#include <algorithm>

#include "base/error.h"
#include "study/chance.h"
#include "study/haystack.h"
#include "study/ruler_generate.h"
#include "study/ruler_score.h"
#include "study/stepper.h"
#include "study/words.h"
#include "text/utf8_stream.h"

namespace quire {
namespace {

// A sample in tokens.
struct Prompt {
  Tokens context;
  Tokens question;  // and prefix
  Tokens answer;
};

Prompt encode(const Tokenizer& tokenizer, const RulerSample& sample) {
  Prompt prompt;
  if (tokenizer.add_bos() && tokenizer.bos_id()) prompt.context.push_back(*tokenizer.bos_id());
  tokenizer.encode_append(sample.context, ControlTokens::kAsText, prompt.context);
  prompt.question = tokenizer.encode(concat({sample.question, sample.answer_prefix}), ControlTokens::kAsText);
  prompt.answer = tokenizer.encode(sample.answer, ControlTokens::kAsText);
  return prompt;
}

// Of what one recipe does on the samples of one task and length.
class Asker {
 public:
  Asker(Engine& engine, Stepper& stepper, const Recipe& recipe)
      : engine_(engine), stepper_(stepper), recipe_(recipe) {}

  RulerAnswer ask(const RulerSample& sample, CacheTally& tally) {
    const Prompt prompt = encode(engine_.tokenizer(), sample);
    Cache cache = engine_.make_cache(recipe_);
    stepper_.prefill(cache, prompt.context);
    stepper_.decode(cache, prompt.question, tally);
    const std::vector<float> logits(stepper_.logits().begin(), stepper_.logits().end());
    RulerAnswer answer;
    answer.sample = sample;
    answer.sample.context.clear();
    Cache fork = cache.fork();
    const AnswerScore score = stepper_.score(fork, prompt.answer, tally);
    answer.nll = score.nll;
    answer.answer_tokens = score.n_tokens;
    answer.prediction = generate(cache, next_token(logits), sample.task->max_new_tokens, tally);
    answer.match = match_all(answer.prediction, sample.answers);
    tally.add_size(cache);
    return answer;
  }

 private:
  // Some models have logits for more tokens than there are texts.
  int32_t next_token(std::span<const float> logits) const {
    return static_cast<int32_t>(most_likely(logits.first(static_cast<size_t>(engine_.tokenizer().size()))));
  }

  std::string generate(Cache& cache, int32_t token, size_t n_most, CacheTally& tally) {
    const Tokenizer& tokenizer = engine_.tokenizer();
    Tokens said;
    while (!tokenizer.is_end_of_generation(token)) {
      said.push_back(token);
      if (said.size() == n_most) break;
      stepper_.decode(cache, {&token, 1}, tally);
      token = next_token(stepper_.logits());
    }
    Utf8Stream stream;
    std::string text = stream.push(tokenizer.decode(said));
    return text + stream.flush();
  }

  Engine& engine_;
  Stepper& stepper_;
  const Recipe& recipe_;
};

void summarise(RulerRow& row, const CacheTally& tally) {
  double nll = 0;
  size_t n_tokens = 0;
  for (const RulerAnswer& answer : row.answers) {
    row.score += 100 * answer.match / static_cast<double>(row.answers.size());
    nll += answer.nll;
    n_tokens += answer.answer_tokens;
  }
  row.nll = nll / static_cast<double>(n_tokens);
  row.bits_per_value = tally.bits_per_value();
  row.rows_read_per_token = tally.rows_per_token();
  row.bytes_read_per_token = tally.bytes_per_token();
}

class Benchmark {
 public:
  Benchmark(Engine& engine, std::string_view prose, const RulerOptions& options)
      : engine_(engine), stepper_(engine), material_(prose), options_(options) {
    n_all_ = options.recipes.size() * options.length_tokens.size() * options.tasks.size() * options.n_samples;
  }

  // Makes one sample of each task and length, so that what does not fit is said before anything is computed.
  void try_samples() const {
    for (const size_t length : options_.length_tokens) {
      if (length > engine_.config().context_tokens) {
        throw Error("a length of " + std::to_string(length) + " tokens is more than the model's context of " +
                    std::to_string(engine_.config().context_tokens));
      }
      for (const RulerTask* task : options_.tasks) sample(*task, length, 0);
    }
  }

  std::vector<RulerRow> run() {
    std::vector<RulerRow> rows;
    for (const Recipe& recipe : options_.recipes) {
      for (const size_t length : options_.length_tokens) {
        for (const RulerTask* task : options_.tasks) rows.push_back(row(recipe, length, *task));
      }
    }
    return rows;
  }

 private:
  RulerSample sample(const RulerTask& task, size_t length, size_t number) const {
    const auto index = static_cast<uint64_t>(&task - ruler_tasks().data());
    const uint64_t seed = random_of(options_.seed, index * kMostSamples + number, length).next();
    const Tokenizer& tokenizer = engine_.tokenizer();
    const size_t n_begin = tokenizer.add_bos() && tokenizer.bos_id() ? 1 : 0;
    return make_ruler_sample(task, material_, length, seed, [&](std::string_view text) {
      return n_begin + tokenizer.encode(text, ControlTokens::kAsText).size();
    });
  }

  RulerRow row(const Recipe& recipe, size_t length, const RulerTask& task) {
    RulerRow row;
    row.recipe = recipe;
    row.length_tokens = length;
    row.task = &task;
    CacheTally tally;
    Asker asker(engine_, stepper_, recipe);
    for (size_t i = 0; i < options_.n_samples; ++i) {
      row.answers.push_back(asker.ask(sample(task, length, i), tally));
      if (options_.progress) options_.progress(static_cast<double>(++n_asked_) / static_cast<double>(n_all_));
    }
    summarise(row, tally);
    return row;
  }

  static constexpr uint64_t kMostSamples = uint64_t{1}
                                           << 32;  // parts the numbers of one task from the next's

  Engine& engine_;
  Stepper stepper_;
  RulerMaterial material_;
  const RulerOptions& options_;
  size_t n_all_ = 0;
  size_t n_asked_ = 0;
};

}  // namespace

std::vector<RulerRow> measure_ruler(Engine& engine, std::string_view prose, const RulerOptions& options) {
  if (options.recipes.empty()) throw Error("there is no recipe to compare");
  if (options.tasks.empty() || options.length_tokens.empty() || options.n_samples == 0) {
    throw Error("the benchmark needs a task, a length and a sample");
  }
  Benchmark benchmark(engine, prose, options);
  benchmark.try_samples();
  return benchmark.run();
}

}  // namespace quire
