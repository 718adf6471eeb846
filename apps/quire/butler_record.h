// What a training of a predictor leaves beside its result: a log and a chart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "study/butler_trainer.h"

namespace quire::cli {

// JSON lines: `head`, then one for each step {"step", "loss", "rate"} and each validation {"step",
// "validation": {...}} in their order. Nothing in them depends on time.
std::string butler_log(const nlohmann::ordered_json& head, const ButlerTrainer& trainer);

// Means over the layers at each budget, and the layers'.
nlohmann::ordered_json butler_quality_json(const ButlerQuality& quality, bool with_layers);

// Loss and recall by step.
std::string butler_chart(const std::string& title, const ButlerTrainer& trainer);

// "out.safetensors" and ".svg" -> "out.svg"
std::string beside(const std::string& output, const std::string& suffix);

}  // namespace quire::cli
