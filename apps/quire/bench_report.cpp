#include "bench_report.h"

#include <algorithm>
#include <cctype>

#include "terminal.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongestFileName = 80;

Json counters_json(const BenchStep& step) {
  const Residency& residency = step.residency;
  return {{"total_tokens", residency.total_tokens},
          {"hot_tokens", residency.hot_tokens},
          {"cold_tokens", residency.cold_tokens},
          {"dropped_tokens", residency.dropped_tokens},
          {"sticky_tokens", residency.sticky_tokens},
          {"promotions", residency.promotions},
          {"page_ins", residency.page_ins},
          {"page_outs", residency.page_outs},
          {"outside_tokens", residency.outside_tokens},
          {"tier_pieces", step.tier.pieces},
          {"tier_hits", step.tier.hits},
          {"tier_fetched_bytes", step.tier.fetched_bytes}};
}

Json spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}, {"mad", spread.mad}};
}

Json run_json(const BenchRun& run) {
  return {{"prefill_seconds", run.prefill_seconds()},
          {"decode_seconds", run.decode_seconds()},
          {"decode_tokens_per_s", run.decode_tokens_per_s()},
          {"resident_before_bytes", run.resident_before_bytes},
          {"peak_resident_bytes", run.peak_resident_bytes}};
}

void add_quality(const BenchRow& row, Json& object) {
  if (!row.quality) return;
  const bool generated = row.quality_text == QualityText::kGenerated;
  object["kl"] = row.quality->kl_mean;
  object["kl_p99"] = row.quality->kl_p99;
  object["same_top1"] = row.quality->same_top1;
  object["ppl"] = row.quality->ppl;
  object["ppl_full"] = row.quality->ppl_full;
  object["ppl_change"] = row.quality->ppl_change();
  object["mass"] = row.quality->mass;
  object["quality_text"] = generated ? "generated" : "continuation";
}

Json row_json(const BenchRow& row) {
  const Spread prefill = row.prefill_seconds();
  const auto n_prompt = static_cast<double>(row.prompt_tokens);
  Json runs = Json::array();
  for (const BenchRun& run : row.runs) runs.push_back(run_json(run));
  Json object = {{"mode", row.entry.mode},
                 {"recipe", row.entry.recipe.text()},
                 {"prompt_tokens", row.prompt_tokens},
                 {"generated_tokens", row.runs.front().tokens.size()},
                 {"decode_steps", row.runs.front().steps.size() - 1},
                 {"prefill_seconds", spread_json(prefill)},
                 {"prefill_tokens_per_s", prefill.median > 0 ? n_prompt / prefill.median : 0},
                 {"decode_tokens_per_s", spread_json(row.decode_tokens_per_s())},
                 {"kv_bytes", row.kv_bytes()},
                 {"peak_resident_bytes", row.peak_resident_bytes()},
                 {"peak_is_of_run", row.runs.front().peak_is_of_run},
                 {"rows_read_per_token", row.rows_read_per_token()},
                 {"bytes_read_per_token", row.bytes_read_per_token()}};
  add_quality(row, object);
  object["counters"] = counters_json(row.last_step());
  object["runs"] = std::move(runs);
  return object;
}

Json difference(double base, double value) {
  Json object = {{"abs", value - base}};
  object["pct"] = base != 0 ? Json(100 * (value - base) / base) : Json();
  return object;
}

Json delta_json(const BenchRow& base, const BenchRow& row) {
  const Spread was = base.decode_tokens_per_s();
  const Spread is = row.decode_tokens_per_s();
  const auto bytes = [](uint64_t n) { return static_cast<double>(n); };
  return {{"mode", row.entry.mode},
          {"against", base.entry.mode},
          {"prompt_tokens", row.prompt_tokens},
          {"prefill_seconds", difference(base.prefill_seconds().median, row.prefill_seconds().median)},
          {"decode_tokens_per_s", difference(was.median, is.median)},
          {"decode_ranges_overlap", is.min <= was.max && was.min <= is.max},
          {"kv_bytes", difference(bytes(base.kv_bytes()), bytes(row.kv_bytes()))},
          {"peak_resident_bytes",
           difference(bytes(base.peak_resident_bytes()), bytes(row.peak_resident_bytes()))},
          {"rows_read_per_token", difference(base.rows_read_per_token(), row.rows_read_per_token())},
          {"bytes_read_per_token", difference(base.bytes_read_per_token(), row.bytes_read_per_token())}};
}

std::vector<std::string> cells(const BenchRow& row) {
  const Spread speed = row.decode_tokens_per_s();
  std::vector<std::string> cells = {std::to_string(row.prompt_tokens),
                                    fixed(row.prefill_seconds().median, 3),
                                    fixed(speed.median, 1),
                                    fixed(speed.min, 1) + ".." + fixed(speed.max, 1),
                                    fixed(static_cast<double>(row.kv_bytes()) / 1e6, 2),
                                    fixed(static_cast<double>(row.peak_resident_bytes()) / 1e6, 1),
                                    fixed(row.rows_read_per_token(), 0),
                                    fixed(row.bytes_read_per_token() / 1000, 1)};
  if (!row.quality) return cells;
  cells.push_back(fixed(row.quality->kl_mean, 5));
  cells.push_back(fixed(row.quality->same_top1, 4));
  cells.push_back(fixed(100 * row.quality->ppl_change(), 2) + " %");
  return cells;
}

}  // namespace

std::string bench_table(const BenchResult& result) {
  std::vector<std::vector<std::string>> lines = {{"recipe", "prompt", "prefill s", "tokens/s", "min..max",
                                                  "KV MB", "peak MB", "rows/token", "kB/token"}};
  if (result.rows.front().quality) lines[0].insert(lines[0].end(), {"KL", "same top-1", "ppl change"});
  for (const BenchRow& row : result.rows) {
    lines.push_back({row.entry.mode});
    for (std::string& cell : cells(row)) lines.back().push_back(std::move(cell));
  }
  std::vector<size_t> widths(lines[0].size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string table;
  for (const auto& line : lines) {
    table += line[0] + std::string(widths[0] - line[0].size(), ' ');
    for (size_t i = 1; i < line.size(); ++i)
      table += std::string(2 + widths[i] - line[i].size(), ' ') + line[i];
    table += "\n";
  }
  return table;
}

Json bench_rows_json(const BenchResult& result) {
  Json rows = Json::array();
  for (const BenchRow& row : result.rows) rows.push_back(row_json(row));
  return rows;
}

Json bench_delta_json(const BenchResult& result) {
  Json deltas = Json::array();
  const BenchRow* base = nullptr;
  for (const BenchRow& row : result.rows) {
    if (base == nullptr || base->prompt_tokens != row.prompt_tokens) {
      base = &row;
    } else {
      deltas.push_back(delta_json(*base, row));
    }
  }
  return deltas;
}

std::string bench_trace(const BenchRow& row, size_t repeat) {
  if (repeat >= row.runs.size()) return {};
  std::string lines;
  const std::vector<BenchStep>& steps = row.runs[repeat].steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    Json line = {{"step", i},
                 {"phase", i == 0 ? "prefill" : "decode"},
                 {"mode", row.entry.mode},
                 {"recipe", row.entry.recipe.text()},
                 {"prompt_tokens", row.prompt_tokens},
                 {"repeat", repeat + 1},
                 {"seconds", steps[i].seconds},
                 {"n_tokens", steps[i].n_tokens},
                 {"rows_read", steps[i].rows_read},
                 {"bytes_read", steps[i].bytes_read},
                 {"predictor_calls", steps[i].predictor_calls},
                 {"kv_bytes", steps[i].kv_bytes}};
    line.update(counters_json(steps[i]));
    lines += line.dump() + "\n";
  }
  return lines;
}

std::string bench_file_name(const BenchEntry& entry) {
  std::string name = entry.mode.substr(0, kLongestFileName);
  for (char& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-';
    if (!plain) c = '_';
  }
  return name;
}

}  // namespace quire::cli
