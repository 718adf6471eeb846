// Attention of a step to the pages of a layer.
#include "base/error.h"
#include "gpu/device_cache.h"
#include "gpu/moved_rows.h"

namespace quire::gpu {

namespace {

// What dense and sparse attention are told alike.
template <typename Attention>
Attention attention_of(const CacheShape& shape, const float* queries, float* out, float* log_sums,
                       void* workspace) {
  const HeadShape& h = shape.heads;
  Attention a{};
  a.n_sequences = shape.n_sequences;
  a.n_kv_heads = h.n_kv_heads;
  a.group = h.n_heads / h.n_kv_heads;
  a.head_dim = h.head_dim;
  a.queries = queries;
  a.scale = shape.scale;
  a.out = out;
  a.log_sums = log_sums;
  a.workspace = workspace;
  return a;
}

}  // namespace

cuda::DecodeAttention DeviceCache::attention(const float* queries, float* out, float* log_sums) const {
  auto a = attention_of<cuda::DecodeAttention>(shape_, queries, out, log_sums, workspace_.as<void>());
  a.score_cap = shape_.score_cap;
  return a;
}

// To pages as their table has them.
cuda::DecodeAttention DeviceCache::exact_attention(const ExactPages& pages, const float* queries,
                                                   const int32_t* n_tokens, float* out,
                                                   float* log_sums) const {
  cuda::DecodeAttention a = attention(queries, out, log_sums);
  a.keys = pages.keys;
  a.values = pages.values;
  a.page_table = pages.page_table;
  a.page_table_stride = pages.page_table_stride;
  a.n_tokens = n_tokens;
  return a;
}

// What was attended to apart joins the output.
void DeviceCache::merge_other(float* out, cuda::Stream stream) {
  cuda::merge_attention(out, log_sums_.as<float>(), other_out_.as<float>(), other_log_sums_.as<float>(),
                        shape_.n_sequences * shape_.heads.n_heads, shape_.heads.head_dim, stream);
}

cuda::SparseAttention DeviceCache::sparse_attention(int layer, const float* queries,
                                                    const int32_t* exact_tokens, float* out) const {
  const cuda::SparsePages planes = coded_planes(layer);
  const ExactPages exact = exact_pages(layer);
  const Frames& frames = frames_[static_cast<size_t>(layer)];
  auto a =
      attention_of<cuda::SparseAttention>(shape_, queries, out, log_sums_.as<float>(), workspace_.as<void>());
  a.index = planes.index;
  a.keys = planes.keys;
  a.values = planes.values;
  a.page_table = coded_table_.as<int32_t>();
  a.page_table_stride = pages_.coded_stride();
  a.n_tokens = first_tokens_.as<int32_t>();
  a.n_sinks = recipe_.sink_tokens;
  a.key_frame = frames.keys;
  a.value_frame = frames.values;
  a.exact = {recipe_.format,
             exact.keys,
             exact.values,
             exact.page_table,
             exact.page_table_stride,
             exact_tokens,
             sink_pages_.as<int32_t>()};
  a.budget = recipe_.budget;
  a.n_read = n_read_.as<int32_t>();
  return a;
}

cuda::SignVqAttention DeviceCache::signvq_attention(int layer, const float* queries,
                                                    const int32_t* exact_tokens, float* out) const {
  const cuda::SignVqPages planes = signvq_planes(layer);
  const ExactPages exact = exact_pages(layer);
  auto a =
      attention_of<cuda::SignVqAttention>(shape_, queries, out, log_sums_.as<float>(), workspace_.as<void>());
  a.index = planes.index;
  a.rows = planes.rows;
  a.page_table = coded_table_.as<int32_t>();
  a.page_table_stride = pages_.coded_stride();
  a.n_tokens = first_tokens_.as<int32_t>();
  a.statistics = signs_.statistics(layer);
  a.n_kept_rows = recipe_.full_rows;
  a.format = recipe_.format;
  a.exact_keys = exact.keys;
  a.exact_values = exact.values;
  a.exact_table = exact.page_table;
  a.exact_table_stride = exact.page_table_stride;
  a.exact_tokens = exact_tokens;
  a.kept_pages = sink_pages_.as<int32_t>();
  a.budget = recipe_.budget;
  a.mean_queries = signs_.mean_queries(layer);
  return a;
}

void DeviceCache::attend(int layer, const float* queries, const int32_t* exact_tokens, float* out,
                         cuda::Stream stream) {
  if (offloaded_ != nullptr && layer == 0) offloaded_->count_step(stream);
  if (is_signvq()) {
    const cuda::SignVqAttention a = signvq_attention(layer, queries, exact_tokens, out);
    if (offloaded_ == nullptr) return cuda::attend_signvq(a, signvq_plan_, stream);
    return cuda::attend_offloaded_signvq(a, offloaded_->rows(layer), signvq_plan_, stream);
  }
  if (offloaded_ != nullptr) {
    const cuda::SparseAttention a = sparse_attention(layer, queries, exact_tokens, out);
    return cuda::attend_offloaded(a, offloaded_->rows(layer), recipe_.key_bits, recipe_.value_bits, plan_,
                                  stream);
  }
  if (recipe_.kind == AttentionKind::kSparse) {
    return cuda::attend_sparse(sparse_attention(layer, queries, exact_tokens, out), recipe_.key_bits,
                               recipe_.value_bits, plan_, stream);
  }
  if (recipe_.window_tokens > 0) return attend_ring(layer, queries, exact_tokens, out, stream);
  if (recipe_.bounds_pages() && layer >= recipe_.quest.dense_layers) {
    return attend_listed(layer, queries, exact_tokens, out, stream);
  }
  attend_exact(layer, queries, exact_tokens, out, stream);
  if (!recipe_.seals()) return;
  attend_coded(layer, queries, other_out_.as<float>(), stream);
  merge_other(out, stream);
  if (recipe_.sink_tokens == 0) return;
  cuda::DecodeAttention a = exact_attention(exact_pages(layer), queries, sink_tokens_.as<int32_t>(),
                                            other_out_.as<float>(), other_log_sums_.as<float>());
  a.page_table = sink_pages_.as<int32_t>();
  a.page_table_stride = 1;
  cuda::attend_exact(a, recipe_.format, stream);
  merge_other(out, stream);
}

void DeviceCache::attend_exact(int layer, const float* queries, const int32_t* exact_tokens, float* out,
                               cuda::Stream stream) {
  cuda::attend_exact(exact_attention(exact_pages(layer), queries, exact_tokens, out, log_sums_.as<float>()),
                     recipe_.format, stream);
}

void DeviceCache::attend_window(int layer, const float* queries, const int32_t* n_tokens, float* out,
                                cuda::Stream stream) {
  cuda::DecodeAttention a =
      exact_attention(windows_->pages(layer), queries, n_tokens, out, log_sums_.as<float>());
  a.workspace = window_workspace_.as<void>();
  a.window = windows_->window(layer);
  cuda::attend_exact(a, recipe_.format, stream);
}

// The ring without its sinks, and these with queries that are turned to them.
void DeviceCache::attend_ring(int layer, const float* queries, const int32_t* exact_tokens, float* out,
                              cuda::Stream stream) {
  cuda::DecodeAttention a =
      exact_attention(exact_pages(layer), queries, exact_tokens, out, log_sums_.as<float>());
  a.first_token = recipe_.sink_tokens;
  cuda::attend_exact(a, recipe_.format, stream);
  if (recipe_.sink_tokens == 0) return;
  const Angles back = {nullptr, 1, shape_.rope_half, window_cosine_.as<float>(), window_sine_.as<float>()};
  turn_queries(shape_.heads, queries, shape_.n_sequences, back, framed_.as<float>(), stream);
  a.queries = framed_.as<float>();
  a.out = other_out_.as<float>();
  a.log_sums = other_log_sums_.as<float>();
  a.n_tokens = window_sinks_.as<int32_t>();
  a.first_token = 0;
  cuda::attend_exact(a, recipe_.format, stream);
  merge_other(out, stream);
}

// Of coded pages, but for the sinks; the output as it is outside of the frame. Capped scores are those of
// keys that are not centred, so what centring takes off is added before.
void DeviceCache::attend_coded(int layer, const float* queries, float* out, cuda::Stream stream) {
  const Frames& frames = frames_[static_cast<size_t>(layer)];
  const cuda::SparsePages planes = coded_planes(layer);
  frame_queries(shape_.heads, queries, shape_.n_sequences, frames.keys, shape_.scale, framed_.as<float>(),
                bias_.as<float>(), stream);
  cuda::DecodeAttention a = attention(framed_.as<float>(), out, other_log_sums_.as<float>());
  a.keys = planes.keys;
  a.values = planes.values;
  a.page_table = coded_table_.as<int32_t>();
  a.page_table_stride = pages_.coded_stride();
  a.n_tokens = first_tokens_.as<int32_t>();
  a.first_token = recipe_.sink_tokens;
  const bool is_capped = a.score_cap != 0;
  if (is_capped) a.score_bias = bias_.as<float>();
  if (recipe_.kind == AttentionKind::kTurbo) {
    cuda::attend_turbo(a, recipe_.key_bits, recipe_.value_bits, stream);
  } else {
    cuda::attend_panels(a, recipe_.keys, stream);
  }
  unframe_outputs(shape_.heads, shape_.n_sequences, frames.values, is_capped ? nullptr : bias_.as<float>(),
                  out, other_log_sums_.as<float>(), stream);
}

}  // namespace quire::gpu
