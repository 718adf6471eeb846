#include "gpu/fill.h"

#include "base/fp8.h"
#include "base/half.h"
#include "gpu/device/launch.cuh"

namespace quire::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 4096;

__device__ uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// By Box and Muller: number i hangs on the seed and i alone.
__global__ void normal_kernel(uint16_t* to, int64_t n, float size, uint64_t seed, Format format) {
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const uint64_t bits = mixed(seed + (uint64_t)i * 0xd1342543de82ef95ull);
    const float u = ((float)(uint32_t)(bits >> 40) + 0.5f) * 0x1p-24f;
    const float angle = (float)(uint32_t)(bits & 0xffffff) * 0x1p-23f;
    const float x = size * sqrtf(-2.0f * logf(u)) * cospif(angle);
    if (format == Format::kFP8) {
      reinterpret_cast<uint8_t*>(to)[i] = f32_to_fp8(x);
    } else {
      to[i] = format == Format::kF16 ? f32_to_f16(x) : f32_to_bf16(x);
    }
  }
}

__global__ void value_kernel(float* to, int64_t n, float value) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = value;
}

unsigned blocks(int64_t n) {
  const int64_t wanted = (n + kThreads - 1) / kThreads;
  return static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks);
}

}  // namespace

void fill_normal(uint16_t* to, int64_t n, float size, uint64_t seed, Format format, cuda::Stream stream) {
  normal_kernel<<<blocks(n), kThreads, 0, stream>>>(to, n, size, seed, format);
  cuda::check(cudaGetLastError(), "drawing numbers");
}

void fill_value(float* to, int64_t n, float value, cuda::Stream stream) {
  value_kernel<<<static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads, 0, stream>>>(to, n, value);
  cuda::check(cudaGetLastError(), "filling numbers");
}

}  // namespace quire::gpu
