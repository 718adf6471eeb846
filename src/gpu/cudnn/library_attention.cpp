#include "gpu/library_attention.h"

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <map>
#include <new>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "gpu/step_kernels.h"
#include "kernels/cuda/device_buffer.h"

// The frontend's headers look the library's functions up in it.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace quire::gpu {

namespace {

namespace fe = cudnn_frontend;

// Every length of a prompt has plans of its own, one a chunk. So many are kept, more where one prompt has
// more chunks: fewer than a prompt goes through would all be gone when it comes again.
constexpr size_t kLeastPlans = 128;
size_t most_plans(const PromptAttention& a) {
  return std::max(kLeastPlans, static_cast<size_t>(a.stride / kPromptChunk + 2));
}
// For fewer queries a plan takes longer to make than our own kernel to be done.
constexpr int kLeastQueries = 512;

enum Place : int64_t { kQueries = 1, kKeys, kValues, kOut };

}  // namespace

struct LibraryAttention::State {
  // n, keys, stride, heads, KV heads, head size, format.
  using Shape = std::tuple<int, int, int, int, int, int, Format>;
  struct Plan {
    std::shared_ptr<fe::graph::Graph> graph;  // nullptr: the library has none
    int64_t workspace_bytes = 0;
    uint64_t last_use = 0;
  };

  State() {
    try {
      if (fe::cudnn_dlhandle == nullptr) fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
      if (fe::cudnn_dlhandle == nullptr || fe::detail::create_handle(&handle) != CUDNN_STATUS_SUCCESS)
        handle = nullptr;
    } catch (const std::exception&) {  // a library without a function that the frontend looks for
      handle = nullptr;
    }
  }
  ~State() {
    try {
      plans.clear();
      if (handle != nullptr) fe::detail::destroy_handle(handle);
    } catch (const std::exception&) {  // then it stays until the process ends
    }
  }

  // Keys [1][kv_head][token][dim] of which the first n are seen; the last query sees all of them.
  static std::shared_ptr<fe::graph::Graph> make_graph(const PromptAttention& a) {
    const int64_t d = a.head_dim;
    const int64_t n_keys = a.first + a.n;
    auto graph = std::make_shared<fe::graph::Graph>();
    graph->set_io_data_type(a.format == Format::kF16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const auto tensor = [&](const char* name, Place place, std::vector<int64_t> dims,
                            std::vector<int64_t> strides) {
      return graph->tensor(
          fe::graph::Tensor_attributes().set_name(name).set_uid(place).set_dim(dims).set_stride(strides));
    };
    const std::vector<int64_t> query_dims = {1, a.n_heads, a.n, d};
    const std::vector<int64_t> query_strides = {int64_t{a.n} * a.n_heads * d, d, a.n_heads * d, 1};
    const std::vector<int64_t> key_dims = {1, a.n_kv_heads, n_keys, d};
    const std::vector<int64_t> key_strides = {int64_t{a.n_kv_heads} * a.stride * d, a.stride * d, d, 1};
    auto attributes =
        fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(false).set_attn_scale(a.scale);
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::BOTTOM_RIGHT).set_diagonal_band_right_bound(0);
    auto [out, stats] = graph->sdpa(tensor("queries", kQueries, query_dims, query_strides),
                                    tensor("keys", kKeys, key_dims, key_strides),
                                    tensor("values", kValues, key_dims, key_strides), attributes);
    out->set_output(true).set_uid(kOut).set_dim(query_dims).set_stride(query_strides);
    return graph;
  }

  // The one that was used longest ago goes where there are too many; the stream must be done with it.
  void make_place(size_t most, cuda::Stream stream) {
    if (plans.size() < most) return;
    cuda::wait_for(stream);
    const auto older = [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; };
    while (plans.size() >= most) plans.erase(std::min_element(plans.begin(), plans.end(), older));
  }

  // One that the library does not have is without a graph.
  Plan make_plan(const PromptAttention& a) {
    Plan plan;
    const auto graph = make_graph(a);
    if (graph->build(handle, {fe::HeurMode_t::A}).is_good() &&
        graph->get_workspace_size(plan.workspace_bytes).is_good()) {
      plan.graph = graph;
    }
    return plan;
  }

  // Kept once it is whole: where memory for it is refused it is made anew the next time.
  const Plan& plan_for(const PromptAttention& a, cuda::Stream stream) {
    const Shape shape = {a.n, a.first + a.n, a.stride, a.n_heads, a.n_kv_heads, a.head_dim, a.format};
    auto found = plans.find(shape);
    if (found == plans.end()) {
      make_place(most_plans(a), stream);
      ++n_made;
      Plan plan = make_plan(a);
      if (plan.graph != nullptr) grow_workspace(static_cast<size_t>(plan.workspace_bytes), stream);
      found = plans.emplace(shape, std::move(plan)).first;
    }
    found->second.last_use = ++n_uses;
    return found->second;
  }

  // All plans have it, one after the other on one stream.
  void grow_workspace(size_t n_bytes, cuda::Stream stream) {
    if (n_bytes <= workspace.size_bytes()) return;
    cuda::wait_for(stream);
    workspace = cuda::DeviceBuffer();
    workspace = cuda::DeviceBuffer(n_bytes);
  }

  // False: the library did nothing.
  bool attend(const PromptAttention& a, cuda::Stream stream) {
    if (handle == nullptr || a.n < kLeastQueries || a.window > 0 || a.score_cap != 0) return false;
    const Plan& plan = plan_for(a, stream);
    if (plan.graph == nullptr) return false;
    std::unordered_map<int64_t, void*> places = {{kQueries, const_cast<uint16_t*>(a.queries)},
                                                 {kKeys, const_cast<uint16_t*>(a.keys)},
                                                 {kValues, const_cast<uint16_t*>(a.values)},
                                                 {kOut, a.out}};
    return fe::detail::set_stream(handle, stream) == CUDNN_STATUS_SUCCESS &&
           plan.graph->execute(handle, places, workspace.as<void>()).is_good();
  }

  cudnnHandle_t handle = nullptr;
  std::map<Shape, Plan> plans;
  uint64_t n_uses = 0;
  uint64_t n_made = 0;
  cuda::DeviceBuffer workspace;
};

LibraryAttention::LibraryAttention() : state_(std::make_unique<State>()) {}
LibraryAttention::~LibraryAttention() = default;

uint64_t LibraryAttention::memory_bytes() const { return state_->workspace.size_bytes(); }
uint64_t LibraryAttention::n_plans_made() const { return state_->n_made; }

// What the frontend throws, as where it finds no libcudart, is a refusal like another.
void LibraryAttention::attend(const PromptAttention& a, cuda::Stream stream) {
  bool done = false;
  try {
    done = state_->attend(a, stream);
  } catch (const Error&) {
    throw;  // our own: memory
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    cudaGetLastError();  // that is answered by our own kernel
  }
  if (!done) return attend_prompt(a, stream);
  if (a.format == Format::kF16) f16_to_bf16(a.out, int64_t{a.n} * a.n_heads * a.head_dim, stream);
}

}  // namespace quire::gpu
