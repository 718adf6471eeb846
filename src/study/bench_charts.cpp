#include "study/bench_charts.h"

#include <string>

namespace quire {
namespace {

ChartSeries over_steps(const BenchRow& row, const char* what, uint64_t Residency::*tokens) {
  ChartSeries series{row.entry.mode + ": " + what, {}};
  const std::vector<BenchStep>& steps = row.runs.front().steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    series.points.push_back({static_cast<double>(i), static_cast<double>(steps[i].residency.*tokens)});
  }
  return series;
}

}  // namespace

Chart decode_time_chart(const BenchResult& result) {
  Chart chart{"Decode time per token", "tokens of the prompt", "milliseconds a token", {}};
  size_t n_entries = 0;
  while (n_entries < result.rows.size() &&
         result.rows[n_entries].prompt_tokens == result.rows.front().prompt_tokens) {
    chart.series.push_back({result.rows[n_entries].entry.mode, {}});
    ++n_entries;
  }
  for (size_t i = 0; i < result.rows.size(); ++i) {
    const BenchRow& row = result.rows[i];
    chart.series[i % n_entries].points.push_back(
        {static_cast<double>(row.prompt_tokens), 1000 / row.decode_tokens_per_s().median});
  }
  return chart;
}

Chart residency_chart(const BenchResult& result, size_t prompt_tokens) {
  Chart chart{"Hot and cold tokens after a prompt of " + std::to_string(prompt_tokens),
              "step (0: the prefill)",
              "tokens",
              {}};
  for (const BenchRow& row : result.rows) {
    if (row.prompt_tokens != prompt_tokens) continue;
    chart.series.push_back(over_steps(row, "hot", &Residency::hot_tokens));
    const Residency& end = row.residency();
    if (end.hot_tokens < end.total_tokens)
      chart.series.push_back(over_steps(row, "cold", &Residency::cold_tokens));
  }
  return chart;
}

}  // namespace quire
