// quire bench --device cuda: whole steps of a model on a GPU, timed by events on the device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "options.h"

namespace quire::cli {

struct DeviceBenchFlags {
  std::string device = "cpu";
  std::string random_weights;
  std::vector<int64_t> batches;
  std::vector<int64_t> contexts;
  bool prefill = false;
  double budget_mb = 0;  // of the cache on the device; 0: no limit

  bool given() const { return device != "cpu"; }
};

void add_device_bench_options(CLI::App& app, DeviceBenchFlags& flags);

// Throws Error, by name, for what was given and is for the other device.
void check_device_bench_flags(const CLI::App& app, const DeviceBenchFlags& flags);

struct DeviceBenchRun {
  std::string modes;
  int64_t n_steps;
  bool json;
  std::string output;  // file of the object, too
};

// Each recipe of `modes` at each batch and context; a table, or an object with `json`. What the device has no
// room for is said in the place of its figures, and the exit code is kNoDevice then.
int bench_on_device(const ModelOptions& model, const DeviceBenchFlags& flags, const DeviceBenchRun& run);

}  // namespace quire::cli
