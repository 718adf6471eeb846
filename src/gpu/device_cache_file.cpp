// Sequences between the device and caches of the CPU, which files are made of: layer by layer, in the bytes
// of src/store. Exact rows lie there with their keys as [head_dim][64]. Coded pages have the bytes of here
// but for padding, and an index lies in blocks of its own.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "gpu/device_cache.h"

namespace quire::gpu {

namespace {

// n rows of keys [64][head_dim] to [head_dim][64], numbers of two bytes or one.
template <class Number>
void turn_keys(const uint16_t* rows, int n, int d, uint8_t* to) {
  auto* columns = reinterpret_cast<Number*>(to);
  for (int t = 0; t < n; ++t) {
    for (int j = 0; j < d; ++j) columns[j * kPageTokens + t] = static_cast<Number>(rows[t * d + j]);
  }
}
template <class Number>
void turn_keys_back(const std::byte* from, int n, int d, uint16_t* rows) {
  const auto* columns = reinterpret_cast<const Number*>(from);
  for (int t = 0; t < n; ++t) {
    for (int j = 0; j < d; ++j) rows[t * d + j] = columns[j * kPageTokens + t];
  }
}

// Numbers of one byte to the low bytes of n numbers, which begin in the same memory; and the way back.
void widen(uint16_t* numbers, size_t n) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(numbers);
  for (size_t i = n; i-- > 0;) numbers[i] = bytes[i];
}
void narrow(const uint16_t* numbers, size_t n, uint8_t* bytes) {
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(numbers[i]);
}

}  // namespace

std::vector<uint32_t> exact_positions(const Cache& cache) {
  if (cache.reserving() != nullptr) {
    return {cache.reserving()->open().begin(), cache.reserving()->open().end()};
  }
  if (cache.dropping() == nullptr) return {};
  std::vector<uint32_t> positions = cache.dropping()->rows(0, 0).positions;
  std::ranges::sort(positions);
  return positions;
}

// One sequence, whose pages are settled and which no kernel is at work on.
class DeviceCache::Transfer {
 public:
  Transfer(DeviceCache& cache, int sequence, cuda::Stream stream)
      : cache_(cache),
        sequence_(sequence),
        heads_(cache.shape_.heads),
        stream_(stream),
        n_(cache.pages_.n_tokens(sequence)),
        n_coded_(cache.pages_.coded_tokens(sequence) / kPageTokens),
        coded_(cache.pages_.coded_table().data() + ptrdiff_t{sequence} * cache.pages_.coded_stride()),
        exact_(cache.pages_.exact_table().data() + ptrdiff_t{sequence} * cache.pages_.shape().exact_pages()),
        sinks_(cache.recipe_.window_tokens > 0 && n_ > 0 ? exact_[0]
                                                         : cache.pages_.sink_pages()[size(sequence)]),
        places_(places(cache, sequence)),
        side_(size(kPageTokens * heads_.head_dim)),
        rows_(2 * side_ * size(heads_.n_kv_heads)),
        staged_(size(cache.staged_layout_.head_bytes() * heads_.n_kv_heads)) {}

  // Of a layer of the model, when the CPU has it.
  LayerContents contents(LayerPlace place, const LayerLayout& layout) const {
    if (!place.has_window) return {static_cast<size_t>(n_coded_), 0, {}};
    const auto n_lost = static_cast<size_t>(cache_.windows_->n_lost(sequence_, n_));
    return {0, std::max(n_lost, layout.left_behind(static_cast<size_t>(n_))), {}};
  }

  // Of a recipe whose rows leave for good: where the exact row of each position lies, in their order.
  struct Place {
    uint32_t position;
    int row;  // of the exact pages
  };
  const std::vector<Place>& row_places() const { return places_; }

  // A layer's memory in the order of store/blocks.cpp.
  std::vector<uint8_t> layer_bytes(LayerPlace place, const LayerLayout& layout) {
    std::vector<uint8_t> bytes;
    if (place.has_window) {
      for (auto first = static_cast<int>(contents(place, layout).n_left); first < n_; first += kPageTokens) {
        cache_.windows_->read(sequence_, place.layer, first / kPageTokens, rows_.data());
        if (has_bytes()) widen(rows_.data(), rows_.size());
        add_open(std::min(kPageTokens, n_ - first), layout.open, bytes);
      }
      return bytes;
    }
    const int layer = place.layer;
    if (cache_.recipe_.drops()) {
      add_places(layer, layout, bytes);
      return bytes;
    }
    if (n_coded_ > 0 && layout.sink_tokens > 0) add_sinks(layer, layout, bytes);
    if (n_coded_ > 0) add_coded(layer, layout.sealed, bytes);
    for (int first = n_coded_ * kPageTokens, i = 0; first < n_; first += kPageTokens, ++i) {
      read_exact(layer, exact_[i]);
      add_open(std::min(kPageTokens, n_ - first), layout.open, bytes);
    }
    return bytes;
  }

  // rows: of each KV head, as they lie on the CPU; of a recipe whose rows leave for good.
  void put_places(int layer, const LayerView& view, const Dropping& rows) {
    std::vector<std::vector<uint16_t>> pages(size(exact_pages()), std::vector<uint16_t>(rows_.size(), 0));
    const auto put = [&](int head, int row, const uint16_t* key, const uint16_t* value) {
      uint16_t* to = head_rows(pages[size(row / kPageTokens)], head) + row % kPageTokens * heads_.head_dim;
      std::copy_n(key, heads_.head_dim, to);
      std::copy_n(value, heads_.head_dim, to + side_);
    };
    const auto row_of = [&](uint32_t position) {
      const auto at = std::ranges::lower_bound(places_, position, {}, &Place::position);
      QUIRE_CHECK(at != places_.end() && at->position == position);
      return at->row;
    };
    for (int head = 0; head < heads_.n_kv_heads; ++head) {
      const std::vector<uint32_t>& positions = rows.rows(size(layer), size(head)).positions;
      for (size_t i = 0; i < positions.size(); ++i) {
        const auto page = static_cast<size_t>(i) / kPageTokens;
        const auto row = static_cast<int>(i % kPageTokens);
        if (row == 0) {
          const int n_rows = static_cast<int>(std::min<size_t>(kPageTokens, positions.size() - i));
          turn_keys_back<uint16_t>(view.keys(size(head), page), n_rows, heads_.head_dim, keys(head));
          std::memcpy(values(head), view.values(size(head), page),
                      size(n_rows * heads_.head_dim) * sizeof(uint16_t));
        }
        put(head, row_of(positions[i]), keys(head) + row * heads_.head_dim,
            values(head) + row * heads_.head_dim);
      }
      for (int i = 0; view.sinks != nullptr && i < cache_.recipe_.sink_tokens; ++i) {
        put(head, i, reinterpret_cast<const uint16_t*>(view.sink_keys(size(head))) + i * heads_.head_dim,
            reinterpret_cast<const uint16_t*>(view.sink_values(size(head))) + i * heads_.head_dim);
      }
    }
    for (size_t i = 0; i < pages.size(); ++i) {
      rows_ = pages[i];
      write_exact(layer, exact_[i]);
    }
  }

  void put_layer(LayerPlace place, const LayerView& view) {
    if (place.has_window) {
      const auto n_left = static_cast<int>(view.left_pages);
      for (int i = n_left; kPageTokens * i < n_; ++i) {
        take_open(view, i - n_left, std::min(kPageTokens, n_ - kPageTokens * i));
        cache_.windows_->write(sequence_, place.layer, i, stored_rows());
      }
      return;
    }
    const int layer = place.layer;
    if (view.sinks != nullptr) {
      for (int head = 0; head < heads_.n_kv_heads; ++head) {
        std::memcpy(keys(head), view.sink_keys(size(head)), view.layer->sink_key_bytes());
        std::memcpy(values(head), view.sink_values(size(head)), view.layer->sink_value_bytes());
      }
      write_exact(layer, sinks_);
    }
    for (int i = 0; i < n_coded_; ++i) put_coded(layer, view, i);
    for (int first = n_coded_ * kPageTokens, i = 0; first < n_; first += kPageTokens, ++i) {
      take_open(view, n_coded_ + i, std::min(kPageTokens, n_ - first));
      write_exact(layer, exact_[i]);
    }
  }

 private:
  static size_t size(int64_t n) { return static_cast<size_t>(n); }
  uint16_t* keys(int head) { return rows_.data() + 2 * side_ * size(head); }
  uint16_t* values(int head) { return keys(head) + side_; }
  static uint8_t* grow(std::vector<uint8_t>& bytes, size_t n_bytes) {
    bytes.resize(bytes.size() + n_bytes, 0);
    return bytes.data() + bytes.size() - n_bytes;
  }

  int exact_pages() const {
    const int n_rows = cache_.pages_.exact_rows(sequence_);
    return pages_of(n_rows);
  }
  uint16_t* head_rows(std::vector<uint16_t>& page, int head) const {
    return page.data() + 2 * side_ * size(head);
  }

  // Rows that the CPU has: of a ring those of the window alone, or all tokens while there are no more.
  static std::vector<Place> places(const DeviceCache& cache, int sequence) {
    std::vector<Place> all;
    const int n = cache.pages_.n_tokens(sequence);
    const PagesShape& shape = cache.pages_.shape();
    if (shape.window_tokens > 0) {
      for (int position = n < shape.window_rows() ? 0 : n - shape.window_tokens; position < n; ++position)
        all.push_back({static_cast<uint32_t>(position), shape.place_of(position)});
    } else if (shape.drops()) {
      const std::vector<uint32_t>& open = cache.pages_.order(sequence).open();
      for (size_t i = 0; i < open.size(); ++i) all.push_back({open[i], static_cast<int>(i)});
      std::ranges::sort(all, {}, &Place::position);
    }
    return all;
  }

  void add_places(int layer, const LayerLayout& layout, std::vector<uint8_t>& bytes) {
    if (places_.size() < size(n_) && layout.sink_tokens > 0) add_sinks(layer, layout, bytes);
    std::vector<std::vector<uint16_t>> pages;
    for (int i = 0; i < exact_pages(); ++i) {
      read_exact(layer, exact_[i]);
      pages.push_back(rows_);
    }
    for (size_t first = 0; first < places_.size(); first += kPageTokens) {
      const size_t n_rows = std::min<size_t>(kPageTokens, places_.size() - first);
      for (int head = 0; head < heads_.n_kv_heads; ++head) {
        for (size_t i = 0; i < n_rows; ++i) {
          const int row = places_[first + i].row;
          const uint16_t* from =
              head_rows(pages[size(row / kPageTokens)], head) + row % kPageTokens * heads_.head_dim;
          std::copy_n(from, heads_.head_dim, keys(head) + i * size(heads_.head_dim));
          std::copy_n(from + side_, heads_.head_dim, values(head) + i * size(heads_.head_dim));
        }
      }
      add_open(static_cast<int>(n_rows), layout.open, bytes);
    }
  }

  // Numbers have one byte, which is the low one of a number of rows_.
  bool has_bytes() const { return info(cache_.recipe_.format).value_bytes == 1; }
  // rows_ as pages have them.
  const void* stored_rows() {
    if (!has_bytes()) return rows_.data();
    bytes_.resize(rows_.size());
    narrow(rows_.data(), rows_.size(), bytes_.data());
    return bytes_.data();
  }

  // Of one layer, to rows_ and from there.
  size_t place(int layer, int page) const {
    const size_t layer_bytes = cache_.exact_rows_bytes() / size(cache_.shape_.n_layers);
    return size(page) * cache_.exact_page_bytes_ + size(layer) * layer_bytes;
  }
  void read_exact(int layer, int page) {
    cache_.exact_.read(rows_.data(), row_bytes(cache_.recipe_.format, rows_.size()), place(layer, page));
    if (has_bytes()) widen(rows_.data(), rows_.size());
  }
  void write_exact(int layer, int page) {
    cache_.exact_.write(stored_rows(), row_bytes(cache_.recipe_.format, rows_.size()), place(layer, page));
  }

  void add_sinks(int layer, const LayerLayout& layout, std::vector<uint8_t>& bytes) {
    read_exact(layer, sinks_);
    for (int head = 0; head < heads_.n_kv_heads; ++head) {
      std::memcpy(grow(bytes, layout.sink_key_bytes()), keys(head), layout.sink_key_bytes());
      std::memcpy(grow(bytes, layout.sink_value_bytes()), values(head), layout.sink_value_bytes());
    }
  }

  void add_coded(int layer, const SealedLayout& sealed, std::vector<uint8_t>& bytes) {
    const size_t n_index = sealed.index_blocks(size(n_coded_)) * sealed.index_block_bytes();
    const size_t begin = bytes.size();
    grow(bytes, n_index + size(n_coded_) * sealed.page_bytes());
    for (int i = 0; i < n_coded_; ++i) {
      read_coded(layer, coded_[i]);
      uint8_t* index = bytes.data() + begin + size(i) / kPagesPerIndexBlock * sealed.index_block_bytes();
      uint8_t* page = bytes.data() + begin + n_index + size(i) * sealed.page_bytes();
      for (int head = 0; head < heads_.n_kv_heads; ++head) {
        const uint8_t* from = staged_.data() + head * cache_.staged_layout_.head_bytes();
        if (sealed.index_bytes() > 0)
          std::memcpy(index + sealed.index_offset(size(head), size(i)), from, sealed.index_bytes());
        std::memcpy(page + sealed.key_offset(size(head)), from + sealed.index_bytes(), sealed.key_bytes());
        std::memcpy(page + sealed.value_offset(size(head)), from + cache_.staged_layout_.key_bytes,
                    sealed.value_bytes());
      }
    }
  }

  void add_open(int n_rows, const RowLayout& layout, std::vector<uint8_t>& bytes) {
    uint8_t* page = grow(bytes, layout.page_bytes());
    for (int head = 0; head < heads_.n_kv_heads; ++head) {
      uint8_t* to_keys = page + layout.key_offset(size(head));
      uint8_t* to_values = page + layout.value_offset(size(head));
      const size_t n_numbers = size(n_rows * heads_.head_dim);
      if (has_bytes()) {
        turn_keys<uint8_t>(keys(head), n_rows, heads_.head_dim, to_keys);
        narrow(values(head), n_numbers, to_values);
      } else {
        turn_keys<uint16_t>(keys(head), n_rows, heads_.head_dim, to_keys);
        std::memcpy(to_values, values(head), n_numbers * sizeof(uint16_t));
      }
      if (layout.digest_bytes > 0) add_bounds(head, n_rows, page + layout.digest_offset(size(head)));
    }
  }

  // As policy/select_quest.cpp has them of the short pages that n_rows fill.
  void add_bounds(int head, int n_rows, uint8_t* to) {
    const int n_tokens = cache_.recipe_.quest.page_tokens;
    const int d = heads_.head_dim;
    auto* bounds = reinterpret_cast<uint16_t*>(to);
    const auto number = [&](const uint16_t* row) {
      return cache_.recipe_.format == Format::kF16 ? f16_to_f32(*row) : bf16_to_f32(*row);
    };
    for (int first = 0; first + n_tokens <= n_rows; first += n_tokens, bounds += 2 * d) {
      for (int j = 0; j < d; ++j) {
        const uint16_t* largest = keys(head) + first * d + j;
        const uint16_t* least = largest;
        for (int t = first + 1; t < first + n_tokens; ++t) {
          const uint16_t* key = keys(head) + t * d + j;
          if (number(key) >= number(largest)) largest = key;
          if (number(key) < number(least)) least = key;
        }
        bounds[j] = *largest;
        bounds[d + j] = *least;
      }
    }
  }

  // An open page of the CPU, to rows_.
  void take_open(const LayerView& view, int page, int n_rows) {
    for (int head = 0; head < heads_.n_kv_heads; ++head) {
      const std::byte* from = view.keys(size(head), size(page));
      const size_t n_bytes = row_bytes(cache_.recipe_.format, size(n_rows * heads_.head_dim));
      std::memcpy(values(head), view.values(size(head), size(page)), n_bytes);
      if (has_bytes()) {
        turn_keys_back<uint8_t>(from, n_rows, heads_.head_dim, keys(head));
        widen(values(head), n_bytes);
      } else {
        turn_keys_back<uint16_t>(from, n_rows, heads_.head_dim, keys(head));
      }
    }
  }

  void put_coded(int layer, const LayerView& view, int i) {
    const SealedLayout& sealed = view.layer->sealed;
    for (int head = 0; head < heads_.n_kv_heads; ++head) {
      uint8_t* to = staged_.data() + head * cache_.staged_layout_.head_bytes();
      if (sealed.index_bytes() > 0) std::memcpy(to, view.index(size(head), size(i)), sealed.index_bytes());
      std::memcpy(to + sealed.index_bytes(), view.keys(size(head), size(i)), sealed.key_bytes());
      std::memcpy(to + cache_.staged_layout_.key_bytes, view.values(size(head), size(i)),
                  sealed.value_bytes());
    }
    write_coded(layer, coded_[i]);
  }

  bool is_sparse() const { return cache_.recipe_.kind == AttentionKind::kSparse; }
  uint8_t* coded_page(int layer, int page) const {
    const cuda::SparsePages planes = cache_.coded_planes(layer);
    return const_cast<uint8_t*>(planes.index.data) + page * planes.index.page_stride;
  }
  cuda::SparsePages staged_planes() const {
    cuda::SparsePages planes = cache_.staged_planes();
    planes.keys.data += index_page_bytes(cache_.recipe_.keys, heads_.head_dim);
    return planes;
  }

  // A page of all heads, in the CPU's bytes with padding, to staged_ and from there.
  void read_coded(int layer, int page) {
    const uint8_t* from = coded_page(layer, page);
    if (is_sparse()) {
      const DeviceRecipe& recipe = cache_.recipe_;
      gpu::send(cache_.due_from_.as<void>(), &page, sizeof page, stream_);
      cuda::take_sparse_pages(cache_.coded_planes(layer), staged_planes(), cache_.due_from_.as<int32_t>(), 1,
                              heads_.n_kv_heads, heads_.head_dim, recipe.key_bits, recipe.value_bits, stream_,
                              cache_.iota_.as<int32_t>());
      from = cache_.staged_.as<uint8_t>();
    }
    cuda::check(cudaMemcpyAsync(staged_.data(), from, staged_.size(), cudaMemcpyDeviceToHost, stream_),
                "reading a page");
    cuda::wait_for(stream_);
  }
  void write_coded(int layer, int page) {
    uint8_t* to = is_sparse() ? cache_.staged_.as<uint8_t>() : coded_page(layer, page);
    gpu::send(to, staged_.data(), staged_.size(), stream_);
    if (!is_sparse()) return;
    const DeviceRecipe& recipe = cache_.recipe_;
    gpu::send(cache_.due_to_.as<void>(), &page, sizeof page, stream_);
    cuda::lay_sparse_pages(staged_planes(), cache_.coded_planes(layer), cache_.due_to_.as<int32_t>(), 1,
                           heads_.n_kv_heads, heads_.head_dim, recipe.key_bits, recipe.value_bits, stream_,
                           cache_.iota_.as<int32_t>());
    cuda::wait_for(stream_);
  }

  DeviceCache& cache_;
  const int sequence_;
  const HeadShape heads_;
  const cuda::Stream stream_;
  const int n_;
  const int n_coded_;
  const int32_t* coded_;
  const int32_t* exact_;
  const int sinks_;
  const std::vector<Place> places_;
  const size_t side_;
  std::vector<uint16_t> rows_;   // of a page: heads of keys and values, [64][head_dim] each
  std::vector<uint8_t> bytes_;   // the same, of one byte a number
  std::vector<uint8_t> staged_;  // of a coded page
};

void DeviceCache::save(int sequence, Cache& to, cuda::Stream stream) {
  cuda::wait_for(stream);
  Transfer transfer(*this, sequence, stream);
  const auto n_tokens = static_cast<size_t>(pages_.n_tokens(sequence));
  const size_t n_dropped = recipe_.drops() ? n_tokens - transfer.row_places().size() : 0;
  std::vector<LayerContents> contents;
  for (size_t i = 0; i < places_.size(); ++i) {
    contents.push_back(transfer.contents(places_[i], to.store().layer_layout(i)));
    contents.back().n_left += n_dropped;
  }
  size_t layer = 0;
  std::vector<uint8_t> bytes;
  size_t n_taken = 0;
  to.restore(n_tokens, contents, [&](std::span<std::byte> block) {
    if (n_taken == bytes.size()) {
      bytes = transfer.layer_bytes(places_[layer], to.store().layer_layout(layer));
      ++layer;
      n_taken = 0;
    }
    QUIRE_CHECK(block.size() <= bytes.size() - n_taken);
    std::memcpy(block.data(), bytes.data() + n_taken, block.size());
    n_taken += block.size();
  });
  QUIRE_CHECK(n_taken == bytes.size() && layer == places_.size());
  if (recipe_.drops()) {
    HeadRows rows;
    for (const Transfer::Place& place : transfer.row_places()) rows.positions.push_back(place.position);
    rows.mass.resize(rows.positions.size(), 0.0f);
    const std::vector<HeadRows> heads(static_cast<size_t>(shape_.heads.n_kv_heads), rows);
    to.restore_dropping(static_cast<size_t>(pages_.n_steps(sequence)),
                        std::vector(static_cast<size_t>(shape_.n_layers), heads));
  } else if (recipe_.reserve.given()) {
    to.restore_reserving(pages_.order(sequence).open());
  }
}

void DeviceCache::load(int sequence, const Cache& from, cuda::Stream stream) {
  cuda::wait_for(stream);
  Transfer transfer(*this, sequence, stream);
  const auto n = static_cast<size_t>(pages_.n_tokens(sequence));
  int n_lost = 0;
  for (size_t layer = 0; layer < places_.size(); ++layer) {
    const LayerView view = from.store().view(layer, n);
    if (recipe_.drops()) {
      transfer.put_places(places_[layer].layer, view, *from.dropping());
      continue;
    }
    transfer.put_layer(places_[layer], view);
    n_lost = std::max(n_lost, kPageTokens * static_cast<int>(view.left_pages));
  }
  if (windows_ != nullptr) windows_->restore(sequence, n_lost);
  cuda::wait_for(nullptr);  // writes may return before the device has them
  for (int layer = 0; layer < shape_.n_layers; ++layer) bound_rows(sequence, layer, stream);
}

}  // namespace quire::gpu
