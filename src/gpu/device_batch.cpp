#include "gpu/device_batch.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/device_error.h"
#include "engine/endless_step.h"
#include "engine/random_state.h"
#include "format/frame.h"
#include "gpu/batch_parts.h"
#include "gpu/fill.h"
#include "model/token_ids.h"

namespace quire::gpu {

namespace {

constexpr int kMostSequences = 256;
constexpr size_t kMostTokens = size_t{1} << 24;

void check_options(const BatchOptions& options, const ModelConfig& config) {
  if (options.n_sequences < 1 || options.n_sequences > kMostSequences) {
    throw Error("a batch on the CUDA device has 1 to " + std::to_string(kMostSequences) + " sequences, not " +
                std::to_string(options.n_sequences));
  }
  const size_t most = options.recipe.endless() ? kMostTokens : std::min(config.context_tokens, kMostTokens);
  if (options.context_tokens < 1 || options.context_tokens > most) {
    throw Error("a context on the CUDA device may have 1 to " + std::to_string(most) + " tokens here, not " +
                std::to_string(options.context_tokens));
  }
  if (options.recipe.endless()) endless_step_tokens(options.recipe, config.context_tokens);
  const DeviceSampling& sampling = options.sampling;
  if (!(sampling.temperature >= 0 && std::isfinite(sampling.temperature))) {
    throw Error("the temperature must be 0 or more, not " + std::to_string(sampling.temperature));
  }
  if (!(sampling.repeat_penalty >= 0.01 && sampling.repeat_penalty <= 100)) {
    throw Error("the repeat penalty must be between 0.01 and 100, not " +
                std::to_string(sampling.repeat_penalty));
  }
  if (sampling.temperature > 0 && (sampling.top_k < 1 || sampling.top_k > kMostChoices)) {
    throw Error("sampling on the CUDA device needs --top-k from 1 to " + std::to_string(kMostChoices) +
                ", not " + std::to_string(sampling.top_k));
  }
}

CacheShape cache_shape(const ModelConfig& c, const BatchOptions& options) {
  const Geometry geometry = c.geometry();
  int n_full = 0;
  for (size_t layer = 0; layer < c.n_layers; ++layer) n_full += geometry.is_windowed(layer) ? 0 : 1;
  return {n_full,
          {static_cast<int>(c.n_heads), static_cast<int>(c.n_kv_heads), static_cast<int>(c.head_dim)},
          c.query_scale,
          options.n_sequences,
          static_cast<int>(options.context_tokens),
          c.score_softcap,
          static_cast<int>(c.rope.half())};
}

const DeviceModel::Parts* checked(const DeviceModel::Parts* model, const BatchOptions& options) {
  check_options(options, model->config);
  use_device(model->device);
  return model;
}

}  // namespace

DeviceBatch::Parts::Parts(const DeviceModel::Parts& model_in, const BatchOptions& options_in,
                          const ModelFacts& facts)
    : model(*checked(&model_in, options_in)),
      options(options_in),
      n(options_in.n_sequences),
      sender(sizeof(int32_t) * static_cast<size_t>(n)),
      cache(cache_shape(model.config, options), options.recipe, model.config.geometry(), facts,
            options.budget_bytes),
      buffers(model.config, options),
      ring(static_cast<size_t>(kRing) * static_cast<size_t>(n)) {
  std::vector<uint64_t> random(4 * static_cast<size_t>(n));
  for (int i = 0; i < n; ++i)
    seed_random(options.sampling.seed + static_cast<uint64_t>(i), random.data() + 4 * i);
  buffers.random.write(random.data(), buffers.random.size_bytes());
  const std::vector<int32_t>& banned = options.sampling.banned;
  for (const int32_t token : banned) {
    QUIRE_CHECK(token >= 0 && static_cast<size_t>(token) < model.config.vocabulary);
  }
  buffers.banned = cuda::DeviceBuffer(banned.size() * sizeof(int32_t));
  buffers.banned.write(banned.data(), buffers.banned.size_bytes());
  marks.reserve(kRing);
  for (int i = 0; i < kRing; ++i) marks.emplace_back();
  cuda::wait_for(nullptr);  // fills were asked of the default stream
  step_graph = Graph(stream, [&] { record_step(true); });
}

void DeviceBatch::Parts::put(const cuda::DeviceBuffer& to, int sequence, int32_t value) {
  sender.send(to.as<int32_t>() + sequence, &value, sizeof value, stream);
}

void DeviceBatch::Parts::send_lengths(int sequence) {
  cache.send_tables(stream);
  put(buffers.n_before, sequence, cache.pages().n_tokens(sequence));
}

void DeviceBatch::Parts::copy_pages(const std::vector<cuda::PageCopy>& copies) {
  for (const cuda::PageCopy& copy : copies) cache.copy_page(copy.from, copy.to, stream);
}

void DeviceBatch::Parts::empty(int sequence) {
  std::vector<cuda::PageCopy> none;
  cache.crop(sequence, 0, none);
}

void DeviceBatch::Parts::mark() { marks[n_asked++ % kRing].record(stream); }

DeviceBatch::DeviceBatch(const DeviceModel& model, const BatchOptions& options, const ModelFacts& facts)
    : parts_(std::make_unique<Parts>(*model.parts_, options, facts)) {}
// Kernels that are under way write into what is freed then.
DeviceBatch::~DeviceBatch() {
  try {
    wait();
  } catch (const Error&) {
  }
}

int DeviceBatch::n_sequences() const { return parts_->n; }
size_t DeviceBatch::n_tokens(int sequence) const {
  return static_cast<size_t>(parts_->cache.pages().n_tokens(sequence));
}

void DeviceBatch::check_ids(std::span<const int32_t> tokens) const {
  check_token_ids(tokens, parts_->model.config.vocabulary);
}

bool DeviceBatch::prefill(int sequence, std::span<const int32_t> tokens, const PromptOptions& options) {
  Parts& p = *parts_;
  QUIRE_CHECK(sequence >= 0 && sequence < p.n && !tokens.empty());
  QUIRE_CHECK(p.n_asked - p.n_taken < kRing);
  check_ids(tokens);
  if (n_tokens(sequence) > 0 && !gives_rows()) refuse_recipe("take a prompt behind other tokens");
  Prefill prompt(p, sequence, tokens);
  SequencePages& pages = p.cache.pages();
  pages.append(sequence, static_cast<int>(tokens.size()));
  bool done = false;
  try {
    p.cache.forget_fetched(sequence, p.stream);
    p.send_lengths(sequence);
    done = prompt.run(options);
    if (done) {
      p.choose(sequence, 1, false);
      p.mark();
    }
    cuda::wait_for(p.stream);  // the prompt's memory is given back
  } catch (...) {
    p.empty(sequence);
    throw;
  }
  if (!done) p.empty(sequence);
  return done;
}

void DeviceBatch::resume(int sequence, std::span<const float> logits) {
  Parts& p = *parts_;
  QUIRE_CHECK(n_tokens(sequence) > 0 && logits.size() == p.model.config.vocabulary);
  QUIRE_CHECK(p.n_asked - p.n_taken < kRing);
  send(p.buffers.logits.as<float>() + static_cast<size_t>(sequence) * logits.size(), logits.data(),
       logits.size_bytes(), p.stream);
  p.choose(sequence, 1, false);
  p.mark();
}

void DeviceBatch::set_draws(int sequence, uint64_t n_draws) {
  uint64_t state[4];
  seed_random(parts_->options.sampling.seed + static_cast<uint64_t>(sequence), state);
  for (uint64_t i = 0; i < n_draws; ++i) next_random(state);
  send(parts_->buffers.random.as<uint64_t>() + 4 * sequence, state, sizeof state, parts_->stream);
}

void DeviceBatch::drop_tokens() {
  wait();
  parts_->n_taken = parts_->n_asked;
}

bool DeviceBatch::step_codes() const {
  for (int i = 0; i < parts_->n; ++i) {
    if (parts_->cache.pages().step_lasts(i)) return true;
  }
  return false;
}

bool DeviceBatch::gives_rows() const { return parts_->cache.recipe().gives_rows(); }

void DeviceBatch::refuse_recipe(const char* what) const {
  throw Error("the CUDA device does not " + std::string(what) + " with recipe '" +
              parts_->options.recipe.text() + "'");
}

void DeviceBatch::save(int sequence, Cache& to) {
  if (!gives_rows()) refuse_recipe("save caches");
  parts_->cache.save(sequence, to, parts_->stream);
}

void DeviceBatch::load(int sequence, const Cache& from, std::span<const int32_t> tokens) {
  if (!gives_rows()) refuse_recipe("load caches");
  QUIRE_CHECK(tokens.size() == from.n_tokens());
  Parts& p = *parts_;
  const bool seals = p.cache.recipe().seals();
  std::vector<uint32_t> open = exact_positions(from);
  const size_t n_coded = from.reserving() != nullptr ? from.n_tokens() - open.size() : from.coded_tokens();
  // A file may say anything, and here all layers share one list of coded pages.
  for (size_t layer = 0; layer < p.model.config.n_layers && seals; ++layer) {
    if (p.cache.place(static_cast<int>(layer)).has_window) continue;
    const size_t n_there = from.store().view(layer, from.n_tokens()).n_sealed() * kPageTokens;
    if (n_there == n_coded) continue;
    throw Error("the cache has " + std::to_string(n_there) + " coded tokens in layer " +
                std::to_string(layer) + " and " + std::to_string(n_coded) +
                " in another, which the CUDA device does not load");
  }
  SequencePages& pages = p.cache.pages();
  pages.restore(sequence, static_cast<int>(from.n_tokens()),
                seals ? static_cast<int>(n_coded) / kPageTokens : 0, std::move(open));
  pages.set_steps(sequence,
                  from.dropping() != nullptr ? static_cast<int>(from.dropping()->n_generated()) : 0);
  try {
    p.send_lengths(sequence);
    p.cache.load(sequence, from, p.stream);
    if (p.options.sampling.penalises()) {
      send(p.buffers.history.as<int32_t>() + int64_t{sequence} * p.history_stride(), tokens.data(),
           tokens.size_bytes(), p.stream);
    }
  } catch (...) {
    p.empty(sequence);
    throw;
  }
}

void DeviceBatch::set_token(int sequence, int32_t token) {
  QUIRE_CHECK(token >= 0 && static_cast<size_t>(token) < parts_->model.config.vocabulary);
  parts_->put(parts_->buffers.tokens, sequence, token);
}

void DeviceBatch::step() {
  Parts& p = *parts_;
  SequencePages& pages = p.cache.pages();
  QUIRE_CHECK(p.n_asked - p.n_taken < kRing);
  for (int i = 0; i < p.n; ++i) {
    QUIRE_CHECK(pages.n_tokens(i) > 0);
    if (pages.n_tokens(i) >= pages.shape().most_tokens) {
      throw Error("the context of " + std::to_string(pages.shape().most_tokens) +
                  " tokens on the CUDA device is full");
    }
  }
  bool changed = false;
  for (int i = 0; i < p.n; ++i) changed = pages.grow(i) || changed;
  if (changed) p.cache.send_tables(p.stream);
  p.step_graph.launch(p.stream);
  p.mark();
  p.cache.seal_due(p.stream);
}

std::vector<int32_t> DeviceBatch::take_tokens() {
  Parts& p = *parts_;
  QUIRE_CHECK(p.n_taken < p.n_asked);
  const uint64_t row = p.n_taken % kRing;
  p.marks[row].wait();
  ++p.n_taken;
  const int32_t* at = p.ring.data() + row * static_cast<uint64_t>(p.n);
  std::vector<int32_t> tokens(at, at + p.n);
  for (const int32_t token : tokens) {
    if (token < 0) throw Error("the model gave no finite logit; its weights are damaged");
  }
  return tokens;
}

void DeviceBatch::wait() { cuda::wait_for(parts_->stream); }

std::vector<float> DeviceBatch::logits(int sequence) {
  wait();
  std::vector<float> values(parts_->model.config.vocabulary);
  const size_t n_bytes = values.size() * sizeof(float);
  parts_->buffers.logits.read(values.data(), n_bytes, static_cast<size_t>(sequence) * n_bytes);
  return values;
}

void DeviceBatch::crop(int sequence, size_t n_tokens) {
  std::vector<cuda::PageCopy> copies;
  parts_->cache.crop(sequence, static_cast<int>(n_tokens), copies);
  if (n_tokens == 0) parts_->cache.forget_fetched(sequence, parts_->stream);
  parts_->copy_pages(copies);
  parts_->send_lengths(sequence);
}

void DeviceBatch::fork(int from, int to) {
  Parts& p = *parts_;
  std::vector<cuda::PageCopy> copies;
  p.cache.pages().fork(from, to, copies);
  p.cache.fork(from, to, p.stream);
  p.copy_pages(copies);
  p.send_lengths(to);
  p.note_tokens(to, 0, p.buffers.history.as<int32_t>() + int64_t{from} * p.history_stride(),
                p.cache.pages().n_tokens(to));
  cuda::check(cudaMemcpyAsync(p.buffers.tokens.as<int32_t>() + to, p.buffers.tokens.as<int32_t>() + from,
                              sizeof(int32_t), cudaMemcpyDeviceToDevice, p.stream),
              "copying a token");
}

uint64_t DeviceBatch::cache_bytes() const { return parts_->cache.used_bytes(); }
uint64_t DeviceBatch::reserved_bytes() const { return parts_->cache.reserved_bytes(); }
uint64_t DeviceBatch::cache_memory_bytes() const { return parts_->cache.memory_bytes(); }

DeviceBatch::Outside DeviceBatch::take_outside() {
  OffloadedPages* pages = parts_->cache.offloaded();
  if (pages == nullptr) return {};
  const auto [records, steps] = pages->take_counts(parts_->stream);
  return {pages->plan().outside_bytes,
          pages->plan().resident_bytes,
          pages->record_bytes(),
          steps,
          records.asked,
          records.fetched,
          records.in_place};
}

double DeviceBatch::time_sweep() {
  OffloadedPages* pages = parts_->cache.offloaded();
  return pages != nullptr ? pages->time_sweep(parts_->stream) : 0;
}

uint64_t DeviceBatch::memory_bytes() const {
  return parts_->cache.memory_bytes() + parts_->buffers.size_bytes() + parts_->gemm.memory_bytes() +
         parts_->prompt_attention.memory_bytes();
}

void DeviceBatch::fill_random(int sequence, size_t n_tokens, uint64_t seed) {
  Parts& p = *parts_;
  constexpr int kPages = 256;  // of random rows at a time
  const HeadShape heads = p.heads();
  const Format format = p.cache.recipe().format;
  SequencePages& pages = p.cache.pages();
  const int stride = kPages * kPageTokens;
  const auto n_numbers = static_cast<int64_t>(stride) * heads.n_kv_heads * heads.head_dim;
  const cuda::DeviceBuffer keys(static_cast<size_t>(n_numbers) * 2);
  const cuda::DeviceBuffer values(static_cast<size_t>(n_numbers) * 2);
  pages.begin(sequence, static_cast<int>(n_tokens));
  p.cache.forget_fetched(sequence, p.stream);
  p.send_lengths(sequence);
  // Queries are as random as rows.
  const PromptRows rows = {values.as<uint16_t>(), keys.as<uint16_t>(), values.as<uint16_t>(), stride, 0};
  const int n_coded = pages.coded_tokens(sequence) / kPageTokens;
  if (const WindowPages* windows = p.cache.windows(); windows != nullptr) {
    seed = splitmix64(seed);
    fill_normal(reinterpret_cast<uint16_t*>(windows->ring(sequence)),
                static_cast<int64_t>(windows->ring_bytes() / info(format).value_bytes), 1, seed, format,
                p.stream);
  }
  for (int i = 0; i < static_cast<int>(p.model.config.n_layers); ++i) {
    const auto [layer, has_window] = p.cache.place(i);
    if (has_window) continue;
    for (int first = 0; first < n_coded; first += kPages) {
      seed = splitmix64(seed);
      fill_normal(keys.as<uint16_t>(), n_numbers, 1, seed, format, p.stream);
      fill_normal(values.as<uint16_t>(), n_numbers, 1, ~seed, format, p.stream);
      const int n = std::min(kPages, n_coded - first);
      if (first == 0) p.cache.measure_rows(sequence, layer, rows, n * kPageTokens, p.stream);
      p.cache.seal_rows(sequence, layer, rows, first, n, p.stream);
    }
  }
  const auto page_numbers = static_cast<int64_t>(p.cache.exact_page_bytes() / info(format).value_bytes);
  const int n_exact = pages_of(pages.exact_rows(sequence));
  const int32_t* table =
      pages.exact_table().data() + static_cast<ptrdiff_t>(sequence) * pages.shape().exact_pages();
  const auto fill = [&](int page) {
    seed = splitmix64(seed);
    fill_normal(reinterpret_cast<uint16_t*>(p.cache.exact_page(page)), page_numbers, 1, seed, format,
                p.stream);
  };
  for (int i = 0; i < n_exact; ++i) fill(table[i]);
  if (n_coded > 0) fill(pages.sink_pages()[static_cast<size_t>(sequence)]);
  for (int layer = 0; layer < static_cast<int>(p.model.config.n_layers); ++layer)
    p.cache.bound_rows(sequence, layer, p.stream);
  wait();
}

std::vector<float> DeviceBatch::time_steps(int n_steps, bool without_attention, uint64_t seed) {
  Parts& p = *parts_;
  SequencePages& pages = p.cache.pages();
  Graph other;
  if (without_attention) other = Graph(p.stream, [&] { p.record_step(false); });
  const Graph& graph = without_attention ? other : p.step_graph;
  Event begin(cudaEventDefault);
  Event end(cudaEventDefault);
  std::vector<int32_t> lengths;
  for (int i = 0; i < p.n; ++i) lengths.push_back(pages.n_tokens(i));
  bool changed = false;
  for (int i = 0; i < p.n; ++i) changed = pages.grow(i) || changed;
  if (changed) p.cache.send_tables(p.stream);
  std::vector<float> times;
  for (int i = 0; i < n_steps; ++i) {
    for (int sequence = 0; sequence < p.n; ++sequence) {
      seed = splitmix64(seed);
      set_token(sequence, static_cast<int32_t>(seed % p.model.config.vocabulary));
    }
    begin.record(p.stream);
    graph.launch(p.stream);
    end.record(p.stream);
    p.sender.send(p.buffers.n_before.as<void>(), lengths.data(), lengths.size() * sizeof(int32_t), p.stream);
    end.wait();
    times.push_back(end.milliseconds_since(begin));
  }
  for (int i = 0; i < p.n; ++i) {
    pages.take_back(i);
    p.send_lengths(i);
  }
  wait();
  p.n_asked += static_cast<uint64_t>(n_steps);  // rows of the ring that the steps went through
  p.n_taken = p.n_asked;
  return times;
}

}  // namespace quire::gpu
