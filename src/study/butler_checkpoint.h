// All that the next step of a training depends on, on disk: a safetensors file.
//
//   metadata  "format" "quire.butler-training", "model" (its fingerprint), "settings" (options and texts),
//             "isa" (instruction sets that have computed it, joined by +)
//   tensors   parameters, first_moments, second_moments [parameters]    losses [step]
//             checks [check][step, rows, scores of each layer and budget]
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "study/butler_quality.h"

namespace quire {

// A validation after so many steps.
struct ButlerCheck {
  size_t step = 0;
  ButlerQuality quality;
};

struct ButlerCheckpoint {
  std::string model, settings, isa;
  std::vector<float> parameters, first_moments, second_moments;
  std::vector<float> losses;  // [step]
  std::vector<ButlerCheck> checks;
};

// What a checkpoint can hold of a check: in single precision.
ButlerCheck kept_check(const ButlerCheck& check);

void save_checkpoint(const ButlerCheckpoint& checkpoint, const std::string& path);

// Throws Error "PATH: ..." for what is no checkpoint of this model and these settings, or holds values that
// no training has. Whether the steps of its checks are those of the options is for the caller to see.
ButlerCheckpoint load_checkpoint(const std::string& path, const std::string& model,
                                 const std::string& settings, size_t n_parameters, size_t n_layers);

}  // namespace quire
