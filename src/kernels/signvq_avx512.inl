// signvq rows scored and summed as bytes. Included by codes.inl for AVX-512 only, after
// turbo_rows_avx512.inl, whose parts it shares; queries and weights are rounded to 8 bits as there.
//
// A key is sign (zero + scale code), with zero and scale of each 32 dims: half a register of products. So a
// row takes two byte dot products, of q with sign code and of q with sign, and meets its parameters as
// floats.

constexpr int kVqGroups = kMaxHeadDim / 32;

// A query as bytes, and what 128 added to the other operand adds to every lane.
struct VqQuery {
  ByteQuery bytes;
  __m512i offset[kTurboWords];
};

QUIRE_INLINE void vq_query(const float* q, int head_dim, int n_words, VqQuery* out) {
  byte_query(q, head_dim, n_words, &out->bytes);
  for (int w = 0; w < n_words; ++w) {
    const __m512i x = _mm512_loadu_si512(out->bytes.q + 64 * w);
    out->offset[w] = _mm512_sub_epi32(
        _mm512_setzero_si512(), _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8((char)128), x));
  }
}

// Sixteen keys: sign * code + 128, sign + 128, and the parameters of each lane of products.
struct VqKeyTile {
  uint8_t codes[kRowTile * kMaxHeadDim];
  uint8_t signs[kRowTile * kMaxHeadDim];
  float scales[kRowTile * kTurboWords * 16];
  float zeros[kRowTile * kTurboWords * 16];
};

// Parameters (scale, zero) of two groups at p -> 16 lanes each; the second group may not exist.
QUIRE_INLINE void vq_parameters(const uint8_t* p, bool both, float* scales, float* zeros) {
  uint64_t halves = 0;
  memcpy(&halves, p, both ? 8 : 4);
  const __m512 x = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)halves)));
  const __m512i low = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
  const __m512i high = _mm512_or_si512(low, _mm512_set1_epi32(1));
  _mm512_storeu_ps(scales, _mm512_permutexvar_ps(low, x));
  _mm512_storeu_ps(zeros, _mm512_permutexvar_ps(high, x));
}

QUIRE_INLINE void fill_vq_tile(int head_dim, int n_words, KeyRowRefs refs, KeyRowRefs next, int first,
                               int last, const uint8_t** plane, uint64_t (*signs)[64], VqKeyTile* tile) {
  const int stride = plane_bytes(head_dim);
  const int n_groups = SignVq::groups(head_dim);
  // Index: 4 where positive, + code.
  const __m512i code_table = _mm512_broadcast_i32x4(_mm_setr_epi8(
      (char)128, 127, 126, 125, (char)128, (char)129, (char)130, (char)131, 0, 0, 0, 0, 0, 0, 0, 0));
  for (int i = first; i < last; ++i) {
    fetch_key_row(refs, next, i + kRowsAhead, SignVq::index_page_bytes(head_dim),
                  SignVq::row_bytes(head_dim));
    const KeyPage& page = refs.pages[refs.rows[i] / kPageTokens];
    const int row = refs.rows[i] % kPageTokens;
    if (page.index != *plane) {
      for (int w = 0; w < n_words; ++w) spread_signs(page.index + 64 * 8 * w, signs[w]);
      *plane = page.index;
    }
    const uint8_t* bytes = page.rows + row * SignVq::row_bytes(head_dim);
    const uint8_t* planes = bytes + 4 * n_groups;
    for (int w = 0; w < n_words; ++w) {
      const __mmask64 sign = signs[w][sign_slot(row)];
      __m512i code = _mm512_maskz_set1_epi8(sign, 4);
      code = _mm512_mask_add_epi8(code, load_word(planes + 8 * w), code, _mm512_set1_epi8(2));
      code = _mm512_mask_add_epi8(code, load_word(planes + stride + 8 * w), code, _mm512_set1_epi8(1));
      const int at = (i - first) * n_words + w;
      _mm512_storeu_si512(tile->codes + 64 * at, _mm512_shuffle_epi8(code_table, code));
      _mm512_storeu_si512(tile->signs + 64 * at,
                          _mm512_mask_blend_epi8(sign, _mm512_set1_epi8(127), _mm512_set1_epi8((char)129)));
      vq_parameters(bytes + 8 * w, 2 * w + 1 < n_groups, tile->scales + 16 * at, tile->zeros + 16 * at);
    }
  }
}

// The sum of each of 16 registers, as 16 lanes in order.
QUIRE_INLINE F32x16 sum_each_float(const __m512* x) {
  __m512 a[8], b[4], c[2];
  for (int i = 0; i < 8; ++i) {
    a[i] =
        _mm512_add_ps(_mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]), _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]));
  }
  for (int i = 0; i < 4; ++i) {
    const __m512d even = _mm512_castps_pd(a[2 * i]);
    const __m512d odd = _mm512_castps_pd(a[2 * i + 1]);
    b[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(even, odd)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(even, odd)));
  }
  for (int i = 0; i < 2; ++i) {
    c[i] = _mm512_add_ps(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd));
  }
  return {_mm512_add_ps(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd))};
}

QUIRE_INLINE void score_vq_tile(const VqKeyTile& tile, int n_words, const VqQuery& query, float* scores) {
  __m512 sums[kRowTile];
  for (int r = 0; r < kRowTile; ++r) {
    sums[r] = _mm512_setzero_ps();
    for (int w = 0; w < n_words; ++w) {
      const int at = r * n_words + w;
      const __m512i x = _mm512_loadu_si512(query.bytes.q + 64 * w);
      const __m512i codes = _mm512_dpbusd_epi32(query.offset[w], _mm512_loadu_si512(tile.codes + 64 * at), x);
      const __m512i signs = _mm512_dpbusd_epi32(query.offset[w], _mm512_loadu_si512(tile.signs + 64 * at), x);
      sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(codes), _mm512_loadu_ps(tile.scales + 16 * at), sums[r]);
      sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(signs), _mm512_loadu_ps(tile.zeros + 16 * at), sums[r]);
    }
  }
  store(scores, mul(sum_each_float(sums), set1(query.bytes.scale)));
}

// scores [tile of 64 rows][n][64]
void signvq_score_rows(const Codebook&, const float* q, int n, int head_dim, KeyRowRefs refs, float* scores,
                       KeyRowRefs next) {
  const int n_words = (head_dim + 63) / 64;
  for (int begin = 0; begin < n; begin += kQueryTile) {
    const int count = n - begin < kQueryTile ? n - begin : kQueryTile;
    VqQuery queries[kQueryTile];
    for (int h = 0; h < count; ++h) vq_query(q + (begin + h) * head_dim, head_dim, n_words, &queries[h]);
    const uint8_t* plane = nullptr;
    uint64_t signs[kTurboWords][64];
    VqKeyTile tile;
    memset(&tile, 0, sizeof tile);
    for (int i = 0; i < kRowsAhead; ++i) {
      fetch_key_row(refs, next, i, SignVq::index_page_bytes(head_dim), SignVq::row_bytes(head_dim));
    }
    for (int first = 0; first < refs.n; first += kRowTile) {
      const int last = first + kRowTile < refs.n ? first + kRowTile : refs.n;
      fill_vq_tile(head_dim, n_words, refs, next, first, last, &plane, signs, &tile);
      float* to = scores + ((size_t)(first / kPageTokens) * n + begin) * kPageTokens + first % kPageTokens;
      for (int h = 0; h < count; ++h) score_vq_tile(tile, n_words, queries[h], to + h * kPageTokens);
    }
  }
}

// The kept rows of a tile, with their parameters by group.
struct VqValueTile {
  const uint8_t* planes[kPageTokens];
  float scales[kVqGroups][kPageTokens];
  float zeros[kVqGroups][kPageTokens];
  int n;
  int padded;
};

QUIRE_INLINE void list_vq_values(int head_dim, RowRefs refs, uint64_t kept, VqValueTile* tile) {
  const int n_groups = SignVq::groups(head_dim);
  uint32_t pairs[kVqGroups][kPageTokens];  // scale, zero
  tile->n = 0;
  for (; kept != 0; kept &= kept - 1) {
    const int at = refs.rows[__builtin_ctzll(kept)];
    const uint8_t* row = refs.pages[at / kPageTokens] + at % kPageTokens * SignVq::row_bytes(head_dim);
    for (int g = 0; g < n_groups; ++g) memcpy(&pairs[g][tile->n], row + 4 * g, 4);
    tile->planes[tile->n++] = row + 4 * n_groups;
  }
  tile->padded = (tile->n + 3) / 4 * 4;
  for (int i = tile->n; i < tile->padded; ++i) tile->planes[i] = tile->planes[tile->n - 1];
  for (int g = 0; g < n_groups; ++g) {
    for (int i = tile->n; i < (tile->n + 15) / 16 * 16; ++i) pairs[g][i] = 0;
    for (int i = 0; i < tile->n; i += 16) {
      const __m512i x = _mm512_loadu_si512(pairs[g] + i);
      _mm512_storeu_ps(tile->scales[g] + i, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)));
      _mm512_storeu_ps(tile->zeros[g] + i, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16))));
    }
  }
}

// Codes of the listed rows, 64 dims from word w on, interleaved by four rows.
QUIRE_INLINE void vq_value_bytes(int head_dim, const VqValueTile& tile, int w, RowsAhead* ahead,
                                 __m512i* out) {
  const int stride = plane_bytes(head_dim);
  for (int i = 0; i < tile.padded; i += 4, out += 4) {
    __m512i c[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      if ((r & 1) == 0) fetch_value_row(ahead, SignVq::row_bytes(head_dim));
      const uint8_t* planes = tile.planes[i + r] + 8 * w;
      const __m512i upper = _mm512_maskz_set1_epi8(load_word(planes), 2);
      c[r] = _mm512_mask_add_epi8(upper, load_word(planes + stride), upper, _mm512_set1_epi8(1));
    }
    interleave_rows(c, out);
  }
}

// The weights of one group's codes, and what its zeros sum to.
struct VqWeights {
  ByteWeights bytes;
  float zero;
};

QUIRE_INLINE void vq_weights(const float* kept, const VqValueTile& tile, int group, VqWeights* out) {
  float w[kPageTokens + 16];
  F32x16 zeros = zero();
  for (int i = 0; i < tile.n; i += 16) {
    store(w + i, mul(load(kept + i), load(tile.scales[group] + i)));
    zeros = fma(load(kept + i), load(tile.zeros[group] + i), zeros);
  }
  weights_to_bytes(w, tile.n, &out->bytes);
  out->zero = reduce_add(zeros);
}

QUIRE_INLINE __m512i two_groups(const int8_t* low, const int8_t* high) {
  int32_t a, b;
  memcpy(&a, low, 4);
  memcpy(&b, high, 4);
  return _mm512_inserti64x4(_mm512_set1_epi32(a), _mm256_set1_epi32(b), 1);
}

// o [n_dims, at most 64] = o * correction + the two groups' sums.
QUIRE_INLINE void add_vq_values(const __m512i* bytes, const VqWeights& first, const VqWeights& second,
                                int n_rows, float correction, int n_dims, float* o) {
  __m512i sums[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) sums[v] = _mm512_setzero_si512();
  for (int r = 0; r < n_rows; r += 4) {
    const __m512i w = two_groups(first.bytes.w + r, second.bytes.w + r);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sums[v] = _mm512_dpbusd_epi32(sums[v], bytes[r + v], w);
  }
  order_dims(sums);
  const F32x16 shrink = set1(correction);
  for (int v = 0; v < 4; ++v) {
    const int tail = n_dims - 16 * v;
    if (tail <= 0) break;
    const VqWeights& group = v < 2 ? first : second;
    const F32x16 sum = fma(to_float({sums[v]}), set1(group.bytes.scale), set1(group.zero));
    float* to = o + 16 * v;
    if (tail >= 16) {
      store(to, fma(load(to), shrink, sum));
    } else {
      store_partial(to, fma(load_partial(to, tail), shrink, sum), tail);
    }
  }
}

void signvq_accumulate_rows(const Codebook&, const float* p, const float* correction, RowRefs refs,
                            uint64_t kept, int n, int head_dim, float* o, RowRefs next, uint64_t next_kept) {
  RowsAhead ahead = {next, next_kept};
  VqValueTile tile;
  list_vq_values(head_dim, refs, kept, &tile);
  const int n_groups = SignVq::groups(head_dim);
  __m512i bytes[kPageTokens];
  for (int w = 0; 64 * w < head_dim; ++w) {
    vq_value_bytes(head_dim, tile, w, &ahead, bytes);
    for (int i = 0; i < n; ++i) {
      float weights[kPageTokens + 16];
      compress_kept(p + i * kPageTokens, kept, weights);
      VqWeights first, second;
      vq_weights(weights, tile, 2 * w, &first);
      vq_weights(weights, tile, 2 * w + 1 < n_groups ? 2 * w + 1 : 2 * w, &second);
      add_vq_values(bytes, first, second, tile.padded, correction[i], head_dim - 64 * w,
                    o + (size_t)i * head_dim + 64 * w);
    }
  }
}

// Whole pages are runs of single rows.
QUIRE_INLINE void list_page(uint16_t* rows) {
  for (int t = 0; t < kPageTokens; ++t) rows[t] = (uint16_t)t;
}

void signvq_score(const Codebook& book, const float* q, int n, int head_dim, KeyPage page, uint64_t,
                  float* scores, BytesAhead next) {
  fetch_ahead(next);
  uint16_t rows[kPageTokens];
  list_page(rows);
  signvq_score_rows(book, q, n, head_dim, {&page, rows, kPageTokens}, scores, {});
}

void signvq_accumulate(const Codebook& book, const float* p, const float* correction, uint64_t named, int n,
                       int head_dim, const uint8_t* page, float* o, BytesAhead next) {
  fetch_ahead(next);
  uint16_t rows[kPageTokens];
  list_page(rows);
  signvq_accumulate_rows(book, p, correction, {&page, rows, kPageTokens}, named, n, head_dim, o, {}, 0);
}
