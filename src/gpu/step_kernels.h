// What happens to rows between products and attention, on the device.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "format/row_format.h"
#include "gpu/device_matrix.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/frame_plane.h"
#include "model/families.h"

namespace quire::gpu {

// Sequences of a batch as a step sees them; all on the device.
struct StepState {
  int32_t* tokens;        // [n] what the step takes in
  int32_t* n_before;      // [n] tokens in the cache before the step
  const int32_t* first;   // [n] of these so many first ones have left the exact pages
  int32_t* exact_tokens;  // [n] rows of exact pages with the step's own
  int32_t* all_tokens;    // [n] tokens with the step's own, or nullptr: not wanted
  int32_t* row;           // [n] which of them that is
  struct WindowState {    // where exact pages are a ring (gpu/sequence_pages.h); 0 rows: they are none
    int n_rows = 0;
    int n_sinks = 0;
    int32_t* sinks = nullptr;  // [n] rows of sinks with the step's own
    float* cosine = nullptr;   // [n][half] of the turn from the sinks' places in the text to those here
    float* sine = nullptr;
  } window = {};
};

// How heads turn, and where. Of one step or chunk: angles [n][half] of each row.
struct Angles {
  const double* frequencies;  // [half]
  float factor;               // of cosines and sines
  int half;
  float* cosine;
  float* sine;
};

// Begins a step: x [n][width], the rows of the tokens times `scale`; what the first product reads of it, as
// StreamOut says; angles, those of layers with a window apart (half 0: there are none); and exact_tokens.
struct EmbedOut {
  float* x;
  float* weighted;
  const float* next_weight;
  float* square_sums;
};
void begin_step(const DeviceMatrix& embedding, float scale, const StepState& state, int n,
                const Angles& angles, const Angles& window_angles, const EmbedOut& out, cuda::Stream stream);

// Heads of a row side by side: queries, keys, values.
struct HeadShape {
  int n_heads;
  int n_kv_heads;
  int head_dim;
};
QUIRE_INLINE int row_width(const HeadShape& s) { return (s.n_heads + 2 * s.n_kv_heads) * s.head_dim; }

// Exact pages of one layer.
struct ExactPages {
  Format format;  // f16, bf16 or fp8
  cuda::RowPlane keys;
  cuda::RowPlane values;
  const int32_t* page_table;  // [n][stride]
  int page_table_stride;
};

// What becomes of heads before they turn: [row_width] added, then queries and keys divided by the root of
// their mean square and multiplied, [head_dim] each. nullptr: not so.
struct HeadWeights {
  const float* bias;
  const float* query_norm;
  const float* key_norm;
  float epsilon;
};

// A step's heads get their weights and turn; queries [n][n_heads][head_dim] are written, keys
// and values go behind the last row of their sequence.
void finish_step_heads(const HeadShape& shape, const float* qkv, const HeadWeights& weights,
                       const Angles& angles, const StepState& state, int n, float* queries,
                       const ExactPages& pages, cuda::Stream stream);

// The same for n rows of one sequence's prompt: queries [n][n_heads][head_dim] in the pages' format; keys and
// values [n_kv_heads][stride][head_dim], from row `first` on. Of fp8 pages all are f16, and keys and values
// numbers that fp8 has.
struct PromptRows {
  uint16_t* queries;
  uint16_t* keys;
  uint16_t* values;
  int stride;
  int first;
};
void finish_prompt_heads(const HeadShape& shape, const float* qkv, const HeadWeights& weights,
                         const Angles& angles, int n, Format format, const PromptRows& out,
                         cuda::Stream stream);
// Of positions first .. first + n - 1.
void make_angles(const Angles& angles, int first, int n, cuda::Stream stream);

// x [n][width], the rows of n tokens times `scale`.
void embed_rows(const DeviceMatrix& embedding, float scale, const int32_t* tokens, int n, float* x,
                cuda::Stream stream);
// out [n][width] bf16 = x times weight over the root of its mean square.
void normalise_rows(const float* x, const float* weight, float epsilon, int n, int width, uint16_t* out,
                    cuda::Stream stream);
// out [n][half] bf16 = activation(gate) * up of rows [n][gate | up].
void gate_rows(const float* gate_up, int n, int half, Activation activation, uint16_t* out,
               cuda::Stream stream);
// x [n][width] += branch [n][width] times weight over the root of its mean square: a norm behind a part.
// Where `weighted` is given, what the next product reads of x, as StreamOut says.
struct BranchOut {
  float* x;
  float* weighted;
  const float* next_weight;
  float* square_sums;
};
void add_normed(const float* branch, const float* weight, float epsilon, int n, int width,
                const BranchOut& out, cuda::Stream stream);
// n logits become cap * tanh(logit / cap).
void cap_logits(float* logits, int64_t n, float cap, cuda::Stream stream);
// n numbers in place.
void f16_to_bf16(uint16_t* x, int64_t n, cuda::Stream stream);
void round_rows(const float* x, int64_t n, uint16_t* out, cuda::Stream stream);

// Rows [first, first + n) of keys and values [n_kv_heads][stride][head_dim] into pages, at rows `at` .. of
// them; `table` are page numbers.
void copy_to_pages(const HeadShape& shape, const PromptRows& rows, int first, int n, const ExactPages& pages,
                   const int32_t* table, cuda::Stream stream, int at = 0);

// The way back: n rows from row `at` of the pages of `table` on, to rows `first` .. of keys and values. With
// `places` row i is the one at places[i] from there.
void copy_from_pages(const HeadShape& shape, const ExactPages& pages, const int32_t* table, int n,
                     const PromptRows& rows, int first, cuda::Stream stream, int at = 0,
                     const int32_t* places = nullptr);
// Decoded rows [n_pages][n_kv_heads][64][head_dim] out of the frame, rounded, to rows `first` .. of
// [n_kv_heads][stride][head_dim].
void unframe_rows(const HeadShape& shape, const float* framed, int n_pages, const cuda::FramePlane& frame,
                  Format format, uint16_t* out, int stride, int first, cuda::Stream stream);

// Queries [n][n_heads][head_dim] into the frames of their KV heads, and what centred keys take off scores.
void frame_queries(const HeadShape& shape, const float* queries, int n, const cuda::FramePlane& frame,
                   float scale, float* framed, float* bias, cuda::Stream stream);
// Outputs of attention out of the frames, in place; log_sums take the bias back (nullptr: scores had it).
void unframe_outputs(const HeadShape& shape, int n, const cuda::FramePlane& frame, const float* bias,
                     float* outputs, float* log_sums, cuda::Stream stream);

}  // namespace quire::gpu
