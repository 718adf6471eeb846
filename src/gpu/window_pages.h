// Layers that see a window of the text: exact rows of its last tokens, in a ring of pages for each sequence
// (ADR 18). Internal to the library.
//
// Page i of a text is page i % ring_pages() of its sequence, for ever: tables never change, and what a step
// reads is said by the number of tokens alone.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/step_kernels.h"
#include "kernels/cuda/device_buffer.h"

namespace quire::gpu {

struct WindowShape {
  HeadShape heads;
  Format format;             // of rows
  std::vector<int> windows;  // [layer] tokens, above 0
  int n_sequences;
  int most_tokens;  // of a sequence

  // Two pages more than a full window takes at a border of pages: so far a sequence can be cut back.
  int ring_pages() const;
  int text_pages() const;
  // Of a layer, one page.
  uint64_t layer_bytes() const;
  // Everything that a WindowPages reserves.
  uint64_t memory_bytes() const;
};

// Layers are counted among those with a window.
class WindowPages {
 public:
  // Throws DeviceError where memory is refused.
  explicit WindowPages(const WindowShape& shape);

  const WindowShape& shape() const { return shape_; }
  int window(int layer) const { return shape_.windows[static_cast<size_t>(layer)]; }
  // By the pages of the texts, from their beginnings on.
  ExactPages pages(int layer) const;

  // Rows n_before .. n - 1 of `rows`, which has n of the sequence, go to their pages, as many as stay.
  void put(int sequence, int layer, const PromptRows& rows, int n_before, int n, cuda::Stream stream) const;
  // Of n tokens, those that a query to come sees, to their places in `rows`.
  void take(int sequence, int layer, int n, const PromptRows& rows, cuda::Stream stream) const;

  // First tokens of a sequence of n_tokens whose rows are no more.
  int n_lost(int sequence, int n_tokens) const;
  // Throws Error where the next query behind n_tokens would not find its window.
  void check_cut(int sequence, int n_now, int n_tokens) const;
  void cut(int sequence, int n_now, int n_tokens);
  // A sequence whose rows from token n_lost on were put here.
  void restore(int sequence, int n_lost) { lost_[static_cast<size_t>(sequence)] = n_lost; }
  // `to` becomes like `from`, which has n_tokens.
  void fork(int from, int to, int n_tokens, cuda::Stream stream);

  // Page `page` of a text, [kv_head][keys, values][64][head_dim], to memory of the host and from there. The
  // host waits.
  void read(int sequence, int layer, int page, void* to) const;
  void write(int sequence, int layer, int page, const void* from);
  // All pages of a sequence, for random rows.
  uint8_t* ring(int sequence) const;
  uint64_t ring_bytes() const;

 private:
  size_t place(int sequence, int layer, int page) const;
  const int32_t* table(int sequence) const;

  WindowShape shape_;
  cuda::DeviceBuffer rows_;   // [sequence][ring page][layer][kv_head][keys, values][64][head_dim]
  cuda::DeviceBuffer table_;  // [sequence][text_pages()]
  std::vector<int> lost_;     // [sequence] where it was cut: tokens that are no more
};

}  // namespace quire::gpu
