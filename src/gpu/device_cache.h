// The caches of a batch on the device: exact and coded pages, which of them a sequence has, attention to
// them, and the coding of pages that are due. Internal to the library.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/cache.h"
#include "cache/statistics.h"
#include "gpu/device_recipe.h"
#include "gpu/handles.h"
#include "gpu/offloaded_pages.h"
#include "gpu/sequence_pages.h"
#include "gpu/signvq_state.h"
#include "gpu/step_kernels.h"
#include "gpu/window_pages.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/encode.h"
#include "kernels/cuda/signvq_attention.h"
#include "kernels/cuda/sparse_attention.h"

namespace quire::gpu {

struct CacheShape {
  int n_layers;  // of the model that see all tokens
  HeadShape heads;
  float scale;  // of scores
  int n_sequences;
  int most_tokens;      // of a sequence
  float score_cap = 0;  // as in cuda::DecodeAttention
  int rope_half = 0;    // pairs that turn
};

// Where a layer of the model is kept: as the layer-th of those that see all tokens, or of those with a
// window.
struct LayerPlace {
  int layer;
  bool has_window;
};

// Which pages a sequence had, and room to decode some at a time.
struct RowsBefore {
  int n_tokens = 0;
  int n_rows = 0;  // that there are of them: all, or those that have not left
  int n_coded_pages = 0;
  cuda::DeviceBuffer tables;  // numbers of coded pages, of exact ones, of the sinks'; places in a ring
  cuda::DeviceBuffer framed;  // [kOpenedPages][n_kv_heads][64][head_dim]
};
constexpr int kOpenedPages = 32;

// Positions of the exact rows of a cache whose rows move, as they lie; where they leave for good, rising, as
// each head may have them in an order of its own. Empty: rows do not move.
std::vector<uint32_t> exact_positions(const Cache& cache);

// How the rows of a prompt come to lie where a recipe moves rows: see SequencePages::arrangement(), and of a
// ring which of the rows there are at which place.
struct Arrangement {
  int first = 0;  // place of its first row: those before are coded
  int n = 0;
  cuda::DeviceBuffer order, keys, values;
};

// Layers are counted among those that see all tokens, but where a LayerPlace or a window is spoken of.
class DeviceCache {
 public:
  // Reserves all pages. Throws Error where they exceed the budget (0: none) or facts are missing, DeviceError
  // where the device refuses. Where rows lie outside, the budget is of all memory_bytes(), and fetched rows
  // get what is left of it.
  DeviceCache(const CacheShape& shape, const Recipe& recipe, const Geometry& geometry,
              const ModelFacts& facts, uint64_t budget_bytes);

  SequencePages& pages() { return pages_; }
  const SequencePages& pages() const { return pages_; }
  const DeviceRecipe& recipe() const { return recipe_; }
  uint64_t used_bytes() const;
  uint64_t reserved_bytes() const {
    return exact_.size_bytes() + coded_.size_bytes() + signs_.memory_bytes() +
           (windows_ != nullptr ? windows_->shape().memory_bytes() : 0);
  }
  uint64_t memory_bytes() const;
  // Of a layer of the model.
  LayerPlace place(int layer) const { return places_[static_cast<size_t>(layer)]; }
  // Layers with a window; nullptr: there are none.
  WindowPages* windows() { return windows_.get(); }
  const WindowPages* windows() const { return windows_.get(); }
  // A sequence is cut to n_tokens: all of it. Throws Error, with nothing changed, as SequencePages::crop()
  // and WindowPages::check_cut().
  void crop(int sequence, int n_tokens, std::vector<cuda::PageCopy>& copies);
  // Rows outside the device; nullptr: there are none.
  OffloadedPages* offloaded() { return offloaded_.get(); }
  // Whatever is on the device of a sequence's rows that lie outside was of another text. In the order of the
  // stream.
  void forget_fetched(int sequence, cuda::Stream stream) {
    if (offloaded_ != nullptr) offloaded_->forget(sequence, stream);
  }

  // Tables as pages() has them now, to where launches read them.
  void send_tables(cuda::Stream stream);
  const int32_t* first_tokens() const { return first_tokens_.as<int32_t>(); }
  ExactPages exact_pages(int layer) const;

  // Attention of a step's queries [n_sequences][n_heads][head_dim], to `out`, the same. May be captured.
  void attend(int layer, const float* queries, const int32_t* exact_tokens, float* out, cuda::Stream stream);
  // The same of a layer with a window; n_tokens: of each sequence, the step's own among them.
  void attend_window(int layer, const float* queries, const int32_t* n_tokens, float* out,
                     cuda::Stream stream);
  // Codes the pages of all sequences that are due, and sends the tables.
  void seal_due(cuda::Stream stream);
  // Rows of a sequence of n tokens into the pages that pages() gave it, coded from page first_coded on where
  // they are due; before that page all is there. `rows` has all n. Where codes are made of the sequence's own
  // tokens, rows.queries are those of its last token.
  void put_prompt(int sequence, int layer, const PromptRows& rows, int n, int first_coded,
                  cuda::Stream stream);
  // Rows of tokens that a sequence has, before pages().append() and while that goes on: exact ones as they
  // are, coded ones decoded and rounded, at the places 0 .. of `rows`.
  RowsBefore rows_before(int sequence) const;
  void take_rows(const RowsBefore& before, int layer, const PromptRows& rows, cuda::Stream stream);
  // Where rows move, for a prompt of n tokens behind those: room first, and what is known when pages() has
  // its tokens. `rows` of put_prompt() are then those of arranged().
  Arrangement make_arrangement(const RowsBefore& before, int n) const;
  void send_arrangement(int sequence, const RowsBefore& before, Arrangement& arrangement) const;
  PromptRows arranged(int sequence, int layer, const PromptRows& rows, const Arrangement& arrangement,
                      cuda::Stream stream) const;
  // The first rows of a prompt are its sinks: to where they stay.
  void store_sinks(int sequence, int layer, const PromptRows& rows, int n, cuda::Stream stream) const;
  // Sinks as they stand `shift` positions further on, to rows to.first ..
  void turn_sinks(int sequence, int layer, int shift, const Angles& angles, const PromptRows& to,
                  cuda::Stream stream) const;
  // What a step writes beside its rows where they are a ring.
  StepState::WindowState window_state() const;
  // Coded pages `first` .. of a sequence from exact rows at the places 0 .. of `rows`.
  void seal_rows(int sequence, int layer, const PromptRows& rows, int first, int n, cuda::Stream stream);
  // Between a sequence here and a cache of the CPU, of the same recipe and shape: `to` is without tokens;
  // pages().restore() has been called for `from`. The host waits.
  void save(int sequence, Cache& to, cuda::Stream stream);
  void load(int sequence, const Cache& from, cuda::Stream stream);
  // Before seal_rows(), where codes are made of the sequence's own tokens: of the n rows from 0 on.
  void measure_rows(int sequence, int layer, const PromptRows& rows, int n, cuda::Stream stream);
  // What `to` is coded by, and its windows, become what `from` has.
  void fork(int from, int to, cuda::Stream stream);
  // All layers of an exact page.
  void copy_page(int from, int to, cuda::Stream stream);
  uint8_t* exact_page(int number) const;
  size_t exact_page_bytes() const { return exact_page_bytes_; }
  // Bounds of all short pages of a sequence in one layer, where the recipe reads by them.
  void bound_rows(int sequence, int layer, cuda::Stream stream) const;

 private:
  class Transfer;  // device_cache_file.cpp
  struct Frames {
    cuda::FramePlane keys;
    cuda::FramePlane values;
  };
  // Where the parts of a KV head lie in a coded page.
  struct CodedLayout {
    int64_t index_bytes = 0;  // of sparse pages
    int64_t key_bytes = 0;
    int64_t value_bytes = 0;
    int64_t head_bytes() const { return index_bytes + key_bytes + value_bytes; }
  };

  static PagesShape pages_shape(const CacheShape& shape, const DeviceRecipe& recipe);
  void place_layers(const Geometry& geometry);
  WindowShape window_shape() const;
  static CodedLayout coded_layout(const DeviceRecipe& recipe, int head_dim);
  static CodedLayout staged_layout(const DeviceRecipe& recipe, int head_dim);
  // Refuses what can be known before anything is reserved.
  void check(const Recipe& recipe, const ModelFacts& facts, uint64_t budget_bytes) const;
  void check_offloaded(uint64_t budget_bytes, uint64_t other_bytes) const;
  OffloadShape offload_shape() const;
  void put_frames(const Recipe& recipe, const Geometry& geometry, const ModelFacts& facts);
  size_t attention_bytes() const;  // of workspace
  void reserve_attention();
  void reserve_offloaded(uint64_t budget_bytes);
  cuda::SparsePages coded_planes(int layer) const;
  cuda::SparsePages staged_planes() const;
  cuda::SparsePages laid_planes(const uint8_t* data) const;
  cuda::SignVqPages signvq_planes(int layer) const;
  cuda::DecodeAttention attention(const float* queries, float* out, float* log_sums) const;
  cuda::DecodeAttention exact_attention(const ExactPages& pages, const float* queries,
                                        const int32_t* n_tokens, float* out, float* log_sums) const;
  void merge_other(float* out, cuda::Stream stream);
  cuda::SparseAttention sparse_attention(int layer, const float* queries, const int32_t* exact_tokens,
                                         float* out) const;
  void attend_exact(int layer, const float* queries, const int32_t* exact_tokens, float* out,
                    cuda::Stream stream);
  void attend_coded(int layer, const float* queries, float* out, cuda::Stream stream);
  void send(void* to, const void* from, size_t n_bytes, cuda::Stream stream) {
    sender_.send(to, from, n_bytes, stream);
  }
  // In the frames of the layer, or of the sequence.
  Frames frames_of(int layer, int sequence) const;
  void seal_pages(int layer, const Frames& frames, const cuda::RowPlane& keys, const cuda::RowPlane& values,
                  const int32_t* from, const int32_t* to, int n, cuda::Stream stream);
  // Where every sequence has frames of its own.
  void seal_own(int sequence, cuda::Stream stream);
  void seal_own_due(cuda::Stream stream);
  void put_kept_rows(int sequence, int layer, cuda::Stream stream);
  cuda::SignVqAttention signvq_attention(int layer, const float* queries, const int32_t* exact_tokens,
                                         float* out) const;
  // Of all layers, without bounds.
  size_t exact_rows_bytes() const {
    const HeadShape& h = shape_.heads;
    const auto n_channels = static_cast<size_t>(h.head_dim * h.n_kv_heads * shape_.n_layers);
    return row_bytes(recipe_.format, 2 * kPageTokens * n_channels);
  }
  static size_t exact_page_bytes(const CacheShape& shape, const DeviceRecipe& recipe);
  void reserve_listed();
  cuda::ShortPages short_pages(int layer, const int32_t* exact_tokens) const;
  cuda::ListedRows listed_rows() const;
  void attend_listed(int layer, const float* queries, const int32_t* exact_tokens, float* out,
                     cuda::Stream stream);
  // Rows that leave a reserve; moves of so many rows at a time.
  static constexpr size_t kMostMoves = 2 * kPageTokens;
  void reserve_moves();
  void leave_due(cuda::Stream stream);
  void leave_reserve(int sequence, cuda::Stream stream);
  void attend_ring(int layer, const float* queries, const int32_t* exact_tokens, float* out,
                   cuda::Stream stream);
  const int32_t* exact_table(int sequence) const {
    return exact_table_.as<int32_t>() + ptrdiff_t{sequence} * pages_.shape().exact_pages();
  }
  bool is_signvq() const { return recipe_.kind == AttentionKind::kSignVq; }

  CacheShape shape_;
  DeviceRecipe recipe_;
  std::vector<LayerPlace> places_;   // [layer of the model]
  std::vector<size_t> full_layers_;  // which of the model see all tokens
  std::vector<int> window_tokens_;   // of the others
  SequencePages pages_;
  CodedLayout coded_layout_;
  CodedLayout staged_layout_;
  size_t exact_page_bytes_;
  cuda::DeviceBuffer exact_, coded_, staged_;
  cuda::DeviceBuffer exact_table_, coded_table_, first_tokens_, sink_pages_, sink_tokens_;
  cuda::DeviceBuffer iota_;               // page numbers 0, 1, ..
  cuda::DeviceBuffer due_from_, due_to_;  // [n_sequences], or of the pages that one seals at first
  cuda::DeviceBuffer frames_memory_;
  std::vector<Frames> frames_;  // [layer]
  cuda::DeviceBuffer workspace_, log_sums_, other_out_, other_log_sums_, framed_, bias_, n_read_;
  std::unique_ptr<WindowPages> windows_;
  cuda::DeviceBuffer window_workspace_;
  cuda::SparsePlan plan_{};
  cuda::SignVqPlan signvq_plan_{};
  SignVqState signs_;
  // Of rows by bounds (device_cache_listed.cpp): which a step reads, made anew in every layer.
  cuda::DeviceBuffer scores_, units_, unit_counts_, unit_pages_;
  cuda::DeviceBuffer moves_, window_sinks_, window_cosine_, window_sine_;
  std::vector<int32_t> due_pages_;
  std::unique_ptr<OffloadedPages> offloaded_;
  Sender sender_;
};

}  // namespace quire::gpu
