#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <string>
#include <tuple>

#include "base/device_error.h"
#include "gpu/gemm.h"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device_buffer.h"

namespace quire::gpu {

namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;

// All that is asked of the library.
#define QUIRE_FUNCTIONS(x)                                                                         \
  x(cublasLtCreate) x(cublasLtDestroy) x(cublasLtMatmul) x(cublasLtMatmulDescCreate)               \
      x(cublasLtMatmulDescSetAttribute) x(cublasLtMatmulDescDestroy) x(cublasLtMatrixLayoutCreate) \
          x(cublasLtMatrixLayoutDestroy) x(cublasLtMatmulPreferenceCreate)                         \
              x(cublasLtMatmulPreferenceSetAttribute) x(cublasLtMatmulPreferenceDestroy)           \
                  x(cublasLtMatmulAlgoGetHeuristic)

// Symbols by name: half a gigabyte of library is loaded where a GPU is used, and nowhere else.
template <class F>
void find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  if (function == nullptr) throw DeviceError(std::string("libcublasLt has no ") + name);
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(std::string("cuBLASLt refused ") + what + ": status " +
                    std::to_string(static_cast<int>(status)));
}

// The largest power of two, up to 256, that the address is a multiple of.
uint32_t alignment(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

}  // namespace

struct Gemm::Library {
  Library() {
    void* library = nullptr;
    for (const char* name :
         {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13", "libcublasLt.so.12"}) {
      library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) break;
    }
    if (library == nullptr) {
      throw DeviceError(
          "cuBLASLt was not found: libcublasLt.so.13 must be where the system looks for libraries");
    }
#define QUIRE_FIND(name) find(library, #name, name);
    QUIRE_FUNCTIONS(QUIRE_FIND)
#undef QUIRE_FIND
  }
#define QUIRE_MEMBER(name) decltype(::name)* name = nullptr;
  QUIRE_FUNCTIONS(QUIRE_MEMBER)
#undef QUIRE_MEMBER
};

struct Gemm::State {
  // A shape, and how the library computes it.
  struct Plan {
    cublasLtMatrixLayout_t matrix = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };
  // Rows, columns, n, stride of the output, and what the addresses of matrix, x and output are multiples of.
  using Shape = std::tuple<int, int, int, int, uint32_t, uint32_t, uint32_t>;

  State() : workspace(kWorkspaceBytes) {
    check(library().cublasLtCreate(&handle), "to begin");
    check(library().cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check(library().cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                   sizeof transposed),
          "a transposed matrix");
  }
  ~State() {
    for (auto& [shape, plan] : plans) {
      for (const auto layout : {plan.matrix, plan.x, plan.out}) {
        if (layout != nullptr) library().cublasLtMatrixLayoutDestroy(layout);
      }
    }
    if (product != nullptr) library().cublasLtMatmulDescDestroy(product);
    if (handle != nullptr) library().cublasLtDestroy(handle);
  }

  static Library& library() {
    static Library the;
    return the;
  }

  // The library counts columns first: our matrix [rows][columns] is its columns x rows.
  const Plan& plan_for(const Shape& shape) {
    const auto [found, is_new] = plans.try_emplace(shape);
    Plan& plan = found->second;
    if (!is_new) return plan;
    const auto [rows, columns, n, stride, matrix_bytes, x_bytes, out_bytes] = shape;
    const auto make = [](cublasLtMatrixLayout_t& to, cudaDataType type, int r, int c, int ld) {
      check(library().cublasLtMatrixLayoutCreate(&to, type, static_cast<uint64_t>(r),
                                                 static_cast<uint64_t>(c), ld),
            "a layout");
    };
    try {
      make(plan.matrix, CUDA_R_16BF, columns, rows, columns);
      make(plan.x, CUDA_R_16BF, columns, n, columns);
      make(plan.out, CUDA_R_32F, rows, n, stride);
      choose(plan, {matrix_bytes, x_bytes, out_bytes});
    } catch (...) {
      plans.erase(found);  // its layouts stay with the library until the process ends
      throw;
    }
    return plan;
  }

  struct Alignments {
    uint32_t matrix, x, out;
  };
  // The library takes addresses for multiples of 256 bytes where it is not told otherwise.
  void choose(Plan& plan, const Alignments& bytes) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(library().cublasLtMatmulPreferenceCreate(&preference), "a preference");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      library().cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes.matrix);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes.x);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes.out);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes.out);
    cublasLtMatmulHeuristicResult_t best{};
    int n_found = 0;
    const cublasStatus_t status = library().cublasLtMatmulAlgoGetHeuristic(
        handle, product, plan.matrix, plan.x, plan.out, plan.out, preference, 1, &best, &n_found);
    library().cublasLtMatmulPreferenceDestroy(preference);
    check(n_found == 0 && status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status,
          "a product of these sizes");
    plan.algorithm = best.algo;
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cuda::DeviceBuffer workspace;
  std::map<Shape, Plan> plans;
};

Gemm::Gemm() : state_(std::make_unique<State>()) {}
Gemm::~Gemm() = default;

uint64_t Gemm::memory_bytes() const { return state_->workspace.size_bytes(); }

void Gemm::multiply(const DeviceMatrix& matrix, const uint16_t* x, int n, float* out, int stride, bool adds,
                    cuda::Stream stream) {
  const State::Plan& plan = state_->plan_for(
      {matrix.rows, matrix.columns, n, stride, alignment(matrix.data), alignment(x), alignment(out)});
  const float one = 1;
  const float old = adds ? 1 : 0;
  check(State::library().cublasLtMatmul(state_->handle, state_->product, &one, matrix.data, plan.matrix, x,
                                        plan.x, &old, out, plan.out, out, plan.out, &plan.algorithm,
                                        state_->workspace.as<void>(), kWorkspaceBytes, stream),
        "a product");
}

}  // namespace quire::gpu
