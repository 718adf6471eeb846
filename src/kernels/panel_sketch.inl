// Codes with a sketch of their residual (format/turbo_prod.h): ranks as in panel_groups.inl, and the signs of
// the sketch as a second part of the row. What these multiply is S q, made once a step; values leave sums of
// signs, which S^T is applied to once, at the end.

template <int bits>
struct GroupView<TurboProd<bits>> : RankView<TurboProd<bits>, bits - 1> {
  QUIRE_INLINE int key_offset(int) { return TurboProd<bits>::kNormsBytes; }
  QUIRE_INLINE int value_offset(int) { return TurboProd<bits>::kNormsBytes; }
};

template <int bits>
struct SketchView {
  using F = TurboProd<bits>;
  QUIRE_INLINE int key_offset(int head_dim) { return F::key_signs_offset(head_dim); }
  QUIRE_INLINE int value_offset(int head_dim) { return F::value_signs_offset(head_dim); }
  QUIRE_INLINE float unit(int head_dim) { return F::sign_unit(head_dim); }
  QUIRE_INLINE F32x16 scale(const uint8_t* page, int t) {
    const uint16_t* norms = (const uint16_t*)page + t;
    return mul(load_f16(norms), load_f16(norms + kPageTokens));
  }
};

template <int bits>
void prod_score(const Codebook& book, const float* q, int n, int head_dim, const uint8_t* page, uint64_t rows,
                float* scores, BytesAhead next) {
  group_score<TurboProd<bits>>(book, q, n, head_dim, page, rows, scores, next);
  score_signs<SketchView<bits>>(q + (size_t)n * head_dim, n, head_dim, page, scores);
}

template <int bits>
void prod_accumulate(const Codebook& book, const float* p, const float* correction, uint64_t rows, int n,
                     int head_dim, const uint8_t* page, float* o, BytesAhead next) {
  const size_t ldo = 2 * (size_t)head_dim;
  accumulate_groups<TurboProd<bits>>(book, p, correction, rows, n, head_dim, page, o, ldo, next);
  accumulate_signs<SketchView<bits>>(p, correction, rows, n, head_dim, page, o + head_dim, ldo);
}

// S q, 16 values of it at a time, for N queries: tiles of S are transposed so that lanes are rows of S.
struct SketchQueries {
  const float* sketch;
  const float* q;
  int head_dim;
  float* out;
  const uint8_t* page;
  Ahead* ahead;

  template <int N>
  QUIRE_INLINE_MEMBER void rows(int first) const {
    for (int i = 0; i < head_dim; i += 16) {
      F32x16 sums[N];
      for (int h = 0; h < N; ++h) sums[h] = zero();
      for (int j = 0; j < head_dim; j += 16) {
        alignas(64) float across[256];
        transpose_tile(i, j, across);
        for (int c = 0; c < 16 && j + c < head_dim; ++c) {
          const F32x16 column = load(across + 16 * c);
#pragma GCC unroll 4
          for (int h = 0; h < N; ++h) {
            sums[h] = fma(column, set1(q[(first + h) * head_dim + j + c]), sums[h]);
          }
        }
      }
      for (int h = 0; h < N; ++h) {
        put_dims<false>(out + (first + h) * head_dim + i, head_dim - i, sums[h]);
      }
    }
  }

  QUIRE_INLINE_MEMBER void transpose_tile(int i, int j, float* across) const {
    const float* from = sketch + i * head_dim + j;
    if (head_dim - i >= 16 && head_dim - j >= 16) return transpose_floats(from, head_dim, across, 16);
    alignas(64) float tile[256] = {0};
    const int columns = head_dim - j < 16 ? head_dim - j : 16;
    for (int r = 0; r < 16 && i + r < head_dim; ++r) {
      memcpy(tile + 16 * r, from + r * head_dim, sizeof(float) * (size_t)columns);
    }
    transpose_floats(tile, 16, across, 16);
  }
};

void sketch_queries(const Codebook& book, const float* q, int n, int head_dim, float* sketched) {
  Ahead ahead = nothing_ahead((const uint8_t*)q);
  for_row_tiles(n, SketchQueries{book.sketch, q, head_dim, sketched, (const uint8_t*)q, &ahead});
}

// Rows [o | z] of 2 head_dim values -> o + S^T z, N at a time, in place from the front.
struct FoldSketch {
  const float* sketch;
  int head_dim;
  float* o;
  const uint8_t* page;
  Ahead* ahead;

  template <int N>
  QUIRE_INLINE_MEMBER void rows(int first) const {
    const float* from = o + (size_t)first * 2 * head_dim;
    float folded[N * kMaxHeadDim];
    for (int j = 0; j < head_dim; j += 16) {
      F32x16 sums[N];
      for (int h = 0; h < N; ++h) sums[h] = load_up_to(from + 2 * h * head_dim + j, head_dim - j);
      for (int i = 0; i < head_dim; ++i) {
        const F32x16 row = load_up_to(sketch + i * head_dim + j, head_dim - j);
#pragma GCC unroll 4
        for (int h = 0; h < N; ++h) {
          sums[h] = fma(row, set1(from[(2 * h + 1) * head_dim + i]), sums[h]);
        }
      }
      for (int h = 0; h < N; ++h) put_dims<false>(folded + h * head_dim + j, head_dim - j, sums[h]);
    }
    memcpy(o + (size_t)first * head_dim, folded, sizeof(float) * N * (size_t)head_dim);
  }
};

void fold_sketch(const Codebook& book, int n, int head_dim, float* o) {
  Ahead ahead = nothing_ahead((const uint8_t*)o);
  for_row_tiles(n, FoldSketch{book.sketch, head_dim, o, (const uint8_t*)o, &ahead});
}
