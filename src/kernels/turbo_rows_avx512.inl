// Single rows of nested pages, from any page of a run: what is read when an index has named the rows.
// Rounding of queries, codebook and weights as in single_rows_avx512.inl, whose parts these share.

constexpr int kRowTile = 16;  // rows scored together

// Key bytes of up to sixteen rows, with their norms.
struct KeyTile {
  uint8_t bytes[kRowTile * kMaxHeadDim];
  uint16_t norms[kRowTile];  // f16
};

// Rows lie anywhere, so nothing but us knows which bytes come next. They are asked for one row at a time,
// between the arithmetic: few lines can be under way at once, and asking for more makes the core wait.
constexpr int kRowsAhead = 24;

QUIRE_INLINE void fetch_row(const uint8_t* row, int n_bytes) {
  __builtin_prefetch(row, 0, 3);
  if (n_bytes > 1) __builtin_prefetch(row + n_bytes - 1, 0, 3);
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

// Bytes of rows first..last - 1 of the list into the tile. `signs` holds the transposed sign plane at
// `plane`, of the page of the row before.
template <int bits>
QUIRE_INLINE void fill_key_tile(const ByteBook& book, int head_dim, int n_words, KeyRowRefs refs,
                                KeyRowRefs next, int first, int last, const uint8_t** plane,
                                uint64_t (*signs)[64], KeyTile* tile) {
  using F = Turbo<bits>;
  const int stride = plane_bytes(head_dim);
  for (int i = first; i < last; ++i) {
    fetch_key_row(refs, next, i + kRowsAhead, F::index_page_bytes(head_dim), F::key_planes_bytes(head_dim));
    const KeyPage& page = refs.pages[refs.rows[i] / kPageTokens];
    const int row = refs.rows[i] % kPageTokens;
    if (page.index != *plane) {
      for (int w = 0; w < n_words; ++w) spread_signs(page.index + 64 * 8 * w, signs[w]);
      *plane = page.index;
    }
    const uint8_t* planes = page.rows + row * F::key_planes_bytes(head_dim);
    for (int w = 0; w < n_words; ++w) {
      _mm512_storeu_si512(tile->bytes + ((i - first) * n_words + w) * 64,
                          turbo_bytes<bits>(book, signs[w][sign_slot(row)], planes + 8 * w, stride));
    }
    memcpy(&tile->norms[i - first], page.index + F::key_norms_offset(head_dim) + 2 * row, 2);
  }
}

QUIRE_INLINE void score_key_tile(const KeyTile& tile, int n_words, float book_scale, const ByteQuery& query,
                                 float* scores) {
  __m512i acc[kRowTile];
#pragma GCC unroll 16
  for (int r = 0; r < kRowTile; ++r) acc[r] = _mm512_setzero_si512();
  for (int w = 0; w < n_words; ++w) {
    const __m512i x = _mm512_loadu_si512(query.q + 64 * w);
    const uint8_t* bytes = tile.bytes + 64 * w;
#pragma GCC unroll 16
    for (int r = 0; r < kRowTile; ++r) {
      acc[r] = _mm512_dpbusd_epi32(acc[r], _mm512_loadu_si512(bytes + r * n_words * 64), x);
    }
  }
  const __m512i sums = _mm512_sub_epi32(sum_each(acc), _mm512_set1_epi32(128 * query.sum));
  store(scores, mul(mul(to_float({sums}), set1(query.scale * book_scale)), load_f16(tile.norms)));
}

constexpr int kQueryTile = 8;  // queries kept as bytes at a time

// scores [tile of 64 rows][n][64]
template <int bits>
void turbo_score_rows(const Codebook& codebook, const float* q, int n, int head_dim, KeyRowRefs refs,
                      float* scores, KeyRowRefs next) {
  const ByteBook book = byte_book<bits>(codebook);
  const int n_words = (head_dim + 63) / 64;
  for (int begin = 0; begin < n; begin += kQueryTile) {
    const int count = n - begin < kQueryTile ? n - begin : kQueryTile;
    ByteQuery queries[kQueryTile];
    for (int h = 0; h < count; ++h) byte_query(q + (begin + h) * head_dim, head_dim, n_words, &queries[h]);
    const uint8_t* plane = nullptr;
    uint64_t signs[kTurboWords][64];
    KeyTile tile;
    for (int i = 0; i < kRowsAhead; ++i) {
      fetch_key_row(refs, next, i, Turbo<bits>::index_page_bytes(head_dim),
                    Turbo<bits>::key_planes_bytes(head_dim));
    }
    for (int first = 0; first < refs.n; first += kRowTile) {
      const int last = first + kRowTile < refs.n ? first + kRowTile : refs.n;
      fill_key_tile<bits>(book, head_dim, n_words, refs, next, first, last, &plane, signs, &tile);
      for (int r = last - first; r < kRowTile; ++r) tile.norms[r] = 0;
      float* to = scores + ((size_t)(first / kPageTokens) * n + begin) * kPageTokens + first % kPageTokens;
      for (int h = 0; h < count; ++h) {
        score_key_tile(tile, n_words, book.scale, queries[h], to + h * kPageTokens);
      }
    }
  }
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

// The kept rows of a tile: their value planes and norms, padded to a multiple of four with the last one.
struct ValueTile {
  const uint8_t* planes[kPageTokens];
  float norms[kPageTokens];
  int n;
  int padded;
};

template <int bits>
QUIRE_INLINE void list_values(int head_dim, RowRefs refs, uint64_t kept, ValueTile* tile) {
  using F = Turbo<bits>;
  uint16_t halves[kPageTokens];
  tile->n = 0;
  for (; kept != 0; kept &= kept - 1) {
    const int at = refs.rows[__builtin_ctzll(kept)];
    const uint8_t* row = refs.pages[at / kPageTokens] + at % kPageTokens * F::value_row_bytes(head_dim);
    tile->planes[tile->n] = row + F::kValueNormBytes;
    memcpy(&halves[tile->n++], row, 2);
  }
  tile->padded = (tile->n + 3) / 4 * 4;
  for (int i = tile->n; i < tile->padded; ++i) tile->planes[i] = tile->planes[tile->n - 1];
  for (int i = tile->n; i < (tile->n + 15) / 16 * 16; ++i) halves[i] = 0;
  for (int i = 0; i < tile->n; i += 16) store(tile->norms + i, load_f16(halves + i));
}

// Lanes of the kept rows side by side, and zeros up to a multiple of sixteen. kept_lanes [64 + 16].
QUIRE_INLINE int compress_kept(const float* lanes, uint64_t kept, float* kept_lanes) {
  int n = 0;
  for (int v = 0; v < 4; ++v) {
    const __mmask16 mask = (__mmask16)(kept >> (16 * v));
    _mm512_storeu_ps(kept_lanes + n, _mm512_maskz_compress_ps(mask, _mm512_loadu_ps(lanes + 16 * v)));
    n += __builtin_popcount(mask);
  }
  store(kept_lanes + n, zero());
  return n;
}

// Probabilities of the kept rows times their norms, side by side, as bytes.
QUIRE_INLINE void kept_weights(const float* p, uint64_t kept, const ValueTile& tile, ByteWeights* out) {
  float w[kPageTokens + 16];
  const int n = compress_kept(p, kept, w);
  for (int i = 0; i < n; i += 16) store(w + i, mul(load(w + i), load(tile.norms + i)));
  weights_to_bytes(w, n, out);
}

// Values of the listed rows, 64 dims from word w on, interleaved: [four rows][4 registers].
template <int bits>
QUIRE_INLINE void row_value_bytes(const ByteBook& book, int head_dim, const ValueTile& tile, int w,
                                  RowsAhead* ahead, __m512i* out) {
  const int stride = plane_bytes(head_dim);
  for (int i = 0; i < tile.padded; i += 4, out += 4) {
    __m512i c[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      if ((r & 1) == 0) fetch_value_row(ahead, Turbo<bits>::value_row_bytes(head_dim));
      const uint8_t* row = tile.planes[i + r] + 8 * w;
      c[r] = turbo_bytes<bits>(book, load_word(row), row + stride, stride);
    }
    interleave_rows(c, out);
  }
}

template <int bits>
void turbo_accumulate_rows(const Codebook& codebook, const float* p, const float* correction, RowRefs refs,
                           uint64_t kept, int n, int head_dim, float* o, RowRefs next, uint64_t next_kept) {
  RowsAhead ahead = {next, next_kept};
  const ByteBook book = byte_book<bits>(codebook);
  ValueTile tile;
  list_values<bits>(head_dim, refs, kept, &tile);
  for (int begin = 0; begin < n; begin += kQueryTile) {
    const int count = n - begin < kQueryTile ? n - begin : kQueryTile;
    ByteWeights weights[kQueryTile];
    for (int i = 0; i < count; ++i) kept_weights(p + (begin + i) * kPageTokens, kept, tile, &weights[i]);
    __m512i bytes[kPageTokens];
    for (int w = 0; 64 * w < head_dim; ++w) {
      row_value_bytes<bits>(book, head_dim, tile, w, &ahead, bytes);
      for (int i = 0; i < count; ++i) {
        add_value_bytes(bytes, weights[i], tile.padded, book.scale, correction[begin + i], head_dim - 64 * w,
                        o + (size_t)(begin + i) * head_dim + 64 * w);
      }
    }
  }
}
