// The panel layout of the turbo codes (format/panel_codes.h): a load, a shift, a mask and a look-up give 64
// bytes, in which lanes are tokens (keys) or dims (values) already. Included by isa.cpp for AVX-512 only;
// rounding of queries, codebook and weights as in turbo_avx512.inl.

// Rank r of the rising centroids -> byte + 128.
template <int bits>
QUIRE_INLINE ByteBook rank_book(const Codebook& book) {
  constexpr int half = 1 << (bits - 1);
  float rising[16] = {0};
  for (int m = 0; m < half; ++m) {
    rising[half + m] = book.centroids[half + m];
    rising[half - 1 - m] = book.centroids[m];
  }
  const float largest = book.centroids[2 * half - 1];
  const F32x16 levels = mul(load(rising), set1(127.0f / largest));
  const __m128i entries = _mm512_cvtepi32_epi8(_mm512_add_epi32(to_int(levels).v, _mm512_set1_epi32(128)));
  return {_mm512_broadcast_i32x4(entries), largest / 127.0f};
}

// Bytes of step i of a pack whose first 64 bytes are `pack`.
template <int bits, int i>
QUIRE_INLINE __m512i step_bytes(const ByteBook& book, __m512i pack, const uint8_t* at) {
  if constexpr (bits == 4) {
    const __m512i ranks = i == 0 ? pack : _mm512_srli_epi16(pack, 4);
    return _mm512_shuffle_epi8(book.table, _mm512_and_si512(ranks, _mm512_set1_epi8(15)));
  } else if constexpr (bits == 2) {
    const __m512i ranks = i == 0 ? pack : _mm512_srli_epi16(pack, 2 * i);
    return _mm512_shuffle_epi8(book.table, _mm512_and_si512(ranks, _mm512_set1_epi8(3)));
  } else {
    const __m512i upper = i == 0   ? _mm512_slli_epi16(pack, 1)
                          : i == 1 ? _mm512_srli_epi16(pack, 1)
                                   : _mm512_srli_epi16(pack, 2 * i - 1);
    const __m512i ranks = _mm512_and_si512(upper, _mm512_set1_epi8(6));
    const __m512i low = _mm512_mask_add_epi8(ranks, load_word(at + 64 + 8 * i), ranks, _mm512_set1_epi8(1));
    return _mm512_shuffle_epi8(book.table, low);
  }
}

QUIRE_INLINE __m512i four_bytes(const int8_t* p) {
  int32_t four;
  memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}

// One step of the keys: quad `quad` of the four blocks of 16 tokens, N queries.
template <int bits, int N, int i>
QUIRE_INLINE void key_step(const ByteBook& book, const uint8_t* const* packs, const __m512i* loaded,
                           const ByteQuery* queries, int quad, __m512i (*acc)[4]) {
  __m512i keys[4];
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) keys[b] = step_bytes<bits, i>(book, loaded[b], packs[b]);
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) {
    const __m512i q = four_bytes(queries[h].q + 4 * quad);
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) acc[h][b] = _mm512_dpbusd_epi32(acc[h][b], keys[b], q);
  }
}

template <int bits, int N>
QUIRE_INLINE void panel_score_rows(const ByteBook& book, const ByteQuery* queries, int head_dim,
                                   const uint8_t* page, float* scores) {
  using F = TurboPanel<bits>;
  using P = typename F::Panel;
  const int n_quads = P::key_quads(head_dim);
  const size_t block_bytes = (size_t)(n_quads / P::kSteps) * P::kPackBytes;
  const uint8_t* packs[4];
  for (int b = 0; b < 4; ++b) packs[b] = page + F::kNormBytes + b * block_bytes;
  __m512i acc[N][4];
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) {
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) acc[h][b] = _mm512_setzero_si512();
  }
  for (int quad = 0; quad < n_quads; quad += P::kSteps) {
    __m512i loaded[4];
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) loaded[b] = _mm512_loadu_si512(packs[b]);
    key_step<bits, N, 0>(book, packs, loaded, queries, quad, acc);
    key_step<bits, N, 1>(book, packs, loaded, queries, quad + 1, acc);
    if constexpr (P::kSteps == 4) {
      key_step<bits, N, 2>(book, packs, loaded, queries, quad + 2, acc);
      key_step<bits, N, 3>(book, packs, loaded, queries, quad + 3, acc);
    }
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) packs[b] += P::kPackBytes;
  }
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) {
    const __m512i offset = _mm512_set1_epi32(128 * queries[h].sum);
    const F32x16 scale = set1(queries[h].scale * book.scale);
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      const F32x16 norms = load_f16((const uint16_t*)page + 16 * b);
      const F32x16 product = to_float({_mm512_sub_epi32(acc[h][b], offset)});
      store(scores + h * kPageTokens + 16 * b, mul(mul(product, scale), norms));
    }
  }
}

// scores [n][64] of all rows; q [n][head_dim] in the frame.
template <int bits>
void panel_score(const Codebook& codebook, const float* q, int n, int head_dim, const uint8_t* page, uint64_t,
                 float* scores, BytesAhead next) {
  fetch_ahead(next);
  const ByteBook book = rank_book<bits>(codebook);
  const int n_words = (head_dim + 63) / 64;
  for (int first = 0; first < n; first += 4, scores += 4 * kPageTokens) {
    ByteQuery queries[4];
    const int count = n - first < 4 ? n - first : 4;
    for (int h = 0; h < count; ++h) byte_query(q + (first + h) * head_dim, head_dim, n_words, &queries[h]);
    switch (count) {
      case 1: panel_score_rows<bits, 1>(book, queries, head_dim, page, scores); break;
      case 2: panel_score_rows<bits, 2>(book, queries, head_dim, page, scores); break;
      case 3: panel_score_rows<bits, 3>(book, queries, head_dim, page, scores); break;
      default: panel_score_rows<bits, 4>(book, queries, head_dim, page, scores); break;
    }
  }
}

// One step of the values: tokens 4 quad .. 4 quad + 3 of B blocks of 16 dims, N outputs.
template <int bits, int N, int B, int i>
QUIRE_INLINE void value_step(const ByteBook& book, const uint8_t* const* packs, const __m512i* loaded,
                             const ByteWeights* weights, int quad, __m512i (*high)[B], __m512i (*low)[B]) {
  __m512i values[B];
#pragma GCC unroll 2
  for (int b = 0; b < B; ++b) values[b] = step_bytes<bits, i>(book, loaded[b], packs[b]);
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) {
    const __m512i w_high = four_bytes(weights[h].high + 4 * quad);
    const __m512i w_low = four_bytes(weights[h].low + 4 * quad);
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) {
      high[h][b] = _mm512_dpbusd_epi32(high[h][b], values[b], w_high);
      low[h][b] = _mm512_dpbusd_epi32(low[h][b], values[b], w_low);
    }
  }
}

template <int bits, int N, int B>
QUIRE_INLINE void panel_dims(const ByteBook& book, const ByteWeights* weights, const float* correction,
                             int head_dim, const uint8_t* page, int block, float* o) {
  using F = TurboPanel<bits>;
  using P = typename F::Panel;
  const uint8_t* packs[B];
  for (int b = 0; b < B; ++b)
    packs[b] = page + F::kNormBytes + (block + b) * (16 / P::kSteps) * P::kPackBytes;
  __m512i high[N][B], low[N][B];
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) high[h][b] = low[h][b] = _mm512_setzero_si512();
  }
  for (int quad = 0; quad < 16; quad += P::kSteps) {
    __m512i loaded[B];
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) loaded[b] = _mm512_loadu_si512(packs[b]);
    value_step<bits, N, B, 0>(book, packs, loaded, weights, quad, high, low);
    value_step<bits, N, B, 1>(book, packs, loaded, weights, quad + 1, high, low);
    if constexpr (P::kSteps == 4) {
      value_step<bits, N, B, 2>(book, packs, loaded, weights, quad + 2, high, low);
      value_step<bits, N, B, 3>(book, packs, loaded, weights, quad + 3, high, low);
    }
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) packs[b] += P::kPackBytes;
  }
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) {
    const __m512i offset = _mm512_set1_epi32(128 * weights[h].sum);
    const F32x16 scale = set1(weights[h].scale * book.scale);
    const F32x16 shrink = set1(correction[h]);
    for (int b = 0; b < B; ++b) {
      const int d = 16 * (block + b);
      const F32x16 sum = to_float({_mm512_sub_epi32(join({high[h][b]}, {low[h][b]}).v, offset)});
      float* to = o + (size_t)h * head_dim + d;
      if (head_dim - d >= 16) {
        store(to, fma(sum, scale, mul(load(to), shrink)));
      } else {
        store_partial(to, fma(sum, scale, mul(load_partial(to, head_dim - d), shrink)), head_dim - d);
      }
    }
  }
}

template <int bits, int N>
QUIRE_INLINE void panel_accumulate_rows(const ByteBook& book, const ByteWeights* weights,
                                        const float* correction, int head_dim, const uint8_t* page,
                                        float* o) {
  const int n_blocks = PanelCodes<bits>::dim_blocks(head_dim);
  int block = 0;
  for (; block + 2 <= n_blocks; block += 2) {
    panel_dims<bits, N, 2>(book, weights, correction, head_dim, page, block, o);
  }
  if (block < n_blocks) panel_dims<bits, N, 1>(book, weights, correction, head_dim, page, block, o);
}

// o [n][head_dim] = o * correction + p [n][64] . values, over the rows named, in the frame.
template <int bits>
void panel_accumulate(const Codebook& codebook, const float* p, const float* correction, uint64_t rows, int n,
                      int head_dim, const uint8_t* page, float* o, BytesAhead next) {
  fetch_ahead(next);
  const ByteBook book = rank_book<bits>(codebook);
  float norm[kPageTokens];
  for (int t = 0; t < kPageTokens; t += 16) {
    // Rows that are not named have weight 0, whatever their probability says.
    store(norm + t,
          select_bits((uint32_t)(rows >> t) & 0xffffu, load_f16((const uint16_t*)page + t), zero()));
  }
  const RowList all = list_rows(~0ull, 4);
  for (int first = 0; first < n; first += 4) {
    ByteWeights weights[4];
    const int count = n - first < 4 ? n - first : 4;
    for (int h = 0; h < count; ++h) byte_weights(p + (first + h) * kPageTokens, norm, all, &weights[h]);
    float* to = o + (size_t)first * head_dim;
    switch (count) {
      case 1: panel_accumulate_rows<bits, 1>(book, weights, correction + first, head_dim, page, to); break;
      case 2: panel_accumulate_rows<bits, 2>(book, weights, correction + first, head_dim, page, to); break;
      case 3: panel_accumulate_rows<bits, 3>(book, weights, correction + first, head_dim, page, to); break;
      default: panel_accumulate_rows<bits, 4>(book, weights, correction + first, head_dim, page, to); break;
    }
  }
}
