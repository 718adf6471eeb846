#include "format/code_catalogue.h"

#include "kernels/cuda/device/launch_attention.cuh"
#include "kernels/cuda/device/panel_rows.cuh"

namespace quire::cuda {

void attend_panels(const DecodeAttention& attention, Code code, Stream stream) {
  check_shape(attention);
  visit_head_dim(attention.head_dim, [&](auto dim) {
    constexpr int d = dim();
    switch (code) {
      case Code::kQ8: return launch_attention<PanelRows<GroupRanges<Q8Group, d>, d>>(attention, {}, stream);
      case Code::kQ4: return launch_attention<PanelRows<GroupRanges<Q4Group, d>, d>>(attention, {}, stream);
      case Code::kKivi2: return launch_attention<PanelRows<KiviRanges<2, d>, d>>(attention, {}, stream);
      case Code::kKivi4: return launch_attention<PanelRows<KiviRanges<4, d>, d>>(attention, {}, stream);
      default: throw Error(std::string("no CUDA kernel reads all rows of the format ") + info(code).name);
    }
  });
}

}  // namespace quire::cuda
