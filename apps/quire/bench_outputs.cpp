#include "bench_outputs.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "bench_report.h"
#include "study/bench_charts.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  if (!path.empty()) std::filesystem::create_directories(path, error);
  if (error) throw Error("cannot make the folder " + path.string() + ": " + error.message());
}

void open_file(std::optional<AtomicFile>& file, const std::string& path) {
  if (path.empty()) return;
  make_folder(std::filesystem::path(path).parent_path());
  file.emplace(path);
}

void finish(AtomicFile& file, const std::string& text) {
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

void replace_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  finish(file, text);
}

// Rows of one prompt length stand together, and as many at each.
size_t entries_of(const BenchResult& result) {
  const size_t n_prompt = result.rows.front().prompt_tokens;
  return static_cast<size_t>(std::count_if(result.rows.begin(), result.rows.end(), [&](const BenchRow& row) {
    return row.prompt_tokens == n_prompt;
  }));
}

// In the order in which the steps were made.
std::string whole_trace(const BenchResult& result) {
  const size_t n_entries = entries_of(result);
  std::string text;
  for (size_t first = 0; first < result.rows.size(); first += n_entries) {
    for (size_t repeat = 0; repeat < result.rows[first].runs.size(); ++repeat) {
      for (size_t i = 0; i < n_entries; ++i) text += bench_trace(result.rows[first + i], repeat);
    }
  }
  return text;
}

// MODE.runN.jsonl, as the published benchmark names them; equal modes are numbered.
void write_traces(const BenchResult& result, const std::string& folder) {
  const size_t n_entries = entries_of(result);
  std::set<std::string> names;
  for (size_t i = 0; i < n_entries; ++i) {
    const std::string plain = bench_file_name(result.rows[i].entry);
    std::string name = plain;
    for (int n = 2; !names.insert(name).second; ++n) name = plain + "-" + std::to_string(n);
    for (size_t repeat = 0; repeat < result.rows[i].runs.size(); ++repeat) {
      std::string text;
      for (size_t row = i; row < result.rows.size(); row += n_entries) {
        text += bench_trace(result.rows[row], repeat);
      }
      replace_file(folder + "/" + name + ".run" + std::to_string(repeat + 1) + ".jsonl", text);
    }
  }
}

void write_charts(const BenchResult& result, const std::string& folder) {
  std::set<size_t> prompts;
  for (const BenchRow& row : result.rows) prompts.insert(row.prompt_tokens);
  for (const size_t n : prompts) {
    replace_file(folder + "/residency-" + std::to_string(n) + ".svg", svg_of(residency_chart(result, n)));
  }
  if (prompts.size() > 1) replace_file(folder + "/decode-time.svg", svg_of(decode_time_chart(result)));
}

}  // namespace

BenchOutputs::BenchOutputs(BenchPaths paths) : paths_(std::move(paths)) {
  open_file(output_, paths_.output);
  open_file(trace_, paths_.trace);
  for (const std::string& folder : {paths_.trace_folder, paths_.svg_folder}) {
    if (folder.empty()) continue;
    make_folder(folder);
    const AtomicFile probe(folder + "/quire-bench-probe");  // removed again
  }
}

void BenchOutputs::write(const BenchResult& result, const Json& object) {
  if (output_) finish(*output_, object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  if (trace_) finish(*trace_, whole_trace(result));
  if (!paths_.trace_folder.empty()) write_traces(result, paths_.trace_folder);
  if (!paths_.svg_folder.empty()) write_charts(result, paths_.svg_folder);
}

}  // namespace quire::cli
