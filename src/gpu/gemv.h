// Products of a matrix in bf16 and a few vectors in f32, bound by reading the matrix once.
//
// A block of eight warps takes 16 rows; its warps go through the columns side by side. Vectors are split into
// two bf16 numbers, so that tensor-core products lose nothing against f32: a result hangs on its row and
// vector alone, not on how many vectors there are.
//
// The RMS norm before a product is taken out of it: vectors come in multiplied by the norm's weights, and
// results are divided by the root of the mean square, of which the kernel that wrote the vectors leaves sums
// over 16 values each.
#pragma once

#include "gpu/device_matrix.h"
#include "kernels/cuda/attention.h"
#include "model/families.h"

namespace quire::gpu {

constexpr int kMostVectors = 8;

// All on the device.
struct Vectors {
  const float* x;  // [n][stride]
  int n;           // 1 .. kMostVectors
  int stride;
  const float* square_sums;  // [n][width / 16] of what x was before weights, or nullptr: no norm
  int width;                 // values that these sums are over
  float epsilon;
};

// out [n][stride].
void multiply_store(const DeviceMatrix& matrix, const Vectors& vectors, float* out, int stride,
                    cuda::Stream stream);

// The residual stream: x [n][width] and what the next product reads.
struct StreamOut {
  float* x;                  // += the product
  float* weighted;           // [n][width] x times the next norm's weights
  const float* next_weight;  // [width]
  float* square_sums;        // [n][width / 16] of x
};
void multiply_add(const DeviceMatrix& matrix, const Vectors& vectors, const StreamOut& out,
                  cuda::Stream stream);

// out [n][rows / 2] = activation(gate) * up, the first half of the rows being the gate. rows / 2: a multiple
// of 8.
void multiply_gated(const DeviceMatrix& gate_up, const Vectors& vectors, Activation activation, float* out,
                    cuda::Stream stream);

}  // namespace quire::gpu
