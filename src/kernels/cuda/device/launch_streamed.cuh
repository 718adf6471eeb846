// Launches of streamed_attention.cuh.
#pragma once

#include "kernels/cuda/device/launch_attention.cuh"
#include "kernels/cuda/device/streamed_attention.cuh"
#include "kernels/cuda/tensor_map.h"

namespace quire::cuda {

// Whether the current device can: it has Hopper's barriers, its code is here, and its shared memory suffices.
template <class Rows>
bool can_stream() {
  const auto kernel = streamed_attention<Rows>;
  if (!waits_for_inputs(reinterpret_cast<const void*>(kernel))) return false;
  int device = 0;
  int most_bytes = 0;
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "asking for its memory");
  return StreamShape<Rows>::kBytes + (int)sizeof(StreamShared<Rows>) + 1024 <= most_bytes &&
         block_count() <= StreamShape<Rows>::kMostMultiprocessors;
}

// n_heads KV heads of any number of pages.
template <class Box>
CUtensorMap map_of(const RowPlane& plane, int n_heads) {
  constexpr uint64_t kManyPages = 1u << 31;
  const cuuint64_t sizes[] = {Box::kRowBytes, 64, static_cast<cuuint64_t>(n_heads), kManyPages};
  const cuuint64_t strides[] = {Box::kRowBytes, static_cast<cuuint64_t>(plane.head_stride),
                                static_cast<cuuint64_t>(plane.page_stride)};
  return map_of_boxes(plane.data, sizes, strides, Box::kLineBytes, Box::kTokens);
}

template <class Rows>
void launch_streamed(const DecodeAttention& a, Stream stream) {
  using Shape = StreamShape<Rows>;
  const auto kernel = streamed_attention<Rows>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes),
        "reserving shared memory");
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(block_count()));
  config.blockDim = dim3(Shape::kThreads);
  config.dynamicSmemBytes = Shape::kBytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  const StreamParams<Rows> params = {attention_params<Rows>(a, {}),
                                     map_of<typename Rows::Box>(a.keys, a.n_kv_heads),
                                     map_of<typename Rows::Box>(a.values, a.n_kv_heads)};
  check(cudaLaunchKernelEx(&config, kernel, params), "launching attention");
}

}  // namespace quire::cuda
