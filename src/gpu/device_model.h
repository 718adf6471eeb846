// A model on a GPU: its weights in bf16 on the device.
//
// Nothing of this needs the CUDA toolkit to include. Where Quire is built without it, making a DeviceModel
// throws DeviceError.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "model/config.h"
#include "weights/gguf.h"

namespace quire::gpu {

// Immutable; the batches that use it do not outlive it. Used from one thread, as they are.
class DeviceModel {
 public:
  // Weights of any type that src/weights decodes, rounded to bf16. `device` counts from 0. Throws Error for a
  // model that the device has no kernels for, DeviceError where there is no device or no room.
  static DeviceModel load(const GgufFile& file, const RopeOverrides& overrides, int device);
  // A model of a known shape whose weights are drawn from a seed on the device: for speed alone, its texts
  // mean nothing. Names: random_shape_names(). Throws as load().
  static DeviceModel random(std::string_view shape, uint64_t seed, int device);

  DeviceModel(DeviceModel&&) noexcept;
  DeviceModel& operator=(DeviceModel&&) noexcept;
  ~DeviceModel();

  const ModelConfig& config() const;
  // "llama-3.1-8b, random weights", or the model's own name.
  const std::string& label() const;
  uint64_t weight_bytes() const;
  // Of these what a step reads: all but the rows of the embedding that no token has.
  uint64_t step_bytes() const;
  // "NVIDIA H200"
  const std::string& device_name() const;

  struct Parts;  // of the library itself

 private:
  friend class DeviceBatch;
  explicit DeviceModel(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// "llama-3.1-8b, llama-3.2-1b, qwen2.5-7b"
std::string random_shape_names();

// "cuda" is device 0, "cuda:1" device 1; "cpu" is -1. Throws Error for anything else.
int device_number(std::string_view text);

}  // namespace quire::gpu
