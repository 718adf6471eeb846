// The frames of a layer's KV heads on the device.
#pragma once

namespace quire::cuda {

// Each [n_kv_heads][head_dim] (format/frame.h), or nullptr. On the device.
struct FramePlane {
  const float* mean;
  const float* balance;
  const float* signs;
};

}  // namespace quire::cuda
