// The weights of a model in the device's memory. Internal to the library.
#pragma once

#include <string>
#include <vector>

#include "gpu/device_matrix.h"
#include "gpu/device_model.h"
#include "kernels/cuda/device_buffer.h"

namespace quire::gpu {

struct LayerWeights {
  DeviceMatrix qkv;  // rows of q, k, v; heads of q and k in half-split order (model/tensors.h)
  DeviceMatrix output;
  DeviceMatrix gate_up;  // rows of the gate, then of up
  DeviceMatrix down;
  const float* attention_norm = nullptr;  // [width]
  const float* ffn_norm = nullptr;
  // Of what attention and the feed-forward part add to the stream, [width] each, or nullptr.
  const float* output_norm = nullptr;
  const float* down_norm = nullptr;
  const float* bias = nullptr;  // of qkv, or nullptr
  // Norms of heads, [head_dim] each, or nullptr.
  const float* query_norm = nullptr;
  const float* key_norm = nullptr;
};

// Everything lies in one piece of memory, so that it is there or not.
struct Weights {
  cuda::DeviceBuffer memory;
  DeviceMatrix embedding;
  DeviceMatrix head;  // of a tied model the embedding
  const float* output_norm = nullptr;
  const double* frequencies = nullptr;         // of RoPE, [rope_dims / 2]
  const double* window_frequencies = nullptr;  // of layers with a window, where they turn otherwise
  std::vector<LayerWeights> layers;
};

struct DeviceModel::Parts {
  int device = 0;
  std::string device_name;
  std::string label;
  ModelConfig config;
  Weights weights;
};

struct WeightsShape {
  bool tied = false;
  bool biases = false;
};

// Memory for the weights, with all places in it but nothing written except the frequencies. Throws
// DeviceError.
Weights reserve_weights(const ModelConfig& config, const WeightsShape& shape);

// Makes `device` the thread's, and gives its name. Throws DeviceError where there is none of that number.
std::string use_device(int device);

}  // namespace quire::gpu
