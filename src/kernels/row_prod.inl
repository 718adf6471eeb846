// Codes with a sketch of their residual (format/turbo_prod.h): planes as in row_nested.inl, and the signs of
// the sketch as a second part of the row, times S q in place of q; S^T of their sum in place of the sum.

template <int bits>
struct ProdRows : PlaneRows<bits - 1> {
  static constexpr int kPasses = 2;
  static constexpr int kZero[2] = {128, 1};
  using F = TurboProd<bits>;
  const uint8_t* norms;   // |x|, and |r| behind
  const uint8_t* planes;  // of the first row
  int row_planes_bytes;

  QUIRE_INLINE_MEMBER ProdRows(const Codebook& book, int dim, const uint8_t* at_norms,
                               const uint8_t* at_planes, int row_bytes)
      : PlaneRows<bits - 1>(book, dim), norms(at_norms), planes(at_planes), row_planes_bytes(row_bytes) {}

  // 2 and 0 for the signs of the sketch.
  QUIRE_INLINE U8x64 sketch_bytes(const uint8_t* plane, int w) {
    return add_where(fill_bytes(0), plane + 8 * w, 2);
  }

  QUIRE_INLINE_MEMBER void scales(int pass, float* out) const {
    load_halves(norms, pass == 0 ? this->unit : 1.25331414f / (float)this->head_dim,
                out);  // sqrt(pi / 2) / d
    if (pass == 0) return;
    float rest[kPageTokens];
    load_halves(norms + 2 * kPageTokens, 1.0f, rest);
    for (int t = 0; t < kPageTokens; t += 16) store(out + t, mul(load(out + t), load(rest + t)));
  }
};

template <int bits>
struct ProdKeys : ProdRows<bits> {
  using F = TurboProd<bits>;
  uint64_t signs[kPageTokens * kRowWords];

  QUIRE_INLINE_MEMBER ProdKeys(const Codebook& book, int dim, const uint8_t* page)
      : ProdRows<bits>(book, dim, page + F::key_norms_offset(dim), page + F::key_planes_offset(dim),
                       (bits - 1) * plane_bytes(dim)) {
    transpose_signs(page, dim, signs);
  }
  QUIRE_INLINE_MEMBER U8x64 word(int pass, int row, int w, const uint8_t*) const {
    const uint8_t* from = this->planes + row * this->row_planes_bytes;
    const int plane = plane_bytes(this->head_dim);
    if (pass == 1) return this->sketch_bytes(from + (bits - 2) * plane, w);
    return this->code_bytes((const uint8_t*)(signs + row * words(this->head_dim)), from, w);
  }
};

template <int bits>
struct ProdValues : ProdRows<bits> {
  using F = TurboProd<bits>;

  QUIRE_INLINE_MEMBER ProdValues(const Codebook& book, int dim, const uint8_t* page)
      : ProdRows<bits>(book, dim, page, page + F::kValuePlanesOffset, bits * plane_bytes(dim)) {}
  QUIRE_INLINE_MEMBER U8x64 word(int pass, int row, int w, const uint8_t*) const {
    const uint8_t* from = this->planes + row * this->row_planes_bytes;
    const int plane = plane_bytes(this->head_dim);
    if (pass == 1) return this->sketch_bytes(from + (bits - 1) * plane, w);
    return this->code_bytes(from, from + plane, w);
  }
};

constexpr int kSketchTile = 16;  // query rows whose sketches are kept

// S q, 16 values of it at a time, for N queries: tiles of S are transposed so that lanes are rows of S.
struct SketchQueries {
  const float* sketch;
  const float* q;
  int head_dim;
  float* out;
  const uint8_t* page;
  Ahead* ahead;

  template <int N>
  __attribute__((noinline)) void rows(int first) const {
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
        float* to = out + (first + h) * head_dim + i;
        head_dim - i >= 16 ? store(to, sums[h]) : store_partial(to, sums[h], head_dim - i);
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

// o [n][head_dim] += S^T z, z [n][head_dim]
struct AddSketched {
  const float* sketch;
  const float* z;
  int head_dim;
  float* o;
  const uint8_t* page;
  Ahead* ahead;

  template <int N>
  __attribute__((noinline)) void rows(int first) const {
    for (int j = 0; j < head_dim; j += 16) {
      F32x16 sums[N];
      for (int h = 0; h < N; ++h) sums[h] = zero();
      for (int i = 0; i < head_dim; ++i) {
        const F32x16 row = load_up_to(sketch + i * head_dim + j, head_dim - j);
#pragma GCC unroll 4
        for (int h = 0; h < N; ++h) sums[h] = fma(row, set1(z[(first + h) * head_dim + i]), sums[h]);
      }
      for (int h = 0; h < N; ++h) {
        add_to_output(o + (size_t)(first + h) * head_dim + j, head_dim - j, sums[h], 1.0f);
      }
    }
  }
};

template <int bits>
void prod_score(const Codebook& book, const float* q, int n, int head_dim, const uint8_t* page, uint64_t rows,
                float* scores, BytesAhead next) {
  const RowList list = list_rows(rows, 16);
  Ahead ahead = spread(next, page, (size_t)list.padded * words(head_dim));
  const ProdKeys<bits> view(book, head_dim, page);
  score_pass(view, 0, list, q, n, head_dim, page, scores, &ahead);
  for (int first = 0; first < n; first += kSketchTile) {
    const int count = n - first < kSketchTile ? n - first : kSketchTile;
    float sketched[kSketchTile * kMaxHeadDim];
    for_row_tiles(count, SketchQueries{book.sketch, q + first * head_dim, head_dim, sketched, page, &ahead});
    score_pass(view, 1, list, sketched, count, head_dim, page, scores + first * kPageTokens, &ahead);
  }
}

// o [n][head_dim] += S^T z, z [n][head_dim]
QUIRE_INLINE void add_sketched(const float* sketch, const float* z, int n, int head_dim, float* o) {
  for (int j = 0; j < head_dim; j += 16) {
    const int left = head_dim - j < 16 ? head_dim - j : 16;
    F32x16 sums[kSketchTile];
    for (int h = 0; h < n; ++h) sums[h] = load_up_to(o + h * head_dim + j, left);
    for (int i = 0; i < head_dim; ++i) {
      const F32x16 row = load_up_to(sketch + i * head_dim + j, left);
      for (int h = 0; h < n; ++h) sums[h] = fma(row, set1(z[h * head_dim + i]), sums[h]);
    }
    for (int h = 0; h < n; ++h) {
      float* to = o + h * head_dim + j;
      left == 16 ? store(to, sums[h]) : store_partial(to, sums[h], left);
    }
  }
}

template <int bits>
void prod_accumulate(const Codebook& book, const float* p, const float* correction, uint64_t rows, int n,
                     int head_dim, const uint8_t* page, float* o, BytesAhead next) {
  const RowList list = list_rows(rows, 4);
  Ahead ahead = spread(next, page, (size_t)list.padded * words(head_dim));
  const ProdValues<bits> view(book, head_dim, page);
  accumulate_pass(view, 0, list, p, correction, n, head_dim, page, o, &ahead);
  for (int first = 0; first < n; first += kSketchTile) {
    const int count = n - first < kSketchTile ? n - first : kSketchTile;
    float signs[kSketchTile * kMaxHeadDim] = {0};
    accumulate_pass(view, 1, list, p + first * kPageTokens, nullptr, count, head_dim, page, signs, &ahead);
    for_row_tiles(count,
                  AddSketched{book.sketch, signs, head_dim, o + (size_t)first * head_dim, page, &ahead});
  }
}
