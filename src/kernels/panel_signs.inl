// Signs in panels of one bit, a second part of rows: of errors (polar4r) or of a sketch (turbo*q), one scale
// a token. They are an error's correction, so that multipliers of 8 bits, rounded to 1/254 of the largest,
// add less than the rounding of tables does to the first part.
//
// A format gives a view:
//
//   int key_offset(head_dim), value_offset(head_dim)    where the packs begin
//   float unit(head_dim)                                what a sign is worth, times its token's scale
//   F32x16 scale(page, t)                               of tokens t..t + 15

// A row of up to kMaxHeadDim values as multipliers of signs.
struct ByteRow {
  int8_t codes[kMaxHeadDim];
  float scale;
  int sum;
};

// x: n vectors of 16.
QUIRE_INLINE void code_bytes(const F32x16* x, int n, ByteRow* out) {
  int8_t upper[16];  // 0 or -1
  F32x16 most = zero();
  for (int i = 0; i < n; ++i) most = max(most, abs(x[i]));
  const float largest = reduce_max(most);
  const F32x16 inverse = set1(largest > 0x1p-110f ? 127.0f / largest : 0.0f);  // as in code_multipliers
  out->scale = largest / 127.0f;
  I32x16 sum = izero();
  for (int i = 0; i < n; ++i) {
    const I32x16 codes = to_int(mul(x[i], inverse));
    store_planes(upper, out->codes + 16 * i, codes);
    sum = add(sum, codes);
  }
  out->sum = reduce_add(sum);
}

// Steps i, i + 1, ... of the packs loaded, times the multipliers from `at` on.
template <int i, int N, int B>
QUIRE_INLINE void sign_steps(const U8x64* loaded, const ByteRow* m, int at, SignSums (*sums)[B]) {
  U8x64 signs[B];
#pragma GCC unroll 2
  for (int b = 0; b < B; ++b) signs[b] = step_codes<1, i>(loaded[b], nullptr);
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) sums[h][b] = add_signs(sums[h][b], signs[b], m[h].codes + at + 4 * i);
  }
  if constexpr (i + 1 < PanelCodes<1>::kSteps) sign_steps<i + 1, N, B>(loaded, m, at, sums);
}

// n_packs packs of B blocks, block_bytes apart.
template <int N, int B>
QUIRE_INLINE void sign_products(const uint8_t* packs, size_t block_bytes, int n_packs, const ByteRow* m,
                                SignSums (*sums)[B]) {
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) sums[h][b] = no_signs();
  }
  for (int i = 0; i < n_packs; ++i, packs += 64) {
    U8x64 loaded[B];
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) loaded[b] = load_bytes(packs + b * block_bytes);
    sign_steps<0, N, B>(loaded, m, 32 * i, sums);
  }
}

// Signs came as 0 and 2.
QUIRE_INLINE F32x16 sign_total(SignSums sums, const ByteRow& m) {
  return mul(sub(to_float(total_signs(sums)), set1((float)m.sum)), set1(m.scale));
}

// scores [n][64] += signs of keys times queries
template <class View>
struct SignScore {
  using P = PanelCodes<1>;
  const float* q;
  int head_dim;
  const uint8_t* page;
  float* scores;
  Ahead* ahead;

  template <int N>
  QUIRE_INLINE_MEMBER void rows(int first) const {
    ByteRow queries[N];
    for (int h = 0; h < N; ++h) {
      F32x16 x[kMaxHeadDim / 16];
      int n = load_row(q + (first + h) * head_dim, head_dim, x);
      for (; 4 * n < P::key_quads(head_dim); ++n) x[n] = zero();
      code_bytes(x, n, &queries[h]);
      queries[h].scale *= View::unit(head_dim);
    }
    for (int b = 0; b < 4; b += kPanelBlocks) add_blocks<N>(queries, first, b);
  }

  // kPanelBlocks blocks of 16 tokens from block b on.
  template <int N>
  QUIRE_INLINE_MEMBER void add_blocks(const ByteRow* queries, int first, int b) const {
    const size_t block_bytes = (size_t)P::key_block_bytes(head_dim);
    SignSums sums[N][kPanelBlocks];
    sign_products<N, kPanelBlocks>(page + View::key_offset(head_dim) + b * block_bytes, block_bytes,
                                   P::key_quads(head_dim) / P::kSteps, queries, sums);
#pragma GCC unroll 2
    for (int v = 0; v < kPanelBlocks; ++v) {
      const int t = 16 * (b + v);
      const F32x16 scale = View::scale(page, t);
#pragma GCC unroll 4
      for (int h = 0; h < N; ++h) {
        float* to = scores + (first + h) * kPageTokens + t;
        store(to, fma(sign_total(sums[h][v], queries[h]), scale, load(to)));
      }
    }
  }
};

// o [n][ldo] = o * correction + weights times signs of values
template <class View>
struct SignAccumulate {
  using P = PanelCodes<1>;
  const float* p;
  const float* correction;  // null: 1
  uint64_t named;
  int head_dim;
  const uint8_t* page;
  float* o;
  size_t ldo;
  Ahead* ahead;

  template <int N>
  QUIRE_INLINE_MEMBER void rows(int first) const {
    ByteRow weights[N];
    for (int h = 0; h < N; ++h) {
      F32x16 x[4];
      load_probabilities(p + (first + h) * kPageTokens, named, x);
      for (int v = 0; v < 4; ++v) x[v] = mul(x[v], View::scale(page, 16 * v));
      code_bytes(x, 4, &weights[h]);
      weights[h].scale *= View::unit(head_dim);
    }
    int d = 0;
    for (; d + 16 * (kPanelBlocks - 1) < head_dim; d += 16 * kPanelBlocks) {
      add_blocks<N, kPanelBlocks>(weights, first, d);
    }
    if (d < head_dim) add_blocks<N, 1>(weights, first, d);
  }

  // B blocks of 16 dims from dim d on.
  template <int N, int B>
  QUIRE_INLINE_MEMBER void add_blocks(const ByteRow* weights, int first, int d) const {
    SignSums sums[N][B];
    sign_products<N, B>(page + View::value_offset(head_dim) + d / 16 * P::kValueBlockBytes,
                        P::kValueBlockBytes, 16 / P::kSteps, weights, sums);
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
      const float shrink = correction != nullptr ? correction[first + h] : 1.0f;
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) {
        add_to_output(o + (size_t)(first + h) * ldo + d + 16 * b, head_dim - d - 16 * b,
                      sign_total(sums[h][b], weights[h]), shrink);
      }
    }
  }
};

template <class View>
QUIRE_INLINE void score_signs(const float* q, int n, int head_dim, const uint8_t* page, float* scores) {
  Ahead ahead = nothing_ahead(page);
  for_row_tiles(n, SignScore<View>{q, head_dim, page, scores, &ahead});
}

template <class View>
QUIRE_INLINE void accumulate_signs(const float* p, const float* correction, uint64_t rows, int n,
                                   int head_dim, const uint8_t* page, float* o, size_t ldo) {
  Ahead ahead = nothing_ahead(page);
  for_row_tiles(n, SignAccumulate<View>{p, correction, rows, head_dim, page, o, ldo, &ahead});
}
