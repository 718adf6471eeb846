// Single rows of any pages of a run: what is read when an index has named the rows. Rows are brought to
// bytes, with a scale of each row, and byte products do the rest:
//
//   value of a dim = scale of the row * (byte - 128)
//
// Queries and weights are multipliers as the set multiplies bytes best: of 8 bits on AVX-512, 16 on AVX2.
// Bytes of 8 bits are a fifteenth of nested4's own error.
//
// A format gives two classes, which look at up to 16 keys, or at the listed rows of a tile of values:
//
//   static constexpr int kIndexBytes, kRowBytes        of a head_dim, functions: of an index page, and of a
//   row void begin(rows.., float* scales)                  of the rows that follow U8x64 word(int i, const
//   uint8_t* row, .., int w)   dims 64 w.. of row i, past head_dim anything

constexpr int kRowTile = 16;  // rows scored together

// Rows lie anywhere, so nothing but us knows which bytes come next. They are asked for one row at a time,
// between the arithmetic: few lines can be under way at once, and asking for more makes the core wait.
constexpr int kRowsAhead = 24;

QUIRE_INLINE void fetch_row(const uint8_t* row, int n_bytes) {
  fetch_at(row);
  if (n_bytes > 1) fetch_at(row + n_bytes - 1);
}

// Codes of row i of a list, or of the list that follows it, and the index plane of a page that begins with
// it.
QUIRE_INLINE void fetch_key_row(KeyRowRefs refs, KeyRowRefs next, int i, int index_bytes, int row_bytes) {
  if (i >= refs.n) {
    i -= refs.n;
    refs = next;
  }
  if (i >= refs.n) return;
  const KeyPage& page = refs.pages[refs.rows[i] / kPageTokens];
  if (i == 0 || refs.rows[i] / kPageTokens != refs.rows[i - 1] / kPageTokens) {
    fetch_ahead({page.index, (size_t)index_bytes});
  }
  fetch_row(page.rows + refs.rows[i] % kPageTokens * row_bytes, row_bytes);
}

// Kept rows of a tile that comes after this one, asked for one by one.
struct RowsAhead {
  RowRefs refs;
  uint64_t kept;
};

QUIRE_INLINE void fetch_value_row(RowsAhead* ahead, int row_bytes) {
  if (ahead->kept == 0) return;
  const int at = ahead->refs.rows[__builtin_ctzll(ahead->kept)];
  ahead->kept &= ahead->kept - 1;
  fetch_row(ahead->refs.pages[at / kPageTokens] + at % kPageTokens * row_bytes, row_bytes);
}

// A query, or the weights of the rows of a tile, as multipliers of bytes.
struct SingleCodes {
  SingleMultipliers m;
  float scale;
  int sum;
};

// x: n vectors of 16.
QUIRE_INLINE void code_single(const F32x16* x, int n, SingleCodes* out) {
  F32x16 most = zero();
  for (int i = 0; i < n; ++i) most = max(most, abs(x[i]));
  const float largest = reduce_max(most);
  const F32x16 inverse = set1(largest > 0x1p-110f ? kLargestSingle / largest : 0.0f);
  I32x16 sum = izero();
  for (int i = 0; i < n; ++i) {
    const I32x16 codes = to_int(mul(x[i], inverse));
    put_multipliers(&out->m, 16 * i, codes);
    sum = add(sum, codes);
  }
  out->scale = largest / kLargestSingle;
  out->sum = reduce_add(sum);
}

// f.template queries<N>(first) for queries 0..n - 1, kSingleQueries at a time.
template <class F>
QUIRE_INLINE void for_query_tiles(int n, const F& f) {
  int first = 0;
  for (; first + kSingleQueries <= n; first += kSingleQueries) f.template queries<kSingleQueries>(first);
  if constexpr (kSingleQueries > 1) {
    switch (n - first) {
      case 3: f.template queries<3>(first); break;
      case 2: f.template queries<2>(first); break;
      case 1: f.template queries<1>(first); break;
      default: break;
    }
  }
}

// ---- keys ----

// Bytes of up to sixteen rows, [16][words][64].
struct KeyTile {
  alignas(64) uint8_t bytes[kRowTile * kMaxHeadDim];
  float scales[kRowTile];
};

// A query, with multipliers for every lane; dims past head_dim are 0, so that what is read past a row does
// not count.
struct SingleQuery {
  LaneMultipliers lanes[kRowWords];
  float scale;
  int offset;  // what 128 added to each byte adds
};

QUIRE_INLINE void single_query(const float* q, int head_dim, SingleQuery* out) {
  F32x16 x[kMaxHeadDim / 16];
  SingleCodes codes;
  const int n_words = words(head_dim);
  for (int n = load_row(q, head_dim, x); n < 4 * n_words; ++n) x[n] = zero();
  code_single(x, 4 * n_words, &codes);
  for (int w = 0; w < n_words; ++w) out->lanes[w] = lane_multipliers(codes.m, 64 * w);
  out->scale = codes.scale;
  out->offset = 128 * codes.sum;
}

// Rows first..last - 1 of the list into the tile. `signs` are those of the page of the row before, whose sign
// plane is `plane`.
template <class Keys>
QUIRE_INLINE void fill_key_tile(Keys& keys, KeyRowRefs refs, KeyRowRefs next, int first, int last,
                                const uint8_t** plane, uint64_t* signs, KeyTile* tile) {
  const int n_words = words(keys.head_dim);
  const int row_bytes = Keys::row_bytes(keys.head_dim);
  keys.begin(refs, first, last, tile->scales);
  for (int i = first; i < last; ++i) {
    fetch_key_row(refs, next, i + kRowsAhead, Keys::index_bytes(keys.head_dim), row_bytes);
    const KeyPage& page = refs.pages[refs.rows[i] / kPageTokens];
    const int row = refs.rows[i] % kPageTokens;
    if (page.index != *plane) spread_signs(page.index, keys.head_dim, signs);
    *plane = page.index;
    uint8_t* to = tile->bytes + (i - first) * n_words * 64;
    for (int w = 0; w < n_words; ++w) {
      const uint8_t* sign = (const uint8_t*)(signs + 64 * w + sign_slot(row));
      store_bytes(to + 64 * w, keys.word(i - first, sign, page.rows + row * row_bytes, w));
    }
  }
}

struct KeyTileScore {
  const KeyTile& tile;
  int n_words;
  const SingleQuery* all_queries;
  float* scores;  // [query][64]

  template <int N>
  QUIRE_INLINE_MEMBER void queries(int first) const {
    const SingleQuery* query = all_queries + first;
    LaneSums sums[N][kRowTile];
#pragma GCC unroll kSingleUnroll
    for (int r = 0; r < kRowTile; ++r) {
      LaneSums row[N];
#pragma GCC unroll 4
      for (int h = 0; h < N; ++h) row[h] = no_sums();
      for (int w = 0; w < n_words; ++w) {
        const Factors x = factors(load_bytes(tile.bytes + (r * n_words + w) * 64));
#pragma GCC unroll 4
        for (int h = 0; h < N; ++h) row[h] = add_lanes(row[h], x, query[h].lanes[w]);
      }
#pragma GCC unroll 4
      for (int h = 0; h < N; ++h) sums[h][r] = row[h];
    }
    for (int h = 0; h < N; ++h) {
      const I32x16 products = sub(sum_each(sums[h]), iset1(query[h].offset));
      store(scores + (first + h) * kPageTokens,
            mul(mul(to_float(products), set1(query[h].scale)), load(tile.scales)));
    }
  }
};

constexpr int kQueryTile = 8;  // queries kept as multipliers at a time

// scores [tile of 64 rows][n][64]
template <class Keys>
void score_single_rows(const Codebook& book, const float* q, int n, int head_dim, KeyRowRefs refs,
                       float* scores, KeyRowRefs next) {
  Keys keys(book, head_dim);
  for (int begin = 0; begin < n; begin += kQueryTile) {
    const int count = n - begin < kQueryTile ? n - begin : kQueryTile;
    SingleQuery queries[kQueryTile];
    for (int h = 0; h < count; ++h) single_query(q + (begin + h) * head_dim, head_dim, &queries[h]);
    const uint8_t* plane = nullptr;
    uint64_t signs[kRowWords * kPageTokens];
    KeyTile tile;
    for (int i = 0; i < kRowsAhead; ++i) {
      fetch_key_row(refs, next, i, Keys::index_bytes(head_dim), Keys::row_bytes(head_dim));
    }
    for (int first = 0; first < refs.n; first += kRowTile) {
      const int last = first + kRowTile < refs.n ? first + kRowTile : refs.n;
      fill_key_tile(keys, refs, next, first, last, &plane, signs, &tile);
      for (int r = last - first; r < kRowTile; ++r) tile.scales[r] = 0;
      float* to = scores + ((size_t)(first / kPageTokens) * n + begin) * kPageTokens + first % kPageTokens;
      for_query_tiles(count, KeyTileScore{tile, words(head_dim), queries, to});
    }
  }
}

// ---- values ----

// The kept rows of a tile, padded to a multiple of four with the last one.
struct ValueTile {
  const uint8_t* rows[kPageTokens];
  float scales[kPageTokens];  // and zeros up to a multiple of sixteen
  int n;
  int padded;
};

QUIRE_INLINE void list_values(RowRefs refs, uint64_t kept, int row_bytes, ValueTile* tile) {
  tile->n = 0;
  for (; kept != 0; kept &= kept - 1) {
    const int at = refs.rows[__builtin_ctzll(kept)];
    tile->rows[tile->n++] = refs.pages[at / kPageTokens] + at % kPageTokens * row_bytes;
  }
  tile->padded = (tile->n + 3) / 4 * 4;
  for (int i = tile->n; i < tile->padded; ++i) tile->rows[i] = tile->rows[tile->n - 1];
}

// Probabilities of the kept rows times their scales, side by side.
QUIRE_INLINE void kept_weights(const float* p, uint64_t kept, const ValueTile& tile, SingleCodes* out) {
  float w[kPageTokens + 16];
  int n = 0;
  for (int v = 0; v < 4; ++v) {
    n += store_where(w + n, load(p + 16 * v), (uint32_t)(kept >> (16 * v)) & 0xffffu);
  }
  store(w + n, zero());
  F32x16 x[4];
  for (int v = 0; 16 * v < n; ++v) x[v] = mul(load(w + 16 * v), load(tile.scales + 16 * v));
  code_single(x, (n + 15) / 16, out);
}

// Bytes of the rows of the tile, 64 dims from word w on, interleaved: [four rows][4 registers].
template <class Values>
QUIRE_INLINE void value_bytes(const Values& values, const ValueTile& tile, int w, RowsAhead* ahead,
                              U8x64* out) {
  for (int i = 0; i < tile.padded; i += 4, out += 4) {
    U8x64 x[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      if ((r & 1) == 0) fetch_value_row(ahead, Values::row_bytes(values.head_dim));
      x[r] = values.word(i + r, tile.rows[i + r], w);
    }
    interleave_rows(x, out);
  }
}

// o [query][n_dims, at most 64] = o * correction + weights . bytes of n_rows rows.
struct ValueTileSum {
  const U8x64* bytes;
  int n_rows;
  const SingleCodes* weights;
  const float* correction;
  int n_dims;
  float* o;
  size_t ldo;

  template <int N>
  QUIRE_INLINE_MEMBER void queries(int first) const {
    I32x16 sums[N][4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; v += kSingleVectors) add_rows<N>(v, weights + first, sums);
    for (int h = 0; h < N; ++h) {
      transpose_parts(sums[h]);  // dims in order
      const F32x16 scale = set1(weights[first + h].scale);
      for (int v = 0; 16 * v < n_dims && v < 4; ++v) {
        add_to_output(o + (first + h) * ldo + 16 * v, n_dims - 16 * v, mul(to_float(sums[h][v]), scale),
                      correction[first + h]);
      }
    }
  }

  // Registers v.. of the interleaved bytes.
  template <int N>
  QUIRE_INLINE_MEMBER void add_rows(int v, const SingleCodes* w, I32x16 (*sums)[4]) const {
    I32x16 s[N][kSingleVectors];
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
#pragma GCC unroll 4
      for (int i = 0; i < kSingleVectors; ++i) s[h][i] = iset1(-128 * w[h].sum);
    }
    for (int r = 0; r < n_rows; r += 4) {
#pragma GCC unroll 4
      for (int i = 0; i < kSingleVectors; ++i) {
        const Factors x = factors(bytes[r + v + i]);
#pragma GCC unroll 4
        for (int h = 0; h < N; ++h) s[h][i] = add_single(s[h][i], x, w[h].m, r / 4);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
#pragma GCC unroll 4
      for (int i = 0; i < kSingleVectors; ++i) sums[h][v + i] = s[h][i];
    }
  }
};

template <class Values>
void accumulate_single_rows(const Codebook& book, const float* p, const float* correction, RowRefs refs,
                            uint64_t kept, int n, int head_dim, float* o, RowRefs next, uint64_t next_kept) {
  RowsAhead ahead = {next, next_kept};
  Values values(book, head_dim);
  ValueTile tile;
  list_values(refs, kept, Values::row_bytes(head_dim), &tile);
  values.begin(&tile);
  for (int begin = 0; begin < n; begin += kQueryTile) {
    const int count = n - begin < kQueryTile ? n - begin : kQueryTile;
    SingleCodes weights[kQueryTile];
    for (int i = 0; i < count; ++i) kept_weights(p + (begin + i) * kPageTokens, kept, tile, &weights[i]);
    U8x64 bytes[kPageTokens];
    for (int w = 0; 64 * w < head_dim; ++w) {
      value_bytes(values, tile, w, &ahead, bytes);
      for_query_tiles(count, ValueTileSum{bytes, tile.padded, weights, correction + begin, head_dim - 64 * w,
                                          o + (size_t)begin * head_dim + 64 * w, (size_t)head_dim});
    }
  }
}
