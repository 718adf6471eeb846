#include "gpu/device_cache.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"
#include "format/code_catalogue.h"

namespace quire::gpu {

namespace {

// Pages of a layer that are coded together.
constexpr int kStagedPages = 256;

size_t size(int64_t n) { return static_cast<size_t>(n); }
int64_t aligned(int64_t n_bytes) { return (n_bytes + 63) / 64 * 64; }

}  // namespace

PagesShape DeviceCache::pages_shape(const CacheShape& shape, const DeviceRecipe& recipe) {
  const bool is_signvq = recipe.kind == AttentionKind::kSignVq;
  const bool has_reserve = recipe.reserve.given();
  return {shape.n_sequences,
          shape.most_tokens,
          recipe.seals(),
          recipe.sink_tokens,
          recipe.tail_tokens,
          is_signvq ? kStatisticsTokens : 0,
          is_signvq,
          recipe.reserve,
          has_reserve ? most_open_rows(recipe.reserve, recipe.seals(), shape.most_tokens) : 0,
          recipe.window_tokens};
}

DeviceCache::CodedLayout DeviceCache::coded_layout(const DeviceRecipe& recipe, int d) {
  if (!recipe.seals()) return {};
  if (recipe.kind == AttentionKind::kSparse) {
    const int64_t index = aligned(cuda::sparse_index_bytes(d));
    if (recipe.offloads) return {index, 0, 0};
    return {index, aligned(cuda::sparse_key_bytes(recipe.key_bits, d)), aligned(cuda::sparse_value_bytes(d))};
  }
  if (recipe.kind == AttentionKind::kSignVq) {
    const int64_t rows = recipe.offloads ? 0 : int64_t{kPageTokens} * cuda::signvq_row_bytes(d);
    return {cuda::signvq_index_bytes(d), rows, 0};
  }
  return staged_layout(recipe, d);
}

DeviceCache::CodedLayout DeviceCache::staged_layout(const DeviceRecipe& recipe, int d) {
  if (!recipe.seals()) return {};
  return {0, aligned(key_page_bytes(recipe.keys, d)), aligned(value_page_bytes(recipe.values, d))};
}

DeviceCache::DeviceCache(const CacheShape& shape, const Recipe& recipe, const Geometry& geometry,
                         const ModelFacts& facts, uint64_t budget_bytes)
    : shape_(shape),
      recipe_(device_recipe(recipe, recipe.text())),
      pages_(pages_shape(shape, recipe_)),
      coded_layout_(coded_layout(recipe_, shape.heads.head_dim)),
      staged_layout_(staged_layout(recipe_, shape.heads.head_dim)),
      exact_page_bytes_(exact_page_bytes(shape, recipe_)),
      sender_(sizeof(int32_t) * std::max({pages_.exact_table().size(), pages_.coded_table().size(),
                                          kMostMoves * sizeof(RowMove) / sizeof(int32_t)})) {
  place_layers(geometry);
  check(recipe, facts, budget_bytes);
  const auto n = size(shape.n_sequences);
  const PagesShape& pages = pages_.shape();
  const auto buffer = [](size_t n_numbers) { return cuda::DeviceBuffer(n_numbers * sizeof(int32_t)); };
  exact_ = cuda::DeviceBuffer(n * size(pages.all_exact_pages()) * exact_page_bytes_);
  coded_ = cuda::DeviceBuffer(n * size(pages.coded_pages()) * size(coded_layout_.head_bytes()) *
                              size(shape.heads.n_kv_heads) * size(shape.n_layers));
  exact_table_ = buffer(pages_.exact_table().size());
  coded_table_ = buffer(pages_.coded_table().size());
  first_tokens_ = buffer(n);
  sink_pages_ = buffer(n);
  sink_tokens_ = buffer(n);
  if (recipe_.seals()) {
    std::vector<int32_t> iota(size(std::max(kStagedPages, shape.most_tokens / kPageTokens + 1)));
    std::iota(iota.begin(), iota.end(), 0);
    iota_ = buffer(iota.size());
    iota_.write(iota.data(), iota_.size_bytes());
    const auto n_due = std::max(n, size(pages.exact_pages()));
    due_from_ = buffer(n_due);
    due_to_ = buffer(n_due);
    const auto n_staged = size(std::max(kStagedPages, shape.n_sequences));
    if (recipe_.kind == AttentionKind::kSparse || is_signvq()) {
      staged_ =
          cuda::DeviceBuffer(n_staged * size(staged_layout_.head_bytes()) * size(shape.heads.n_kv_heads));
    }
    put_frames(recipe, geometry, facts);
  }
  if (is_signvq()) {
    signs_ =
        SignVqState(shape.heads, shape.n_layers, shape.n_sequences, shape.most_tokens, recipe_.full_rows);
  }
  reserve_attention();
  if (!window_tokens_.empty()) {
    windows_ = std::make_unique<WindowPages>(window_shape());
    window_workspace_ = cuda::DeviceBuffer(attention_bytes());
    window_workspace_.fill(0);
  }
  reserve_moves();
  reserve_listed();
  reserve_offloaded(budget_bytes);
  send_tables(nullptr);
  cuda::wait_for(nullptr);
}

void DeviceCache::place_layers(const Geometry& geometry) {
  for (size_t layer = 0; layer < geometry.n_layers; ++layer) {
    const bool has_window = geometry.is_windowed(layer);
    places_.push_back(
        {static_cast<int>(has_window ? window_tokens_.size() : full_layers_.size()), has_window});
    if (has_window) {
      window_tokens_.push_back(static_cast<int>(geometry.window_tokens[layer]));
    } else {
      full_layers_.push_back(layer);
    }
  }
  QUIRE_CHECK(full_layers_.size() == size(shape_.n_layers));
}

WindowShape DeviceCache::window_shape() const {
  return {shape_.heads, recipe_.format, window_tokens_, shape_.n_sequences, shape_.most_tokens};
}

void DeviceCache::check(const Recipe& recipe, const ModelFacts& facts, uint64_t budget_bytes) const {
  if (shape_.score_cap != 0 &&
      (recipe_.kind == AttentionKind::kSparse || is_signvq() || recipe_.bounds_pages())) {
    throw Error("recipe '" + recipe.text() +
                "' chooses rows, which the CUDA device does not do for a model that caps its scores: use "
                "--device cpu");
  }
  if (!window_tokens_.empty() && (recipe_.moves_rows() || recipe_.bounds_pages())) {
    throw Error("recipe '" + recipe.text() +
                "' keeps or chooses rows, which the CUDA device does not do for a model that has layers with "
                "a window: use --device cpu");
  }
  if (recipe_.seals() && facts.key_biases != nullptr) {
    throw Error(
        "recipe '" + recipe.text() +
        "' codes keys that have a large bias, which the CUDA device does not take off: use --device cpu");
  }
  const PagesShape& pages = pages_.shape();
  const auto n = static_cast<uint64_t>(shape_.n_sequences);
  const uint64_t coded = n * size(pages.coded_pages()) *
                         size(coded_layout_.head_bytes() * shape_.heads.n_kv_heads * shape_.n_layers);
  if (is_signvq() && coded > cuda::kMostSignVqBytes) {
    throw Error("coded pages of signvq may take 128 GiB on the CUDA device, not " + std::to_string(coded) +
                " bytes");
  }
  uint64_t wanted = n * size(pages.all_exact_pages()) * exact_page_bytes_ + coded;
  if (!window_tokens_.empty()) wanted += window_shape().memory_bytes();
  if (is_signvq()) {
    wanted +=
        SignVqState::memory_bytes(shape_.heads, shape_.n_layers, shape_.n_sequences, shape_.most_tokens);
  }
  if (recipe_.offloads) return check_offloaded(budget_bytes, wanted);
  if (budget_bytes == 0 || wanted <= budget_bytes) return;
  throw Error("the caches of " + std::to_string(n) + " sequences of " + std::to_string(shape_.most_tokens) +
              " tokens take " + std::to_string(wanted) + " bytes on the CUDA device, but the budget is " +
              std::to_string(budget_bytes));
}

void DeviceCache::put_frames(const Recipe& recipe, const Geometry& geometry, const ModelFacts& facts) {
  const CacheStatistics statistics(recipe, geometry, facts);
  const auto d = size(shape_.heads.head_dim);
  const auto n_heads = size(shape_.heads.n_kv_heads);
  const size_t layer_numbers = n_heads * d;
  const size_t all = layer_numbers * size(shape_.n_layers);
  std::vector<float> numbers(5 * all, 0);
  frames_memory_ = cuda::DeviceBuffer(numbers.size() * sizeof(float));
  const float* base = frames_memory_.as<float>();
  for (size_t layer = 0; layer < size(shape_.n_layers); ++layer) {
    const size_t of_model = full_layers_[layer];
    const auto put = [&](size_t part, size_t head, const float* from) {
      if (from != nullptr)
        std::copy_n(from, d, numbers.data() + part * all + layer * layer_numbers + head * d);
    };
    for (size_t head = 0; head < n_heads; ++head) {
      const HeadFrames frames = statistics.frames(of_model, head);
      put(0, head, frames.key.mean);
      put(1, head, frames.key.balance);
      put(2, head, frames.key.signs);
      put(3, head, frames.value.mean);
      put(4, head, frames.value.signs);
    }
    const HeadFrames some = statistics.frames(of_model, 0);
    const auto at = [&](size_t part, const float* there) {
      return there != nullptr ? base + part * all + layer * layer_numbers : nullptr;
    };
    frames_.push_back({{at(0, some.key.mean), at(1, some.key.balance), at(2, some.key.signs)},
                       {at(3, some.value.mean), nullptr, at(4, some.value.signs)}});
  }
  frames_memory_.write(numbers.data(), frames_memory_.size_bytes());
}

size_t DeviceCache::attention_bytes() const {
  const HeadShape& h = shape_.heads;
  return cuda::workspace_bytes(shape_.n_sequences, h.n_kv_heads, h.n_heads / h.n_kv_heads, h.head_dim,
                               cuda::block_count());
}

void DeviceCache::reserve_attention() {
  const HeadShape& h = shape_.heads;
  const auto n_outputs = size(shape_.n_sequences) * size(h.n_heads);
  const auto floats = [](size_t n) { return cuda::DeviceBuffer(n * sizeof(float)); };
  log_sums_ = floats(n_outputs);
  if (recipe_.kind == AttentionKind::kSparse) {
    n_read_ = cuda::DeviceBuffer(size(shape_.n_sequences) * size(h.n_kv_heads) * 2 * sizeof(int32_t));
    plan_ = cuda::plan_sparse(sparse_attention(0, nullptr, nullptr, nullptr), recipe_.key_bits,
                              recipe_.value_bits, cuda::sparse_device());
    workspace_ = cuda::DeviceBuffer(plan_.workspace_bytes);
    return;
  }
  if (is_signvq()) {
    signvq_plan_ = cuda::plan_signvq(signvq_attention(0, nullptr, nullptr, nullptr), cuda::block_count());
    workspace_ = cuda::DeviceBuffer(signvq_plan_.workspace_bytes);
    workspace_.fill(0);
    return;
  }
  workspace_ = cuda::DeviceBuffer(attention_bytes());
  workspace_.fill(0);
  if (!recipe_.seals()) return;
  other_out_ = floats(n_outputs * size(h.head_dim));
  framed_ = floats(n_outputs * size(h.head_dim));
  other_log_sums_ = floats(n_outputs);
  bias_ = floats(n_outputs);
}

void DeviceCache::check_offloaded(uint64_t budget_bytes, uint64_t other_bytes) const {
  const HeadShape& h = shape_.heads;
  const int group = h.n_heads / h.n_kv_heads;
  if (is_signvq() && !cuda::has_offloaded_signvq(h.head_dim, group)) {
    throw Error(
        "signvq rows outside the CUDA device are for heads of up to 128 values and up to 8 query heads a "
        "KV head, and the model's have " +
        std::to_string(h.head_dim) + " and " + std::to_string(group));
  }
  if (!is_signvq() && !cuda::has_offloaded_kernel(recipe_.key_bits, recipe_.value_bits, h.head_dim)) {
    throw Error("rows outside the CUDA device are for heads of 64 or 128 values, and the model's have " +
                std::to_string(h.head_dim));
  }
  // Workspaces and candidates are not known yet: what is refused now would be with them, too.
  const OffloadPlan plan = plan_offload(offload_shape(), recipe_.limits, budget_bytes, other_bytes);
  cuda::check_pinned_room(plan.outside_bytes);
}

OffloadShape DeviceCache::offload_shape() const {
  const HeadShape& h = shape_.heads;
  const int d = h.head_dim;
  OffloadShape shape{};
  shape.n_layers = shape_.n_layers;
  shape.n_sequences = shape_.n_sequences;
  shape.n_kv_heads = h.n_kv_heads;
  shape.coded_pages = shape_.n_sequences * pages_.shape().coded_pages();
  if (is_signvq()) {
    shape.record_bytes = cuda::signvq_row_bytes(d);
    shape.step_bytes = cuda::signvq_step_bytes(signvq_plan_.most_rows, d);
    return shape;
  }
  shape.record_bytes = cuda::record_bytes(recipe_.key_bits, d);
  shape.norm_bytes = cuda::value_norm_bytes(recipe_.value_bits);
  shape.step_bytes = cuda::record_step_bytes(plan_.most_candidates);
  shape.staged_bytes = std::max(kStagedPages, shape_.n_sequences) * laid_planes(nullptr).index.page_stride;
  return shape;
}

// Sparse pages on their way outside, one behind the other.
cuda::SparsePages DeviceCache::laid_planes(const uint8_t* data) const {
  const int d = shape_.heads.head_dim;
  const int64_t keys = cuda::sparse_index_bytes(d);
  const int64_t values = keys + cuda::sparse_key_bytes(recipe_.key_bits, d);
  const int64_t head = values + cuda::sparse_value_bytes(d);
  const int64_t page = head * shape_.heads.n_kv_heads;
  return {{data, page, head}, {data + keys, page, head}, {data + values, page, head}};
}

void DeviceCache::reserve_offloaded(uint64_t budget_bytes) {
  if (!recipe_.offloads) return;
  const OffloadShape shape = offload_shape();
  offloaded_ = std::make_unique<OffloadedPages>(
      shape, plan_offload(shape, recipe_.limits, budget_bytes, memory_bytes()));
}

uint64_t DeviceCache::used_bytes() const {
  uint64_t in_windows = 0;
  for (int s = 0; windows_ != nullptr && s < shape_.n_sequences; ++s) {
    const int n_pages = pages_of(pages_.n_tokens(s));
    in_windows += size(std::min(n_pages, windows_->shape().ring_pages())) * windows_->shape().layer_bytes() *
                  window_tokens_.size();
  }
  return in_windows + size(pages_.used_exact_pages()) * exact_page_bytes_ +
         size(pages_.used_coded_pages()) *
             size(coded_layout_.head_bytes() * shape_.heads.n_kv_heads * shape_.n_layers);
}

uint64_t DeviceCache::memory_bytes() const {
  uint64_t total = signs_.memory_bytes();
  if (offloaded_ != nullptr) total += offloaded_->memory_bytes();
  if (windows_ != nullptr) total += windows_->shape().memory_bytes();
  for (const cuda::DeviceBuffer* buffer :
       {&exact_,          &coded_,         &staged_,        &exact_table_, &coded_table_,
        &first_tokens_,   &sink_pages_,    &sink_tokens_,   &iota_,        &due_from_,
        &due_to_,         &frames_memory_, &workspace_,     &log_sums_,    &other_out_,
        &other_log_sums_, &framed_,        &bias_,          &n_read_,      &window_workspace_,
        &moves_,          &window_sinks_,  &window_cosine_, &window_sine_, &scores_,
        &units_,          &unit_counts_,   &unit_pages_}) {
    total += buffer->size_bytes();
  }
  return total;
}

void DeviceCache::send_tables(cuda::Stream stream) {
  const auto put = [&](const cuda::DeviceBuffer& to, const std::vector<int32_t>& from) {
    send(to.as<void>(), from.data(), from.size() * sizeof(int32_t), stream);
  };
  put(exact_table_, pages_.exact_table());
  put(first_tokens_, pages_.first_tokens());
  if (!recipe_.seals()) return;
  put(coded_table_, pages_.coded_table());
  put(sink_pages_, pages_.sink_pages());
  put(sink_tokens_, pages_.sink_tokens());
}

ExactPages DeviceCache::exact_pages(int layer) const {
  const HeadShape& h = shape_.heads;
  const auto side = static_cast<int64_t>(row_bytes(recipe_.format, size(kPageTokens * h.head_dim)));
  const uint8_t* data = exact_.as<uint8_t>() + layer * 2 * side * h.n_kv_heads;
  const auto page_bytes = static_cast<int64_t>(exact_page_bytes_);
  return {recipe_.format,
          {data, page_bytes, 2 * side},
          {data + side, page_bytes, 2 * side},
          exact_table_.as<int32_t>(),
          pages_.shape().exact_pages()};
}

uint8_t* DeviceCache::exact_page(int number) const {
  return exact_.as<uint8_t>() + size(number) * exact_page_bytes_;
}

void DeviceCache::crop(int sequence, int n_tokens, std::vector<cuda::PageCopy>& copies) {
  const int n_now = pages_.n_tokens(sequence);
  if (windows_ != nullptr) windows_->check_cut(sequence, n_now, n_tokens);
  pages_.crop(sequence, n_tokens, copies);
  if (windows_ != nullptr) windows_->cut(sequence, n_now, n_tokens);
}

void DeviceCache::copy_page(int from, int to, cuda::Stream stream) {
  cuda::check(
      cudaMemcpyAsync(exact_page(to), exact_page(from), exact_page_bytes_, cudaMemcpyDeviceToDevice, stream),
      "copying a page");
}

cuda::SparsePages DeviceCache::coded_planes(int layer) const {
  const CodedLayout& l = coded_layout_;
  const int64_t layer_bytes = l.head_bytes() * shape_.heads.n_kv_heads;
  const int64_t page_bytes = layer_bytes * shape_.n_layers;
  const uint8_t* data = coded_.as<uint8_t>() + layer * layer_bytes;
  return {{data, page_bytes, l.head_bytes()},
          {data + l.index_bytes, page_bytes, l.head_bytes()},
          {data + l.index_bytes + l.key_bytes, page_bytes, l.head_bytes()}};
}

// The CPU's bytes: the index is the first part of the keys.
cuda::SparsePages DeviceCache::staged_planes() const {
  const CodedLayout& l = staged_layout_;
  const int64_t page_bytes = l.head_bytes() * shape_.heads.n_kv_heads;
  const uint8_t* data = staged_.as<uint8_t>();
  return {{data, page_bytes, l.head_bytes()},
          {data, page_bytes, l.head_bytes()},
          {data + l.key_bytes, page_bytes, l.head_bytes()}};
}

DeviceCache::Frames DeviceCache::frames_of(int layer, int sequence) const {
  if (is_signvq()) return {signs_.key_frame(layer, sequence), {}};
  return frames_[size(layer)];
}

void DeviceCache::seal_pages(int layer, const Frames& frames, const cuda::RowPlane& keys,
                             const cuda::RowPlane& values, const int32_t* from, const int32_t* to, int n,
                             cuda::Stream stream) {
  if (n == 0) return;
  const HeadShape& h = shape_.heads;
  const bool is_sparse = recipe_.kind == AttentionKind::kSparse;
  const bool is_staged = is_sparse || is_signvq();
  const cuda::SparsePages planes = is_staged ? staged_planes() : coded_planes(layer);
  const int32_t* sealed = is_staged ? iota_.as<int32_t>() : to;
  const auto pages = [&](const cuda::RowPlane& rows, const cuda::FramePlane& frame,
                         const cuda::RowPlane& coded) {
    return cuda::PagesToSeal{n, h.n_kv_heads, h.head_dim, recipe_.format, rows, from, frame, coded, sealed};
  };
  cuda::seal_keys(pages(keys, frames.keys, planes.keys), recipe_.keys, stream);
  cuda::seal_values(pages(values, frames.values, planes.values), recipe_.values, stream);
  if (is_signvq()) {
    cuda::lay_signvq_pages(planes.keys, planes.values, signvq_planes(layer), iota_.as<int32_t>(), to, n,
                           h.n_kv_heads, h.head_dim, stream);
  }
  if (!is_sparse) return;
  cuda::SparsePages staged = planes;
  staged.keys.data += index_page_bytes(recipe_.keys, h.head_dim);
  const auto* staged_numbers = iota_.as<int32_t>();
  const cuda::SparsePages laid =
      offloaded_ != nullptr ? laid_planes(offloaded_->staged()) : coded_planes(layer);
  cuda::lay_sparse_pages(staged, laid, offloaded_ != nullptr ? staged_numbers : to, n, h.n_kv_heads,
                         h.head_dim, recipe_.key_bits, recipe_.value_bits, stream, staged_numbers);
  if (offloaded_ == nullptr) return;
  cuda::lay_records(laid, coded_planes(layer).index, offloaded_->rows(layer), to, n, h.n_kv_heads, h.head_dim,
                    recipe_.key_bits, recipe_.value_bits, stream);
}

void DeviceCache::seal_due(cuda::Stream stream) {
  if (is_signvq()) return seal_own_due(stream);
  if (recipe_.reserve.given()) return leave_due(stream);
  due_pages_.clear();
  std::vector<int32_t> to;
  for (int sequence = 0; sequence < shape_.n_sequences; ++sequence) {
    if (!pages_.is_due(sequence)) continue;
    const PageSeal seal = pages_.seal(sequence);
    due_pages_.push_back(seal.from);
    to.push_back(seal.to);
  }
  if (to.empty()) return;
  send(due_from_.as<void>(), due_pages_.data(), due_pages_.size() * sizeof(int32_t), stream);
  send(due_to_.as<void>(), to.data(), to.size() * sizeof(int32_t), stream);
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    const ExactPages exact = exact_pages(layer);
    seal_pages(layer, frames_of(layer, 0), exact.keys, exact.values, due_from_.as<int32_t>(),
               due_to_.as<int32_t>(), static_cast<int>(to.size()), stream);
  }
  send_tables(stream);
}

void DeviceCache::seal_rows(int sequence, int layer, const PromptRows& rows, int first, int n,
                            cuda::Stream stream) {
  const int64_t page_bytes = int64_t{2} * kPageTokens * shape_.heads.head_dim;
  const int64_t head_bytes = int64_t{2} * rows.stride * shape_.heads.head_dim;
  const cuda::RowPlane keys = {reinterpret_cast<const uint8_t*>(rows.keys), page_bytes, head_bytes};
  const cuda::RowPlane values = {reinterpret_cast<const uint8_t*>(rows.values), page_bytes, head_bytes};
  const int32_t* to = coded_table_.as<int32_t>() + sequence * pages_.coded_stride() + first;
  for (int at = 0; at < n; at += kStagedPages) {
    seal_pages(layer, frames_of(layer, sequence), keys, values, iota_.as<int32_t>() + at, to + at,
               std::min(kStagedPages, n - at), stream);
  }
}

void DeviceCache::put_prompt(int sequence, int layer, const PromptRows& rows, int n, int first_coded,
                             cuda::Stream stream) {
  const int n_coded = pages_.coded_tokens(sequence);
  const ExactPages exact = exact_pages(layer);
  if (n_coded > 0 && first_coded == 0) measure_rows(sequence, layer, rows, n, stream);
  if (n_coded > first_coded * kPageTokens) {
    const int64_t skipped = int64_t{first_coded} * kPageTokens * shape_.heads.head_dim;
    const PromptRows due = {nullptr, rows.keys + skipped, rows.values + skipped, rows.stride, 0};
    seal_rows(sequence, layer, due, first_coded, n_coded / kPageTokens - first_coded, stream);
  }
  if (n_coded > 0 && first_coded == 0) {
    copy_to_pages(shape_.heads, rows, 0, recipe_.sink_tokens, exact, sink_pages_.as<int32_t>() + sequence,
                  stream);
  }
  copy_to_pages(shape_.heads, rows, n_coded, n - n_coded, exact, exact_table(sequence), stream);
  bound_rows(sequence, layer, stream);
}

}  // namespace quire::gpu
