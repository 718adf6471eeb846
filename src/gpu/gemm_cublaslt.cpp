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
    find(library, "cublasLtCreate", create);
    find(library, "cublasLtDestroy", destroy);
    find(library, "cublasLtMatmul", matmul);
    find(library, "cublasLtMatmulDescCreate", desc_create);
    find(library, "cublasLtMatmulDescSetAttribute", desc_set);
    find(library, "cublasLtMatmulDescDestroy", desc_destroy);
    find(library, "cublasLtMatrixLayoutCreate", layout_create);
    find(library, "cublasLtMatrixLayoutDestroy", layout_destroy);
    find(library, "cublasLtMatmulPreferenceCreate", preference_create);
    find(library, "cublasLtMatmulPreferenceSetAttribute", preference_set);
    find(library, "cublasLtMatmulPreferenceDestroy", preference_destroy);
    find(library, "cublasLtMatmulAlgoGetHeuristic", heuristic);
  }
  decltype(cublasLtCreate)* create;
  decltype(cublasLtDestroy)* destroy;
  decltype(cublasLtMatmul)* matmul;
  decltype(cublasLtMatmulDescCreate)* desc_create;
  decltype(cublasLtMatmulDescSetAttribute)* desc_set;
  decltype(cublasLtMatmulDescDestroy)* desc_destroy;
  decltype(cublasLtMatrixLayoutCreate)* layout_create;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy;
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic;
};

struct Gemm::State {
  // A shape, and how the library computes it.
  struct Plan {
    cublasLtMatrixLayout_t matrix = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };
  using Shape = std::tuple<int, int, int, int>;  // rows, columns, n, stride of the output

  State() : workspace(kWorkspaceBytes) {
    check(library().create(&handle), "to begin");
    check(library().desc_create(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check(library().desc_set(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
          "a transposed matrix");
  }
  ~State() {
    for (auto& [shape, plan] : plans) {
      for (const auto layout : {plan.matrix, plan.x, plan.out}) {
        if (layout != nullptr) library().layout_destroy(layout);
      }
    }
    if (product != nullptr) library().desc_destroy(product);
    if (handle != nullptr) library().destroy(handle);
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
    const auto [rows, columns, n, stride] = shape;
    const auto make = [](cublasLtMatrixLayout_t& to, cudaDataType type, int r, int c, int ld) {
      check(library().layout_create(&to, type, static_cast<uint64_t>(r), static_cast<uint64_t>(c), ld),
            "a layout");
    };
    try {
      make(plan.matrix, CUDA_R_16BF, columns, rows, columns);
      make(plan.x, CUDA_R_16BF, columns, n, columns);
      make(plan.out, CUDA_R_32F, rows, n, stride);
      choose(plan);
    } catch (...) {
      plans.erase(found);  // its layouts stay with the library until the process ends
      throw;
    }
    return plan;
  }

  void choose(Plan& plan) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(library().preference_create(&preference), "a preference");
    const size_t n_bytes = kWorkspaceBytes;
    library().preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &n_bytes, sizeof n_bytes);
    cublasLtMatmulHeuristicResult_t best{};
    int n_found = 0;
    const cublasStatus_t status = library().heuristic(handle, product, plan.matrix, plan.x, plan.out,
                                                      plan.out, preference, 1, &best, &n_found);
    library().preference_destroy(preference);
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

void Gemm::multiply(const DeviceMatrix& matrix, const uint16_t* x, int n, float* out, int stride, bool adds,
                    cuda::Stream stream) {
  const State::Plan& plan = state_->plan_for({matrix.rows, matrix.columns, n, stride});
  const float one = 1;
  const float old = adds ? 1 : 0;
  check(State::library().matmul(state_->handle, state_->product, &one, matrix.data, plan.matrix, x, plan.x,
                                &old, out, plan.out, out, plan.out, &plan.algorithm,
                                state_->workspace.as<void>(), kWorkspaceBytes, stream),
        "a product");
}

}  // namespace quire::gpu
