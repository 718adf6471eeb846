// Decode attention alone: time, bytes and share of the machine's memory bandwidth for each recipe, one token
// at a time over layers that together exceed every cache.
//
//   attention_bench [-t THREADS] [--heads H] [--kv-heads K] [--head-dim D] [--tokens N] [--repeats R]
//   [--bias-pairs N] [--window N] [--softcap C] RECIPE...
//
// With --window queries of every layer see so many tokens, with --softcap scores are capped (ADR 18).
// With --bias-pairs coded keys of every head are freed of a bias in so many pairs of channels (ADR 9).
// The first recipe is what the others are compared with; give `full` first. Medians of R repeats,
// alternating. The error is that of the output, as a share of its norm. Rows are made up to have what real
// ones have: a few channels far larger than the others, sinks, and 1 token in 200 that a query head looks
// for.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "base/team.h"
#include "cache/cache.h"
#include "cache/hot_rows.h"
#include "engine/calibrate.h"
#include "kernels/ops.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;

struct Options {
  int n_threads = 2;
  size_t n_heads = 32;
  size_t n_kv_heads = 8;
  size_t head_dim = 128;
  size_t n_tokens = 32768;
  size_t bias_pairs = 0;
  size_t window_tokens = 0;
  int softcap = 0;
  int repeats = 9;
  std::vector<std::string> recipes;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// GB/s of all members reading memory that no cache holds.
double read_bandwidth(Team& team) {
  constexpr size_t kBytes = size_t{256} << 20;
  Memory memory(kBytes);
  std::memset(memory.data(), 1, kBytes);
  const auto* words = memory.as<uint64_t>();
  std::vector<double> rates;
  std::vector<uint64_t> sums(static_cast<size_t>(team.size()) * 8);
  for (int repeat = 0; repeat < 7; ++repeat) {
    const auto start = Clock::now();
    team.run([&](Worker& worker) {
      worker.share(kBytes / 8, 1 << 16, [&](int64_t begin, int64_t end) {
        uint64_t a = 0, b = 0, c = 0, d = 0;
        for (int64_t i = begin; i < end; i += 8) {  // one word of each line is enough to fetch it
          a += words[i];
          b ^= words[i + 2];
          c += words[i + 4];
          d ^= words[i + 6];
        }
        sums[static_cast<size_t>(worker.rank()) * 8] += a + b + c + d;
      });
    });
    rates.push_back(kBytes / seconds_since(start) * 1e-9);
  }
  volatile uint64_t sink = sums[0];
  (void)sink;
  return median(rates);
}

float noise(uint64_t& state) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
}

std::shared_ptr<const KeyBiases> key_biases(const Options& options, const Geometry& geometry) {
  if (options.bias_pairs == 0) return nullptr;
  const size_t half = options.head_dim / 2;
  std::vector<double> frequencies(half);
  for (size_t i = 0; i < half; ++i) {
    frequencies[i] = std::pow(1e6, -static_cast<double>(i) / static_cast<double>(half));
  }
  std::vector<float> bias(options.head_dim, 0.0f);
  for (size_t i = 0; i < std::min(half, options.bias_pairs); ++i) bias[i] = bias[i + half] = 50;
  const auto turns = std::make_shared<const RopeTurns>(frequencies);
  KeyBiases all;
  for (const size_t n_kv_heads : geometry.n_kv_heads) {
    for (size_t head = 0; head < n_kv_heads; ++head) all.heads.emplace_back(std::in_place, turns, bias);
  }
  return std::make_shared<const KeyBiases>(std::move(all));
}

// Queries and rows of one layer, the same for every recipe.
class Rows {
 public:
  explicit Rows(const Options& options) : options_(options), queries_(options.n_heads * options.head_dim) {
    uint64_t state = 7;
    for (size_t head = 0; head < options.n_heads; ++head) {
      float* q = queries_.data() + head * options.head_dim;
      float norm = 0;
      for (size_t d = 0; d < options.head_dim; ++d) {
        q[d] = noise(state);
        norm += q[d] * q[d];
      }
      for (size_t d = 0; d < options.head_dim; ++d) q[d] *= kQueryNorm / std::sqrt(norm);
    }
  }

  const std::vector<float>& queries() const { return queries_; }

  // Of token t, all KV heads.
  void make(size_t t, float* k, float* v) const {
    uint64_t state = t * 2 + 1;
    for (int i = 0; i < 4; ++i) noise(state);
    const size_t dim = options_.head_dim;
    const size_t group = options_.n_heads / options_.n_kv_heads;
    for (size_t head = 0; head < options_.n_kv_heads; ++head, k += dim, v += dim) {
      for (size_t d = 0; d < dim; ++d) {
        k[d] = 1.7f * noise(state);  // of variance 1
        v[d] = noise(state);
      }
      for (size_t i = 1; i <= 4; ++i) k[i * dim / 5] = 6 + 4 * k[i * dim / 5];
      const bool sink = t < 4;
      if (!sink && (t * 2654435761u >> 8) % 200 != head) continue;
      const float* q = queries_.data() + (head * group + t % group) * dim;
      const float towards = (sink ? 12.0f : 10.0f) / (kQueryNorm * kQueryNorm);
      for (size_t d = 0; d < dim; ++d) k[d] += towards * q[d];
    }
  }

 private:
  static constexpr float kQueryNorm = 1.5f;

  const Options& options_;
  std::vector<float> queries_;  // [n_heads][head_dim]
};

// What recipes need to know of such rows.
std::shared_ptr<const Calibration> calibration(const Options& options, const Geometry& geometry,
                                               const Rows& rows) {
  constexpr size_t kTokens = 2048;
  const size_t q_width = options.n_heads * options.head_dim;
  const size_t kv_width = options.n_kv_heads * options.head_dim;
  const size_t ld = q_width + 2 * kv_width;
  std::vector<float> all(kTokens * ld);
  uint64_t state = 3;
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t i = 0; i < q_width; ++i) all[t * ld + i] = noise(state);  // of no direction of their own
    rows.make(t, all.data() + t * ld + q_width, all.data() + t * ld + q_width + kv_width);
  }
  CalibrationMeter meter(geometry);
  for (size_t layer = 0; layer < geometry.n_layers; ++layer) {
    meter.rows(layer, 0, kTokens, all.data(), all.data() + q_width, all.data() + q_width + kv_width, ld);
  }
  return std::make_shared<const Calibration>(meter.result());
}

// A cache of made-up rows: as many layers as make it exceed 128 MB in f16, at least two.
struct Subject {
  Geometry geometry;
  PagePool pool;
  Cache cache;
  std::vector<double> times;
  std::vector<float> out;  // of the last layer

  Subject(const Options& options, const std::string& recipe, const Rows& rows, Team& team)
      : geometry(shape(options)),
        cache(Recipe::parse(recipe), geometry, pool,
              {.calibration = calibration(options, geometry, rows),
               .key_biases = key_biases(options, geometry)}) {
    const size_t width = options.n_kv_heads * options.head_dim;
    constexpr size_t kStep = 2048;
    std::vector<float> k(kStep * width), v(kStep * width);
    // Where pages are promoted, those that the last queries of a prompt look for.
    const size_t n_asked = cache.recipe().promote.given() ? kObservedQueries : 0;
    const size_t q_width = rows.queries().size();
    std::vector<float> q, attended(n_asked * q_width);
    for (size_t i = 0; i < n_asked; ++i) q.insert(q.end(), rows.queries().begin(), rows.queries().end());
    for (size_t first = 0; first < options.n_tokens; first += kStep) {
      const size_t n = std::min(kStep, options.n_tokens - first);
      for (size_t i = 0; i < n; ++i) rows.make(first + i, k.data() + i * width, v.data() + i * width);
      cache.begin_step(n, team.size());
      team.run([&](Worker& worker) {
        for (size_t layer = 0; layer < geometry.n_layers; ++layer) {
          cache.begin_layer(worker, layer);
          cache.append(worker, layer, 0, n, k.data(), v.data(), width);
          if (n_asked > 0 && n >= n_asked) {
            cache.attend(worker, layer, n - n_asked, n_asked, q.data(), q_width, attended.data(), q_width);
          }
          cache.end_layer(worker, layer);
        }
      });
      cache.end_step();
    }
  }

  static Geometry shape(const Options& options) {
    const size_t layer_bytes = options.n_tokens * options.n_kv_heads * options.head_dim * 4;
    const size_t n_layers = std::max<size_t>(2, (size_t{128} << 20) / layer_bytes);
    Geometry geometry{n_layers, options.n_heads, options.head_dim,
                      std::vector<size_t>(n_layers, options.n_kv_heads)};
    if (options.window_tokens > 0) geometry.window_tokens.assign(n_layers, options.window_tokens);
    geometry.score_softcap = static_cast<float>(options.softcap);
    return geometry;
  }

  // One token through all layers; seconds.
  double step(const Rows& rows, Team& team) {
    const size_t q_width = geometry.n_heads * geometry.head_dim;
    const size_t kv_width = geometry.n_kv_heads[0] * geometry.head_dim;
    std::vector<float> k(kv_width), v(kv_width);
    out.resize(q_width);
    const float* q = rows.queries().data();
    const size_t before = cache.n_tokens();
    rows.make(before, k.data(), v.data());
    cache.begin_step(1, team.size());
    const auto start = Clock::now();
    team.run([&](Worker& worker) {
      for (size_t layer = 0; layer < geometry.n_layers; ++layer) {
        cache.append(worker, layer, 0, 1, k.data(), v.data(), kv_width);
        cache.attend(worker, layer, 0, 1, q, q_width, out.data(), q_width);
      }
    });
    const double seconds = seconds_since(start);
    cache.end_step();
    cache.crop(before);
    return seconds;
  }
};

// |a - b| / |b|
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    size += double{b[i]} * double{b[i]};
  }
  return std::sqrt(error / size);
}

int take_int(int& i, int argc, char** argv) {
  if (i + 1 >= argc) throw Error(std::string(argv[i]) + " wants a number");
  const int value = std::atoi(argv[++i]);
  if (value < 1) throw Error(std::string(argv[i - 1]) + " wants a positive number");
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "-t") {
      options.n_threads = take_int(i, argc, argv);
    } else if (flag == "--heads") {
      options.n_heads = static_cast<size_t>(take_int(i, argc, argv));
    } else if (flag == "--kv-heads") {
      options.n_kv_heads = static_cast<size_t>(take_int(i, argc, argv));
    } else if (flag == "--head-dim") {
      options.head_dim = static_cast<size_t>(take_int(i, argc, argv));
    } else if (flag == "--tokens") {
      options.n_tokens = static_cast<size_t>(take_int(i, argc, argv));
    } else if (flag == "--bias-pairs") {
      options.bias_pairs = static_cast<size_t>(take_int(i, argc, argv));
    } else if (flag == "--window") {
      options.window_tokens = static_cast<size_t>(take_int(i, argc, argv));
    } else if (flag == "--softcap") {
      options.softcap = take_int(i, argc, argv);
    } else if (flag == "--repeats") {
      options.repeats = take_int(i, argc, argv);
    } else if (flag.starts_with("-")) {
      throw Error("unknown flag " + flag);
    } else {
      options.recipes.push_back(flag);
    }
  }
  if (options.recipes.empty()) options.recipes = {"full", "turbo4", "quire"};
  if (options.n_heads % options.n_kv_heads != 0) throw Error("the KV heads do not divide the query heads");
  return options;
}

void report(const Options& options, const std::vector<std::unique_ptr<Subject>>& subjects, double bandwidth) {
  std::printf("%s, %d threads, %zu query / %zu KV heads of %zu, %zu tokens; reads %.1f GB/s\n", ops().name,
              options.n_threads, options.n_heads, options.n_kv_heads, options.head_dim, options.n_tokens,
              bandwidth);
  std::printf("%-36s %12s %10s %10s %8s %8s %9s\n", "recipe", "us a layer", "MB read", "GB/s", "share",
              "speed", "error");
  const auto layer_time = [](const Subject& s) {
    return median(s.times) / static_cast<double>(s.geometry.n_layers);
  };
  for (const auto& subject : subjects) {
    const double seconds = layer_time(*subject);
    const double bytes = static_cast<double>(subject->cache.last_step().bytes_read) /
                         static_cast<double>(subject->geometry.n_layers);
    std::printf("%-36s %12.1f %10.2f %10.1f %7.0f%% %7.2fx %9.5f\n", subject->cache.recipe().text().c_str(),
                seconds * 1e6, bytes * 1e-6, bytes / seconds * 1e-9, 100 * bytes / seconds * 1e-9 / bandwidth,
                layer_time(*subjects[0]) / seconds, relative_error(subject->out, subjects[0]->out));
  }
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  Team team(options.n_threads);
  const Rows rows(options);
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const std::string& recipe : options.recipes) {
    subjects.push_back(std::make_unique<Subject>(options, recipe, rows, team));
  }
  for (int repeat = -1; repeat < options.repeats; ++repeat) {  // the first round warms up
    for (const auto& subject : subjects) {
      const double seconds = subject->step(rows, team);
      if (repeat >= 0) subject->times.push_back(seconds);
    }
  }
  report(options, subjects, read_bandwidth(team));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "attention_bench: %s\n", error.what());
    return 2;
  }
}
