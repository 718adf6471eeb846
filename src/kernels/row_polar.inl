// Pairs as length and angle (format/polar.h) as bytes, and the residual of polar4r as a second part of its
// row.

// The y of a pair is the x of the mirrored angle, part 7 - a: so both come from one table, once codes are
// brought into one form,
//
//   7 6 5 4 3 2 1 0
//   + . a a a l l l     +: the coordinate is positive or zero
QUIRE_INLINE Table64 pair_table(const Codebook& book, float unit) {
  int8_t high[16], sizes[64];
  for (int i = 0; i < 64; i += 16) {
    float exact[16];
    for (int j = 0; j < 16; ++j) exact[j] = book.centroids[j % 8] * polar_cosine((i + j) / 8);
    store_planes(high, sizes + i, to_int(mul(load(exact), set1(1.0f / unit))));
  }
  return table_64((const uint8_t*)sizes);
}

QUIRE_INLINE U8x64 second_codes(U8x64 codes) {
  return xor_bytes(by_top_bit(twice(codes), fill_bytes(128 | 7 << 3), fill_bytes(7 << 3)),
                   keep_bits(codes, 63));
}

// 64 codes of one form -> coordinates, with 128 added.
QUIRE_INLINE U8x64 pair_bytes(const Table64& table, U8x64 codes) {
  const U8x64 zero_byte = fill_bytes(128);
  const U8x64 size = look_up(table, codes);
  return by_top_bit(codes, add_bytes(zero_byte, size), sub_bytes(zero_byte, size));
}

template <bool residual>
struct PolarRows {
  static constexpr int kPasses = residual ? 2 : 1;
  static constexpr int kZero[2] = {128, 1};
  using Row = PolarRow<residual>;
  const Codebook& book;
  int head_dim;
  const uint8_t* page;
  // An odd head size has a coordinate alone, of up to the whole norm.
  float unit;
  Table64 table;

  QUIRE_INLINE_MEMBER PolarRows(const Codebook& codebook, int dim, const uint8_t* from)
      : book(codebook),
        head_dim(dim),
        page(from),
        unit((dim % 2 != 0 ? 1.0f : book.centroids[7]) / 127.0f),
        table(pair_table(codebook, unit)) {}

  QUIRE_INLINE_MEMBER const uint8_t* codes(int row) const {
    return page + row * Row::row_bytes(head_dim) + Row::kHeadBytes;
  }

  QUIRE_INLINE_MEMBER void stage(int pass, int row, uint8_t* staged) const {
    if (pass == 1) return;
    const uint8_t* from = codes(row);
    const int half = head_dim / 2;
    for (int p = 0; p < half; p += 64) store_bytes(staged + p, load_bytes(from + p));
    for (int p = 0; p < half; p += 64) store_bytes(staged + half + p, second_codes(load_bytes(from + p)));
  }

  QUIRE_INLINE_MEMBER U8x64 word(int pass, int row, int w, const uint8_t* staged) const {
    if (pass == 1) {  // 2 and 0 for the signs of errors
      return add_where(fill_bytes(0), codes(row) + Row::codes_bytes(head_dim) + 8 * w, 2);
    }
    const U8x64 bytes = pair_bytes(table, load_bytes(staged));
    if (head_dim % 2 == 0 || w != (head_dim - 1) / 64) return bytes;
    uint8_t last[64];
    store_bytes(last, bytes);
    last[(head_dim - 1) % 64] = (uint8_t)((int8_t)codes(row)[head_dim / 2] + 128);
    return load_bytes(last);
  }

  QUIRE_INLINE_MEMBER void scales(int pass, float* out) const {
    uint8_t halves[2 * kPageTokens];
    for (int t = 0; t < kPageTokens; ++t) {
      memcpy(halves + 2 * t, page + 2 * pass + t * Row::row_bytes(head_dim), 2);
    }
    load_halves(halves, pass == 0 ? unit : 1.0f, out);
  }

  QUIRE_INLINE_MEMBER void open(int row, float* out) const {
    Row::decode(page + row * Row::row_bytes(head_dim), head_dim, book, out);
  }
};
