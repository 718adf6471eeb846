// Parts of the kernels that read single rows of pages as bytes: a code is looked up as a signed byte, and
// byte dot products do the rest. Included by codes.inl for AVX-512 only.
//
// Codebook and queries are rounded to 8 bits (1/127 of their largest value: about a fifteenth of nested4's
// own error), and so are the weights of values. Bytes of codes are kept with 128 added, as vpdpbusd takes one
// operand unsigned; 128 times the sum of the other operand is taken off afterwards.

constexpr int kTurboWords = kMaxHeadDim / 64;  // 64 dims a register

struct ByteBook {
  __m512i table;  // four copies of 16 entries: code -> round(centroid / scale) + 128
  float scale;
};

template <int bits>
QUIRE_INLINE ByteBook byte_book(const Codebook& book) {
  const float largest = book.centroids[(1 << bits) - 1];
  const F32x16 levels = mul(load(book.centroids), set1(127.0f / largest));
  const __m128i entries = _mm512_cvtepi32_epi8(_mm512_add_epi32(to_int(levels).v, _mm512_set1_epi32(128)));
  return {_mm512_broadcast_i32x4(entries), largest / 127.0f};
}

// 64 codes of a row from its sign bits and the magnitude planes, `plane_stride` bytes apart -> bytes of the
// book.
template <int bits>
QUIRE_INLINE __m512i turbo_bytes(const ByteBook& book, uint64_t sign, const uint8_t* planes,
                                 int plane_stride) {
  __m512i code = _mm512_maskz_set1_epi8(sign, (char)(1 << (bits - 1)));
#pragma GCC unroll 3
  for (int p = 0; p < bits - 1; ++p) {
    const __m512i bit = _mm512_set1_epi8((char)(1 << (bits - 2 - p)));
    code = _mm512_mask_add_epi8(code, load_word(planes + p * plane_stride), code, bit);
  }
  return _mm512_shuffle_epi8(book.table, code);
}

// Transposes eight rows of 64 bytes, [group][token], into 64 words of eight bytes; the word of a token lies
// at sign_slot(token).
QUIRE_INLINE void spread_signs(const uint8_t* plane, uint64_t* words) {
  __m512i a[8], t[8];
  for (int g = 0; g < 8; ++g) a[g] = _mm512_loadu_si512(plane + 64 * g);
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm512_unpacklo_epi8(a[2 * i], a[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi8(a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    for (int half = 0; half < 2; ++half) {  // groups 0-3, groups 4-7
      a[4 * i + 2 * half] = _mm512_unpacklo_epi16(t[i + 4 * half], t[i + 4 * half + 2]);
      a[4 * i + 2 * half + 1] = _mm512_unpackhi_epi16(t[i + 4 * half], t[i + 4 * half + 2]);
    }
    for (int j = 0; j < 2; ++j) {
      const __m512i low = a[4 * i + j];
      const __m512i high = a[4 * i + 2 + j];
      _mm512_storeu_si512(words + 8 * (4 * i + 2 * j), _mm512_unpacklo_epi32(low, high));
      _mm512_storeu_si512(words + 8 * (4 * i + 2 * j + 1), _mm512_unpackhi_epi32(low, high));
    }
  }
}
// Register i of the eight holds tokens 2 i and 2 i + 1 of each sixteen.
QUIRE_INLINE int sign_slot(int token) { return (token % 16 / 2) * 8 + token / 16 * 2 + token % 2; }

// The sum of each of 16 registers, as 16 lanes in order.
QUIRE_INLINE __m512i sum_each(const __m512i* x) {
  __m512i a[8], b[4], c[2];
  for (int i = 0; i < 8; ++i) {
    a[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]),
                            _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]));
  }
  for (int i = 0; i < 4; ++i) {
    b[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                            _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
  }
  // Each 128-bit part of b[i] now holds parts of the sums of x[4 i .. 4 i + 3].
  for (int i = 0; i < 2; ++i) {
    c[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0x88),
                            _mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0xdd));
  }
  return _mm512_add_epi32(_mm512_shuffle_i32x4(c[0], c[1], 0x88), _mm512_shuffle_i32x4(c[0], c[1], 0xdd));
}

// A query as bytes; dims past head_dim are 0, so that what is read past a row does not count.
struct ByteQuery {
  int8_t q[kMaxHeadDim];
  float scale;
  int sum;
};

QUIRE_INLINE void byte_query(const float* q, int head_dim, int n_words, ByteQuery* out) {
  F32x16 x[kMaxHeadDim / 16];
  F32x16 most = zero();
  for (int d = 0; d < 64 * n_words; d += 16) {
    const int n = head_dim - d < 16 ? head_dim - d : 16;
    x[d / 16] = n >= 16 ? load(q + d) : n > 0 ? load_partial(q + d, n) : zero();
    most = max(most, abs(x[d / 16]));
  }
  const float largest = reduce_max(most);
  const F32x16 inverse = set1(largest > 0x1p-110f ? 127.0f / largest : 0.0f);
  __m512i sum = _mm512_setzero_si512();
  for (int d = 0; d < 64 * n_words; d += 16) {
    const __m512i code = _mm512_cvtps_epi32(mul(x[d / 16], inverse).v);
    _mm_storeu_si128((__m128i*)(out->q + d), _mm512_cvtepi32_epi8(code));
    sum = _mm512_add_epi32(sum, code);
  }
  out->scale = largest / 127.0f;
  out->sum = _mm512_reduce_add_epi32(sum);
}

// Weights of the listed rows as bytes, four rows a word.
struct ByteWeights {
  int8_t w[kPageTokens];
  float scale;
  int sum;
};

// w [n, and zeros up to a multiple of sixteen]
QUIRE_INLINE void weights_to_bytes(const float* w, int n, ByteWeights* out) {
  F32x16 most = zero();
  for (int i = 0; i < n; i += 16) most = max(most, load(w + i));
  const float largest = reduce_max(most);
  const F32x16 inverse = set1(largest > 0x1p-110f ? 127.0f / largest : 0.0f);
  __m512i sum = _mm512_setzero_si512();
  for (int i = 0; i < n; i += 16) {
    const __m512i codes = to_int(mul(load(w + i), inverse)).v;
    _mm_storeu_si128((__m128i*)(out->w + i), _mm512_cvtepi32_epi8(codes));
    sum = _mm512_add_epi32(sum, codes);
  }
  out->scale = largest / 127.0f;
  out->sum = _mm512_reduce_add_epi32(sum);
}

// Four rows of 64 bytes -> four registers, where 32-bit lane e of register i holds the bytes of dim
// 16 (e / 4) + 4 i + e % 4 of the four rows.
QUIRE_INLINE void interleave_rows(const __m512i* rows, __m512i* out) {
  const __m512i low01 = _mm512_unpacklo_epi8(rows[0], rows[1]);
  const __m512i high01 = _mm512_unpackhi_epi8(rows[0], rows[1]);
  const __m512i low23 = _mm512_unpacklo_epi8(rows[2], rows[3]);
  const __m512i high23 = _mm512_unpackhi_epi8(rows[2], rows[3]);
  out[0] = _mm512_unpacklo_epi16(low01, low23);
  out[1] = _mm512_unpackhi_epi16(low01, low23);
  out[2] = _mm512_unpacklo_epi16(high01, high23);
  out[3] = _mm512_unpackhi_epi16(high01, high23);
}

// From the lane order above to dims in order: a 4 x 4 transposition of 128-bit parts.
QUIRE_INLINE void order_dims(__m512i* x) {
  const __m512i a = _mm512_shuffle_i32x4(x[0], x[1], 0x44);
  const __m512i b = _mm512_shuffle_i32x4(x[2], x[3], 0x44);
  const __m512i c = _mm512_shuffle_i32x4(x[0], x[1], 0xee);
  const __m512i d = _mm512_shuffle_i32x4(x[2], x[3], 0xee);
  x[0] = _mm512_shuffle_i32x4(a, b, 0x88);
  x[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
  x[2] = _mm512_shuffle_i32x4(c, d, 0x88);
  x[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

// o [n_dims, at most 64] = o * correction + weights . interleaved bytes of n_rows rows.
QUIRE_INLINE void add_value_bytes(const __m512i* bytes, const ByteWeights& weights, int n_rows,
                                  float book_scale, float correction, int n_dims, float* o) {
  __m512i sums[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) sums[v] = _mm512_set1_epi32(-128 * weights.sum);
  for (int r = 0; r < n_rows; r += 4) {
    int32_t four;
    memcpy(&four, weights.w + r, 4);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sums[v] = _mm512_dpbusd_epi32(sums[v], bytes[r + v], _mm512_set1_epi32(four));
  }
  order_dims(sums);
  const F32x16 scale = set1(weights.scale * book_scale);
  const F32x16 shrink = set1(correction);
  for (int v = 0; v < 4; ++v) {
    const int tail = n_dims - 16 * v;
    if (tail <= 0) break;
    float* to = o + 16 * v;
    if (tail >= 16) {
      store(to, fma(to_float({sums[v]}), scale, mul(load(to), shrink)));
    } else {
      store_partial(to, fma(to_float({sums[v]}), scale, mul(load_partial(to, tail), shrink)), tail);
    }
  }
}
