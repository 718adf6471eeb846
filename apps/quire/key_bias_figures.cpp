#include "key_bias_figures.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/key_bias.h"

namespace quire::cli {
namespace {

// Layers whose keys the recipe codes and whose bias is taken off before.
std::vector<size_t> freed_layers(const Model& model, const Recipe& recipe) {
  const Geometry geometry = model.config().geometry();
  std::vector<size_t> layers;
  for (size_t layer = 0; layer < model.key_bias_risks().size(); ++layer) {
    const bool coded = recipe.key_side().coded && !geometry.is_windowed(layer);
    if (coded && model.key_bias_risks()[layer] >= kLeastKeyBiasRisk) layers.push_back(layer);
  }
  return layers;
}

double largest_risk(const Model& model) {
  const std::vector<double>& risks = model.key_bias_risks();
  return risks.empty() ? 0 : *std::ranges::max_element(risks);
}

}  // namespace

std::string key_bias_note(const Model& model, const Recipe& recipe) {
  const double risk = largest_risk(model);
  if (risk == 0) return "";
  char size[64];
  std::snprintf(size, sizeof size, " · key bias up to %.3g times the keys, ", risk);
  if (!recipe.key_side().coded) return std::string(size) + "kept exact";
  const std::vector<size_t> freed = freed_layers(model, recipe);
  if (freed.empty()) return std::string(size) + "coded with it";
  std::string layers;
  for (const size_t layer : freed) layers += (layers.empty() ? "" : ", ") + std::to_string(layer);
  return std::string(size) + "taken off before coding in layer" + (freed.size() > 1 ? "s " : " ") + layers;
}

void add_key_bias(const Model& model, const Recipe& recipe, nlohmann::ordered_json& object) {
  if (largest_risk(model) == 0) return;
  object["key_bias"] = {{"risk", largest_risk(model)}, {"taken_off_layers", freed_layers(model, recipe)}};
}

}  // namespace quire::cli
