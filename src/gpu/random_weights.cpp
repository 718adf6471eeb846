#include <utility>

#include "format/frame.h"
#include "gpu/fill.h"
#include "gpu/random_model.h"
#include "gpu/weights.h"

namespace quire::gpu {

namespace {

// Deviation of weights: as models are begun with.
constexpr float kSize = 0.02f;

class Filler {
 public:
  explicit Filler(uint64_t seed) : seed_(seed) {}
  void matrix(const DeviceMatrix& m) {
    seed_ = splitmix64(seed_);
    fill_normal(const_cast<uint16_t*>(m.data), (int64_t)m.rows * m.columns, kSize, seed_, Format::kBF16,
                nullptr);
  }
  void vector(const float* to, size_t n, float value) {
    fill_value(const_cast<float*>(to), static_cast<int64_t>(n), value, nullptr);
  }

 private:
  uint64_t seed_;
};

}  // namespace

DeviceModel DeviceModel::random(std::string_view name, uint64_t seed, int device) {
  const RandomShape& shape = random_shape(name);
  auto parts = std::make_unique<Parts>();
  parts->device = device;
  parts->config = random_config(shape);
  parts->device_name = use_device(device);
  parts->label = parts->config.name;
  const bool biases = parts->config.family->biases == Biases::kRequired;
  parts->weights = reserve_weights(parts->config, {shape.tied, biases});
  Filler filler(seed);
  const Weights& weights = parts->weights;
  const ModelConfig& config = parts->config;
  filler.matrix(weights.embedding);
  if (!shape.tied) filler.matrix(weights.head);
  filler.vector(weights.output_norm, config.width, 1);
  for (const LayerWeights& layer : weights.layers) {
    for (const DeviceMatrix* m : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) filler.matrix(*m);
    filler.vector(layer.attention_norm, config.width, 1);
    filler.vector(layer.ffn_norm, config.width, 1);
    if (layer.bias != nullptr) filler.vector(layer.bias, static_cast<size_t>(layer.qkv.rows), 0);
  }
  cuda::wait_for(nullptr);
  return DeviceModel(std::move(parts));
}

}  // namespace quire::gpu
