// Caches whose rows move by a rule of positions alone: a reserve whose rows leave it one by one, to be coded
// or for good, and a ring of the newest tokens.
#include <algorithm>
#include <vector>

#include "gpu/device_cache.h"
#include "gpu/moved_rows.h"

namespace quire::gpu {

namespace {

size_t size(int64_t n) { return static_cast<size_t>(n); }

}  // namespace

void DeviceCache::reserve_moves() {
  const auto n = size(shape_.n_sequences);
  if (recipe_.reserve.given()) moves_ = cuda::DeviceBuffer(kMostMoves * sizeof(RowMove));
  if (recipe_.window_tokens == 0) return;
  const auto n_outputs = n * size(shape_.heads.n_heads);
  const auto n_angles = n * std::max<size_t>(1, size(shape_.rope_half));
  window_sinks_ = cuda::DeviceBuffer(n * sizeof(int32_t));
  window_cosine_ = cuda::DeviceBuffer(n_angles * sizeof(float));
  window_sine_ = cuda::DeviceBuffer(n_angles * sizeof(float));
  framed_ = cuda::DeviceBuffer(n_outputs * size(shape_.heads.head_dim) * sizeof(float));
  other_out_ = cuda::DeviceBuffer(framed_.size_bytes());
  other_log_sums_ = cuda::DeviceBuffer(n_outputs * sizeof(float));
}

StepState::WindowState DeviceCache::window_state() const {
  const PagesShape& pages = pages_.shape();
  if (pages.window_tokens == 0) return {};
  return {pages.window_rows(), pages.sink_tokens, window_sinks_.as<int32_t>(), window_cosine_.as<float>(),
          window_sine_.as<float>()};
}

void DeviceCache::leave_due(cuda::Stream stream) {
  bool changed = false;
  for (int sequence = 0; sequence < shape_.n_sequences; ++sequence) {
    for (; pages_.is_due(sequence); changed = true) leave_reserve(sequence, stream);
  }
  if (changed) send_tables(stream);
}

void DeviceCache::leave_reserve(int sequence, cuda::Stream stream) {
  RowMoves moves;
  const PageSeal seal = pages_.leave(sequence, moves);
  const PagePoolRows pages = {exact_.as<uint8_t>(), static_cast<int64_t>(exact_page_bytes_), shape_.n_layers};
  const auto n_gathered = static_cast<int>(moves.gathered.size());
  std::vector<RowMove> all = moves.gathered;
  all.insert(all.end(), moves.moved.begin(), moves.moved.end());
  QUIRE_CHECK(all.size() <= kMostMoves);
  send(moves_.as<void>(), all.data(), all.size() * sizeof(RowMove), stream);
  move_rows(shape_.heads, pages, moves_.as<RowMove>(), n_gathered, stream);
  move_rows(shape_.heads, pages, moves_.as<RowMove>() + n_gathered, static_cast<int>(moves.moved.size()),
            stream);
  if (!recipe_.seals()) return;
  const int32_t from = seal.from;
  const int32_t to = seal.to;
  send(due_from_.as<void>(), &from, sizeof from, stream);
  send(due_to_.as<void>(), &to, sizeof to, stream);
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    const ExactPages exact = exact_pages(layer);
    seal_pages(layer, frames_of(layer, sequence), exact.keys, exact.values, due_from_.as<int32_t>(),
               due_to_.as<int32_t>(), 1, stream);
  }
}

Arrangement DeviceCache::make_arrangement(const RowsBefore& before, int n) const {
  Arrangement made;
  if (!recipe_.moves_rows()) return made;
  const HeadShape& h = shape_.heads;
  const auto n_rows = size(pages_of(before.n_rows + n) * kPageTokens);
  const size_t side_bytes = n_rows * size(h.n_kv_heads) * size(h.head_dim) * sizeof(uint16_t);
  made.order = cuda::DeviceBuffer(n_rows * sizeof(int32_t));
  made.keys = cuda::DeviceBuffer(side_bytes);
  made.values = cuda::DeviceBuffer(side_bytes);
  return made;
}

// In a ring the newest token of those whose place it is. Rows before count from the sinks' new places, if
// tokens have left.
void DeviceCache::send_arrangement(int sequence, const RowsBefore& before, Arrangement& made) const {
  if (!recipe_.moves_rows()) return;
  std::vector<int32_t> order;
  if (recipe_.window_tokens == 0) {
    made.first = before.n_coded_pages * kPageTokens;
    order = pages_.arrangement(sequence);
  } else {
    const PagesShape& shape = pages_.shape();
    const int n_others = shape.window_rows() - shape.sink_tokens;
    const int last = pages_.n_tokens(sequence) - 1 - shape.sink_tokens;
    const int n_missing = before.n_tokens - before.n_rows;
    for (int place = 0; place < pages_.exact_rows(sequence); ++place) {
      const int behind = place - shape.sink_tokens;
      const int back = behind >= 0 ? (last - behind) % n_others : 0;
      const int position = behind >= 0 ? shape.sink_tokens + last - back : place;
      order.push_back(std::max(0, position - n_missing));
    }
  }
  made.n = static_cast<int>(order.size());
  QUIRE_CHECK(order.size() * sizeof(int32_t) <= made.order.size_bytes());
  made.order.write(order.data(), order.size() * sizeof(int32_t));
  cuda::wait_for(nullptr);
}

PromptRows DeviceCache::arranged(int sequence, int layer, const PromptRows& rows, const Arrangement& made,
                                 cuda::Stream stream) const {
  if (!recipe_.moves_rows()) return rows;
  PromptRows from = rows;
  PromptRows to = {nullptr, made.keys.as<uint16_t>(), made.values.as<uint16_t>(), rows.stride, made.first};
  from.first = made.first;
  arrange_rows(shape_.heads, from, made.order.as<int32_t>(), made.n, to, stream);
  if (recipe_.window_tokens > 0) {
    copy_from_pages(shape_.heads, exact_pages(layer), exact_table(sequence),
                    std::min(recipe_.sink_tokens, made.n), to, 0, stream);
  }
  to.first = 0;
  return to;
}

void DeviceCache::store_sinks(int sequence, int layer, const PromptRows& rows, int n,
                              cuda::Stream stream) const {
  copy_to_pages(shape_.heads, rows, 0, std::min(n, recipe_.sink_tokens), exact_pages(layer),
                exact_table(sequence), stream);
}

void DeviceCache::turn_sinks(int sequence, int layer, int shift, const Angles& angles, const PromptRows& to,
                             cuda::Stream stream) const {
  gpu::turn_sinks(shape_.heads, exact_pages(layer), exact_table(sequence), recipe_.sink_tokens, shift, angles,
                  to, stream);
}

}  // namespace quire::gpu
