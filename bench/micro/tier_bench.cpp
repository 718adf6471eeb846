// Decoding at contexts whose rows do not fit the memory: a stack of attention layers in the shape of
// Llama-3.1-8B (32 layers, 32 query heads, 8 KV heads of 128), over the real cache with a tier. There is no
// model: keys, values and queries are made up, and nothing but attention is computed.
//
//   tier_bench --recipe RECIPE [--tokens N] [--kv-ram-mb MB] [--steps N] [--warm N] [-t THREADS]
//              [--layers L] [--drift R] [--keys-drift R] [--seed S] [-o FILE.json]
//
// One recipe a process. What it is compared with, such as `full` over the same tier and within the same
// limit, is a run of its own: a recipe that selects lays its pages out for that, and has filled the memory
// with its rows. Steps are timed after --warm others, as the first ones find nothing in memory.
//
// The cache is filled without attending. Keys and values are normal; a key resembles the one before it by
// --keys-drift (the correlation of neighbours), so that good rows stand in clusters. From step to step
// queries, and what the predictor reads, keep a share of what they were: their correlation with the last
// step's is
// --drift. So rows that a step likes are mostly those that the last one liked. The predictor is drawn at
// random but for its projections, which keep as many channels of the keys as it has values: what it names is
// what some query likes. The overlap of the rows that two steps in a row read, and how many neighbours stand
// together, are part of the report: docs/results/tiers.md compares them with a real model's.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory.h"
#include "base/team.h"
#include "cache/cache.h"
#include "policy/butler.h"
#include "tier/tier.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr size_t kFillStep = 8192;
constexpr size_t kPoolRows =
    3 * kFillStep;  // of made-up rows, in which every step of every layer begins elsewhere

struct Options {
  std::string recipe;
  std::string output;
  size_t n_tokens = 262'144;
  size_t n_layers = 32;
  size_t n_heads = 32;
  size_t n_kv_heads = 8;
  size_t head_dim = 128;
  double ram_mb = 2048;
  size_t n_steps = 32;
  size_t n_warm = 17;
  int n_threads = 2;
  double drift = 0.995;
  double keys_drift = 0.9;
  unsigned seed = 1;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<float> normals(size_t n, double scale, std::minstd_rand& random) {
  std::normal_distribution<float> normal(0, static_cast<float>(scale));
  std::vector<float> values(n);
  for (float& x : values) x = normal(random);
  return values;
}

std::shared_ptr<const ButlerWeights> make_predictor(const Options& options, const Recipe& recipe) {
  if (!recipe.needs_butler()) return nullptr;
  std::minstd_rand random(options.seed + 100);
  const ButlerGeometry g{options.n_layers,
                         options.n_heads,
                         options.n_kv_heads,
                         options.head_dim,
                         4096,
                         4,
                         recipe.select.number("dim"),
                         128};
  auto weights = std::make_shared<ButlerWeights>(ButlerWeights::zeros(g));
  for (ButlerProducer& producer : weights->producers) {
    producer.in = normals(producer.in.size(), 1 / std::sqrt(static_cast<double>(g.width)), random);
    producer.out = normals(producer.out.size(), 8 / std::sqrt(static_cast<double>(g.hidden)), random);
  }
  for (std::vector<float>& layer : weights->projections) {
    for (size_t head = 0; head < g.n_kv_heads; ++head) {
      for (size_t j = 0; j < g.dim; ++j)
        layer[(head * g.head_dim + j * (g.head_dim / g.dim)) * g.dim + j] = 1;
    }
  }
  return weights;
}

// What changes from step to step: x becomes drift * x and as much noise as keeps its size.
void move_on(std::vector<float>& x, double drift, double scale, std::minstd_rand& random) {
  std::normal_distribution<float> normal(0, static_cast<float>(scale * std::sqrt(1 - drift * drift)));
  for (float& value : x) value = static_cast<float>(drift) * value + normal(random);
}

// Counts the rows of a layer's first KV head that a step reads and the last one has read too.
class Overlap : public ReadObserver {
 public:
  explicit Overlap(size_t n_layers) : last_(n_layers) {}

  void read(size_t layer, size_t kv_head, std::span<const uint32_t> positions) override {
    if (kv_head != 0 || layer == 0) return;
    std::vector<uint32_t> rows(positions.begin(), positions.end());
    std::sort(rows.begin(), rows.end());
    std::vector<uint32_t> both;
    std::set_intersection(rows.begin(), rows.end(), last_[layer].begin(), last_[layer].end(),
                          std::back_inserter(both));
    if (!last_[layer].empty()) {
      n_both_ += both.size();
      n_rows_ += rows.size();
    }
    for (size_t i = 0; i < rows.size(); ++i) n_runs_ += i == 0 || rows[i] != rows[i - 1] + 1;
    n_read_ += rows.size();
    last_[layer] = std::move(rows);
  }
  double rows_per_run() const {
    return n_runs_ == 0 ? 0 : static_cast<double>(n_read_) / static_cast<double>(n_runs_);
  }
  double share() const {
    return n_rows_ == 0 ? 0 : static_cast<double>(n_both_) / static_cast<double>(n_rows_);
  }

 private:
  std::vector<std::vector<uint32_t>> last_;
  size_t n_both_ = 0;
  size_t n_rows_ = 0;
  size_t n_runs_ = 0;
  size_t n_read_ = 0;
};

class Stack {
 public:
  explicit Stack(const Options& options)
      : options_(options),
        recipe_(Recipe::parse(options.recipe)),
        random_(options.seed),
        pool_(static_cast<uint64_t>(options.ram_mb * 1e6), PagePool::Returned::kGivenBack),
        shape_{options.n_layers, options.n_heads, options.head_dim,
               std::vector<size_t>(options.n_layers, options.n_kv_heads)},
        cache_(recipe_, shape_, pool_, {.butler = make_predictor(options, recipe_), .width = 4096}),
        team_(options.n_threads),
        overlap_(options.n_layers),
        rows_(make_rows()) {}

  void fill() {
    while (cache_.n_tokens() < options_.n_tokens) {
      const size_t n = std::min(kFillStep, options_.n_tokens - cache_.n_tokens());
      const size_t at = random_() % kFillStep;
      cache_.begin_step(n, team_.size());
      team_.run([&](Worker& worker) {
        for (size_t layer = 0; layer < options_.n_layers; ++layer) {
          cache_.begin_layer(worker, layer);
          const float* k = rows_.data() + (at + layer * 97 % n) * kv_width();
          cache_.append(worker, layer, 0, n, k, k + n / 2 * kv_width(), kv_width());
          cache_.end_layer(worker, layer);
        }
      });
      cache_.end_step();
      std::fprintf(stderr, "\rfilled %zu of %zu tokens ", cache_.n_tokens(), options_.n_tokens);
    }
    std::fputc('\n', stderr);
  }

  // One token; the seconds that attention has taken.
  double step(bool measures_overlap) {
    if (q_.empty()) {
      const double scale = 1 / std::sqrt(static_cast<double>(options_.head_dim));
      for (size_t layer = 0; layer < options_.n_layers; ++layer) {
        q_.push_back(normals(q_width(), 3 * scale, random_));
        x_.push_back(normals(4096, 1, random_));
      }
    }
    for (size_t layer = 0; layer < options_.n_layers; ++layer) {
      move_on(q_[layer], options_.drift, 3 / std::sqrt(static_cast<double>(options_.head_dim)), random_);
      move_on(x_[layer], options_.drift, 1, random_);
    }
    cache_.observe_reads(measures_overlap ? &overlap_ : nullptr);
    return run();
  }

  const Cache& cache() const { return cache_; }
  const PagePool& pool() const { return pool_; }
  const Overlap& overlap() const { return overlap_; }

 private:
  size_t kv_width() const { return options_.n_kv_heads * options_.head_dim; }
  size_t q_width() const { return options_.n_heads * options_.head_dim; }

  double run() {
    const float* k = rows_.data() + random_() % kFillStep * kv_width();
    std::vector<float> out(q_width());
    const auto start = Clock::now();
    cache_.begin_step(1, team_.size());
    team_.run([&](Worker& worker) {
      for (size_t layer = 0; layer < options_.n_layers; ++layer) {
        cache_.begin_layer(worker, layer);
        if (cache_.predicts(layer)) cache_.predict(worker, layer, x_[layer].data());
        cache_.append(worker, layer, 0, 1, k, k + kv_width(), kv_width());
        cache_.attend(worker, layer, 0, 1, q_[layer].data(), q_width(), out.data(), q_width());
        cache_.end_layer(worker, layer);
      }
    });
    cache_.end_step();
    return seconds_since(start);
  }

  std::vector<float> make_rows() {
    std::vector<float> rows =
        normals(kPoolRows * kv_width(), std::sqrt(1 - options_.keys_drift * options_.keys_drift), random_);
    for (size_t i = kv_width(); i < rows.size(); ++i) {
      rows[i] += static_cast<float>(options_.keys_drift) * rows[i - kv_width()];
    }
    return rows;
  }

  const Options& options_;
  Recipe recipe_;
  std::minstd_rand random_;
  PagePool pool_;
  Geometry shape_;
  Cache cache_;
  Team team_;
  Overlap overlap_;
  std::vector<float> rows_;            // [kPoolRows][kv_width]
  std::vector<std::vector<float>> q_;  // [layer][q_width]
  std::vector<std::vector<float>> x_;  // [layer][4096]
};

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

Json measure(const Options& options) {
  Stack stack(options);
  const auto start = Clock::now();
  stack.fill();
  const double fill_seconds = seconds_since(start);
  std::vector<double> warm;
  for (size_t i = 0; i < options.n_warm; ++i) warm.push_back(stack.step(false));
  std::vector<double> seconds;
  std::vector<uint64_t> predictions;
  TierCounts counts;
  uint64_t bytes_read = 0;
  for (size_t i = 0; i < options.n_steps; ++i) {
    seconds.push_back(stack.step(false));
    counts.add(stack.cache().last_step().tier);
    bytes_read += stack.cache().last_step().bytes_read;
    predictions.push_back(stack.cache().last_step().predictions.predictor_calls);
    std::fprintf(stderr, "\rstep %zu: %.3f s ", i + 1, seconds.back());
  }
  std::fputc('\n', stderr);
  for (size_t i = 0; i < 18 && Recipe::parse(options.recipe).select.given(); ++i) stack.step(true);
  const auto n = static_cast<double>(options.n_steps);
  double total = 0;
  for (const double s : seconds) total += s;
  const Tier* tier = stack.cache().store().tier();
  return {{"recipe", stack.cache().recipe().text()},
          {"tokens", options.n_tokens},
          {"layers", options.n_layers},
          {"heads", options.n_heads},
          {"kv_heads", options.n_kv_heads},
          {"head_dim", options.head_dim},
          {"threads", options.n_threads},
          {"limit_bytes", stack.pool().budget_bytes()},
          {"peak_bytes", stack.pool().account().peak_bytes()},
          {"resident_bytes", stack.pool().account().firm_bytes()},
          {"peak_rss_bytes", peak_resident_bytes()},
          {"device", tier == nullptr ? "none" : tier->device_name()},
          {"outside_bytes", tier == nullptr ? 0 : tier->outside_bytes()},
          {"drift", options.drift},
          {"keys_drift", options.keys_drift},
          {"step_overlap", stack.overlap().share()},
          {"rows_per_run", stack.overlap().rows_per_run()},
          {"fill_seconds", fill_seconds},
          {"warm_seconds", warm},
          {"steps", options.n_steps},
          {"seconds_mean", total / n},
          {"seconds_median", quantile(seconds, 0.5)},
          {"seconds_p10", quantile(seconds, 0.1)},
          {"seconds_p90", quantile(seconds, 0.9)},
          {"tokens_per_s", n / total},
          {"bytes_read_per_token", static_cast<double>(bytes_read) / n},
          {"fetched_bytes_per_token", static_cast<double>(counts.fetched_bytes) / n},
          {"pieces_per_token", static_cast<double>(counts.pieces) / n},
          {"hit_rate", counts.hit_rate()},
          {"waited_seconds_per_token", static_cast<double>(counts.waited_ns) / 1e9 / n},
          {"seconds", seconds},
          {"predictor_calls", predictions}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Decoding over a tier.");
  app.add_option("--recipe", options.recipe)->required();
  app.add_option("--tokens", options.n_tokens)->check(CLI::Range(size_t{1024}, size_t{1} << 24));
  app.add_option("--layers", options.n_layers)->check(CLI::Range(2, 256));
  app.add_option("--kv-ram-mb", options.ram_mb);
  app.add_option("--steps", options.n_steps)->check(CLI::Range(1, 100000));
  app.add_option("--warm", options.n_warm)->check(CLI::Range(1, 100000));
  app.add_option("-t,--threads", options.n_threads)->check(CLI::Range(1, 256));
  app.add_option("--drift", options.drift)->check(CLI::Range(0.0, 1.0));
  app.add_option("--keys-drift", options.keys_drift)->check(CLI::Range(0.0, 0.999));
  app.add_option("--seed", options.seed);
  app.add_option("-o,--output", options.output);
  CLI11_PARSE(app, argc, argv);
  try {
    const std::string json = measure(options).dump(2) + "\n";
    if (options.output.empty()) {
      std::fputs(json.c_str(), stdout);
    } else {
      std::ofstream(options.output) << json;
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "tier_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
