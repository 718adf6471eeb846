// How `quire bench` says what it measured: as a table, as one JSON object, as a trace of steps.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "study/bench.h"

namespace quire::cli {

std::string bench_table(const BenchResult& result);

// An object for each row, in their order.
nlohmann::ordered_json bench_rows_json(const BenchResult& result);

// For each prompt length, every further entry against the first one: absolute and in percent.
nlohmann::ordered_json bench_delta_json(const BenchResult& result);

// One JSON object a line for every step of run `repeat` (from 0) of a row; nothing where there is no such
// run.
std::string bench_trace(const BenchRow& row, size_t repeat);

// A file name for an entry: what may not stand in one is an underscore.
std::string bench_file_name(const BenchEntry& entry);

}  // namespace quire::cli
