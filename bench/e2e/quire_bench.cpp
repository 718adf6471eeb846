// quire_bench: tokens per second of prefill and of decode at a depth, without the cost of loading.
//
//   quire_bench -m MODEL -t 2 --prefill 512 [--repeats 5]           {"prefill_tokens_per_s": median, ...}
//   quire_bench -m MODEL -t 2 --depth 4096 --decode 32              {"decode_tokens_per_s": median, ...}
//   quire_bench -m MODEL -t 2 --depth 0,4096,8000 --decode 32       a list with one such object for each
//   depth
//
// As llama-bench counts: a prefill ends with the logits of its last token, a decode step with those of its
// token; tokens are random ids; one warm-up is not counted.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory.h"
#include "cache/cache.h"
#include "engine/engine.h"
#include "engine/random.h"

namespace {

using namespace quire;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string model;
  std::string recipe = "full";
  int threads = 0;
  bool precise = false;
  bool json = false;
  size_t prefill = 0;
  size_t decode = 0;
  std::vector<size_t> depths = {0};
  size_t repeats = 3;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

class Bench {
 public:
  Bench(Engine& engine, const Options& options)
      : engine_(engine),
        options_(options),
        cache_(engine.make_cache(Recipe::parse(options.recipe))),
        logits_(engine.config().vocabulary) {}

  Json time_prefill() {
    const size_t n = options_.prefill;
    check_depth(n);
    const std::vector<int32_t> tokens = random_tokens(n);
    std::vector<double> rates;
    for (size_t repeat = 0; repeat <= options_.repeats; ++repeat) {
      cache_.crop(0);
      const auto start = Clock::now();
      step(tokens);
      if (repeat > 0) rates.push_back(rate(n, start));
    }
    return report("prefill_tokens_per_s", rates, "prefill_tokens", n);
  }

  Json time_decode(size_t depth) {
    check_depth(depth + options_.decode);
    const std::vector<int32_t> tokens = random_tokens(depth + options_.decode);
    cache_.crop(std::min(depth, cache_.n_tokens()));
    if (cache_.n_tokens() < depth)
      step(std::span(tokens).subspan(cache_.n_tokens(), depth - cache_.n_tokens()));
    step(std::span(tokens).last(1));
    std::vector<double> rates;
    for (size_t repeat = 0; repeat < options_.repeats; ++repeat) {
      cache_.crop(depth);
      const auto start = Clock::now();
      for (size_t i = 0; i < options_.decode; ++i) step(std::span(tokens).subspan(depth + i, 1));
      rates.push_back(rate(options_.decode, start));
    }
    return report("decode_tokens_per_s", rates, "depth", depth);
  }

 private:
  void check_depth(size_t n_tokens) const {
    if (n_tokens <= engine_.config().context_tokens) return;
    throw Error(std::to_string(n_tokens) + " tokens are more than the model's context of " +
                std::to_string(engine_.config().context_tokens));
  }

  // The same for every call, so that a deeper cache continues a shallower one.
  std::vector<int32_t> random_tokens(size_t n) const {
    Random random(1);
    std::vector<int32_t> tokens(n);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random.next() % engine_.config().vocabulary);
    return tokens;
  }

  void step(std::span<const int32_t> tokens) {
    engine_.forward(tokens, cache_, workspace_);
    const size_t last = tokens.size() - 1;
    engine_.logits({&last, 1}, workspace_, logits_.data());
  }

  static double rate(size_t n, Clock::time_point start) {
    return static_cast<double>(n) / std::chrono::duration<double>(Clock::now() - start).count();
  }

  Json report(const char* name, const std::vector<double>& rates, const char* size_name, size_t size) const {
    return {{name, median(rates)},
            {size_name, size},
            {"samples", rates},
            {"kv_bytes", cache_.size_bytes()},
            {"recipe", cache_.recipe().text()},
            {"threads", engine_.n_threads()},
            {"isa", Engine::isa()},
            {"precise", options_.precise},
            {"peak_rss_bytes", peak_resident_bytes()}};
  }

  Engine& engine_;
  const Options& options_;
  Cache cache_;
  Workspace workspace_;
  std::vector<float> logits_;
};

void print(const Json& result, bool json) {
  if (json) {
    std::printf("%s\n", result.dump().c_str());
    return;
  }
  for (const Json& entry : result.is_array() ? result : Json::array({result})) {
    const auto first = entry.begin();
    const auto second = std::next(first);
    std::printf("%s %.1f at %s %s\n", first.key().c_str(), first->get<double>(), second.key().c_str(),
                second->dump().c_str());
  }
}

void run(const Options& options) {
  if ((options.prefill > 0) == (options.decode > 0))
    throw Error("give --prefill N, or --decode N with --depth D");
  Engine engine(options.model, {options.threads, options.precise ? Precision::kPrecise : Precision::kFast});
  Bench bench(engine, options);
  if (options.prefill > 0) {
    print(bench.time_prefill(), options.json);
    return;
  }
  Json results = Json::array();
  for (const size_t depth : options.depths) results.push_back(bench.time_decode(depth));
  print(results.size() == 1 ? results[0] : results, options.json);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times prefill and decode.", "quire_bench");
  app.add_option("-m,--model", options.model)->required();
  app.add_option("-t,--threads", options.threads);
  app.add_option("--kv", options.recipe);
  app.add_flag("--precise", options.precise);
  app.add_flag("--json", options.json);
  app.add_option("--prefill", options.prefill, "tokens of a prefill");
  app.add_option("--depth", options.depths, "tokens in the cache before decode; several with commas")
      ->delimiter(',');
  app.add_option("--decode", options.decode, "steps to time");
  app.add_option("--repeats", options.repeats)->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const Error& error) {
    std::fprintf(stderr, "quire_bench: %s\n", error.what());
    return 2;
  }
  return 0;
}
