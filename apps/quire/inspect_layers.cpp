#include "inspect_layers.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cache/geometry.h"
#include "format/row_format.h"
#include "model/config.h"
#include "model/key_bias.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

ModelConfig config_for(const GgufFile& file, uint64_t context_tokens) {
  RopeOverrides overrides;
  overrides.context_tokens = static_cast<size_t>(context_tokens);
  return ModelConfig::read(file, overrides);
}

std::string key_frame(const Recipe& recipe) {
  const FrameKind kind = recipe.frame_of(recipe.keys);
  const bool by_prompt = recipe.prompt_statistics && kind >= FrameKind::kCalibrated;
  return by_prompt ? "prompt" : std::string(frame_name(kind));
}

Json layer_report(const Recipe& recipe, const Geometry& geometry, size_t layer, double risk) {
  const bool windowed = geometry.is_windowed(layer);
  const SideFormat keys = windowed ? SideFormat::exact(recipe.key_format) : recipe.key_side();
  const SideFormat values = windowed ? SideFormat::exact(recipe.value_format) : recipe.value_side();
  Json report = {{"layer", layer}};
  report["window_tokens"] = windowed ? Json(geometry.window_tokens[layer]) : Json();
  report["keys"] = keys.name();
  report["values"] = values.name();
  report["key_frame"] = keys.coded ? Json(key_frame(recipe)) : Json();
  report["key_bias_risk"] = risk;
  report["key_bias_taken_off"] = keys.coded && risk >= kLeastKeyBiasRisk;
  return report;
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string description(const Json& layer) {
  std::string text = "every token";
  if (!layer["window_tokens"].is_null()) {
    text = std::string("the last ").append(layer["window_tokens"].dump()).append(" tokens");
  }
  text += ": keys " + layer["keys"].get<std::string>();
  if (!layer["key_frame"].is_null()) {
    text += " (frame " + layer["key_frame"].get<std::string>();
    text += layer["key_bias_taken_off"].get<bool>() ? ", bias taken off)" : ")";
  }
  return text + ", values " + layer["values"].get<std::string>();
}

// "0-4, 6", of rising numbers.
std::string ranges_text(const std::vector<size_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(numbers[i]);
    if (last > i) text.append("-").append(std::to_string(numbers[last]));
    i = last + 1;
  }
  return text;
}

struct AlikeLayers {
  std::string description;
  std::vector<size_t> numbers;
  double risk = 0;
};

}  // namespace

Json layers_report(const GgufFile& file, uint64_t context_tokens, const Recipe& recipe) {
  try {
    const ModelConfig config = config_for(file, context_tokens);
    const Geometry geometry = config.geometry();
    const std::vector<double> risks = layer_risks(check_key_biases(file, config), config.n_layers);
    Json layers = Json::array();
    for (size_t layer = 0; layer < geometry.n_layers; ++layer) {
      layers.push_back(layer_report(recipe, geometry, layer, risks.empty() ? 0 : risks[layer]));
    }
    return layers;
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

std::string layer_formats_text(const Json& layers, const std::string& recipe) {
  if (layers.is_object()) return "";  // said by the verdict
  std::vector<AlikeLayers> groups;
  for (const Json& layer : layers) {
    const std::string text = description(layer);
    auto group = std::ranges::find(groups, text, &AlikeLayers::description);
    if (group == groups.end()) group = groups.insert(groups.end(), AlikeLayers{text, {}, 0});
    group->numbers.push_back(layer["layer"].get<size_t>());
    group->risk = std::max(group->risk, layer["key_bias_risk"].get<double>());
  }
  std::string out = "\nlayers, recipe " + recipe + "\n";
  for (const AlikeLayers& group : groups) {
    out += "  " + ranges_text(group.numbers) + " see " + group.description;
    if (group.risk > 0) out += "; key bias up to " + number_text(group.risk) + " times the keys";
    out += "\n";
  }
  return out;
}

void check_recipe(const GgufFile& file, uint64_t context_tokens, const Recipe& recipe) {
  std::optional<Geometry> geometry;
  try {
    geometry = config_for(file, context_tokens).geometry();
  } catch (const Error&) {
    return;  // the report says so
  }
  check_windows(recipe, *geometry);
}

}  // namespace quire::cli
