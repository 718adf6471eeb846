// What a batch is made of. Internal to the library.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/device_batch.h"
#include "gpu/device_cache.h"
#include "gpu/gemm.h"
#include "gpu/gemv.h"
#include "gpu/handles.h"
#include "gpu/library_attention.h"
#include "gpu/sample.h"
#include "gpu/weights.h"

namespace quire::gpu {

// Batches of up to so many sequences multiply by kernels of our own, larger ones by the library's.
constexpr bool is_small(int n_sequences) { return n_sequences <= kMostVectors; }

// What a step writes to. [n_sequences][..] each.
struct StepBuffers {
  StepBuffers(const ModelConfig& config, const BatchOptions& options);
  uint64_t size_bytes() const;

  cuda::DeviceBuffer tokens, n_before, exact_tokens, all_tokens, row, random, step, banned;
  cuda::DeviceBuffer history, seen;  // where a penalty looks back
  cuda::DeviceBuffer cosine, sine, window_cosine, window_sine;
  cuda::DeviceBuffer x, weighted, square_sums;
  cuda::DeviceBuffer qkv, queries, attended, hidden, logits;
  cuda::DeviceBuffer rounded;  // bf16 activations of large batches
  cuda::DeviceBuffer gate_up;  // of large batches
  cuda::DeviceBuffer branch;   // what a part adds to the stream, where a norm is behind it
};

struct DeviceBatch::Parts {
  Parts(const DeviceModel::Parts& model, const BatchOptions& options, const ModelFacts& facts);

  HeadShape heads() const;
  Angles angles(float* cosine, float* sine) const;
  // Of layers with a window where they turn otherwise; half 0: none does.
  Angles window_angles(float* cosine, float* sine) const;
  bool turns_otherwise(int layer) const;
  HeadWeights head_weights(int layer) const;
  StepState state() const;
  void record_step(bool with_attention);
  void record_layer_small(int layer, bool with_attention);
  void record_layer_large(int layer, bool with_attention);
  void record_heads(int layer, bool with_attention);
  const float* attended(bool with_attention) const;
  Vectors vectors(const cuda::DeviceBuffer& x, int width, bool normed) const;
  int n_choices() const;
  int history_stride() const { return static_cast<int>(options.context_tokens) + 1; }
  // n tokens of a sequence from position `first` on, on the device.
  void note_tokens(int sequence, int first, const int32_t* tokens, int n);
  // x += branch, behind its norm; `next_weight` and what is written for the next product as in BranchOut.
  void add_branch(const float* norm, const float* next_weight);
  void cap(float* logits, int n);
  void choose(int first, int n, bool advances);
  void put(const cuda::DeviceBuffer& to, int sequence, int32_t value);
  void send_lengths(int sequence);
  void copy_pages(const std::vector<cuda::PageCopy>& copies);
  void empty(int sequence);
  void mark();

  const DeviceModel::Parts& model;
  BatchOptions options;
  int n;
  OwnStream stream;
  Sender sender;
  Gemm gemm;
  LibraryAttention prompt_attention;
  DeviceCache cache;
  StepBuffers buffers;
  PinnedArray<int32_t> ring;  // [kRing][n]
  std::vector<Event> marks;   // [kRing]
  uint64_t n_asked = 0;       // choices of tokens
  uint64_t n_taken = 0;
  Graph step_graph;
};

// A prompt's way through the layers.
class Prefill {
 public:
  // Behind the tokens that the sequence has. Reserves all memory, and changes nothing.
  Prefill(DeviceBatch::Parts& parts, int sequence, std::span<const int32_t> tokens);
  // The sequence's pages being those of all tokens. False: the flag was set, and the pages hold nothing.
  bool run(const PromptOptions& options);

 private:
  void add_part(const DeviceMatrix& matrix, const uint16_t* rows, int n, const float* norm, float* x);
  void run_layer(int layer, const PromptRows& rows);
  void run_chunk(int layer, int first, int n);
  // Rows before a chunk that its queries attend to, and where they begin.
  int rows_seen(int layer, int n_before, int& first_row);

  DeviceBatch::Parts& parts_;
  const int sequence_;
  const int n_;
  const int chunk_;
  const RowsBefore before_;
  const int stride_;  // rows of all tokens that there are, whole pages
  Arrangement arrangement_;
  bool has_sinks_ = false;  // the layer's are where they stay
  cuda::DeviceBuffer tokens_, x_, rounded_, qkv_, queries_, attended_, gate_up_, cosine_, sine_, branch_,
      keys_, values_;
};

}  // namespace quire::gpu
