#include "kernels/cuda/tensor_map.h"

#include <cudaTypedefs.h>

#include "base/device_error.h"
#include "kernels/cuda/check.cuh"

namespace quire::cuda {

namespace {

// The driver's function, asked for at run time so that programs need no driver to be linked or to start.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
      "asking the driver for maps");
  if (found != cudaDriverEntryPointSuccess)
    throw DeviceError("the CUDA driver has no maps for the copy engine");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

CUtensorMapSwizzle exchange_of(int line_bytes) {
  switch (line_bytes) {
    case 128: return CU_TENSOR_MAP_SWIZZLE_128B;
    case 64: return CU_TENSOR_MAP_SWIZZLE_64B;
    default: return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

}  // namespace

CUtensorMap map_of_boxes(const uint8_t* data, const cuuint64_t (&sizes)[4], const cuuint64_t (&strides)[3],
                         int line_bytes, int n_rows) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = encoder();
  const cuuint32_t box[] = {static_cast<cuuint32_t>(line_bytes), static_cast<cuuint32_t>(n_rows), 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  CUtensorMap map{};
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, const_cast<uint8_t*>(data), sizes,
                                 strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, exchange_of(line_bytes),
                                 CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw DeviceError("the CUDA driver refuses a map of pages (error " + std::to_string(result) + ")");
  }
  return map;
}

}  // namespace quire::cuda
