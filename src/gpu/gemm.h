// Products of weight matrices with many rows of activations, bf16 times bf16 into f32: by cuBLASLt, and by
// another library where this class is written anew.
#pragma once

#include <cstddef>
#include <memory>

#include "gpu/device_matrix.h"
#include "kernels/cuda/attention.h"

namespace quire::gpu {

class Gemm {
 public:
  // On the current device. Throws DeviceError where the library is not there or refuses, or memory does.
  Gemm();
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // out [n][stride] = x * matrix^T, or += with `adds`; x [n][columns] bf16, `out` aligned as floats are. May
  // be captured.
  void multiply(const DeviceMatrix& matrix, const uint16_t* x, int n, float* out, int stride, bool adds,
                cuda::Stream stream);

  // Memory that products of any size share.
  uint64_t memory_bytes() const;

 private:
  struct Library;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::gpu
