#include "kernels/cuda/encode.h"

#include "kernels/cuda/device/code_rows.cuh"

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/codebook_of.h"

namespace quire::cuda {

namespace {

constexpr int kSealThreads = 256;

template <class F>
constexpr bool kOnDevice = requires {
  &SealedSide<F, true>::seal;
};

__device__ float load_number(const void* rows, Format format, int64_t i) {
  switch (format) {
    case Format::kF32: return static_cast<const float*>(rows)[i];
    case Format::kF16: return f16_to_f32(static_cast<const uint16_t*>(rows)[i]);
    default: return bf16_to_f32(static_cast<const uint16_t*>(rows)[i]);
  }
}

__device__ const float* of_head(const float* plane, int kv_head, int head_dim) {
  return plane == nullptr ? nullptr : plane + kv_head * head_dim;
}

// A block codes one side of one KV head of one page. Shared memory: rows [64][head_dim + 1] f32, codes
// [64][kMaxHeadDim].
template <class F, bool kKeys>
__global__ void __launch_bounds__(kSealThreads)
    seal_pages(const __grid_constant__ PagesToSeal pages, const __grid_constant__ Codebook book) {
  const int at = (int)blockIdx.x / pages.n_kv_heads;
  const int kv_head = (int)blockIdx.x % pages.n_kv_heads;
  const int d = pages.head_dim;
  auto* rows = reinterpret_cast<float*>(shared_memory());
  const PageRows page = {rows, shared_memory() + kPageRows * (d + 1) * sizeof(float), d + 1, d};
  const uint8_t* from =
      pages.rows.data + pages.from[at] * pages.rows.page_stride + kv_head * pages.rows.head_stride;
  for (int i = (int)threadIdx.x; i < kPageRows * d; i += kSealThreads) {
    rows[i / d * page.stride + i % d] = load_number(from, pages.format, i);
  }
  for (int i = (int)threadIdx.x; i < kPageRows * kMaxHeadDim; i += kSealThreads) page.codes[i] = 0;
  __syncthreads();
  const Frame frame = {d, of_head(pages.frame.mean, kv_head, d), of_head(pages.frame.balance, kv_head, d),
                       of_head(pages.frame.signs, kv_head, d)};
  for (int t = (int)threadIdx.x / kRowLanes; t < kPageRows; t += kSealThreads / kRowLanes) {
    row_to_frame(frame, rows + t * page.stride);
  }
  __syncthreads();
  uint8_t* to = const_cast<uint8_t*>(pages.coded.data) + pages.to[at] * pages.coded.page_stride +
                kv_head * pages.coded.head_stride;
  SealedSide<F, kKeys>::seal(page, book, to);
}

template <class F, bool kKeys>
void launch_seal(const PagesToSeal& pages, Stream stream) {
  const auto kernel = seal_pages<F, kKeys>;
  const int n_bytes = kPageRows * (pages.head_dim + 1) * (int)sizeof(float) + kPageRows * kMaxHeadDim;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes),
        "reserving shared memory");
  kernel<<<pages.n_pages * pages.n_kv_heads, kSealThreads, n_bytes, stream>>>(pages,
                                                                              codebook_of<F>(pages.head_dim));
  check(cudaGetLastError(), "launching the coding of pages");
}

// A thread decodes a row by the format's own words.
template <class F, bool kKeys>
__global__ void open_rows(RowPlane coded, const int32_t* pages, int n_kv_heads, int head_dim,
                          const __grid_constant__ Codebook book, float* rows) {
  const int at = (int)blockIdx.x / n_kv_heads;
  const int kv_head = (int)blockIdx.x % n_kv_heads;
  const int t = (int)threadIdx.x;
  const uint8_t* page = coded.data + pages[at] * coded.page_stride + kv_head * coded.head_stride;
  float* to = rows + ((int64_t)blockIdx.x * kPageRows + t) * head_dim;
  if constexpr (kKeys) {
    F::decode_key_row(page, head_dim, t, book, to);
  } else {
    F::decode_value_row(page, head_dim, t, book, to);
  }
}

// f(F{}) for a format that the device codes.
template <class F>
void visit_on_device(Code code, F&& f) {
  visit_code(code, [&](auto format) {
    if constexpr (kOnDevice<decltype(format)>) {
      f(format);
    } else {
      throw Error(std::string("the CUDA device does not code the format ") + decltype(format)::kInfo.name);
    }
  });
}

template <bool kKeys>
void seal_side(const PagesToSeal& pages, Code code, Stream stream) {
  if (pages.head_dim % 16 != 0 || pages.head_dim > kMaxHeadDim) {
    throw Error("the CUDA device codes heads of up to 256 values, multiples of 16, and not " +
                std::to_string(pages.head_dim));
  }
  if (pages.n_pages == 0) return;
  visit_on_device(code, [&](auto format) { launch_seal<decltype(format), kKeys>(pages, stream); });
}

template <bool kKeys>
void open_side(const RowPlane& coded, const int32_t* pages, int n_pages, int n_kv_heads, int head_dim,
               Code code, float* rows, Stream stream) {
  if (n_pages == 0) return;
  visit_on_device(code, [&](auto format) {
    using F = decltype(format);
    open_rows<F, kKeys><<<n_pages * n_kv_heads, kPageRows, 0, stream>>>(coded, pages, n_kv_heads, head_dim,
                                                                        codebook_of<F>(head_dim), rows);
  });
  check(cudaGetLastError(), "launching the decoding of pages");
}

}  // namespace

bool codes_on_device(Code code) {
  return visit_code(code, [](auto format) { return kOnDevice<decltype(format)>; });
}

void seal_keys(const PagesToSeal& pages, Code code, Stream stream) { seal_side<true>(pages, code, stream); }
void seal_values(const PagesToSeal& pages, Code code, Stream stream) {
  seal_side<false>(pages, code, stream);
}

void open_keys(const RowPlane& coded, const int32_t* pages, int n_pages, int n_kv_heads, int head_dim,
               Code code, float* rows, Stream stream) {
  open_side<true>(coded, pages, n_pages, n_kv_heads, head_dim, code, rows, stream);
}
void open_values(const RowPlane& coded, const int32_t* pages, int n_pages, int n_kv_heads, int head_dim,
                 Code code, float* rows, Stream stream) {
  open_side<false>(coded, pages, n_pages, n_kv_heads, head_dim, code, rows, stream);
}

}  // namespace quire::cuda
