// Sixteen lanes in two ymm registers. Needs AVX2, FMA and F16C.

struct F32x16 {
  __m256 a, b;
};
struct I32x16 {
  __m256i a, b;
};
struct U8x64 {
  __m256i a, b;
};

QUIRE_INLINE F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
QUIRE_INLINE F32x16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
QUIRE_INLINE F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
QUIRE_INLINE void store(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
QUIRE_INLINE F32x16 load_partial(const float* p, int n) {
  float lanes[16] = {0};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
QUIRE_INLINE void store_partial(float* p, F32x16 x, int n) {
  float lanes[16];
  store(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
QUIRE_INLINE F32x16 load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
QUIRE_INLINE __m256 half_bf16(const uint16_t* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}
QUIRE_INLINE F32x16 load_bf16(const uint16_t* p) { return {half_bf16(p), half_bf16(p + 8)}; }
// Bits of an fp8 in the places of an f16's say 1/256 of the number, subnormal ones too; but not what a NaN
// is.
QUIRE_INLINE F32x16 load_fp8(const uint8_t* p) {
  const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)p));
  const __m256i magnitude = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)), 7);
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
  const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3f80));
  const __m256i nan = _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7e00));
  // A NaN's payload goes: all of them are the same.
  const __m256i half = _mm256_or_si256(sign, _mm256_or_si256(nan, _mm256_andnot_si256(is_nan, magnitude)));
  const __m256 unit = _mm256_set1_ps(256.0f);
  return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), unit),
          _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), unit)};
}
QUIRE_INLINE void store_f16(uint16_t* p, F32x16 x) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
QUIRE_INLINE F32x16 load_u8(const uint8_t* p) {
  const __m128i x = _mm_loadu_si128((const __m128i*)p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)))};
}
QUIRE_INLINE F32x16 load_i8(const int8_t* p) {
  const __m128i x = _mm_loadu_si128((const __m128i*)p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
}
QUIRE_INLINE F32x16 add(F32x16 x, F32x16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
QUIRE_INLINE F32x16 sub(F32x16 x, F32x16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
QUIRE_INLINE F32x16 mul(F32x16 x, F32x16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
QUIRE_INLINE F32x16 div(F32x16 x, F32x16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
QUIRE_INLINE F32x16 fma(F32x16 x, F32x16 y, F32x16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
QUIRE_INLINE F32x16 max(F32x16 x, F32x16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
QUIRE_INLINE F32x16 min(F32x16 x, F32x16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
QUIRE_INLINE F32x16 abs(F32x16 x) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
QUIRE_INLINE F32x16 round_even(F32x16 x) {
  return {_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a where x >= bound, else 0 (0 too where x is NaN).
QUIRE_INLINE F32x16 where_at_least(F32x16 x, float bound, F32x16 a) {
  const __m256 limit = _mm256_set1_ps(bound);
  return {_mm256_and_ps(_mm256_cmp_ps(x.a, limit, _CMP_GE_OQ), a.a),
          _mm256_and_ps(_mm256_cmp_ps(x.b, limit, _CMP_GE_OQ), a.b)};
}
QUIRE_INLINE __m256 bits_to_mask(uint32_t bits) {
  const __m256i one_bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32((int)bits), one_bit);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, one_bit));
}
// x in the lanes whose bit is set, else y.
QUIRE_INLINE F32x16 select_bits(uint32_t bits, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.a, x.a, bits_to_mask(bits)),
          _mm256_blendv_ps(y.b, x.b, bits_to_mask(bits >> 8))};
}
QUIRE_INLINE __m256 half_scale(__m256 a, __m256 n) {
  const __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), bits));
}
// a * 2^n for integral n in [-127, 127].
QUIRE_INLINE F32x16 scale_by_power(F32x16 x, F32x16 n) {
  return {half_scale(x.a, n.a), half_scale(x.b, n.b)};
}
// Lanes i and i + 8, then i and i + 4, ...: the same tree on every instruction set.
QUIRE_INLINE float reduce_add(F32x16 x) {
  const __m256 y = _mm256_add_ps(x.a, x.b);
  __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  z = _mm_add_ps(z, _mm_movehl_ps(z, z));
  return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
}
QUIRE_INLINE float reduce_max(F32x16 x) {
  const __m256 y = _mm256_max_ps(x.a, x.b);
  __m128 z = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  z = _mm_max_ps(z, _mm_movehl_ps(z, z));
  return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
}

QUIRE_INLINE I32x16 izero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
QUIRE_INLINE I32x16 add(I32x16 x, I32x16 y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
// 256 * high + low
QUIRE_INLINE I32x16 join(I32x16 x, I32x16 y) {
  return {_mm256_add_epi32(_mm256_slli_epi32(x.a, 8), y.a), _mm256_add_epi32(_mm256_slli_epi32(x.b, 8), y.b)};
}
QUIRE_INLINE int reduce_add(I32x16 x) {
  int lanes[8];
  _mm256_storeu_si256((__m256i*)lanes, _mm256_add_epi32(x.a, x.b));
  return lanes[0] + lanes[1] + lanes[2] + lanes[3] + lanes[4] + lanes[5] + lanes[6] + lanes[7];
}
// Rounds to nearest even.
QUIRE_INLINE I32x16 to_int(F32x16 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
QUIRE_INLINE F32x16 to_float(I32x16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
// The low byte of each lane.
QUIRE_INLINE void store_low_bytes(int8_t* p, __m256i a, __m256i b) {
  const __m256i pick = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                        0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  // Each 128-bit half now starts with its four bytes; dwords 0 and 4 hold them.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 1, 1, 1, 1, 1);
  const __m256i low_a = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(a, pick), order);
  const __m256i low_b = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(b, pick), order);
  _mm_storel_epi64((__m128i*)p, _mm256_castsi256_si128(low_a));
  _mm_storel_epi64((__m128i*)(p + 8), _mm256_castsi256_si128(low_b));
}
// Splits codes into bytes: code = 256 * high + low, both signed; codes lie in [-32512, 32512].
QUIRE_INLINE void store_planes(int8_t* high, int8_t* low, I32x16 codes) {
  const __m256i half = _mm256_set1_epi32(128);
  store_low_bytes(high, _mm256_srai_epi32(_mm256_add_epi32(codes.a, half), 8),
                  _mm256_srai_epi32(_mm256_add_epi32(codes.b, half), 8));
  store_low_bytes(low, codes.a, codes.b);  // the low byte is low already
}

QUIRE_INLINE U8x64 load_bytes(const uint8_t* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 32))};
}
QUIRE_INLINE U8x64 low_nibbles(U8x64 x) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
}
QUIRE_INLINE U8x64 high_nibbles(U8x64 x) {
  return low_nibbles({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)});
}
// One byte of 0 or 255 per bit of bytes first..first + 3 of each eight: those are spread over the lanes, and
// one bit is tested in each.
template <int first>
QUIRE_INLINE __m256i bits_to_bytes(__m256i bits) {
  constexpr char a = first, b = first + 1, c = first + 2, d = first + 3;
  const __m256i spread = _mm256_setr_epi8(a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b,  //
                                          c, c, c, c, c, c, c, c, d, d, d, d, d, d, d, d);
  const __m256i one_bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
  return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(bits, spread), one_bit), one_bit);
}
// x + value in the bytes that are 255 in `where`, of 0 and 255.
QUIRE_INLINE __m256i half_add_where(__m256i x, __m256i where, int value) {
  if (value == 1) return _mm256_sub_epi8(x, where);
  return _mm256_add_epi8(x, _mm256_and_si256(where, _mm256_set1_epi8((char)value)));
}
// x + value in the bytes whose bit is set in the 64-bit word at p.
QUIRE_INLINE U8x64 add_where(U8x64 x, const uint8_t* p, int value) {
  const __m256i bits = _mm256_set1_epi64x((long long)load_word(p));
  return {half_add_where(x.a, bits_to_bytes<0>(bits), value),
          half_add_where(x.b, bits_to_bytes<4>(bits), value)};
}
// Unsigned weights up to 255 would overflow the 16-bit sums of vpmaddubsw, so the product is taken as
// |a| (unsigned) times the weight only where weights stay below 128; see dot4_wide for the others.
QUIRE_INLINE __m256i half_dot4(__m256i acc, __m256i x, __m256i a) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(x, a), _mm256_set1_epi16(1)));
}
// acc[lane] += sum over j of x[4 lane + j] * a[j], exact for every byte of x and a in [-127, 127]:
// x = (x & 127) + (x & 128), and each part keeps the 16-bit sums in range
// (2 * 127 * 127 = 32258; the second part is 128 * a, taken as 64 * a twice).
QUIRE_INLINE __m256i half_dot4_wide(__m256i acc, __m256i x, __m256i a) {
  acc = half_dot4(acc, _mm256_and_si256(x, _mm256_set1_epi8(127)), a);
  const __m256i top = _mm256_and_si256(_mm256_srli_epi16(x, 1), _mm256_set1_epi8(64));
  const __m256i sums = _mm256_maddubs_epi16(top, a);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(sums, _mm256_set1_epi16(2)));
}
QUIRE_INLINE I32x16 dot4(I32x16 acc, U8x64 x, const int8_t* a) {
  int32_t four;
  memcpy(&four, a, 4);
  const __m256i activations = _mm256_set1_epi32(four);
  return {half_dot4(acc.a, x.a, activations), half_dot4(acc.b, x.b, activations)};
}
QUIRE_INLINE I32x16 dot4_wide(I32x16 acc, U8x64 x, const int8_t* a) {
  int32_t four;
  memcpy(&four, a, 4);
  const __m256i activations = _mm256_set1_epi32(four);
  return {half_dot4_wide(acc.a, x.a, activations), half_dot4_wide(acc.b, x.b, activations)};
}
// Byte j of each lane as a float.
template <int j>
QUIRE_INLINE F32x16 lane_byte(U8x64 x) {
  const __m256i mask = _mm256_set1_epi32(255);
  return {_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(x.a, 8 * j), mask)),
          _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(x.b, 8 * j), mask))};
}

// ---- codes in panels (panels.inl) ----

// Bits of the neighbour byte come in from above.
template <int n>
QUIRE_INLINE U8x64 shift_right(U8x64 x) {
  return {_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)};
}
QUIRE_INLINE U8x64 keep_bits(U8x64 x, int mask) {
  const __m256i bits = _mm256_set1_epi8((char)mask);
  return {_mm256_and_si256(x.a, bits), _mm256_and_si256(x.b, bits)};
}
QUIRE_INLINE U8x64 twice(U8x64 x) { return {_mm256_add_epi8(x.a, x.a), _mm256_add_epi8(x.b, x.b)}; }

// 16 bytes, or 16 floats, to look codes of 4 bits up in.
struct ByteTable {
  __m256i v;
};
struct FloatTable {
  __m256 low, high;
};
QUIRE_INLINE ByteTable byte_table(const uint8_t* entries) {
  return {_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)entries))};
}
// 0 where the highest bit of a code is set.
QUIRE_INLINE U8x64 look_up(const ByteTable& table, U8x64 codes) {
  return {_mm256_shuffle_epi8(table.v, codes.a), _mm256_shuffle_epi8(table.v, codes.b)};
}
QUIRE_INLINE FloatTable float_table(const float* entries) {
  return {_mm256_loadu_ps(entries), _mm256_loadu_ps(entries + 8)};
}
// vpermps looks at the lowest three bits of each lane; the fourth, moved to the sign, picks the half.
QUIRE_INLINE __m256 half_look_up(const FloatTable& table, __m256i codes) {
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, codes),
                          _mm256_permutevar8x32_ps(table.high, codes),
                          _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
}
// The entry of the four bits that start at bit `bit` of each lane.
template <int bit>
QUIRE_INLINE F32x16 look_up_lane(const FloatTable& table, U8x64 codes) {
  return {half_look_up(table, _mm256_srli_epi32(codes.a, bit)),
          half_look_up(table, _mm256_srli_epi32(codes.b, bit))};
}

// Codes of 16 bits that multiply bytes. vpmaddwd adds products of neighbours, and bytes 0 and 2, 1 and 3 of a
// quad become words that are neighbours by a mask and a shift: so codes 0, 2, 1, 3 of a quad lie in that
// order.
struct Multipliers {
  int16_t codes[kMaxHeadDim];
};
QUIRE_INLINE void put_multipliers(Multipliers* m, int at, I32x16 codes) {
  const __m256i packed = _mm256_packs_epi32(codes.a, codes.b);  // halves in turn: a0-3 b0-3 a4-7 b4-7
  const __m256i ordered = _mm256_permute4x64_epi64(packed, 0xd8);
  const __m256i low = _mm256_shufflelo_epi16(ordered, 0xd8);
  _mm256_storeu_si256((__m256i*)(m->codes + at), _mm256_shufflehi_epi16(low, 0xd8));
}
// Bytes as they are multiplied.
struct Factors {
  __m256i even_a, odd_a, even_b, odd_b;
};
QUIRE_INLINE Factors factors(U8x64 x) {
  const __m256i mask = _mm256_set1_epi16(255);
  return {_mm256_and_si256(x.a, mask), _mm256_srli_epi16(x.a, 8), _mm256_and_si256(x.b, mask),
          _mm256_srli_epi16(x.b, 8)};
}
struct Products {
  __m256i a, b;
};
QUIRE_INLINE Products start_products(int first) {
  return {_mm256_set1_epi32(first), _mm256_set1_epi32(first)};
}
// sum[lane] += sum over j of x[4 lane + j] * m[4 quad + j]. 256 bytes of 255 times 32512 stay below 2^31.
QUIRE_INLINE Products add_products(Products sum, const Factors& x, const Multipliers& m, int quad) {
  int32_t pairs[2];
  memcpy(pairs, m.codes + 4 * quad, 8);
  const __m256i even = _mm256_set1_epi32(pairs[0]);
  const __m256i odd = _mm256_set1_epi32(pairs[1]);
  sum.a = _mm256_add_epi32(sum.a, _mm256_madd_epi16(x.even_a, even));
  sum.b = _mm256_add_epi32(sum.b, _mm256_madd_epi16(x.even_b, even));
  sum.a = _mm256_add_epi32(sum.a, _mm256_madd_epi16(x.odd_a, odd));
  sum.b = _mm256_add_epi32(sum.b, _mm256_madd_epi16(x.odd_b, odd));
  return sum;
}
QUIRE_INLINE I32x16 total(Products sum) { return {sum.a, sum.b}; }

// Sums of signs, bytes of 0 and 2, times multipliers of one byte (panel_signs.inl): of two bytes each, in 16
// bits, where 64 steps of 2 * 2 * 127 have room.
struct SignSums {
  __m256i a, b;
};
QUIRE_INLINE SignSums no_signs() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
QUIRE_INLINE SignSums add_signs(SignSums sums, U8x64 signs, const int8_t* m) {
  int32_t four;
  memcpy(&four, m, 4);
  const __m256i multipliers = _mm256_set1_epi32(four);
  return {_mm256_add_epi16(sums.a, _mm256_maddubs_epi16(signs.a, multipliers)),
          _mm256_add_epi16(sums.b, _mm256_maddubs_epi16(signs.b, multipliers))};
}
QUIRE_INLINE I32x16 total_signs(SignSums sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(sums.a, ones), _mm256_madd_epi16(sums.b, ones)};
}

// ---- rows of bytes (row_bytes.inl) ----

QUIRE_INLINE U8x64 fill_bytes(int x) { return {_mm256_set1_epi8((char)x), _mm256_set1_epi8((char)x)}; }
QUIRE_INLINE void store_bytes(uint8_t* p, U8x64 x) {
  _mm256_storeu_si256((__m256i*)p, x.a);
  _mm256_storeu_si256((__m256i*)(p + 32), x.b);
}
QUIRE_INLINE U8x64 add_bytes(U8x64 x, U8x64 y) {
  return {_mm256_add_epi8(x.a, y.a), _mm256_add_epi8(x.b, y.b)};
}
QUIRE_INLINE U8x64 or_bytes(U8x64 x, U8x64 y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
QUIRE_INLINE U8x64 xor_bytes(U8x64 x, U8x64 y) {
  return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
// The entries of 16 bytes at p.
QUIRE_INLINE F32x16 look_up_bytes(const FloatTable& table, const uint8_t* p) {
  const __m128i codes = _mm_loadu_si128((const __m128i*)p);
  return {half_look_up(table, _mm256_cvtepu8_epi32(codes)),
          half_look_up(table, _mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8)))};
}
// 64 bytes to look codes of 6 bits up in, as four tables of 16.
struct Table64 {
  ByteTable part[4];
};
QUIRE_INLINE Table64 table_64(const uint8_t* entries) {
  Table64 table;
  for (int k = 0; k < 4; ++k) table.part[k] = byte_table(entries + 16 * k);
  return table;
}
// Where codes find theirs in any such table; their upper bits may be anything. In each part: below 128, and
// of the four bits vpshufb looks at, where this is the part; from 128 on, where it looks up 0, elsewhere.
struct Places64 {
  U8x64 part[4];
};
QUIRE_INLINE Places64 places_64(U8x64 codes) {
  const U8x64 six = keep_bits(codes, 63);
  Places64 places;
  for (int k = 0; k < 4; ++k) {
    places.part[k] = add_bytes(k == 0 ? six : xor_bytes(six, fill_bytes(16 * k)), fill_bytes(112));
  }
  return places;
}
QUIRE_INLINE U8x64 look_up(const Table64& table, const Places64& places) {
  U8x64 found = look_up(table.part[0], places.part[0]);
  for (int k = 1; k < 4; ++k) found = or_bytes(found, look_up(table.part[k], places.part[k]));
  return found;
}
// -x in the bytes whose code has its highest bit set.
QUIRE_INLINE U8x64 negate_by_top_bit(U8x64 codes, U8x64 x) {
  const U8x64 signs = or_bytes(codes, fill_bytes(1));  // vpsignb makes 0 of bytes whose sign is that of 0
  return {_mm256_sign_epi8(x.a, signs.a), _mm256_sign_epi8(x.b, signs.b)};
}
// Units of `width` bytes of x and y in turn, from the lower (upper) half of each 16 bytes.
template <int width>
QUIRE_INLINE U8x64 zip_low(U8x64 x, U8x64 y) {
  if constexpr (width == 1) return {_mm256_unpacklo_epi8(x.a, y.a), _mm256_unpacklo_epi8(x.b, y.b)};
  if constexpr (width == 2) return {_mm256_unpacklo_epi16(x.a, y.a), _mm256_unpacklo_epi16(x.b, y.b)};
  if constexpr (width == 4) return {_mm256_unpacklo_epi32(x.a, y.a), _mm256_unpacklo_epi32(x.b, y.b)};
  if constexpr (width == 8) return {_mm256_unpacklo_epi64(x.a, y.a), _mm256_unpacklo_epi64(x.b, y.b)};
}
template <int width>
QUIRE_INLINE U8x64 zip_high(U8x64 x, U8x64 y) {
  if constexpr (width == 1) return {_mm256_unpackhi_epi8(x.a, y.a), _mm256_unpackhi_epi8(x.b, y.b)};
  if constexpr (width == 2) return {_mm256_unpackhi_epi16(x.a, y.a), _mm256_unpackhi_epi16(x.b, y.b)};
  if constexpr (width == 4) return {_mm256_unpackhi_epi32(x.a, y.a), _mm256_unpackhi_epi32(x.b, y.b)};
  if constexpr (width == 8) return {_mm256_unpackhi_epi64(x.a, y.a), _mm256_unpackhi_epi64(x.b, y.b)};
}
// A 4 x 4 transposition of parts of 16 bytes.
template <class X>  // U8x64 or I32x16
QUIRE_INLINE void transpose_parts(X* x) {
  const X a = x[0], b = x[1], c = x[2], d = x[3];
  x[0] = {_mm256_permute2x128_si256(a.a, b.a, 0x20), _mm256_permute2x128_si256(c.a, d.a, 0x20)};
  x[1] = {_mm256_permute2x128_si256(a.a, b.a, 0x31), _mm256_permute2x128_si256(c.a, d.a, 0x31)};
  x[2] = {_mm256_permute2x128_si256(a.b, b.b, 0x20), _mm256_permute2x128_si256(c.b, d.b, 0x20)};
  x[3] = {_mm256_permute2x128_si256(a.b, b.b, 0x31), _mm256_permute2x128_si256(c.b, d.b, 0x31)};
}

// ---- single rows (single_rows.inl) ----

QUIRE_INLINE I32x16 iset1(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
QUIRE_INLINE I32x16 sub(I32x16 x, I32x16 y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
QUIRE_INLINE U8x64 as_bytes(I32x16 x) { return {x.a, x.b}; }
// Queries computed together, which share what makes bytes factors; registers of 16 outputs; rows of keys.
constexpr int kSingleQueries = 4;
constexpr int kSingleVectors = 1;
constexpr int kSingleUnroll = 1;
// Bytes are multiplied as words here, so multipliers are words too.
constexpr float kLargestSingle = 32512.0f;
using SingleMultipliers = Multipliers;
// sum[lane] += sum over j of x[4 lane + j] * m[4 quad + j]
QUIRE_INLINE I32x16 add_single(I32x16 sum, const Factors& x, const SingleMultipliers& m, int quad) {
  const Products products = add_products({sum.a, sum.b}, x, m, quad);
  return {products.a, products.b};
}
// The multipliers of 64 dims, each for its own byte.
using LaneMultipliers = Factors;
// From quads of two pairs, even and odd, to eight pairs a register.
QUIRE_INLINE void split_pairs(const int16_t* codes, __m256i* even, __m256i* odd) {
  const __m256 low = _mm256_loadu_ps((const float*)codes);
  const __m256 high = _mm256_loadu_ps((const float*)(codes + 16));
  // Quads 0 1 4 5 | 2 3 6 7, and from there in order.
  *even = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(low, high, 0x88)), 0xd8);
  *odd = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xdd)), 0xd8);
}
QUIRE_INLINE LaneMultipliers lane_multipliers(const SingleMultipliers& m, int at) {
  LaneMultipliers lanes;
  split_pairs(m.codes + at, &lanes.even_a, &lanes.odd_a);
  split_pairs(m.codes + at + 32, &lanes.even_b, &lanes.odd_b);
  return lanes;
}
// Sums of a row, in parts that sum_each() adds up.
struct LaneSums {
  __m256i v;
};
QUIRE_INLINE LaneSums no_sums() { return {_mm256_setzero_si256()}; }
QUIRE_INLINE LaneSums add_lanes(LaneSums sums, const Factors& x, const LaneMultipliers& m) {
  const __m256i a =
      _mm256_add_epi32(_mm256_madd_epi16(x.even_a, m.even_a), _mm256_madd_epi16(x.odd_a, m.odd_a));
  const __m256i b =
      _mm256_add_epi32(_mm256_madd_epi16(x.even_b, m.even_b), _mm256_madd_epi16(x.odd_b, m.odd_b));
  return {_mm256_add_epi32(sums.v, _mm256_add_epi32(a, b))};
}
// The sum of each of 8, as 8 lanes in order.
QUIRE_INLINE __m256i sum_each_of_8(const LaneSums* x) {
  __m256i a[4], b[2];
  for (int i = 0; i < 4; ++i) {
    a[i] = _mm256_add_epi32(_mm256_unpacklo_epi32(x[2 * i].v, x[2 * i + 1].v),
                            _mm256_unpackhi_epi32(x[2 * i].v, x[2 * i + 1].v));
  }
  for (int i = 0; i < 2; ++i) {
    b[i] = _mm256_add_epi32(_mm256_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                            _mm256_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
  }
  return _mm256_add_epi32(_mm256_permute2x128_si256(b[0], b[1], 0x20),
                          _mm256_permute2x128_si256(b[0], b[1], 0x31));
}
// The same of each of 16.
QUIRE_INLINE I32x16 sum_each(const LaneSums* x) { return {sum_each_of_8(x), sum_each_of_8(x + 8)}; }

// Where the bits set in a byte lie, one after another.
struct BitPlaces {
  uint8_t of[256][8];
};
constexpr BitPlaces bit_places() {
  BitPlaces places = {};
  for (int byte = 0; byte < 256; ++byte) {
    for (int bit = 0, n = 0; bit < 8; ++bit) {
      if (byte >> bit & 1) places.of[byte][n++] = (uint8_t)bit;
    }
  }
  return places;
}
constexpr BitPlaces kBitPlaces = bit_places();
QUIRE_INLINE int half_store_where(float* p, __m256 x, uint32_t bits) {
  const __m256i places = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)kBitPlaces.of[bits]));
  _mm256_storeu_ps(p, _mm256_permutevar8x32_ps(x, places));
  return __builtin_popcount(bits);
}
// The lanes whose bit is set, side by side; up to 16 floats are written. Returns how many count.
QUIRE_INLINE int store_where(float* p, F32x16 x, uint32_t bits) {
  const int n = half_store_where(p, x.a, bits & 255u);
  return n + half_store_where(p + n, x.b, bits >> 8);
}
// Sixteen pairs of f16: the first of each, and the second.
QUIRE_INLINE void load_f16_pairs(const uint32_t* p, F32x16* first, F32x16* second) {
  const __m256i a = _mm256_loadu_si256((const __m256i*)p);
  const __m256i b = _mm256_loadu_si256((const __m256i*)(p + 8));
  const __m256i lower = _mm256_set1_epi32(0xffff);
  uint16_t halves[2][16];
  const __m256i even = _mm256_packus_epi32(_mm256_and_si256(a, lower), _mm256_and_si256(b, lower));
  const __m256i odd = _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
  _mm256_storeu_si256((__m256i*)halves[0], _mm256_permute4x64_epi64(even, 0xd8));
  _mm256_storeu_si256((__m256i*)halves[1], _mm256_permute4x64_epi64(odd, 0xd8));
  *first = load_f16(halves[0]);
  *second = load_f16(halves[1]);
}

// ---- the index (index.inl) ----

// Pages whose sums of bytes stay in registers.
constexpr int kIndexPages = 1;
struct I16x32 {
  __m256i a, b;
};
QUIRE_INLINE I16x32 load_words(const int16_t* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 16))};
}
QUIRE_INLINE void store(int16_t* p, I16x32 x) {
  _mm256_storeu_si256((__m256i*)p, x.a);
  _mm256_storeu_si256((__m256i*)(p + 16), x.b);
}
QUIRE_INLINE I16x32 set_words(int x) {
  return {_mm256_set1_epi16((int16_t)x), _mm256_set1_epi16((int16_t)x)};
}
QUIRE_INLINE I16x32 as_words(U8x64 x) { return {x.a, x.b}; }
QUIRE_INLINE I16x32 add(I16x32 x, I16x32 y) {
  return {_mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b)};
}
QUIRE_INLINE I16x32 sub_saturated(I16x32 x, I16x32 y) {
  return {_mm256_subs_epi16(x.a, y.a), _mm256_subs_epi16(x.b, y.b)};
}
QUIRE_INLINE I16x32 max(I16x32 x, I16x32 y) {
  return {_mm256_max_epi16(x.a, y.a), _mm256_max_epi16(x.b, y.b)};
}
// Rounds down.
QUIRE_INLINE I16x32 sixteenth(I16x32 x) { return {_mm256_srai_epi16(x.a, 4), _mm256_srai_epi16(x.b, 4)}; }
// x * y / 2^15, rounded to the nearest.
QUIRE_INLINE I16x32 multiply_high(I16x32 x, I16x32 y) {
  return {_mm256_mulhrs_epi16(x.a, y.a), _mm256_mulhrs_epi16(x.b, y.b)};
}
// What zip_low<1>() and zip_high<1>() of bytes were, saturated.
QUIRE_INLINE U8x64 pack_words(I16x32 low, I16x32 high) {
  return {_mm256_packus_epi16(low.a, high.a), _mm256_packus_epi16(low.b, high.b)};
}
QUIRE_INLINE __m256i half_words(F32x16 x) {  // sixteen, in order
  const I32x16 whole = to_int(x);
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(whole.a, whole.b), 0xd8);
}
// 64 floats, saturated, as words in the order of zip_low<1>() and zip_high<1>() of their bytes.
QUIRE_INLINE void words_of(const F32x16* x, I16x32* low, I16x32* high) {
  __m256i w[4];
  for (int v = 0; v < 4; ++v) w[v] = half_words(x[v]);
  *low = {_mm256_permute2x128_si256(w[0], w[1], 0x20), _mm256_permute2x128_si256(w[2], w[3], 0x20)};
  *high = {_mm256_permute2x128_si256(w[0], w[1], 0x31), _mm256_permute2x128_si256(w[2], w[3], 0x31)};
}
// Words as the upper halves of floats: the even ones, and the odd ones.
QUIRE_INLINE F32x16 even_floats(I16x32 x) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(x.a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(x.b, 16))};
}
QUIRE_INLINE F32x16 odd_floats(I16x32 x) {
  const __m256i upper = _mm256_set1_epi32((int)0xffff0000u);
  return {_mm256_castsi256_ps(_mm256_and_si256(x.a, upper)),
          _mm256_castsi256_ps(_mm256_and_si256(x.b, upper))};
}
// Of sixteen words; the machine knows the least of unsigned ones.
QUIRE_INLINE int reduce_max_words(__m256i x) {
  __m128i least = _mm_max_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  least = _mm_xor_si128(least, _mm_set1_epi16(0x7fff));  // order reversed, unsigned
  return (int16_t)(_mm_extract_epi16(_mm_minpos_epu16(least), 0) ^ 0x7fff);
}
QUIRE_INLINE int reduce_max(I16x32 x) { return reduce_max_words(_mm256_max_epi16(x.a, x.b)); }
QUIRE_INLINE uint32_t half_at_least(__m256i x, int least) {
  const __m256i bound = _mm256_set1_epi8((char)least);
  return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(x, bound), x));
}
// One bit a byte: is it `least` at least?
QUIRE_INLINE uint64_t bytes_at_least(U8x64 x, int least) {
  return half_at_least(x.a, least) | (uint64_t)half_at_least(x.b, least) << 32;
}
