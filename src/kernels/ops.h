// The table of kernels of one instruction set. Plain functions over raw pointers: no allocation, no
// exceptions, no threads; callers split the work and own the memory.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "format/code_catalogue.h"
#include "kernels/panel.h"

namespace quire {

// Formats of exact rows, in the order of the tables below (format/catalogue.h).
constexpr int kRowFormats = 4;  // f32, f16, bf16, fp8
constexpr int kPageTokens = 64;
// Kernels read whole registers: every page and every weight buffer has this many spare bytes behind it.
constexpr int kSpareBytes = 64;

// One panel of 16 weight rows times a tile of tokens.
struct LinearArgs {
  const uint8_t* panel;     // layout in panel.h
  const void* activations;  // fast: a quantized tile; otherwise float [tokens][lda]
  size_t lda;               // floats from token to token; unused by the fast path
  int columns;
  int tile_tokens;  // 1 or kTileTokens: the layout of a quantized tile
  int n_tokens;     // how many tokens of the tile exist
  int n_rows;       // how many rows of the panel exist
  float* out;       // [n_tokens][ldo], already at the panel's first row
  size_t ldo;
  bool accumulate;  // add to `out` (residual) instead of writing it
};
using LinearFn = void (*)(const LinearArgs&);

struct Frame;

// Bytes that a kernel is asked to fetch ahead; none: {nullptr, 0}.
struct BytesAhead {
  const void* data;
  size_t n_bytes;
};

// Rows of several pages of one KV head: row i is row rows[i] % 64 of page rows[i] / 64. Rows of a page follow
// one another.
struct RowRefs {
  const uint8_t* const* pages;
  const uint16_t* rows;
  int n;
};
struct KeyRowRefs {
  const KeyPage* pages;
  const uint16_t* rows;
  int n;
};

// Coded pages of one KV head, one function a format of the catalogue (format/code_catalogue.h). A frame of
// nullptr: rows are coded as they are.
struct CodeOps {
  // keys [head_dim][64] -> the two parts of a page (KeyPage); values [64][head_dim] -> page.
  void (*seal_keys[kCodeCount])(const Frame* frame, const Codebook& book, int head_dim, const float* keys,
                                uint8_t* index, uint8_t* rows);
  void (*seal_values[kCodeCount])(const Frame* frame, const Codebook& book, int head_dim, const float* values,
                                  uint8_t* page);
  // page -> keys [head_dim][64]; the rows named of a page -> values [64][head_dim]. Both stay in the frame.
  void (*open_keys[kCodeCount])(const Codebook& book, int head_dim, KeyPage page, float* keys);
  void (*open_values[kCodeCount])(const Codebook& book, int head_dim, const uint8_t* page, uint64_t rows,
                                  float* values);
  // Attention straight from the codes, for few query rows n; everything in the frame.
  // scores [n][64] = q [n][head_dim] . keys, in the lanes of the rows named; other lanes hold garbage.
  // `next`: what will be read after this, a hint. With a sketch, S q [n][head_dim] lies behind q.
  void (*score[kCodeCount])(const Codebook& book, const float* q, int n, int head_dim, KeyPage page,
                            uint64_t rows, float* scores, BytesAhead next);
  // o [n][head_dim] = o * correction + probabilities [n][64] . values, over the rows named. With a sketch,
  // rows of o are twice as long: [head_dim] of the codes, then [head_dim] that S^T is to be applied to
  // (fold_sketch).
  void (*accumulate[kCodeCount])(const Codebook& book, const float* probabilities, const float* correction,
                                 uint64_t rows, int n, int head_dim, const uint8_t* page, float* o,
                                 BytesAhead next);
  // The same for single rows, with what will be read after these, a hint: scores [tile of 64 rows][n][64] of
  // the rows in their order (the last tile's other lanes hold garbage), and of one tile the rows of `kept`.
  void (*score_rows[kCodeCount])(const Codebook& book, const float* q, int n, int head_dim, KeyRowRefs rows,
                                 float* scores, KeyRowRefs next);
  void (*accumulate_rows[kCodeCount])(const Codebook& book, const float* probabilities,
                                      const float* correction, RowRefs rows, uint64_t kept, int n,
                                      int head_dim, float* o, RowRefs next, uint64_t next_kept);
  // q [n][head_dim] -> framed, and what centring takes off every score of the row.
  void (*frame_queries)(const Frame& frame, const float* q, int n, int head_dim, float* framed, float* bias);
  // o [n][head_dim], sums of framed values of weights that sum to l -> the same outside the frame, in place.
  void (*unframe_output)(const Frame& frame, int n, int head_dim, float* o, const float* l);
  // Of formats with a sketch S: S q, for each of q [n][head_dim].
  void (*sketch_queries)(const Codebook& book, const float* q, int n, int head_dim, float* sketched);
  // Rows o [n][2 head_dim] -> [n][head_dim], what accumulate() leaves -> the output in the frame, in place.
  void (*fold_sketch)(const Codebook& book, int n, int head_dim, float* o);
};

// One query's tables for an index of four bits a group (kernels/index.inl).
struct IndexTables {
  int8_t entries[kMaxHeadDim / 4][16];
  float unit;
};
constexpr float kEstimatesPerOctave = 128.0f;  // of probability
constexpr int kIndexLevels = 256;              // of a row's best probability, a twelfth apart: 2^(1/8)
// How much farther apart level_mass() takes levels to be than they are (attention/cold_rows.cpp).
constexpr float kLevelStretch = 1.25f;

// Sealed pages searched for rows worth reading. Each function says what it does in kernels/index.inl.
struct IndexOps {
  void (*sign_tables)(const float* q, int head_dim, IndexTables* tables);
  // codebook [groups][16][4]
  void (*codebook_tables)(const float* q, const float* codebook, int head_dim, IndexTables* tables);
  // Estimates [n][ld] of all rows of n_pages pages; norms_offset -1: rows have none. `pages` lists n_known:
  // what comes after the first n_pages will be asked for next, a hint.
  void (*estimate)(const IndexTables* tables, int n, int head_dim, const uint8_t* const* pages, int n_pages,
                   int n_known, int norms_offset, int16_t* estimates, size_t ld);
  // log2 of the sum of the probabilities of n_pages pages, in estimates' units, of one query.
  float (*mass)(const int16_t* estimates, int n_pages);
  // Levels [n_pages * 64] of the best over n queries of estimate - offset, a probability.
  void (*levels)(const int16_t* estimates, size_t ld, int n, const int16_t* offsets, int n_pages,
                 uint8_t* levels);
  // The sum of the probabilities that n_words * 64 levels stand for, stretched; level 255 counts as 1.
  float (*level_mass)(const uint8_t* levels, int n_words);
  // Levels of scores [n][64] (natural logarithms): levels [64]; lanes from n_rows on get 0.
  void (*row_levels)(const float* scores, int n, const float* offsets, int n_rows, uint8_t* levels);
  // Scores [n][64] of which n_rows count, added to running maxima m [n] and sums l [n] of exp(score - m), to
  // 6 %.
  void (*row_mass)(const float* scores, int n, int n_rows, float* m, float* l);
  // Marks the n_wanted highest levels above 0, of equal ones the newest; returns how many there are.
  int (*mark)(const uint8_t* levels, int n_words, int n_wanted, uint64_t* words);
};

struct Ops {
  const char* name;  // "scalar", "avx2", "avx512"

  // ---- weights -------------------------------------------------------------------------------------------
  // Quantized panels take a tile made by quantize_tile; the three float kinds read floats on either path.
  LinearFn linear_fast[kPanelKinds];
  // Activations stay in f32; weights are expanded in registers.
  LinearFn linear_precise[kPanelKinds];
  // x [n_tokens][ldx] -> one tile (layout in panel.h); tokens from n_tokens to tile_tokens become zeros.
  void (*quantize_tile)(const float* x, size_t ldx, int n_tokens, int tile_tokens, int columns,
                        uint8_t* tile);

  // ---- between the products ------------------------------------------------------------------------------
  // out = x / rms(x) * weight, over n values.
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* out);
  // gate = silu(gate) * up, over n values.
  void (*silu_multiply)(float* gate, const float* up, int n);
  // gate = gelu(gate) * up, GELU by its tanh formula.
  void (*gelu_multiply)(float* gate, const float* up, int n);
  // Rotates the first 2 * half dims of n_heads heads of one token in place: pairs are (i, i + half).
  // cosine and sine hold `half` values; every value of the head is multiplied by `scale` afterwards.
  void (*rope)(float* x, int n_heads, int head_dim, int half, const float* cosine, const float* sine,
               float scale);

  // ---- exact rows of the cache ---------------------------------------------------------------------------
  // A page keeps the keys of one KV head as [head_dim][64] and its values as [64][head_dim].
  // Stores n rows k [n][ldk] as tokens first..first + n - 1 of a page.
  void (*store_keys[kRowFormats])(void* page_keys, int first, int n, int head_dim, const float* k,
                                  size_t ldk);
  void (*store_values[kRowFormats])(void* page_values, int first, int n, int head_dim, const float* v,
                                    size_t ldv);
  // Expands a page to f32, same layout.
  void (*unpack[kRowFormats])(const void* rows, size_t n_values, float* out);

  // ---- attention over one page ---------------------------------------------------------------------------
  // `next` is a hint: rows of the same size that will be read after these (or nullptr).
  //
  // scores [n][64] = q [n][ldq] . keys, for all 64 lanes: lanes that hold no token give garbage.
  void (*score[kRowFormats])(const float* q, size_t ldq, int n, int head_dim, const void* keys, float* scores,
                             const void* next);
  // The same for few rows that lie one after another, keys [n_keys][head_dim], n_keys <= 16: scores [n][64],
  // of which the first n_keys lanes are written.
  void (*score_rows[kRowFormats])(const float* q, size_t ldq, int n, int head_dim, const void* keys,
                                  int n_keys, float* scores);
  // scores [n], n a multiple of 16: s becomes cap * tanh(s / cap), cap > 0. Lanes of no token may hold
  // anything.
  void (*cap_scores)(float* scores, int n, float cap);
  // Running softmax. For each of n rows: lanes outside masks[i] are ignored, m[i] and l[i] are updated,
  // scores become exp(score - m), and correction[i] is what the row's output so far must be multiplied by.
  void (*softmax)(float* scores, const uint64_t* masks, int n, float* m, float* l, float* correction);
  // o [n][ldo] = o * correction + probabilities [n][64] . values, over the rows named in `rows`.
  void (*accumulate[kRowFormats])(const float* probabilities, const float* correction, uint64_t rows, int n,
                                  int head_dim, const void* values, float* o, size_t ldo, const void* next);
  // Merges partial state b into a, n heads: (m, l, o [n][head_dim]); an empty state (l = 0) changes nothing.
  void (*merge)(float* m_a, float* l_a, float* o_a, const float* m_b, const float* l_b, const float* o_b,
                int n, int head_dim);

  CodeOps codes;
  IndexOps index;
};

// The widest instruction set that this machine has, or the one named by QUIRE_FORCE_ISA (tests): an unknown
// or unsupported name is an Error. Chosen once; the same table for the life of the process.
const Ops& ops();
// The table by name, or nullptr where the name is unknown or the machine lacks it.
const Ops* ops_by_name(const char* name);

}  // namespace quire
