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

StepBuffers::StepBuffers(const ModelConfig& c, const BatchOptions& options) {
  const int n_sequences = options.n_sequences;
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
  if (c.window_rope) {
    window_cosine = numbers(at_least_one(c.window_rope->half()));
    window_sine = numbers(at_least_one(c.window_rope->half()));
  }
  if (c.geometry().has_windows()) all_tokens = numbers(1);
  if (c.family->post_norms) branch = numbers(c.width);
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
  if (options.sampling.penalises()) {
    history = numbers(options.context_tokens + 1);
    seen = numbers(static_cast<size_t>(seen_words(static_cast<int>(c.vocabulary))));
    history.fill(0);
    seen.fill(0);
  }
  if (is_small(n_sequences)) return;
  rounded = cuda::DeviceBuffer(n * std::max({c.width, q_width, c.ffn_width}) * sizeof(uint16_t));
  gate_up = numbers(2 * c.ffn_width);
}

uint64_t StepBuffers::size_bytes() const {
  uint64_t total = 0;
  for (const cuda::DeviceBuffer* buffer :
       {&tokens, &n_before, &exact_tokens, &all_tokens,  &row,     &window_cosine, &window_sine,
        &branch, &random,   &step,         &banned,      &history, &seen,          &cosine,
        &sine,   &x,        &weighted,     &square_sums, &qkv,     &queries,       &attended,
        &hidden, &logits,   &rounded,      &gate_up}) {
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

Angles DeviceBatch::Parts::window_angles(float* cosine, float* sine) const {
  if (!model.config.window_rope) return {};
  const Rope& rope = *model.config.window_rope;
  return {model.weights.window_frequencies, static_cast<float>(rope.attention_factor),
          static_cast<int>(rope.half()), cosine, sine};
}

bool DeviceBatch::Parts::turns_otherwise(int layer) const {
  return model.config.window_rope && model.config.has_window(static_cast<size_t>(layer));
}

HeadWeights DeviceBatch::Parts::head_weights(int layer) const {
  const LayerWeights& weights = model.weights.layers[static_cast<size_t>(layer)];
  return {weights.bias, weights.query_norm, weights.key_norm, model.config.norm_epsilon};
}

StepState DeviceBatch::Parts::state() const {
  return {buffers.tokens.as<int32_t>(),
          buffers.n_before.as<int32_t>(),
          cache.first_tokens(),
          buffers.exact_tokens.as<int32_t>(),
          buffers.all_tokens.as<int32_t>(),
          buffers.row.as<int32_t>(),
          cache.window_state()};
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
  const LayerPlace place = cache.place(layer);
  StepState rows = state();
  if (place.has_window) {  // its pages are all of the text's
    rows.exact_tokens = rows.all_tokens;
    rows.row = rows.n_before;
  }
  const Angles turn = turns_otherwise(layer)
                          ? window_angles(buffers.window_cosine.as<float>(), buffers.window_sine.as<float>())
                          : angles(buffers.cosine.as<float>(), buffers.sine.as<float>());
  const ExactPages pages =
      place.has_window ? cache.windows()->pages(place.layer) : cache.exact_pages(place.layer);
  auto* queries = buffers.queries.as<float>();
  finish_step_heads(heads(), buffers.qkv.as<float>(), head_weights(layer), turn, rows, n, queries, pages,
                    stream);
  if (!with_attention) return;
  auto* out = buffers.attended.as<float>();
  if (place.has_window) {
    cache.attend_window(place.layer, queries, rows.exact_tokens, out, stream);
  } else {
    cache.attend(place.layer, queries, rows.exact_tokens, out, stream);
  }
}

void DeviceBatch::Parts::add_branch(const float* norm, const float* next_weight) {
  const BranchOut out = {buffers.x.as<float>(),
                         next_weight != nullptr ? buffers.weighted.as<float>() : nullptr, next_weight,
                         buffers.square_sums.as<float>()};
  add_normed(buffers.branch.as<float>(), norm, model.config.norm_epsilon, n,
             static_cast<int>(model.config.width), out, stream);
}

void DeviceBatch::Parts::cap(float* logits, int n_rows) {
  const ModelConfig& c = model.config;
  if (c.logit_softcap == 0) return;
  cap_logits(logits, int64_t{n_rows} * static_cast<int64_t>(c.vocabulary), c.logit_softcap, stream);
}

void DeviceBatch::Parts::record_layer_small(int layer, bool with_attention) {
  const ModelConfig& c = model.config;
  const auto width = static_cast<int>(c.width);
  const auto q_width = static_cast<int>(c.n_heads * c.head_dim);
  const LayerWeights& w = model.weights.layers[static_cast<size_t>(layer)];
  const bool is_last = layer + 1 == static_cast<int>(c.n_layers);
  const float* next = is_last ? model.weights.output_norm
                              : model.weights.layers[static_cast<size_t>(layer) + 1].attention_norm;
  const auto add = [&](const DeviceMatrix& matrix, const Vectors& x, const float* norm_behind,
                       const float* next_norm) {
    if (norm_behind == nullptr) {
      return multiply_add(
          matrix, x,
          {buffers.x.as<float>(), buffers.weighted.as<float>(), next_norm, buffers.square_sums.as<float>()},
          stream);
    }
    multiply_store(matrix, x, buffers.branch.as<float>(), width, stream);
    add_branch(norm_behind, next_norm);
  };
  multiply_store(w.qkv, vectors(buffers.weighted, width, true), buffers.qkv.as<float>(), w.qkv.rows, stream);
  record_heads(layer, with_attention);
  Vectors attended_rows = vectors(buffers.attended, q_width, false);
  attended_rows.x = attended(with_attention);
  add(w.output, attended_rows, w.output_norm, w.ffn_norm);
  multiply_gated(w.gate_up, vectors(buffers.weighted, width, true), c.family->activation,
                 buffers.hidden.as<float>(), stream);
  add(w.down, vectors(buffers.hidden, static_cast<int>(c.ffn_width), false), w.down_norm, next);
}

void DeviceBatch::Parts::record_layer_large(int layer, bool with_attention) {
  const ModelConfig& c = model.config;
  const auto width = static_cast<int>(c.width);
  const auto ffn_width = static_cast<int>(c.ffn_width);
  const LayerWeights& w = model.weights.layers[static_cast<size_t>(layer)];
  auto* rounded = buffers.rounded.as<uint16_t>();
  auto* x = buffers.x.as<float>();
  const auto add = [&](const DeviceMatrix& matrix, const float* norm_behind) {
    float* to = norm_behind != nullptr ? buffers.branch.as<float>() : x;
    gemm.multiply(matrix, rounded, n, to, width, norm_behind == nullptr, stream);
    if (norm_behind != nullptr) add_branch(norm_behind, nullptr);
  };
  normalise_rows(x, w.attention_norm, c.norm_epsilon, n, width, rounded, stream);
  gemm.multiply(w.qkv, rounded, n, buffers.qkv.as<float>(), w.qkv.rows, false, stream);
  record_heads(layer, with_attention);
  round_rows(attended(with_attention), int64_t{n} * w.output.columns, rounded, stream);
  add(w.output, w.output_norm);
  normalise_rows(x, w.ffn_norm, c.norm_epsilon, n, width, rounded, stream);
  gemm.multiply(w.gate_up, rounded, n, buffers.gate_up.as<float>(), w.gate_up.rows, false, stream);
  gate_rows(buffers.gate_up.as<float>(), n, ffn_width, c.family->activation, rounded, stream);
  add(w.down, w.down_norm);
}

void DeviceBatch::Parts::record_step(bool with_attention) {
  const ModelConfig& c = model.config;
  const Weights& w = model.weights;
  const auto width = static_cast<int>(c.width);
  begin_step(w.embedding, c.embedding_scale, state(), n,
             angles(buffers.cosine.as<float>(), buffers.sine.as<float>()),
             window_angles(buffers.window_cosine.as<float>(), buffers.window_sine.as<float>()),
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
  cap(buffers.logits.as<float>(), n);
  choose(0, n, true);
}

int DeviceBatch::Parts::n_choices() const {
  return static_cast<int>(options.choice_tokens > 0 ? options.choice_tokens : model.config.vocabulary);
}

void DeviceBatch::Parts::note_tokens(int sequence, int first, const int32_t* tokens, int n_noted) {
  if (!options.sampling.penalises()) return;
  int32_t* to = buffers.history.as<int32_t>() + int64_t{sequence} * history_stride() + first;
  cuda::check(cudaMemcpyAsync(to, tokens, static_cast<size_t>(n_noted) * sizeof(int32_t),
                              cudaMemcpyDeviceToDevice, stream),
              "noting tokens");
}

void DeviceBatch::Parts::choose(int first, int n_chosen, bool advances) {
  const DeviceSampling& s = options.sampling;
  const auto vocabulary = static_cast<int>(model.config.vocabulary);
  const Choice choice = {s.temperature,
                         s.top_k,
                         s.top_p,
                         s.min_p,
                         buffers.banned.as<int32_t>(),
                         static_cast<int>(s.banned.size()),
                         s.penalises() ? static_cast<float>(s.repeat_penalty) : 1.0f,
                         s.repeat_last_n};
  const ChoiceOut out = {buffers.tokens.as<int32_t>(),
                         buffers.random.as<uint64_t>(),
                         buffers.n_before.as<int32_t>(),
                         buffers.step.as<uint32_t>(),
                         ring.data(),
                         kRing,
                         {buffers.history.as<int32_t>(), history_stride(), buffers.seen.as<uint32_t>()}};
  choose_tokens(buffers.logits.as<float>() + int64_t{first} * vocabulary, vocabulary, n_choices(), first,
                n_chosen, n, choice, out, advances, stream);
}

}  // namespace quire::gpu
