// Attention over formats that lie row by row: the rows named are expanded to bytes (a code is worth byte -
// zero, times the row's scale), and the bytes brought into the order of panels.inl, in a buffer that stays in
// the first cache (aligned: a register that spans two lines costs two accesses).
//
// A format gives a view, one for keys and one for values:
//
//   static constexpr int kZero
//   U8x64 word(int row, int w)        dims 64 w.., past head_dim anything
//   void scales(float* out)           [64]
//   void open(int row, float* out)    the row in f32, up to a multiple of 16 values

constexpr int kRowWords = kMaxHeadDim / 64;
QUIRE_INLINE int words(int head_dim) { return (head_dim + 63) / 64; }

QUIRE_INLINE void load_halves(const uint8_t* halves, float factor, float* out) {
  for (int t = 0; t < kPageTokens; t += 16) {
    store(out + t, mul(load_f16((const uint16_t*)halves + t), set1(factor)));
  }
}

// The rows that are named, in order, padded to a multiple of `step` with the last one.
struct RowList {
  uint8_t row[kPageTokens + 16];
  int n;
  int padded;
};

QUIRE_INLINE RowList list_rows(uint64_t rows, int step) {
  RowList list;
  if (rows == ~0ull) {
    for (int i = 0; i < kPageTokens; ++i) list.row[i] = (uint8_t)i;
    list.n = list.padded = kPageTokens;
    return list;
  }
  list.n = 0;
  for (; rows != 0; rows &= rows - 1) list.row[list.n++] = (uint8_t)__builtin_ctzll(rows);
  list.padded = (list.n + step - 1) / step * step;
  for (int i = list.n; i < list.padded; ++i) list.row[i] = list.row[list.n - 1];
  return list;
}

// 16 rows of 64 bytes -> 16 steps of keys, step_bytes apart: step s has bytes 4 s..4 s + 3 of the 16 rows.
// (Of floats this is the 16 x 16 transposition.)
QUIRE_INLINE void rows_to_key_steps(const U8x64* rows, uint8_t* steps, size_t step_bytes) {
  U8x64 x[4][4];  // [dim quad of each 16 bytes][four rows]
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    const U8x64* four = rows + 4 * r;
    const U8x64 low01 = zip_low<4>(four[0], four[1]);
    const U8x64 high01 = zip_high<4>(four[0], four[1]);
    const U8x64 low23 = zip_low<4>(four[2], four[3]);
    const U8x64 high23 = zip_high<4>(four[2], four[3]);
    x[0][r] = zip_low<8>(low01, low23);
    x[1][r] = zip_high<8>(low01, low23);
    x[2][r] = zip_low<8>(high01, high23);
    x[3][r] = zip_high<8>(high01, high23);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    transpose_parts(x[c]);
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) store_bytes(steps + step_bytes * (4 * part + c), x[c][part]);
  }
}

// 4 rows of 64 bytes -> 4 registers, where lane e of register i holds the four rows' bytes of dim
// 16 (e / 4) + 4 i + e % 4: a transposition of the parts of the registers brings dims in order.
QUIRE_INLINE void interleave_rows(const U8x64* rows, U8x64* out) {
  const U8x64 low01 = zip_low<1>(rows[0], rows[1]);
  const U8x64 high01 = zip_high<1>(rows[0], rows[1]);
  const U8x64 low23 = zip_low<1>(rows[2], rows[3]);
  const U8x64 high23 = zip_high<1>(rows[2], rows[3]);
  out[0] = zip_low<2>(low01, low23);
  out[1] = zip_high<2>(low01, low23);
  out[2] = zip_low<2>(high01, high23);
  out[3] = zip_high<2>(high01, high23);
}

// 4 rows of 64 bytes -> a step of values for each of four blocks of 16 dims, block_bytes apart.
QUIRE_INLINE void rows_to_value_steps(const U8x64* rows, size_t block_bytes, uint8_t* steps) {
  U8x64 x[4];
  interleave_rows(rows, x);
  transpose_parts(x);
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) store_bytes(steps + b * block_bytes, x[b]);
}

// Bytes of the listed rows as steps of keys, [16 rows][16 * words steps][64].
template <class V>
QUIRE_INLINE void expand_keys(const V& view, int head_dim, const RowList& list, uint8_t* steps,
                              Ahead* ahead) {
  const int n_words = words(head_dim);
  for (int first = 0; first < list.padded; first += 16) {
    for (int w = 0; w < n_words; ++w, steps += 16 * 64) {
      U8x64 rows[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        rows[r] = view.word(list.row[first + r], w);
        fetch_line(ahead);
      }
      rows_to_key_steps(rows, steps, 64);
    }
  }
}

// Bytes of the listed rows as steps of values, [block of 16 dims][padded / 4 steps][64].
template <class V>
QUIRE_INLINE void expand_values(const V& view, int head_dim, const RowList& list, uint8_t* steps,
                                Ahead* ahead) {
  const int n_words = words(head_dim);
  const size_t block_bytes = (size_t)list.padded * 16;
  for (int first = 0; first < list.padded; first += 4, steps += 64) {
    for (int w = 0; w < n_words; ++w) {
      U8x64 rows[4];
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) {
        rows[r] = view.word(list.row[first + r], w);
        fetch_line(ahead);
      }
      rows_to_value_steps(rows, block_bytes, steps + 4 * w * block_bytes);
    }
  }
}

// The listed entries of x [64], zeros behind them up to a multiple of 16.
QUIRE_INLINE void pick(const RowList& list, const float* x, float* out) {
  if (list.n == kPageTokens) return (void)memcpy(out, x, kPageTokens * sizeof *x);
  for (int i = 0; i < list.n; ++i) out[i] = x[list.row[i]];
  for (int i = list.n; i % 16 != 0; ++i) out[i] = 0.0f;
}

// Expanded keys times N queries.
struct RowScore {
  const float* q;
  int head_dim;
  const uint8_t* page;
  const uint8_t* steps;
  const RowList& list;
  const float* scales;  // of the listed rows
  int code_of_zero;
  float* scores;
  Ahead* ahead;

  // Not inlined: one copy for all formats.
  template <int N>
  __attribute__((noinline)) void rows(int first) const {
    CodedRow queries[N];
    const Multipliers* m[N];
    for (int h = 0; h < N; ++h) {
      code_query(q + (first + h) * head_dim, head_dim, 64 * words(head_dim), &queries[h]);
      m[h] = &queries[h].m;
    }
    int r = 0;
    for (; r + 16 * (kPanelBlocks - 1) < list.padded; r += 16 * kPanelBlocks) {
      score_blocks<N, kPanelBlocks>(queries, m, first, r);
    }
    if (r < list.padded) score_blocks<N, 1>(queries, m, first, r);
  }

  // B blocks of 16 listed rows from row r on.
  template <int N, int B>
  QUIRE_INLINE_MEMBER void score_blocks(const CodedRow* queries, const Multipliers* const* m, int first,
                                        int r) const {
    const int n_steps = 16 * words(head_dim);
    Products products[N][B];
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
      const int start = -code_of_zero * sum_of(queries[h], 0, 4 * n_steps);
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) products[h][b] = start_products(start);
    }
    pack_products<8, PlainCodes, N, B>({}, steps + r * 4 * n_steps, 64 * (size_t)n_steps, n_steps, m, 0,
                                       products, ahead);
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) {
        const F32x16 product = mul(to_float(total(products[h][b])), set1(queries[h].scale));
        put(scores + (first + h) * kPageTokens, r + 16 * b, mul(product, load(scales + r + 16 * b)));
      }
    }
  }

  QUIRE_INLINE_MEMBER void put(float* row, int first, F32x16 x) const {
    if (list.n == kPageTokens) return store(row + first, x);
    float lanes[16];
    store(lanes, x);
    for (int i = 0; i < 16 && first + i < list.n; ++i) row[list.row[first + i]] = lanes[i];
  }
};

// Expanded values times the weights of N outputs.
struct RowAccumulate {
  const float* p;
  const float* correction;
  int head_dim;
  const uint8_t* page;
  const uint8_t* steps;
  const RowList& list;
  const float* scales;  // of the listed rows
  int code_of_zero;
  float* o;
  Ahead* ahead;

  // Not inlined: one copy for all formats.
  template <int N>
  __attribute__((noinline)) void rows(int first) const {
    CodedRow weights[N];
    const Multipliers* m[N];
    const int n_vectors = (list.n + 15) / 16;
    for (int h = 0; h < N; ++h) {
      float w[kPageTokens + 16];
      pick(list, p + (first + h) * kPageTokens, w);
      F32x16 x[4];
      for (int v = 0; v < n_vectors; ++v) x[v] = mul(load(w + 16 * v), load(scales + 16 * v));
      code_multipliers(x, n_vectors, &weights[h]);
      m[h] = &weights[h].m;
    }
    int d = 0;
    for (; d + 16 * (kPanelBlocks - 1) < head_dim; d += 16 * kPanelBlocks) {
      add_blocks<N, kPanelBlocks>(weights, m, first, d);
    }
    if (d < head_dim) add_blocks<N, 1>(weights, m, first, d);
  }

  // B blocks of 16 dims from dim d on.
  template <int N, int B>
  QUIRE_INLINE_MEMBER void add_blocks(const CodedRow* weights, const Multipliers* const* m, int first,
                                      int d) const {
    const size_t block_bytes = (size_t)list.padded * 16;
    Products products[N][B];
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
      const int start = -code_of_zero * sum_of(weights[h], 0, list.n);
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) products[h][b] = start_products(start);
    }
    pack_products<8, PlainCodes, N, B>({}, steps + d / 16 * block_bytes, block_bytes, list.padded / 4, m, 0,
                                       products, ahead);
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) {
        const F32x16 sum = mul(to_float(total(products[h][b])), set1(weights[h].scale));
        add_to_output(o + (size_t)(first + h) * head_dim + d + 16 * b, head_dim - d - 16 * b, sum,
                      correction[first + h]);
      }
    }
  }
};

// The kernels of a format from its views.
template <class Keys>
void row_score(const Codebook& book, const float* q, int n, int head_dim, KeyPage page, uint64_t rows,
               float* scores, BytesAhead next) {
  const RowList list = list_rows(rows, 16);
  Ahead ahead = spread(next, page.rows, (size_t)list.padded * words(head_dim));
  const Keys view(book, head_dim, page);
  alignas(64) uint8_t steps[kPageTokens * kMaxHeadDim];
  float all[kPageTokens], scales[kPageTokens + 16];
  view.scales(all);
  pick(list, all, scales);
  expand_keys(view, head_dim, list, steps, &ahead);
  ahead = nothing_ahead(page.rows);
  for_row_tiles(n, RowScore{q, head_dim, page.rows, steps, list, scales, Keys::kZero, scores, &ahead});
}

template <class Values>
void row_accumulate(const Codebook& book, const float* p, const float* correction, uint64_t rows, int n,
                    int head_dim, const uint8_t* page, float* o, BytesAhead next) {
  const RowList list = list_rows(rows, 4);
  Ahead ahead = spread(next, page, (size_t)list.padded * words(head_dim));
  const Values view(book, head_dim, page);
  alignas(64) uint8_t steps[kPageTokens * kMaxHeadDim];
  float all[kPageTokens], scales[kPageTokens + 16];
  view.scales(all);
  pick(list, all, scales);
  expand_values(view, head_dim, list, steps, &ahead);
  ahead = nothing_ahead(page);
  for_row_tiles(n,
                RowAccumulate{p, correction, head_dim, page, steps, list, scales, Values::kZero, o, &ahead});
}

// from [16][stride] -> to [16][step], transposed
QUIRE_INLINE void transpose_floats(const float* from, int stride, float* to, int step) {
  U8x64 rows[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) rows[r] = load_bytes((const uint8_t*)(from + r * stride));
  rows_to_key_steps(rows, (uint8_t*)to, sizeof(float) * (size_t)step);
}

// page -> keys [head_dim][64]
template <class Keys>
void row_open_keys(const Codebook& book, int head_dim, KeyPage page, float* keys) {
  const Keys view(book, head_dim, page);
  alignas(64) float rows[16 * kMaxHeadDim];
  const int stride = (head_dim + 15) / 16 * 16;
  for (int t = 0; t < kPageTokens; t += 16) {
    for (int r = 0; r < 16; ++r) view.open(t + r, rows + r * stride);
    for (int d = 0; d < head_dim; d += 16) {
      alignas(64) float columns[16 * 16];
      const bool whole = head_dim - d >= 16;
      float* to = whole ? keys + d * kPageTokens + t : columns;
      const int step = whole ? kPageTokens : 16;
      transpose_floats(rows + d, stride, to, step);
      for (int i = 0; !whole && d + i < head_dim; ++i) {
        store(keys + (d + i) * kPageTokens + t, load(columns + 16 * i));
      }
    }
  }
}

// The rows named of a page -> values [64][head_dim].
template <class Values>
void row_open_values(const Codebook& book, int head_dim, const uint8_t* page, uint64_t rows, float* values) {
  const Values view(book, head_dim, page);
  for (; rows != 0; rows &= rows - 1) {
    const int t = __builtin_ctzll(rows);
    float row[kMaxHeadDim];
    view.open(t, row);
    memcpy(values + (size_t)t * head_dim, row, sizeof(float) * (size_t)head_dim);
  }
}
