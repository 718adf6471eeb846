// quire run --device cuda: the same command on a GPU.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "options.h"
#include "saved_sequence.h"

namespace quire::cli {

struct DeviceRun {
  const std::string& device;  // as it was given
  const ModelOptions& model;
  const SamplingFlags& sampling;
  bool json;
};

// Throws Error for what only the CPU does.
void check_device_flags(const ModelOptions& model, const SamplingFlags& sampling, const KvFiles& files);

// `encode` gives the prompt's tokens.
int run_on_device(const DeviceRun& run, const std::function<std::vector<int32_t>(const Engine&)>& encode);

}  // namespace quire::cli
