#include "gpu/library_attention.h"

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "gpu/step_kernels.h"
#include "kernels/cuda/device_buffer.h"

// The frontend's headers look the library's functions up in it.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace quire::gpu {

namespace {

namespace fe = cudnn_frontend;

enum Place : int64_t { kQueries = 1, kKeys, kValues, kOut };

}  // namespace

struct LibraryAttention::State {
  // n, keys, stride, heads, KV heads, head size, format.
  using Shape = std::tuple<int, int, int, int, int, int, Format>;
  struct Plan {
    std::shared_ptr<fe::graph::Graph> graph;  // nullptr: the library has none
    cuda::DeviceBuffer workspace;
  };

  State() {
    if (fe::cudnn_dlhandle == nullptr) fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
    if (fe::cudnn_dlhandle == nullptr || fe::detail::create_handle(&handle) != CUDNN_STATUS_SUCCESS)
      handle = nullptr;
  }
  ~State() {
    if (handle != nullptr) fe::detail::destroy_handle(handle);
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

  // Kept once it is whole: where memory for it is refused it is made anew the next time.
  const Plan& plan_for(const PromptAttention& a) {
    const Shape shape = {a.n, a.first + a.n, a.stride, a.n_heads, a.n_kv_heads, a.head_dim, a.format};
    const auto found = plans.find(shape);
    if (found != plans.end()) return found->second;
    Plan plan;
    const auto graph = make_graph(a);
    int64_t n_bytes = 0;
    if (graph->build(handle, {fe::HeurMode_t::A}).is_good() && graph->get_workspace_size(n_bytes).is_good()) {
      plan.workspace = cuda::DeviceBuffer(static_cast<size_t>(n_bytes));
      plan.graph = graph;
    }
    return plans.emplace(shape, std::move(plan)).first->second;
  }

  cudnnHandle_t handle = nullptr;
  std::map<Shape, Plan> plans;
};

LibraryAttention::LibraryAttention() : state_(std::make_unique<State>()) {}
LibraryAttention::~LibraryAttention() = default;

void LibraryAttention::attend(const PromptAttention& a, cuda::Stream stream) {
  if (state_->handle == nullptr) return attend_prompt(a, stream);
  const State::Plan& plan = state_->plan_for(a);
  if (plan.graph == nullptr) return attend_prompt(a, stream);
  std::unordered_map<int64_t, void*> places = {{kQueries, const_cast<uint16_t*>(a.queries)},
                                               {kKeys, const_cast<uint16_t*>(a.keys)},
                                               {kValues, const_cast<uint16_t*>(a.values)},
                                               {kOut, a.out}};
  const bool done = fe::detail::set_stream(state_->handle, stream) == CUDNN_STATUS_SUCCESS &&
                    plan.graph->execute(state_->handle, places, plan.workspace.as<void>()).is_good();
  if (!done) return attend_prompt(a, stream);
  if (a.format == Format::kF16) f16_to_bf16(a.out, int64_t{a.n} * a.n_heads * a.head_dim, stream);
}

}  // namespace quire::gpu
