// Prefill: layer by layer over the whole prompt, and within a layer in chunks of tokens. Beside the cache
// there are the residual stream and one layer's exact rows; everything else is the size of a chunk.
#include <algorithm>

#include "engine/endless_step.h"
#include "gpu/batch_parts.h"

namespace quire::gpu {

namespace {

// With a window every chunk sees the window before it, so that its size matters: it is the CPU's.
int chunk_tokens(const Recipe& recipe, const ModelConfig& config) {
  if (!recipe.endless()) return kPromptChunk;
  return static_cast<int>(endless_step_tokens(recipe, config.context_tokens));
}

}  // namespace

Prefill::Prefill(DeviceBatch::Parts& parts, int sequence, std::span<const int32_t> tokens)
    : parts_(parts),
      sequence_(sequence),
      n_(static_cast<int>(tokens.size())),
      chunk_(std::min(n_, chunk_tokens(parts.options.recipe, parts.model.config))),
      before_(parts.cache.rows_before(sequence)),
      stride_(pages_of(before_.n_rows + n_) * kPageTokens),
      arrangement_(parts.cache.make_arrangement(before_, n_)),
      tokens_(tokens.size_bytes()) {
  const ModelConfig& c = parts.model.config;
  const auto buffer = [](size_t rows, size_t columns, size_t each) {
    return cuda::DeviceBuffer(rows * columns * each);
  };
  const auto n = static_cast<size_t>(chunk_);
  const size_t q_width = c.n_heads * c.head_dim;
  const size_t kv_width = c.n_kv_heads * c.head_dim;
  const auto n_padded = static_cast<size_t>(stride_);
  x_ = buffer(tokens.size(), c.width, sizeof(float));
  rounded_ = buffer(n, std::max({c.width, q_width, c.ffn_width}), sizeof(uint16_t));
  qkv_ = buffer(n, q_width + 2 * kv_width, sizeof(float));
  queries_ = buffer(n, q_width, sizeof(uint16_t));
  attended_ = buffer(n, q_width, sizeof(uint16_t));
  gate_up_ = buffer(n, 2 * c.ffn_width, sizeof(float));
  const size_t half = std::max({size_t{1}, c.rope.half(), c.window_rope ? c.window_rope->half() : 0});
  cosine_ = buffer(n, half, sizeof(float));
  sine_ = buffer(n, half, sizeof(float));
  if (c.family->post_norms) branch_ = buffer(n, c.width, sizeof(float));
  keys_ = buffer(n_padded, kv_width, sizeof(uint16_t));
  values_ = buffer(n_padded, kv_width, sizeof(uint16_t));
  tokens_.write(tokens.data(), tokens.size_bytes());
  cuda::wait_for(nullptr);
}

bool Prefill::run(const PromptOptions& options) {
  const ModelConfig& c = parts_.model.config;
  const Weights& w = parts_.model.weights;
  const auto width = static_cast<int>(c.width);
  parts_.cache.send_arrangement(sequence_, before_, arrangement_);
  embed_rows(w.embedding, c.embedding_scale, tokens_.as<int32_t>(), n_, x_.as<float>(), parts_.stream);
  parts_.note_tokens(sequence_, before_.n_tokens, tokens_.as<int32_t>(), n_);
  const int last_in_chunk = (n_ - 1) % chunk_;
  const PromptRows rows = {
      queries_.as<uint16_t>() + static_cast<size_t>(last_in_chunk) * c.n_heads * c.head_dim,
      keys_.as<uint16_t>(), values_.as<uint16_t>(), stride_, 0};
  for (int layer = 0; layer < static_cast<int>(c.n_layers); ++layer) {
    if (options.stop_flag != nullptr && options.stop_flag->load(std::memory_order_relaxed)) return false;
    run_layer(layer, rows);
    if (!options.progress && options.stop_flag == nullptr) continue;
    cuda::wait_for(parts_.stream);
    if (options.progress) options.progress((layer + 1.0) / static_cast<double>(c.n_layers));
  }
  const float* last = x_.as<float>() + static_cast<int64_t>(n_ - 1) * width;
  normalise_rows(last, w.output_norm, c.norm_epsilon, 1, width, rounded_.as<uint16_t>(), parts_.stream);
  float* logits = parts_.buffers.logits.as<float>() + static_cast<int64_t>(sequence_) * w.head.rows;
  parts_.gemm.multiply(w.head, rounded_.as<uint16_t>(), 1, logits, w.head.rows, false, parts_.stream);
  parts_.cap(logits, 1);
  return true;
}

// x [n][width] += rows * matrix^T, behind a norm where there is one.
void Prefill::add_part(const DeviceMatrix& matrix, const uint16_t* rows, int n, const float* norm, float* x) {
  const ModelConfig& c = parts_.model.config;
  const auto width = static_cast<int>(c.width);
  if (norm == nullptr) return parts_.gemm.multiply(matrix, rows, n, x, width, true, parts_.stream);
  parts_.gemm.multiply(matrix, rows, n, branch_.as<float>(), width, false, parts_.stream);
  add_normed(branch_.as<float>(), norm, c.norm_epsilon, n, width, {x, nullptr, nullptr, nullptr},
             parts_.stream);
}

void Prefill::run_layer(int layer_of_model, const PromptRows& rows) {
  DeviceCache& cache = parts_.cache;
  const auto [layer, has_window] = cache.place(layer_of_model);
  const auto run_chunks = [&] {
    for (int first = 0; first < n_; first += chunk_)
      run_chunk(layer_of_model, first, std::min(chunk_, n_ - first));
  };
  if (has_window) {
    const int n_before = before_.n_tokens;
    if (n_before > 0) cache.windows()->take(sequence_, layer, n_before, rows, parts_.stream);
    run_chunks();
    return cache.windows()->put(sequence_, layer, rows, n_before, n_before + n_, parts_.stream);
  }
  if (before_.n_tokens > 0) cache.take_rows(before_, layer, rows, parts_.stream);
  has_sinks_ = before_.n_rows < before_.n_tokens;
  run_chunks();
  if (!has_sinks_ && cache.recipe().window_tokens > 0)
    cache.store_sinks(sequence_, layer, rows, before_.n_rows + n_, parts_.stream);
  const SequencePages& pages = cache.pages();
  cache.put_prompt(sequence_, layer, cache.arranged(sequence_, layer, rows, arrangement_, parts_.stream),
                   pages.coded_tokens(sequence_) + pages.exact_rows(sequence_), before_.n_coded_pages,
                   parts_.stream);
}

// All of them; or those of the window and before these the sinks, in the place of tokens that have left.
int Prefill::rows_seen(int layer, int n_before, int& first_row) {
  DeviceCache& cache = parts_.cache;
  const DeviceRecipe& recipe = cache.recipe();
  const int n_seen = recipe.window_tokens + recipe.sink_tokens;
  const int n_rows = n_before - (before_.n_tokens - before_.n_rows);
  first_row = 0;
  if (recipe.window_tokens == 0 || n_before <= n_seen) return n_rows;
  first_row = n_rows - n_seen;
  const PromptRows rows = {nullptr, keys_.as<uint16_t>(), values_.as<uint16_t>(), stride_, 0};
  if (!has_sinks_) cache.store_sinks(sequence_, layer, rows, n_rows, parts_.stream);
  has_sinks_ = true;
  PromptRows to = rows;
  to.first = first_row;
  cache.turn_sinks(sequence_, layer, n_before - n_seen, parts_.angles(nullptr, nullptr), to, parts_.stream);
  return n_seen;
}

void Prefill::run_chunk(int layer, int first, int n) {
  const ModelConfig& c = parts_.model.config;
  const LayerWeights& w = parts_.model.weights.layers[static_cast<size_t>(layer)];
  const auto width = static_cast<int>(c.width);
  const cuda::Stream stream = parts_.stream;
  const HeadShape heads = parts_.heads();
  const DeviceRecipe& recipe = parts_.cache.recipe();
  const int position = before_.n_tokens + first;
  const int row = before_.n_rows + first;
  float* x = x_.as<float>() + static_cast<int64_t>(first) * width;
  auto* rounded = rounded_.as<uint16_t>();
  const LayerPlace place = parts_.cache.place(layer);
  const Angles angles = parts_.turns_otherwise(layer)
                            ? parts_.window_angles(cosine_.as<float>(), sine_.as<float>())
                            : parts_.angles(cosine_.as<float>(), sine_.as<float>());
  normalise_rows(x, w.attention_norm, c.norm_epsilon, n, width, rounded, stream);
  parts_.gemm.multiply(w.qkv, rounded, n, qkv_.as<float>(), w.qkv.rows, false, stream);
  make_angles(angles, position, n, stream);
  finish_prompt_heads(heads, qkv_.as<float>(), parts_.head_weights(layer), angles, n, recipe.format,
                      {queries_.as<uint16_t>(), keys_.as<uint16_t>(), values_.as<uint16_t>(), stride_, row},
                      stream);
  int first_row = 0;
  const int n_seen = rows_seen(layer, position, first_row);
  const int64_t skipped = int64_t{first_row} * heads.head_dim;
  parts_.prompt_attention.attend(
      {recipe.prompt_format(), n, n_seen, heads.n_heads, heads.n_kv_heads, heads.head_dim,
       queries_.as<uint16_t>(), keys_.as<uint16_t>() + skipped, values_.as<uint16_t>() + skipped, stride_,
       c.query_scale, attended_.as<uint16_t>(),
       place.has_window ? parts_.cache.windows()->window(place.layer) : 0, c.score_softcap},
      stream);
  add_part(w.output, attended_.as<uint16_t>(), n, w.output_norm, x);
  normalise_rows(x, w.ffn_norm, c.norm_epsilon, n, width, rounded, stream);
  parts_.gemm.multiply(w.gate_up, rounded, n, gate_up_.as<float>(), w.gate_up.rows, false, stream);
  gate_rows(gate_up_.as<float>(), n, static_cast<int>(c.ffn_width), c.family->activation, rounded, stream);
  add_part(w.down, rounded, n, w.down_norm, x);
}

}  // namespace quire::gpu
