// Sixteen lanes in one zmm register. Needs F, BW, DQ, VL and VNNI.

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};
struct U8x64 {
  __m512i v;
};

QUIRE_INLINE F32x16 zero() { return {_mm512_setzero_ps()}; }
QUIRE_INLINE F32x16 set1(float x) { return {_mm512_set1_ps(x)}; }
QUIRE_INLINE F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
QUIRE_INLINE void store(float* p, F32x16 x) { _mm512_storeu_ps(p, x.v); }
QUIRE_INLINE F32x16 load_partial(const float* p, int n) {
  return {_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p)};
}
QUIRE_INLINE void store_partial(float* p, F32x16 x, int n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x.v);
}
QUIRE_INLINE F32x16 load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
}
QUIRE_INLINE F32x16 load_bf16(const uint16_t* p) {
  return {_mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16))};
}
// Bits of an fp8 in the places of an f16's say 1/256 of the number, subnormal ones too; but not what a NaN
// is.
QUIRE_INLINE F32x16 load_fp8(const uint8_t* p) {
  const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)p));
  const __m256i magnitude = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)), 7);
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
  const __mmask16 is_nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x3f80));
  const __m256i number = _mm256_mask_mov_epi16(magnitude, is_nan, _mm256_set1_epi16(0x7e00));
  return {_mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(sign, number)), _mm512_set1_ps(256.0f))};
}
QUIRE_INLINE void store_f16(uint16_t* p, F32x16 x) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
QUIRE_INLINE F32x16 load_u8(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)))};
}
QUIRE_INLINE F32x16 load_i8(const int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)))};
}
QUIRE_INLINE F32x16 add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
QUIRE_INLINE F32x16 sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
QUIRE_INLINE F32x16 mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
QUIRE_INLINE F32x16 div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
QUIRE_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
QUIRE_INLINE F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
QUIRE_INLINE F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
QUIRE_INLINE F32x16 abs(F32x16 a) { return {_mm512_abs_ps(a.v)}; }
QUIRE_INLINE F32x16 round_even(F32x16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a where x >= bound, else 0 (0 too where x is NaN).
QUIRE_INLINE F32x16 where_at_least(F32x16 x, float bound, F32x16 a) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_GE_OQ), a.v)};
}
// a in the lanes whose bit is set, else b.
QUIRE_INLINE F32x16 select_bits(uint32_t bits, F32x16 a, F32x16 b) {
  return {_mm512_mask_blend_ps((__mmask16)bits, b.v, a.v)};
}
// a * 2^n for integral n in [-127, 127].
QUIRE_INLINE F32x16 scale_by_power(F32x16 a, F32x16 n) {
  const __m512i bits = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), bits))};
}
// Lanes i and i + 8, then i and i + 4, ...: the same tree on every instruction set.
QUIRE_INLINE float reduce_add(F32x16 x) {
  __m256 y = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  z = _mm_add_ps(z, _mm_movehl_ps(z, z));
  return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
}
QUIRE_INLINE float reduce_max(F32x16 x) {
  __m256 y = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  __m128 z = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  z = _mm_max_ps(z, _mm_movehl_ps(z, z));
  return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
}

QUIRE_INLINE I32x16 izero() { return {_mm512_setzero_si512()}; }
QUIRE_INLINE I32x16 add(I32x16 x, I32x16 y) { return {_mm512_add_epi32(x.v, y.v)}; }
// 256 * high + low
QUIRE_INLINE I32x16 join(I32x16 high, I32x16 low) {
  return {_mm512_add_epi32(_mm512_slli_epi32(high.v, 8), low.v)};
}
QUIRE_INLINE int reduce_add(I32x16 x) { return _mm512_reduce_add_epi32(x.v); }
// Rounds to nearest even.
QUIRE_INLINE I32x16 to_int(F32x16 x) { return {_mm512_cvtps_epi32(x.v)}; }
QUIRE_INLINE F32x16 to_float(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
// Splits codes into bytes: code = 256 * high + low, both signed; codes lie in [-32512, 32512].
QUIRE_INLINE void store_planes(int8_t* high, int8_t* low, I32x16 codes) {
  const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(codes.v, _mm512_set1_epi32(128)), 8);
  _mm_storeu_si128((__m128i*)high, _mm512_cvtepi32_epi8(upper));
  _mm_storeu_si128((__m128i*)low, _mm512_cvtepi32_epi8(codes.v));  // the low byte is low already
}

QUIRE_INLINE U8x64 load_bytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
QUIRE_INLINE U8x64 low_nibbles(U8x64 x) { return {_mm512_and_si512(x.v, _mm512_set1_epi8(15))}; }
QUIRE_INLINE U8x64 high_nibbles(U8x64 x) {
  return {_mm512_and_si512(_mm512_srli_epi16(x.v, 4), _mm512_set1_epi8(15))};
}
// x + value in the bytes whose bit is set in the 64-bit word at p.
QUIRE_INLINE U8x64 add_where(U8x64 x, const uint8_t* p, int value) {
  uint64_t bits;
  memcpy(&bits, p, 8);
  return {_mm512_mask_add_epi8(x.v, (__mmask64)bits, x.v, _mm512_set1_epi8((char)value))};
}
// acc[lane] += sum over j of x[4 lane + j] * a[j]: one row a lane, four activations for all of them.
QUIRE_INLINE I32x16 dot4(I32x16 acc, U8x64 x, const int8_t* a) {
  int32_t four;
  memcpy(&four, a, 4);
  return {_mm512_dpbusd_epi32(acc.v, x.v, _mm512_set1_epi32(four))};
}
// Byte j of each lane as a float.
template <int j>
QUIRE_INLINE F32x16 lane_byte(U8x64 x) {
  return {_mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(x.v, 8 * j), _mm512_set1_epi32(255)))};
}
// vpdpbusd takes all 256 weights as they are.
QUIRE_INLINE I32x16 dot4_wide(I32x16 acc, U8x64 x, const int8_t* a) { return dot4(acc, x, a); }

// ---- codes in panels (panels.inl) ----

// Bits of the neighbour byte come in from above.
template <int n>
QUIRE_INLINE U8x64 shift_right(U8x64 x) {
  return {_mm512_srli_epi16(x.v, n)};
}
QUIRE_INLINE U8x64 keep_bits(U8x64 x, int mask) {
  return {_mm512_and_si512(x.v, _mm512_set1_epi8((char)mask))};
}
QUIRE_INLINE U8x64 twice(U8x64 x) { return {_mm512_add_epi8(x.v, x.v)}; }

// 16 bytes, or 16 floats, to look codes of 4 bits up in.
struct ByteTable {
  __m512i v;
};
struct FloatTable {
  __m512 v;
};
QUIRE_INLINE ByteTable byte_table(const uint8_t* entries) {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)entries))};
}
// 0 where the highest bit of a code is set.
QUIRE_INLINE U8x64 look_up(const ByteTable& table, U8x64 codes) {
  return {_mm512_shuffle_epi8(table.v, codes.v)};
}
QUIRE_INLINE FloatTable float_table(const float* entries) { return {_mm512_loadu_ps(entries)}; }
// The entry of the four bits that start at bit `bit` of each lane; vpermps looks at no others.
template <int bit>
QUIRE_INLINE F32x16 look_up_lane(const FloatTable& table, U8x64 codes) {
  return {_mm512_permutexvar_ps(_mm512_srli_epi32(codes.v, bit), table.v)};
}

// Codes of 16 bits that multiply bytes, in two planes: vpdpbusd takes bytes.
struct Multipliers {
  int8_t high[kMaxHeadDim];
  int8_t low[kMaxHeadDim];
};
QUIRE_INLINE void put_multipliers(Multipliers* m, int at, I32x16 codes) {
  store_planes(m->high + at, m->low + at, codes);
}
// Bytes as they are multiplied.
struct Factors {
  __m512i v;
};
QUIRE_INLINE Factors factors(U8x64 x) { return {x.v}; }
struct Products {
  __m512i high, low;
};
QUIRE_INLINE Products start_products(int first) { return {_mm512_setzero_si512(), _mm512_set1_epi32(first)}; }
// sum[lane] += sum over j of x[4 lane + j] * m[4 quad + j]
QUIRE_INLINE Products add_products(Products sum, const Factors& x, const Multipliers& m, int quad) {
  int32_t high, low;
  memcpy(&high, m.high + 4 * quad, 4);
  memcpy(&low, m.low + 4 * quad, 4);
  return {_mm512_dpbusd_epi32(sum.high, x.v, _mm512_set1_epi32(high)),
          _mm512_dpbusd_epi32(sum.low, x.v, _mm512_set1_epi32(low))};
}
QUIRE_INLINE I32x16 total(Products sum) { return join({sum.high}, {sum.low}); }

// Sums of signs, bytes of 0 and 2, times multipliers of one byte (panel_signs.inl).
using SignSums = I32x16;
QUIRE_INLINE SignSums no_signs() { return izero(); }
QUIRE_INLINE SignSums add_signs(SignSums sums, U8x64 signs, const int8_t* m) { return dot4(sums, signs, m); }
QUIRE_INLINE I32x16 total_signs(SignSums sums) { return sums; }

// ---- rows of bytes (row_bytes.inl) ----

QUIRE_INLINE U8x64 fill_bytes(int x) { return {_mm512_set1_epi8((char)x)}; }
QUIRE_INLINE void store_bytes(uint8_t* p, U8x64 x) { _mm512_storeu_si512(p, x.v); }
// The entries of 16 bytes at p.
QUIRE_INLINE F32x16 look_up_bytes(const FloatTable& table, const uint8_t* p) {
  return {_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)), table.v)};
}
// 64 bytes to look codes of 6 bits up in, as words for vpermi2w, which looks at no other bits: once in the
// lower byte for the even bytes of the codes, once in the upper for the odd ones.
struct Table64 {
  __m512i low[2], high[2];
};
QUIRE_INLINE Table64 table_64(const uint8_t* entries) {
  Table64 table;
  for (int i = 0; i < 2; ++i) {
    table.low[i] = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)(entries + 32 * i)));
    table.high[i] = _mm512_slli_epi16(table.low[i], 8);
  }
  return table;
}
// Where codes find theirs in any such table; their upper bits may be anything.
struct Places64 {
  __m512i even, odd;
};
QUIRE_INLINE Places64 places_64(U8x64 codes) { return {codes.v, _mm512_srli_epi16(codes.v, 8)}; }
QUIRE_INLINE U8x64 look_up(const Table64& table, const Places64& places) {
  const __m512i even = _mm512_permutex2var_epi16(table.low[0], places.even, table.low[1]);
  const __m512i odd = _mm512_permutex2var_epi16(table.high[0], places.odd, table.high[1]);
  return {_mm512_or_si512(even, odd)};
}
// -x in the bytes whose code has its highest bit set.
QUIRE_INLINE U8x64 negate_by_top_bit(U8x64 codes, U8x64 x) {
  const __mmask64 top = _mm512_movepi8_mask(codes.v);
  return {_mm512_mask_sub_epi8(x.v, top, _mm512_setzero_si512(), x.v)};
}
// Units of `width` bytes of x and y in turn, from the lower (upper) half of each 16 bytes.
template <int width>
QUIRE_INLINE U8x64 zip_low(U8x64 x, U8x64 y) {
  if constexpr (width == 1) return {_mm512_unpacklo_epi8(x.v, y.v)};
  if constexpr (width == 2) return {_mm512_unpacklo_epi16(x.v, y.v)};
  if constexpr (width == 4) return {_mm512_unpacklo_epi32(x.v, y.v)};
  if constexpr (width == 8) return {_mm512_unpacklo_epi64(x.v, y.v)};
}
template <int width>
QUIRE_INLINE U8x64 zip_high(U8x64 x, U8x64 y) {
  if constexpr (width == 1) return {_mm512_unpackhi_epi8(x.v, y.v)};
  if constexpr (width == 2) return {_mm512_unpackhi_epi16(x.v, y.v)};
  if constexpr (width == 4) return {_mm512_unpackhi_epi32(x.v, y.v)};
  if constexpr (width == 8) return {_mm512_unpackhi_epi64(x.v, y.v)};
}
// A 4 x 4 transposition of parts of 16 bytes.
template <class X>  // U8x64 or I32x16
QUIRE_INLINE void transpose_parts(X* x) {
  const __m512i a = _mm512_shuffle_i32x4(x[0].v, x[1].v, 0x44);
  const __m512i b = _mm512_shuffle_i32x4(x[2].v, x[3].v, 0x44);
  const __m512i c = _mm512_shuffle_i32x4(x[0].v, x[1].v, 0xee);
  const __m512i d = _mm512_shuffle_i32x4(x[2].v, x[3].v, 0xee);
  x[0].v = _mm512_shuffle_i32x4(a, b, 0x88);
  x[1].v = _mm512_shuffle_i32x4(a, b, 0xdd);
  x[2].v = _mm512_shuffle_i32x4(c, d, 0x88);
  x[3].v = _mm512_shuffle_i32x4(c, d, 0xdd);
}

// ---- single rows (single_rows.inl) ----

QUIRE_INLINE I32x16 iset1(int x) { return {_mm512_set1_epi32(x)}; }
QUIRE_INLINE I32x16 sub(I32x16 x, I32x16 y) { return {_mm512_sub_epi32(x.v, y.v)}; }
QUIRE_INLINE U8x64 as_bytes(I32x16 x) { return {x.v}; }
// Queries computed together, registers of 16 outputs, and rows of keys: as many as give chains of sums side
// by side, in registers.
constexpr int kSingleQueries = 1;
constexpr int kSingleVectors = 4;
constexpr int kSingleUnroll = 16;
// Codes of one byte that multiply bytes.
constexpr float kLargestSingle = 127.0f;
struct SingleMultipliers {
  int8_t codes[kMaxHeadDim];
};
QUIRE_INLINE void put_multipliers(SingleMultipliers* m, int at, I32x16 codes) {
  _mm_storeu_si128((__m128i*)(m->codes + at), _mm512_cvtepi32_epi8(codes.v));
}
// sum[lane] += sum over j of x[4 lane + j] * m[4 quad + j]
QUIRE_INLINE I32x16 add_single(I32x16 sum, const Factors& x, const SingleMultipliers& m, int quad) {
  int32_t four;
  memcpy(&four, m.codes + 4 * quad, 4);
  return {_mm512_dpbusd_epi32(sum.v, x.v, _mm512_set1_epi32(four))};
}
// The multipliers of 64 dims, each for its own byte.
struct LaneMultipliers {
  __m512i v;
};
QUIRE_INLINE LaneMultipliers lane_multipliers(const SingleMultipliers& m, int at) {
  return {_mm512_loadu_si512(m.codes + at)};
}
// Sums of a row, in parts that sum_each() adds up.
using LaneSums = I32x16;
QUIRE_INLINE LaneSums no_sums() { return izero(); }
QUIRE_INLINE LaneSums add_lanes(LaneSums sums, const Factors& x, const LaneMultipliers& m) {
  return {_mm512_dpbusd_epi32(sums.v, x.v, m.v)};
}
// The sum of each of 16, as 16 lanes in order.
QUIRE_INLINE I32x16 sum_each(const LaneSums* x) {
  __m512i a[8], b[4], c[2];
  for (int i = 0; i < 8; ++i) {
    a[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(x[2 * i].v, x[2 * i + 1].v),
                            _mm512_unpackhi_epi32(x[2 * i].v, x[2 * i + 1].v));
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
  return {_mm512_add_epi32(_mm512_shuffle_i32x4(c[0], c[1], 0x88), _mm512_shuffle_i32x4(c[0], c[1], 0xdd))};
}
// The lanes whose bit is set, side by side; up to 16 floats are written. Returns how many count.
QUIRE_INLINE int store_where(float* p, F32x16 x, uint32_t bits) {
  _mm512_storeu_ps(p, _mm512_maskz_compress_ps((__mmask16)bits, x.v));
  return __builtin_popcount(bits);
}
// Sixteen pairs of f16: the first of each, and the second.
QUIRE_INLINE void load_f16_pairs(const uint32_t* p, F32x16* first, F32x16* second) {
  const __m512i x = _mm512_loadu_si512(p);
  first->v = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
  second->v = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16)));
}

// ---- the index (index.inl) ----

// Pages whose sums of bytes stay in registers.
constexpr int kIndexPages = 4;
struct I16x32 {
  __m512i v;
};
QUIRE_INLINE I16x32 load_words(const int16_t* p) { return {_mm512_loadu_si512(p)}; }
QUIRE_INLINE void store(int16_t* p, I16x32 x) { _mm512_storeu_si512(p, x.v); }
QUIRE_INLINE I16x32 set_words(int x) { return {_mm512_set1_epi16((int16_t)x)}; }
QUIRE_INLINE I16x32 as_words(U8x64 x) { return {x.v}; }
QUIRE_INLINE U8x64 add_bytes(U8x64 x, U8x64 y) { return {_mm512_add_epi8(x.v, y.v)}; }
QUIRE_INLINE I16x32 add(I16x32 x, I16x32 y) { return {_mm512_add_epi16(x.v, y.v)}; }
QUIRE_INLINE I16x32 sub_saturated(I16x32 x, I16x32 y) { return {_mm512_subs_epi16(x.v, y.v)}; }
QUIRE_INLINE I16x32 max(I16x32 x, I16x32 y) { return {_mm512_max_epi16(x.v, y.v)}; }
// Rounds down.
QUIRE_INLINE I16x32 sixteenth(I16x32 x) { return {_mm512_srai_epi16(x.v, 4)}; }
// x * y / 2^15, rounded to the nearest.
QUIRE_INLINE I16x32 multiply_high(I16x32 x, I16x32 y) { return {_mm512_mulhrs_epi16(x.v, y.v)}; }
// What zip_low<1>() and zip_high<1>() of bytes were, saturated.
QUIRE_INLINE U8x64 pack_words(I16x32 low, I16x32 high) { return {_mm512_packus_epi16(low.v, high.v)}; }
// 64 floats, saturated, as words in the order of zip_low<1>() and zip_high<1>() of their bytes.
QUIRE_INLINE void words_of(const F32x16* x, I16x32* low, I16x32* high) {
  __m256i w[4];
  for (int v = 0; v < 4; ++v) w[v] = _mm512_cvtsepi32_epi16(to_int(x[v]).v);
  const __m512i a = _mm512_inserti64x4(_mm512_castsi256_si512(w[0]), w[1], 1);
  const __m512i b = _mm512_inserti64x4(_mm512_castsi256_si512(w[2]), w[3], 1);
  low->v = _mm512_shuffle_i32x4(a, b, 0x88);
  high->v = _mm512_shuffle_i32x4(a, b, 0xdd);
}
// Words as the upper halves of floats: the even ones, and the odd ones.
QUIRE_INLINE F32x16 even_floats(I16x32 x) { return {_mm512_castsi512_ps(_mm512_slli_epi32(x.v, 16))}; }
QUIRE_INLINE F32x16 odd_floats(I16x32 x) {
  return {_mm512_castsi512_ps(_mm512_and_si512(x.v, _mm512_set1_epi32((int)0xffff0000u)))};
}
// Of sixteen words; the machine knows the least of unsigned ones.
QUIRE_INLINE int reduce_max_words(__m256i x) {
  __m128i least = _mm_max_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  least = _mm_xor_si128(least, _mm_set1_epi16(0x7fff));  // order reversed, unsigned
  return (int16_t)(_mm_extract_epi16(_mm_minpos_epu16(least), 0) ^ 0x7fff);
}
QUIRE_INLINE int reduce_max(I16x32 x) {
  return reduce_max_words(_mm256_max_epi16(_mm512_castsi512_si256(x.v), _mm512_extracti64x4_epi64(x.v, 1)));
}
// One bit a byte: is it `least` at least?
QUIRE_INLINE uint64_t bytes_at_least(U8x64 x, int least) {
  return _mm512_cmpge_epu8_mask(x.v, _mm512_set1_epi8((char)least));
}
