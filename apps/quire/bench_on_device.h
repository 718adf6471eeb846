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

// Each recipe of `modes` at each batch and context; a table, or an object with `json`.
int bench_on_device(const ModelOptions& model, const DeviceBenchFlags& flags, const std::string& modes,
                    int64_t n_steps, bool json);

}  // namespace quire::cli
