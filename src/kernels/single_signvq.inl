// Single rows of signvq pages (format/signvq.h). Zero and scale of every 32 dims give each row a table of
// what its codes stand for, in bytes of the row's largest value: 1/254 of it, a fortieth of a code's own
// error. Every two groups, 64 dims, share one table of 16 bytes:
//
//   keys     code 0..3 of group 2 w, sign negative | the same, positive | group 2 w + 1, negative | positive
//   values   code 0..3 of group 2 w | nothing      | group 2 w + 1                       | nothing

constexpr int kVqGroups = kMaxHeadDim / 32;

// Scale and zero of the groups of sixteen rows, as pages have them.
struct VqParameters {
  uint32_t pairs[kVqGroups][kRowTile];

  QUIRE_INLINE_MEMBER void put(int i, const uint8_t* row, int n_groups) {
    for (int g = 0; g < n_groups; ++g) memcpy(&pairs[g][i], row + 4 * g, 4);
  }
  QUIRE_INLINE_MEMBER void fill(int n, int n_groups) {
    for (int g = 0; g < n_groups; ++g) {
      for (int i = n; i < kRowTile; ++i) pairs[g][i] = 0;
    }
  }
};

// Tables of sixteen rows: [words][row % 4][row / 4][16].
struct VqTables {
  alignas(64) uint8_t entries[kRowWords][4][kRowTile / 4][16];

  QUIRE_INLINE_MEMBER ByteTable of(int row, int w) const { return byte_table(entries[w][row % 4][row / 4]); }
};

// Codes 0..3 of one group of sixteen rows as bytes: zero and scale in the unit of the rows' bytes.
QUIRE_INLINE I32x16 vq_bytes(F32x16 scale, F32x16 zero_code) {
  const F32x16 middle = add(zero_code, set1(128.0f));
  I32x16 bytes = to_int(fma(scale, set1(3.0f), middle));
  bytes = join(bytes, to_int(fma(scale, set1(2.0f), middle)));
  bytes = join(bytes, to_int(add(scale, middle)));
  return join(bytes, to_int(middle));
}

// Four bytes 128 + x -> 128 - x. No byte borrows but that of 256 from the next.
QUIRE_INLINE I32x16 vq_negative(I32x16 bytes) { return sub(iset1(0x01010100), bytes); }

// Makes the tables of sixteen rows; scales [16] of their bytes.
template <bool with_signs>
QUIRE_INLINE void make_vq_tables(const VqParameters& parameters, int n_groups, VqTables* tables,
                                 float* scales) {
  F32x16 scale[kVqGroups], zeros[kVqGroups];
  F32x16 largest = zero();
  for (int g = 0; g < n_groups; ++g) {
    load_f16_pairs(parameters.pairs[g], &scale[g], &zeros[g]);
    largest = max(largest, max(abs(zeros[g]), abs(fma(scale[g], set1(3.0f), zeros[g]))));
  }
  store(scales, mul(largest, set1(1.0f / 127.0f)));
  const F32x16 inverse = where_at_least(largest, 0x1p-30f, div(set1(127.0f), largest));
  for (int g = 0; g < n_groups; g += 2) {
    U8x64 low[2], high[2];  // of both groups: rows 4 k and 4 k + 1, 4 k + 2 and 4 k + 3
    for (int i = 0; i < 2; ++i) {
      const int own = g + i < n_groups ? g + i : g;
      const I32x16 bytes = vq_bytes(mul(scale[own], inverse), mul(zeros[own], inverse));
      const U8x64 first = as_bytes(with_signs ? vq_negative(bytes) : bytes);
      low[i] = zip_low<4>(first, as_bytes(bytes));
      high[i] = zip_high<4>(first, as_bytes(bytes));
    }
    uint8_t* to = tables->entries[g / 2][0][0];
    store_bytes(to, zip_low<8>(low[0], low[1]));
    store_bytes(to + 64, zip_high<8>(low[0], low[1]));
    store_bytes(to + 128, zip_low<8>(high[0], high[1]));
    store_bytes(to + 192, zip_high<8>(high[0], high[1]));
  }
}

// Places in a table: 8 where the second group begins, and the codes.
struct VqRows {
  int head_dim;
  U8x64 second_group;

  QUIRE_INLINE_MEMBER explicit VqRows(int dim) : head_dim(dim) {
    const uint8_t upper[8] = {0, 0, 0, 0, 255, 255, 255, 255};
    second_group = add_where(fill_bytes(0), upper, 8);
  }
  QUIRE_INLINE int row_bytes(int head_dim) { return SignVq::row_bytes(head_dim); }
  QUIRE_INLINE_MEMBER U8x64 codes(U8x64 places, const uint8_t* row, int w) const {
    const uint8_t* planes = row + 4 * SignVq::groups(head_dim) + 8 * w;
    places = add_where(places, planes, 2);
    return add_where(places, planes + plane_bytes(head_dim), 1);
  }
};

struct SingleVqKeys : VqRows {
  VqTables tables;

  QUIRE_INLINE_MEMBER SingleVqKeys(const Codebook&, int dim) : VqRows(dim) {}
  QUIRE_INLINE int index_bytes(int head_dim) { return SignVq::index_page_bytes(head_dim); }

  QUIRE_INLINE_MEMBER void begin(KeyRowRefs refs, int first, int last, float* scales) {
    const int n_groups = SignVq::groups(head_dim);
    VqParameters parameters;
    for (int i = first; i < last; ++i) {
      const int at = refs.rows[i];
      const uint8_t* rows = refs.pages[at / kPageTokens].rows;
      parameters.put(i - first, rows + at % kPageTokens * row_bytes(head_dim), n_groups);
    }
    parameters.fill(last - first, n_groups);
    make_vq_tables<true>(parameters, n_groups, &tables, scales);
  }
  QUIRE_INLINE_MEMBER U8x64 word(int i, const uint8_t* sign, const uint8_t* row, int w) const {
    return look_up(tables.of(i, w), codes(add_where(second_group, sign, 4), row, w));
  }
};

struct SingleVqValues : VqRows {
  VqTables tables[kPageTokens / kRowTile];

  QUIRE_INLINE_MEMBER SingleVqValues(const Codebook&, int dim) : VqRows(dim) {}

  QUIRE_INLINE_MEMBER void begin(ValueTile* tile) {
    const int n_groups = SignVq::groups(head_dim);
    for (int first = 0; first < tile->n; first += kRowTile) {
      const int n = tile->n - first < kRowTile ? tile->n - first : kRowTile;
      VqParameters parameters;
      for (int i = 0; i < n; ++i) parameters.put(i, tile->rows[first + i], n_groups);
      parameters.fill(n, n_groups);
      make_vq_tables<false>(parameters, n_groups, &tables[first / kRowTile], tile->scales + first);
    }
  }
  QUIRE_INLINE_MEMBER U8x64 word(int i, const uint8_t* row, int w) const {
    return look_up(tables[i / kRowTile].of(i % kRowTile, w), codes(second_group, row, w));
  }
};

// Whole pages, as row_bytes.inl reads them.
struct VqPage : VqRows {
  static constexpr int kZero = 128;
  const uint8_t* rows;
  VqTables tables[kPageTokens / kRowTile];
  float row_scales[kPageTokens];

  template <bool with_signs>
  QUIRE_INLINE_MEMBER void make_tables() {
    const int n_groups = SignVq::groups(head_dim);
    for (int first = 0; first < kPageTokens; first += kRowTile) {
      VqParameters parameters;
      for (int i = 0; i < kRowTile; ++i) parameters.put(i, row(first + i), n_groups);
      make_vq_tables<with_signs>(parameters, n_groups, &tables[first / kRowTile], row_scales + first);
    }
  }
  QUIRE_INLINE_MEMBER VqPage(int dim, const uint8_t* from) : VqRows(dim), rows(from) {}
  QUIRE_INLINE_MEMBER const uint8_t* row(int t) const { return rows + t * row_bytes(head_dim); }
  QUIRE_INLINE_MEMBER U8x64 bytes(int t, U8x64 places, int w) const {
    return look_up(tables[t / kRowTile].of(t % kRowTile, w), codes(places, row(t), w));
  }
  QUIRE_INLINE_MEMBER void scales(float* out) const { memcpy(out, row_scales, sizeof row_scales); }
};

struct VqPageKeys : VqPage {
  uint64_t signs[kRowWords * kPageTokens];

  QUIRE_INLINE_MEMBER VqPageKeys(const Codebook&, int dim, KeyPage page) : VqPage(dim, page.rows) {
    make_tables<true>();
    spread_signs(page.index, dim, signs);
  }
  QUIRE_INLINE_MEMBER U8x64 word(int t, int w) const {
    const uint8_t* sign = (const uint8_t*)(signs + kPageTokens * w + sign_slot(t));
    return bytes(t, add_where(second_group, sign, 4), w);
  }
};

struct VqPageValues : VqPage {
  QUIRE_INLINE_MEMBER VqPageValues(const Codebook&, int dim, const uint8_t* page) : VqPage(dim, page) {
    make_tables<false>();
  }
  QUIRE_INLINE_MEMBER U8x64 word(int t, int w) const { return bytes(t, second_group, w); }
};
