// Results in the form that kvpress' evaluation leaves them in (NVIDIA/kvpress, evaluation/evaluate.py), so
// that its scripts and leaderboard read them beside its own. docs/eval.md lists the files and columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "study/ruler.h"

namespace quire::cli {

struct KvpressRun {
  std::string output_dir;
  std::string model_path;
  uint64_t seed = 0;
};

// The share of f16 rows' bytes that a recipe saves, 0 to 1: what stands for the share of rows that a press
// removes.
double compression_ratio(double bits_per_value);

// So that a folder that cannot be is refused before anything is measured. Throws Error.
void make_output_dir(const std::string& path);

// For each recipe and length, of rows in the order of measure_ruler(), a folder
//   ruler__LENGTH__MODEL__RECIPE__RATIO
// with predictions.csv, metrics.json and config.yaml; where there is one already, in a numbered folder inside
// it. Throws Error when it cannot be written. Returns the leaderboard's rows: dataset, data_dir, model,
// method, compression_ratio, score; they are also in leaderboard.csv.
nlohmann::ordered_json write_kvpress_folders(const KvpressRun& run, const std::vector<RulerRow>& rows);

}  // namespace quire::cli
