#include "study/bench.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "study/bench_charts.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

TEST(SpreadOf, KnownValues) {
  const Spread odd = spread_of({5, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 5);
  EXPECT_EQ(odd.mad, 1);
  const Spread even = spread_of({4, 1, 2, 3});
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(even.mad, 1);
  const Spread one = spread_of({7});
  EXPECT_EQ(one.median, 7);
  EXPECT_EQ(one.mad, 0);
}

TEST(BenchRun, DecodeLeavesThePrefillOut) {
  BenchRun run;
  for (const double seconds : {10.0, 0.5, 1.5}) run.steps.push_back({.seconds = seconds});
  EXPECT_EQ(run.prefill_seconds(), 10);
  EXPECT_EQ(run.decode_seconds(), 2);
  EXPECT_EQ(run.decode_tokens_per_s(), 1);
}

BenchOptions options_of(const char* modes, std::vector<size_t> prompts, size_t n_new) {
  BenchOptions options;
  options.entries = parse_bench_modes(modes, {});
  options.prompt_tokens = std::move(prompts);
  options.n_new_tokens = n_new;
  options.n_repeats = 2;
  return options;
}

TEST(RunBench, RowsAndSteps) {
  test::TinyEngine tiny;
  const BenchOptions options = options_of("standard,q4,standard", {20, 150}, 12);
  const BenchResult result = run_bench(tiny.engine, test::tiny_text(200), options);
  ASSERT_EQ(result.rows.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const BenchRow& row = result.rows[i];
    EXPECT_EQ(row.entry.mode, options.entries[i % 3].mode);
    EXPECT_EQ(row.prompt_tokens, i < 3 ? 20u : 150u);
    ASSERT_EQ(row.runs.size(), 2u);
    for (const BenchRun& run : row.runs) {
      ASSERT_EQ(run.steps.size(), 12u);
      EXPECT_EQ(run.tokens, row.runs[0].tokens);
      for (size_t s = 0; s < 12; ++s) EXPECT_EQ(run.steps[s].n_tokens, row.prompt_tokens + s);
    }
    EXPECT_EQ(row.quality_text, QualityText::kContinuation);
  }
}

TEST(RunBench, FiguresOfFullAreKnown) {
  test::TinyEngine tiny;
  const BenchResult result =
      run_bench(tiny.engine, test::tiny_text(200), options_of("standard,q4", {150}, 12));
  const BenchRow& full = result.rows[0];
  const BenchRow& q4 = result.rows[1];
  // Step s of 1..11 reads 150 + s rows on two layers of one KV head, 64 bytes each.
  EXPECT_DOUBLE_EQ(full.rows_read_per_token(), 2 * 156.0);
  EXPECT_DOUBLE_EQ(full.bytes_read_per_token(), 64 * 2 * 156.0);
  EXPECT_LT(q4.bytes_read_per_token(), full.bytes_read_per_token());
  EXPECT_LT(q4.kv_bytes(), full.kv_bytes());
  ASSERT_TRUE(full.quality && q4.quality);
  EXPECT_EQ(full.quality->kl_mean, 0);
  EXPECT_EQ(full.quality->same_top1, 1);
  EXPECT_GT(q4.quality->kl_mean, 0);
  EXPECT_EQ(full.residency().hot_tokens, 161u);
  EXPECT_EQ(full.residency().cold_tokens, 0u);
  EXPECT_GT(q4.residency().cold_tokens, 0u);
  EXPECT_EQ(q4.residency().cold_tokens + q4.residency().hot_tokens, 161u);
}

TEST(RunBench, QualityOnWhatFullGenerated) {
  test::TinyEngine tiny;
  for (const char* modes : {"q4,standard", "q4"}) {
    const BenchResult result = run_bench(tiny.engine, test::tiny_text(150), options_of(modes, {150}, 12));
    ASSERT_TRUE(result.rows[0].quality);
    EXPECT_EQ(result.rows[0].quality_text, QualityText::kGenerated);
    EXPECT_GT(result.rows[0].quality->kl_mean, 0);
  }
}

bool says(const BenchResult& result, const char* part) {
  for (const std::string& note : result.notes) {
    if (note.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(RunBench, SaysWhenNothingLeftTheWindow) {
  test::TinyEngine tiny;
  BenchOptions options = options_of("standard,q4", {20}, 12);
  options.quality = false;
  const BenchResult idle = run_bench(tiny.engine, test::tiny_text(200), options);
  EXPECT_TRUE(says(idle, "nothing left the window of q4"));
  EXPECT_FALSE(says(idle, "window of standard"));
  EXPECT_FALSE(idle.rows[1].quality);
  options.prompt_tokens = {150};
  EXPECT_FALSE(says(run_bench(tiny.engine, test::tiny_text(200), options), "nothing left"));
}

TEST(RunBench, DroppedRowsAreCounted) {
  test::TinyEngine tiny;
  BenchOptions options = options_of("streaming(window=64)", {20, 150}, 12);
  options.quality = false;
  const BenchResult result = run_bench(tiny.engine, test::tiny_text(200), options);
  EXPECT_EQ(result.rows[0].residency().dropped_tokens, 0u);
  EXPECT_GT(result.rows[1].residency().dropped_tokens, 0u);
  ASSERT_FALSE(result.notes.empty());
  EXPECT_TRUE(says(result, "20 prompt tokens"));
  EXPECT_FALSE(says(result, "150 prompt tokens"));
}

TEST(RunBench, EndlessRecipesGoBeyondTheContext) {
  test::TinyEngine tiny;
  BenchOptions options = options_of("streaming(window=64)", {20, 400}, 12);
  const BenchResult result = run_bench(tiny.engine, test::tiny_text(412), options);
  EXPECT_TRUE(result.rows[0].quality);
  EXPECT_FALSE(result.rows[1].quality);
  EXPECT_TRUE(says(result, "no quality at 400 prompt tokens"));
  EXPECT_EQ(result.rows[1].last_step().n_tokens, 411u);
  EXPECT_THROW(run_bench(tiny.engine, test::tiny_text(412), options_of("streaming(window=64),q4", {400}, 12)),
               Error);
}

TEST(RunBench, TheEnginesPoolIsLeftAlone) {
  test::TinyEngine tiny;
  BenchOptions options = options_of("standard,q4", {150}, 12);
  options.quality = false;
  run_bench(tiny.engine, test::tiny_text(200), options);
  EXPECT_EQ(tiny.engine.pool().reserved_bytes(), 0u);
}

TEST(RunBench, StopsAtTheFlag) {
  test::TinyEngine tiny;
  BenchOptions options = options_of("standard,q4", {20, 30}, 12);
  std::atomic<bool> flag = false;
  options.stop_flag = &flag;
  options.progress = [&](double) { flag = true; };
  EXPECT_TRUE(run_bench(tiny.engine, test::tiny_text(200), options).interrupted);
}

TEST(RunBench, ProgressEndsAtOne) {
  test::TinyEngine tiny;
  BenchOptions options = options_of("standard,q4", {20, 30}, 4);
  double last = 0;
  options.progress = [&](double share) {
    EXPECT_GT(share, last);
    last = share;
  };
  run_bench(tiny.engine, test::tiny_text(30), options);
  EXPECT_DOUBLE_EQ(last, 1);
}

TEST(RunBench, RefusesBeforeItComputes) {
  test::TinyEngine tiny;
  const std::vector<int32_t> text = test::tiny_text(250);
  EXPECT_THROW(run_bench(tiny.engine, text, options_of("standard", {}, 12)), Error);
  EXPECT_THROW(run_bench(tiny.engine, text, options_of("standard", {0}, 12)), Error);
  EXPECT_THROW(run_bench(tiny.engine, text, options_of("standard", {20}, 1)), Error);
  EXPECT_THROW(run_bench(tiny.engine, text, options_of("standard", {20, 251}, 2)), Error);
  EXPECT_THROW(run_bench(tiny.engine, text, options_of("standard", {20, 250}, 7)), Error) << "context of 256";
  EXPECT_THROW(run_bench(tiny.engine, text, options_of("standard", {20}, SIZE_MAX)), Error);
}

TEST(BenchCharts, ALineForEachEntry) {
  test::TinyEngine tiny;
  BenchOptions options = options_of("standard,q4", {20, 150}, 12);
  options.quality = false;
  const BenchResult result = run_bench(tiny.engine, test::tiny_text(200), options);
  const Chart decode = decode_time_chart(result);
  ASSERT_EQ(decode.series.size(), 2u);
  EXPECT_EQ(decode.series[1].name, "q4");
  ASSERT_EQ(decode.series[1].points.size(), 2u);
  EXPECT_EQ(decode.series[1].points[1].x, 150);
  const Chart residency = residency_chart(result, 150);
  ASSERT_EQ(residency.series.size(), 3u);
  EXPECT_EQ(residency.series[0].name, "standard: hot");
  EXPECT_EQ(residency.series[2].name, "q4: cold");
  EXPECT_EQ(residency.series[2].points.size(), 12u);
  EXPECT_EQ(residency_chart(result, 20).series.size(), 2u);
}

}  // namespace
}  // namespace quire
