#include "gpu/weights.h"

#include <string>

#include "base/device_error.h"
#include "gpu/device_recipe.h"
#include "kernels/cuda/check.cuh"

namespace quire::gpu {

namespace {

// Hands out places in memory; without a base it counts bytes.
class Places {
 public:
  explicit Places(uint8_t* base) : base_(base) {}

  DeviceMatrix matrix(size_t rows, size_t columns) {
    return {reinterpret_cast<const uint16_t*>(take(rows * columns * sizeof(uint16_t))),
            static_cast<int>(rows), static_cast<int>(columns)};
  }
  const float* vector(size_t n) { return reinterpret_cast<const float*>(take(n * sizeof(float))); }
  const double* doubles(size_t n) { return reinterpret_cast<const double*>(take(n * sizeof(double))); }
  size_t n_bytes() const { return at_; }

 private:
  uint8_t* take(size_t n_bytes) {
    uint8_t* place = base_ + at_;
    at_ += (n_bytes + 255) / 256 * 256;
    return place;
  }

  uint8_t* base_;
  size_t at_ = 0;
};

void lay_out(const ModelConfig& config, const WeightsShape& shape, Places& places, Weights& weights) {
  const size_t q_width = config.n_heads * config.head_dim;
  const size_t all_width = q_width + 2 * config.n_kv_heads * config.head_dim;
  weights.embedding = places.matrix(config.vocabulary, config.width);
  weights.head = shape.tied ? weights.embedding : places.matrix(config.vocabulary, config.width);
  weights.output_norm = places.vector(config.width);
  weights.frequencies = places.doubles(config.rope.frequencies.size());
  if (config.window_rope) weights.window_frequencies = places.doubles(config.window_rope->frequencies.size());
  weights.layers.resize(config.n_layers);
  for (LayerWeights& layer : weights.layers) {
    layer.qkv = places.matrix(all_width, config.width);
    layer.output = places.matrix(config.width, q_width);
    layer.gate_up = places.matrix(2 * config.ffn_width, config.width);
    layer.down = places.matrix(config.width, config.ffn_width);
    layer.attention_norm = places.vector(config.width);
    layer.ffn_norm = places.vector(config.width);
    layer.bias = shape.biases ? places.vector(all_width) : nullptr;
    if (config.family->post_norms) {
      layer.output_norm = places.vector(config.width);
      layer.down_norm = places.vector(config.width);
    }
    if (!config.family->head_norms) continue;
    layer.query_norm = places.vector(config.head_dim);
    layer.key_norm = places.vector(config.head_dim);
  }
}

}  // namespace

Weights reserve_weights(const ModelConfig& config, const WeightsShape& shape) {
  check_model(config);
  Weights weights;
  Places count(nullptr);
  lay_out(config, shape, count, weights);
  weights.memory = cuda::DeviceBuffer(count.n_bytes());
  Places places(weights.memory.as<uint8_t>());
  lay_out(config, shape, places, weights);
  const auto put = [&](const Rope& rope, const double* to) {
    const auto* at = reinterpret_cast<const uint8_t*>(to);
    weights.memory.write(rope.frequencies.data(), rope.frequencies.size() * sizeof(double),
                         static_cast<size_t>(at - weights.memory.as<uint8_t>()));
  };
  put(config.rope, weights.frequencies);
  if (config.window_rope) put(*config.window_rope, weights.window_frequencies);
  return weights;
}

std::string use_device(int device) {
  const int n = cuda::device_count();
  if (n == 0) cuda::require_device();
  if (device < 0 || device >= n) {
    throw DeviceError("there is no CUDA device " + std::to_string(device) + ": there are " +
                      std::to_string(n) + ", counted from 0");
  }
  cuda::check(cudaSetDevice(device), "taking the device");
  cuda::require_device();
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, device), "asking for the device's name");
  return properties.name;
}

}  // namespace quire::gpu
