// Caches that drop rows answer as attention over the rows that the policy should have kept.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "property/keep/scene.h"

namespace quire::test {
namespace {

constexpr double kTolerance = 2e-5;  // f32 rows

// Positions from 0 to n - 1.
std::set<uint32_t> first(size_t n) {
  std::set<uint32_t> all;
  for (uint32_t t = 0; t < n; ++t) all.insert(all.end(), t);
  return all;
}

// What one KV head holds, by a plain reading of the policy.
struct PlainHead {
  std::set<uint32_t> rows;
  std::vector<double> mass;
};

// H2O: each query adds its attention over what is there; the lightest of the older rows leave.
void drop_light(PlainHead& head, size_t n_total, size_t budget, size_t n_recent) {
  while (head.rows.size() > budget) {
    uint32_t lightest = 0;
    double least = INFINITY;
    for (const uint32_t t : head.rows) {
      if (t + n_recent < n_total && head.mass[t] < least) {
        least = head.mass[t];
        lightest = t;
      }
    }
    head.rows.erase(lightest);
  }
}

// Every output of the prompt, and the rows left in the end.
void check_heavy_hitters(const Geometry& shape, size_t n, size_t prefill, size_t budget, int n_threads) {
  const Prompt prompt(shape, n, 5);
  const size_t group = shape.n_heads / shape.n_kv_heads[0];
  Keeper keeper(prompt, "h2o(k=f32,v=f32,budget=" + std::to_string(budget) + ")", n_threads);
  keeper.grow(prompt, prefill, prefill);
  keeper.grow(prompt, n, 1);
  for (size_t kv = 0; kv < shape.n_kv_heads[0]; ++kv) {
    PlainHead head{{}, std::vector<double>(n, 0.0)};
    for (size_t token = 0; token < n; ++token) {
      head.rows.insert(static_cast<uint32_t>(token));
      for (size_t h = kv * group; h < (kv + 1) * group; ++h) {
        const auto wanted = attended(prompt, 0, h, token, head.rows);
        ASSERT_LT(worst_error(wanted, keeper.out[0].data() + token * prompt.q_width() + h * shape.head_dim),
                  kTolerance)
            << "token " << token << " head " << h;
        add_mass(prompt, 0, h, token, head.rows, head.mass);
      }
      if (token + 1 >= prefill) drop_light(head, token + 1, budget, budget / 2);
    }
    EXPECT_EQ(head.rows.size(), budget);
  }
  EXPECT_EQ(keeper.cache.rows().n_rows, budget);
  EXPECT_EQ(keeper.cache.n_tokens(), n);
}

TEST(Dropping, HeavyHittersAreThoseOfThePlainPolicy) {
  check_heavy_hitters(geometry(4, 40, {2}), 330, 200, 90, 1);
  check_heavy_hitters(geometry(9, 64, {1}), 200, 129, 70, 2);
  check_heavy_hitters(geometry(3, 72, {3}), 150, 1, 33, 2);
}

// Positions count inside the cache: keys of the window and the query keep their distance, sinks lie right
// before the window however long ago they came. The reference turns raw keys to cache positions.
void check_window(const Geometry& shape, size_t n, size_t step, size_t window, size_t sinks) {
  Prompt raw(shape, n, 6);
  const auto angles = frequencies(shape.head_dim);
  const size_t half = shape.head_dim / 2;
  const auto turned = [&](const float* row, size_t position, std::vector<double>& out) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * (*angles)[i];
      const double a = row[i];
      const double b = row[half + i];
      out[i] = a * std::cos(angle) - b * std::sin(angle);
      out[half + i] = a * std::sin(angle) + b * std::cos(angle);
    }
  };
  Prompt prompt = raw;  // as the model gives it: turned to positions of the text
  std::vector<double> row(shape.head_dim);
  for (size_t t = 0; t < n; ++t) {
    for (size_t h = 0; h < shape.n_heads; ++h) {
      float* q = prompt.q[0].data() + t * prompt.q_width() + h * shape.head_dim;
      turned(raw.q[0].data() + t * prompt.q_width() + h * shape.head_dim, t, row);
      std::copy(row.begin(), row.end(), q);
    }
    for (size_t h = 0; h < shape.n_kv_heads[0]; ++h) {
      const size_t at = t * prompt.kv_width(0) + h * shape.head_dim;
      turned(raw.k[0].data() + at, t, row);
      std::copy(row.begin(), row.end(), prompt.k[0].data() + at);
    }
  }
  Keeper keeper(prompt, "streaming(k=f32,v=f32,window=" + std::to_string(window) +
                            ",sink=" + std::to_string(sinks) + ")");
  keeper.grow(prompt, n, step);
  const size_t group = shape.n_heads / shape.n_kv_heads[0];
  size_t n_dropped = 0;  // before the step, sinks not counted
  for (size_t begin = 0; begin < n; begin += step) {
    for (size_t t = begin; t < std::min(n, begin + step); ++t) {
      for (size_t h = 0; h < shape.n_heads; ++h) {
        std::vector<double> q(shape.head_dim);
        turned(raw.q[0].data() + t * prompt.q_width() + h * shape.head_dim, t - n_dropped, q);
        const std::vector<float> query(q.begin(), q.end());
        const size_t column = h / group * shape.head_dim;
        std::vector<double> key(shape.head_dim);
        const Attended wanted = attention(
            query.data(), shape.head_dim, t + 1,
            [&](size_t s) { return s < sinks || s >= sinks + n_dropped; },
            [&](size_t s, size_t d) {
              const size_t position = s < sinks ? s : s - n_dropped;
              if (d == 0) turned(raw.k[0].data() + s * prompt.kv_width(0) + column, position, key);
              return key[d];
            },
            [&](size_t s, size_t d) { return double{raw.v[0][s * prompt.kv_width(0) + column + d]}; });
        ASSERT_LT(
            worst_error(wanted.output, keeper.out[0].data() + t * prompt.q_width() + h * shape.head_dim),
            2e-4)  // the angles of positions are rounded once more
            << "token " << t << " head " << h;
      }
    }
    const size_t n_total = std::min(n, begin + step);
    n_dropped = n_total - std::min(n_total, sinks + window);
  }
  EXPECT_EQ(keeper.cache.rows().n_rows, std::min(window, n));
  EXPECT_EQ(keeper.cache.span_tokens(1), std::min(n, window + sinks) + 1);
}

TEST(Dropping, AWindowCountsPositionsInsideTheCache) {
  check_window(geometry(3, 64, {1}), 400, 1, 50, 4);
  check_window(geometry(4, 40, {2}), 500, 37, 70, 1);
  check_window(geometry(2, 128, {2}), 300, 64, 128, 16);
  check_window(geometry(2, 48, {1}), 200, 1, 2, 0);
}

TEST(Dropping, SnapKvKeepsWhatTheLastQueriesLike) {
  const Geometry shape = geometry(4, 64, {2});
  const size_t n = 300;
  Prompt prompt(shape, n + 20, 7);
  const size_t budget = 80, window = 8, kernel = 5;
  Keeper keeper(prompt, "snapkv(k=f32,v=f32,budget=80,window=8)");
  keeper.grow(prompt, n, n);
  keeper.grow(prompt, n + 20, 1);
  EXPECT_EQ(keeper.cache.rows().n_rows, budget + 20);
  for (size_t kv = 0; kv < 2; ++kv) {
    std::vector<double> mass(n, 0.0);
    for (size_t t = n - window; t < n; ++t) {
      for (size_t h = 2 * kv; h < 2 * kv + 2; ++h) add_mass(prompt, 0, h, t, first(t + 1), mass);
    }
    std::multimap<double, uint32_t> smooth;
    for (size_t t = 0; t < n - window; ++t) {
      double sum = 0;
      const size_t last = std::min(n - window - 1, t + kernel / 2);  // the window lends nothing
      for (size_t s = t - std::min(t, kernel / 2); s <= last; ++s) sum += mass[s];
      smooth.emplace(-sum, static_cast<uint32_t>(t));
    }
    std::set<uint32_t> rows;
    for (const auto& [weight, t] : smooth) {
      if (rows.size() < budget - window) rows.insert(t);
    }
    for (size_t t = n - window; t < n; ++t) rows.insert(static_cast<uint32_t>(t));
    for (size_t t = n; t < n + 20; ++t) {
      rows.insert(static_cast<uint32_t>(t));
      for (size_t h = 2 * kv; h < 2 * kv + 2; ++h) {
        const auto wanted = attended(prompt, 0, h, t, rows);
        ASSERT_LT(worst_error(wanted, keeper.out[0].data() + t * prompt.q_width() + h * 64), kTolerance)
            << t << " " << h;
      }
    }
  }
}

const char* const kDroppers[] = {"streaming(window=100)", "h2o(budget=100)", "keyformer(budget=100)",
                                 "snapkv(budget=100,window=16)", "k=f16,v=f16,keep=log(reserve=96)"};

// A budget that covers everything changes no bit.
TEST(Dropping, ABudgetThatCoversAllIsTheFullCache) {
  const Prompt prompt(geometry(6, 64, {2, 1}), 400, 8);
  const Outputs full = run_prompt(prompt, Recipe{}, 130);
  for (const char* recipe : {"streaming(window=400)", "h2o(budget=400)", "keyformer(budget=400)",
                             "snapkv(budget=400)", "k=f16,v=f16,keep=log(reserve=1200)"}) {
    Keeper keeper(prompt, recipe);
    keeper.grow(prompt, 400, 130);
    EXPECT_EQ(keeper.out, full) << recipe;
  }
}

// A fork and its origin go on apart, each as a cache of its own would, and neither writes the other's rows.
TEST(Dropping, ForksGoOnApart) {
  const Prompt prompt(geometry(4, 64, {2, 2}), 420, 9);
  for (const char* recipe : kDroppers) {
    Keeper origin(prompt, recipe);
    origin.grow(prompt, 260, 260);
    origin.grow(prompt, 280, 1);
    Cache fork = origin.cache.fork();
    origin.grow(prompt, 420, 1);
    Keeper alone(prompt, recipe);
    alone.grow(prompt, 260, 260);
    alone.grow(prompt, 420, 1);
    EXPECT_EQ(origin.out, alone.out) << recipe;
    Outputs out = alone.out;
    Team team(1);
    while (fork.n_tokens() < 420) run_step(fork, prompt, fork.n_tokens(), fork.n_tokens() + 1, 1, team, out);
    EXPECT_EQ(out, alone.out) << recipe;
  }
}

TEST(Dropping, ThreadsDoNotMatter) {
  const Prompt prompt(geometry(6, 80, {3, 2}), 330, 10);
  for (const char* recipe : kDroppers) {
    Keeper one(prompt, recipe);
    Keeper two(prompt, recipe, 2);
    for (Keeper* keeper : {&one, &two}) {
      keeper->grow(prompt, 300, 300);
      keeper->grow(prompt, 330, 1);
    }
    EXPECT_EQ(one.out, two.out) << recipe;
  }
}

// Every query gives 1 for each head of the group, and what a row gets is the same bits on any number of
// threads: over several rounds of blocks, and more rows than one member adds up.
TEST(Dropping, MassIsAddedUpAlikeOnAnyNumberOfThreads) {
  const size_t n = 1310, group = 2;
  const Prompt prompt(geometry(6, 16, {3}), n, 12);
  Keeper one(prompt, "h2o(budget=2000)");
  one.grow(prompt, n - 10, n - 10);
  one.grow(prompt, n, 1);
  for (const int n_threads : {2, 5}) {
    Keeper more(prompt, "h2o(budget=2000)", n_threads);
    more.grow(prompt, n - 10, n - 10);
    more.grow(prompt, n, 1);
    for (size_t head = 0; head < 3; ++head) {
      EXPECT_EQ(more.cache.dropping()->rows(0, head).mass, one.cache.dropping()->rows(0, head).mass);
    }
  }
  for (size_t head = 0; head < 3; ++head) {
    const std::vector<float>& mass = one.cache.dropping()->rows(0, head).mass;
    const double sum = std::accumulate(mass.begin(), mass.end(), 0.0);
    EXPECT_NEAR(sum, static_cast<double>(n * group), 1e-3 * static_cast<double>(n));
  }
}

// Bytes are those of the rows that are left, as predicted, and never more on the way.
TEST(Dropping, BytesAreThoseOfTheRowsLeft) {
  const Prompt prompt(geometry(4, 64, {2, 2, 2}), 1000, 11);
  for (const char* text : kDroppers) {
    const Recipe recipe = Recipe::parse(text);
    const uint64_t peak = prompt.shape.peak_bytes(recipe, 0, 1000, 0);
    PagePool pool(peak);
    Cache cache(recipe, prompt.shape, pool, {.rope_frequencies = frequencies(64)});
    Team team(1);
    Outputs out = empty_outputs(prompt);
    run_step(cache, prompt, 0, 1000, 1000, team, out);
    EXPECT_EQ(pool.used_bytes(), prompt.shape.cache_bytes(recipe, 1000)) << text;
    EXPECT_GE(cache.size_bytes(), pool.used_bytes()) << text;
    EXPECT_LT(cache.size_bytes(), prompt.shape.cache_bytes(Recipe{}, 1000) / 3) << text;
    // One layer's rows at a time.
    EXPECT_LT(peak, prompt.shape.cache_bytes(Recipe{}, 1000)) << text;
    PagePool small(peak - 1);
    Cache refused(recipe, prompt.shape, small, {.rope_frequencies = frequencies(64)});
    EXPECT_THROW(refused.begin_step(1000, 1), Error) << text;
  }
}

// What observes attention reads the keys a second time; a snapkv's single tokens are not observed.
TEST(Dropping, BytesReadAreThoseOfBothPasses) {
  const Prompt prompt(geometry(4, 64, {2}), 301, 12);
  struct {
    const char* recipe;
    size_t row_bytes;
  } cases[] = {
      {"h2o(budget=100)", 3 * 128}, {"keyformer(budget=100)", 3 * 128}, {"snapkv(budget=100)", 2 * 128}};
  for (const auto& one : cases) {
    Keeper keeper(prompt, one.recipe);
    keeper.grow(prompt, 300, 300);
    keeper.grow(prompt, 301, 1);
    const StepStats& stats = keeper.cache.last_step();
    EXPECT_EQ(stats.bytes_read, stats.rows_read * one.row_bytes) << one.recipe;
  }
}

TEST(Dropping, CutsAreRefusedAndANewStartIsNone) {
  const Prompt prompt(geometry(4, 64, {2}), 300, 12);
  for (const char* recipe : kDroppers) {
    Keeper keeper(prompt, recipe);
    keeper.grow(prompt, 300, 100);
    const Outputs before = keeper.out;
    EXPECT_THROW(keeper.cache.crop(200), Error) << recipe;
    EXPECT_EQ(keeper.cache.n_tokens(), 300u);
    keeper.cache.crop(0);
    EXPECT_EQ(keeper.cache.size_bytes(), 0u) << recipe;
    keeper.grow(prompt, 300, 100);
    EXPECT_EQ(keeper.out, before) << recipe;
  }
}

}  // namespace
}  // namespace quire::test
