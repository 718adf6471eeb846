// The step of a batch, kernel by kernel, as its graph has it.
//
//   token -> x -> [norm q k v -> bias, RoPE, append -> attention -> o, += x -> norm gate up -> down, += x] ..
//     -> norm, head -> choice
//
// Small batches fold norms, sums and gates into the products (gpu/gemv.h); large ones have kernels for these
// around the library's products.
#include <algorithm>

#include "gpu/batch_parts.h"

namespace quire::gpu {

namespace {

size_t at_least_one(size_t n) { return n > 0 ? n : 1; }

}  // namespace

StepBuffers::StepBuffers(const ModelConfig& c, int n_sequences) {
  const auto n = static_cast<size_t>(n_sequences);
  const auto numbers = [&](size_t each) { return cuda::DeviceBuffer(n * each * sizeof(float)); };
  const size_t q_width = c.n_heads * c.head_dim;
  tokens = numbers(1);
  n_before = numbers(1);
  exact_tokens = numbers(1);
  row = numbers(1);
  random = cuda::DeviceBuffer(n * 4 * sizeof(uint64_t));
  step = cuda::DeviceBuffer(sizeof(uint32_t));
  cosine = numbers(at_least_one(c.rope.half()));
  sine = numbers(at_least_one(c.rope.half()));
  x = numbers(c.width);
  weighted = numbers(c.width);
  square_sums = numbers(c.width / kTileRows);
  qkv = numbers(q_width + 2 * c.n_kv_heads * c.head_dim);
  queries = numbers(q_width);
  attended = numbers(q_width);
  hidden = numbers(c.ffn_width);
  logits = numbers(c.vocabulary);
  for (cuda::DeviceBuffer* buffer : {&tokens, &n_before, &exact_tokens, &row, &step, &logits})
    buffer->fill(0);
  if (is_small(n_sequences)) return;
  rounded = cuda::DeviceBuffer(n * std::max({c.width, q_width, c.ffn_width}) * sizeof(uint16_t));
  gate_up = numbers(2 * c.ffn_width);
}

uint64_t StepBuffers::size_bytes() const {
  uint64_t total = 0;
  for (const cuda::DeviceBuffer* buffer :
       {&tokens, &n_before, &exact_tokens, &row, &random, &step, &banned, &cosine, &sine, &x, &weighted,
        &square_sums, &qkv, &queries, &attended, &hidden, &logits, &rounded, &gate_up}) {
    total += buffer->size_bytes();
  }
  return total;
}

HeadShape DeviceBatch::Parts::heads() const {
  const ModelConfig& c = model.config;
  return {static_cast<int>(c.n_heads), static_cast<int>(c.n_kv_heads), static_cast<int>(c.head_dim)};
}

Angles DeviceBatch::Parts::angles(float* cosine, float* sine) const {
  const Rope& rope = model.config.rope;
  return {model.weights.frequencies, static_cast<float>(rope.attention_factor), static_cast<int>(rope.half()),
          cosine, sine};
}

HeadWeights DeviceBatch::Parts::head_weights(int layer) const {
  const LayerWeights& weights = model.weights.layers[static_cast<size_t>(layer)];
  return {weights.bias, weights.query_norm, weights.key_norm, model.config.norm_epsilon};
}

StepState DeviceBatch::Parts::state() const {
  return {buffers.tokens.as<int32_t>(),       buffers.n_before.as<int32_t>(), cache.first_tokens(),
          buffers.exact_tokens.as<int32_t>(), buffers.row.as<int32_t>(),      cache.window_state()};
}

Vectors DeviceBatch::Parts::vectors(const cuda::DeviceBuffer& x, int width, bool normed) const {
  return {x.as<float>(), n,
          width,         normed ? buffers.square_sums.as<float>() : nullptr,
          width,         model.config.norm_epsilon};
}

const float* DeviceBatch::Parts::attended(bool with_attention) const {
  return (with_attention ? buffers.attended : buffers.queries).as<float>();
}

void DeviceBatch::Parts::record_heads(int layer, bool with_attention) {
  finish_step_heads(heads(), buffers.qkv.as<float>(), head_weights(layer),
                    angles(buffers.cosine.as<float>(), buffers.sine.as<float>()), state(), n,
                    buffers.queries.as<float>(), cache.exact_pages(layer), stream);
  if (!with_attention) return;
  cache.attend(layer, buffers.queries.as<float>(), buffers.exact_tokens.as<int32_t>(),
               buffers.attended.as<float>(), stream);
}

void DeviceBatch::Parts::record_layer_small(int layer, bool with_attention) {
  const ModelConfig& c = model.config;
  const auto width = static_cast<int>(c.width);
  const auto q_width = static_cast<int>(c.n_heads * c.head_dim);
  const LayerWeights& w = model.weights.layers[static_cast<size_t>(layer)];
  const bool is_last = layer + 1 == static_cast<int>(c.n_layers);
  const float* next = is_last ? model.weights.output_norm
                              : model.weights.layers[static_cast<size_t>(layer) + 1].attention_norm;
  const auto out = [&](const float* norm) {
    return StreamOut{buffers.x.as<float>(), buffers.weighted.as<float>(), norm,
                     buffers.square_sums.as<float>()};
  };
  multiply_store(w.qkv, vectors(buffers.weighted, width, true), buffers.qkv.as<float>(), w.qkv.rows, stream);
  record_heads(layer, with_attention);
  Vectors attended_rows = vectors(buffers.attended, q_width, false);
  attended_rows.x = attended(with_attention);
  multiply_add(w.output, attended_rows, out(w.ffn_norm), stream);
  multiply_gated(w.gate_up, vectors(buffers.weighted, width, true), buffers.hidden.as<float>(), stream);
  multiply_add(w.down, vectors(buffers.hidden, static_cast<int>(c.ffn_width), false), out(next), stream);
}

void DeviceBatch::Parts::record_layer_large(int layer, bool with_attention) {
  const ModelConfig& c = model.config;
  const auto width = static_cast<int>(c.width);
  const auto ffn_width = static_cast<int>(c.ffn_width);
  const LayerWeights& w = model.weights.layers[static_cast<size_t>(layer)];
  auto* rounded = buffers.rounded.as<uint16_t>();
  auto* x = buffers.x.as<float>();
  normalise_rows(x, w.attention_norm, c.norm_epsilon, n, width, rounded, stream);
  gemm.multiply(w.qkv, rounded, n, buffers.qkv.as<float>(), w.qkv.rows, false, stream);
  record_heads(layer, with_attention);
  round_rows(attended(with_attention), int64_t{n} * w.output.columns, rounded, stream);
  gemm.multiply(w.output, rounded, n, x, width, true, stream);
  normalise_rows(x, w.ffn_norm, c.norm_epsilon, n, width, rounded, stream);
  gemm.multiply(w.gate_up, rounded, n, buffers.gate_up.as<float>(), w.gate_up.rows, false, stream);
  gate_rows(buffers.gate_up.as<float>(), n, ffn_width, rounded, stream);
  gemm.multiply(w.down, rounded, n, x, width, true, stream);
}

void DeviceBatch::Parts::record_step(bool with_attention) {
  const ModelConfig& c = model.config;
  const Weights& w = model.weights;
  const auto width = static_cast<int>(c.width);
  begin_step(w.embedding, c.embedding_scale, state(), n,
             angles(buffers.cosine.as<float>(), buffers.sine.as<float>()),
             {buffers.x.as<float>(), buffers.weighted.as<float>(), w.layers[0].attention_norm,
              buffers.square_sums.as<float>()},
             stream);
  for (int layer = 0; layer < static_cast<int>(c.n_layers); ++layer) {
    if (is_small(n)) {
      record_layer_small(layer, with_attention);
    } else {
      record_layer_large(layer, with_attention);
    }
  }
  if (is_small(n)) {
    multiply_store(w.head, vectors(buffers.weighted, width, true), buffers.logits.as<float>(), w.head.rows,
                   stream);
  } else {
    normalise_rows(buffers.x.as<float>(), w.output_norm, c.norm_epsilon, n, width,
                   buffers.rounded.as<uint16_t>(), stream);
    gemm.multiply(w.head, buffers.rounded.as<uint16_t>(), n, buffers.logits.as<float>(), w.head.rows, false,
                  stream);
  }
  choose(0, n, true);
}

void DeviceBatch::Parts::choose(int first, int n_chosen, bool advances) {
  const DeviceSampling& s = options.sampling;
  const auto vocabulary = static_cast<int>(model.config.vocabulary);
  const auto n_choices = options.choice_tokens > 0 ? static_cast<int>(options.choice_tokens) : vocabulary;
  const Choice choice = {s.temperature,
                         s.top_k,
                         s.top_p,
                         s.min_p,
                         buffers.banned.as<int32_t>(),
                         static_cast<int>(s.banned.size())};
  const ChoiceOut out = {buffers.tokens.as<int32_t>(),
                         buffers.random.as<uint64_t>(),
                         buffers.n_before.as<int32_t>(),
                         buffers.step.as<uint32_t>(),
                         ring.data(),
                         kRing};
  choose_tokens(buffers.logits.as<float>() + int64_t{first} * vocabulary, vocabulary, n_choices, first,
                n_chosen, n, choice, out, advances, stream);
}

}  // namespace quire::gpu
