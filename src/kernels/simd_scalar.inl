// Sixteen lanes as an array, one after another: the reference, and the path of old machines.
struct F32x16 {
  float v[16];
};
struct I32x16 {
  int32_t v[16];
};
struct U8x64 {
  uint8_t v[64];
};

#define QUIRE_LANES(type, expression)                 \
  type r;                                             \
  for (int i = 0; i < 16; ++i) r.v[i] = (expression); \
  return r

QUIRE_INLINE F32x16 set1(float x) { QUIRE_LANES(F32x16, x); }
QUIRE_INLINE F32x16 zero() { return set1(0.0f); }
QUIRE_INLINE F32x16 load(const float* p) { QUIRE_LANES(F32x16, p[i]); }
QUIRE_INLINE void store(float* p, F32x16 x) { memcpy(p, x.v, sizeof x.v); }
QUIRE_INLINE F32x16 load_partial(const float* p, int n) { QUIRE_LANES(F32x16, i < n ? p[i] : 0.0f); }
QUIRE_INLINE void store_partial(float* p, F32x16 x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x.v[i];
}
QUIRE_INLINE F32x16 load_f16(const uint16_t* p) { QUIRE_LANES(F32x16, f16_to_f32(p[i])); }
QUIRE_INLINE F32x16 load_bf16(const uint16_t* p) { QUIRE_LANES(F32x16, bf16_to_f32(p[i])); }
QUIRE_INLINE F32x16 load_fp8(const uint8_t* p) { QUIRE_LANES(F32x16, fp8_to_f32(p[i])); }
QUIRE_INLINE void store_f16(uint16_t* p, F32x16 x) {
  for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(x.v[i]);
}
QUIRE_INLINE F32x16 load_u8(const uint8_t* p) { QUIRE_LANES(F32x16, (float)p[i]); }
QUIRE_INLINE F32x16 load_i8(const int8_t* p) { QUIRE_LANES(F32x16, (float)p[i]); }
QUIRE_INLINE F32x16 add(F32x16 a, F32x16 b) { QUIRE_LANES(F32x16, a.v[i] + b.v[i]); }
QUIRE_INLINE F32x16 sub(F32x16 a, F32x16 b) { QUIRE_LANES(F32x16, a.v[i] - b.v[i]); }
QUIRE_INLINE F32x16 mul(F32x16 a, F32x16 b) { QUIRE_LANES(F32x16, a.v[i] * b.v[i]); }
QUIRE_INLINE F32x16 div(F32x16 a, F32x16 b) { QUIRE_LANES(F32x16, a.v[i] / b.v[i]); }
// No fused instruction here: product and sum round apart, the one place where lanes differ from the others.
QUIRE_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { QUIRE_LANES(F32x16, a.v[i] * b.v[i] + c.v[i]); }
QUIRE_INLINE F32x16 max(F32x16 a, F32x16 b) { QUIRE_LANES(F32x16, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
QUIRE_INLINE F32x16 min(F32x16 a, F32x16 b) { QUIRE_LANES(F32x16, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
QUIRE_INLINE F32x16 abs(F32x16 a) { QUIRE_LANES(F32x16, __builtin_fabsf(a.v[i])); }  // -0 becomes 0 too
QUIRE_INLINE F32x16 round_even(F32x16 a) { QUIRE_LANES(F32x16, __builtin_rintf(a.v[i])); }
// a where x >= bound, else 0 (0 too where x is NaN).
QUIRE_INLINE F32x16 where_at_least(F32x16 x, float bound, F32x16 a) {
  QUIRE_LANES(F32x16, x.v[i] >= bound ? a.v[i] : 0.0f);
}
// a in the lanes whose bit is set, else b.
QUIRE_INLINE F32x16 select_bits(uint32_t bits, F32x16 a, F32x16 b) {
  QUIRE_LANES(F32x16, (bits >> i) & 1u ? a.v[i] : b.v[i]);
}
// a * 2^n for integral n in [-127, 127]: adds n to the exponent field.
QUIRE_INLINE F32x16 scale_by_power(F32x16 a, F32x16 n) {
  QUIRE_LANES(F32x16, bits_to_float(float_to_bits(a.v[i]) + ((uint32_t)(int32_t)n.v[i] << 23)));
}
// Lanes i and i + 8, then i and i + 4, ...: the same tree on every instruction set.
QUIRE_INLINE float reduce_add(F32x16 x) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] += x.v[i + half];
  }
  return x.v[0];
}
QUIRE_INLINE float reduce_max(F32x16 x) {
  float best = x.v[0];
  for (int i = 1; i < 16; ++i) best = x.v[i] > best ? x.v[i] : best;
  return best;
}

QUIRE_INLINE I32x16 izero() { QUIRE_LANES(I32x16, 0); }
QUIRE_INLINE I32x16 add(I32x16 a, I32x16 b) { QUIRE_LANES(I32x16, a.v[i] + b.v[i]); }
// 256 * high + low
QUIRE_INLINE I32x16 join(I32x16 high, I32x16 low) { QUIRE_LANES(I32x16, 256 * high.v[i] + low.v[i]); }
QUIRE_INLINE int reduce_add(I32x16 x) {
  int sum = 0;
  for (int i = 0; i < 16; ++i) sum += x.v[i];
  return sum;
}
// Rounds to nearest even.
QUIRE_INLINE I32x16 to_int(F32x16 x) { QUIRE_LANES(I32x16, (int32_t)__builtin_rintf(x.v[i])); }
QUIRE_INLINE F32x16 to_float(I32x16 a) { QUIRE_LANES(F32x16, (float)a.v[i]); }
// Splits codes into bytes: code = 256 * high + low, both signed; codes lie in [-32512, 32512].
QUIRE_INLINE void store_planes(int8_t* high, int8_t* low, I32x16 codes) {
  for (int i = 0; i < 16; ++i) {
    high[i] = (int8_t)((codes.v[i] + 128) >> 8);
    low[i] = (int8_t)(codes.v[i] - 256 * high[i]);
  }
}

QUIRE_INLINE U8x64 load_bytes(const uint8_t* p) {
  U8x64 r;
  memcpy(r.v, p, 64);
  return r;
}
QUIRE_INLINE U8x64 low_nibbles(U8x64 x) {
  for (int i = 0; i < 64; ++i) x.v[i] &= 15;
  return x;
}
QUIRE_INLINE U8x64 high_nibbles(U8x64 x) {
  for (int i = 0; i < 64; ++i) x.v[i] >>= 4;
  return x;
}
// x + value in the bytes whose bit is set in the 64-bit word at p.
QUIRE_INLINE U8x64 add_where(U8x64 x, const uint8_t* p, int value) {
  for (int i = 0; i < 64; ++i) x.v[i] = (uint8_t)(x.v[i] + ((p[i / 8] >> (i % 8)) & 1 ? value : 0));
  return x;
}
// acc[lane] += sum over j of x[4 lane + j] * a[j]: one row a lane, four activations for all of them.
QUIRE_INLINE I32x16 dot4(I32x16 acc, const U8x64& x, const int8_t* a) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) acc.v[i] += x.v[4 * i + j] * a[j];
  }
  return acc;
}
QUIRE_INLINE I32x16 dot4_wide(I32x16 acc, const U8x64& x, const int8_t* a) { return dot4(acc, x, a); }
// Byte j of each lane as a float.
template <int j>
QUIRE_INLINE F32x16 lane_byte(const U8x64& x) {
  QUIRE_LANES(F32x16, (float)x.v[4 * i + j]);
}

// ---- codes in panels (panels.inl) ----

// Bits of the neighbour byte may come in from above on other instruction sets; here they do not.
template <int n>
QUIRE_INLINE U8x64 shift_right(U8x64 x) {
  for (int i = 0; i < 64; ++i) x.v[i] = (uint8_t)(x.v[i] >> n);
  return x;
}
QUIRE_INLINE U8x64 keep_bits(U8x64 x, int mask) {
  for (int i = 0; i < 64; ++i) x.v[i] = (uint8_t)(x.v[i] & mask);
  return x;
}
QUIRE_INLINE U8x64 twice(U8x64 x) {
  for (int i = 0; i < 64; ++i) x.v[i] = (uint8_t)(2 * x.v[i]);
  return x;
}

// 16 bytes, or 16 floats, to look codes of 4 bits up in.
struct ByteTable {
  uint8_t v[16];
};
struct FloatTable {
  float v[16];
};
QUIRE_INLINE ByteTable byte_table(const uint8_t* entries) {
  ByteTable table;
  memcpy(table.v, entries, 16);
  return table;
}
// 0 where the highest bit of a code is set.
QUIRE_INLINE U8x64 look_up(const ByteTable& table, U8x64 codes) {
  for (int i = 0; i < 64; ++i) codes.v[i] = codes.v[i] & 128 ? 0 : table.v[codes.v[i] & 15];
  return codes;
}
QUIRE_INLINE FloatTable float_table(const float* entries) {
  FloatTable table;
  memcpy(table.v, entries, sizeof table.v);
  return table;
}
// The entry of the four bits that start at bit `bit` of each lane.
template <int bit>
QUIRE_INLINE F32x16 look_up_lane(const FloatTable& table, const U8x64& codes) {
  QUIRE_LANES(F32x16, table.v[(codes.v[4 * i + bit / 8] >> (bit % 8)) & 15]);
}

// Codes of 16 bits that multiply bytes.
struct Multipliers {
  int16_t codes[kMaxHeadDim];
};
QUIRE_INLINE void put_multipliers(Multipliers* m, int at, I32x16 codes) {
  for (int i = 0; i < 16; ++i) m->codes[at + i] = (int16_t)codes.v[i];
}
using Factors = U8x64;
QUIRE_INLINE Factors factors(const U8x64& x) { return x; }
using Products = I32x16;
QUIRE_INLINE Products start_products(int first) { QUIRE_LANES(I32x16, first); }
// sum[lane] += sum over j of x[4 lane + j] * m[4 quad + j]
QUIRE_INLINE Products add_products(Products sum, const Factors& x, const Multipliers& m, int quad) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) sum.v[i] += x.v[4 * i + j] * m.codes[4 * quad + j];
  }
  return sum;
}
QUIRE_INLINE I32x16 total(const Products& sum) { return sum; }

// Sums of signs, bytes of 0 and 2, times multipliers of one byte (panel_signs.inl).
using SignSums = I32x16;
QUIRE_INLINE SignSums no_signs() { return izero(); }
QUIRE_INLINE SignSums add_signs(const SignSums& sums, const U8x64& signs, const int8_t* m) {
  return dot4(sums, signs, m);
}
QUIRE_INLINE I32x16 total_signs(const SignSums& sums) { return sums; }

// ---- rows of bytes (row_bytes.inl) ----

QUIRE_INLINE U8x64 fill_bytes(int x) {
  U8x64 r;
  memset(r.v, x, 64);
  return r;
}
QUIRE_INLINE void store_bytes(uint8_t* p, const U8x64& x) { memcpy(p, x.v, 64); }
// The entries of 16 bytes at p.
QUIRE_INLINE F32x16 look_up_bytes(const FloatTable& table, const uint8_t* p) {
  QUIRE_LANES(F32x16, table.v[p[i] & 15]);
}
// 64 bytes to look codes of 6 bits up in, and where codes find theirs in any such table; their upper bits may
// be anything.
struct Table64 {
  uint8_t v[64];
};
QUIRE_INLINE Table64 table_64(const uint8_t* entries) {
  Table64 table;
  memcpy(table.v, entries, 64);
  return table;
}
struct Places64 {
  uint8_t v[64];
};
QUIRE_INLINE Places64 places_64(const U8x64& codes) {
  Places64 places;
  for (int i = 0; i < 64; ++i) places.v[i] = codes.v[i] & 63;
  return places;
}
QUIRE_INLINE U8x64 look_up(const Table64& table, const Places64& places) {
  U8x64 r;
  for (int i = 0; i < 64; ++i) r.v[i] = table.v[places.v[i]];
  return r;
}
// -x in the bytes whose code has its highest bit set.
QUIRE_INLINE U8x64 negate_by_top_bit(const U8x64& codes, U8x64 x) {
  for (int i = 0; i < 64; ++i) x.v[i] = (uint8_t)(codes.v[i] & 128 ? -x.v[i] : x.v[i]);
  return x;
}
// Units of `width` bytes of x and y in turn, from the half of each 16 bytes that starts at `half`.
template <int width>
QUIRE_INLINE U8x64 zip(const U8x64& x, const U8x64& y, int half) {
  U8x64 r;
  for (int part = 0; part < 64; part += 16) {
    for (int i = 0; i < 8; i += width) {
      memcpy(r.v + part + 2 * i, x.v + part + half + i, width);
      memcpy(r.v + part + 2 * i + width, y.v + part + half + i, width);
    }
  }
  return r;
}
template <int width>
QUIRE_INLINE U8x64 zip_low(const U8x64& x, const U8x64& y) {
  return zip<width>(x, y, 0);
}
template <int width>
QUIRE_INLINE U8x64 zip_high(const U8x64& x, const U8x64& y) {
  return zip<width>(x, y, 8);
}
// A 4 x 4 transposition of parts of 16 bytes.
QUIRE_INLINE void transpose_parts(U8x64* x) {
  U8x64 from[4];
  memcpy(from, x, sizeof from);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) memcpy(x[i].v + 16 * j, from[j].v + 16 * i, 16);
  }
}

#undef QUIRE_LANES
