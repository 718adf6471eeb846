// Pairs as length and angle (format/polar.h): a register of codes becomes two registers of bytes, the x and
// the y of its pairs, each a step of panels.inl; and the residual of polar4r, signs of one size a token.

// Sizes of coordinates by a code's lower six bits, as 128 - size in units of 1/127 of the largest length: a
// byte is worth unit * (byte - 128), and negating one negates what it is worth.
//
//   7 6 5 4 3 2 1 0
//   x y a a a l l l     x, y: the coordinate is positive or zero
struct PairTables {
  float unit;
  Table64 x, y;
};

QUIRE_INLINE PairTables pair_tables(const Codebook& book) {
  const float unit = book.centroids[7] / 127.0f;
  uint8_t x[64], y[64];
  for (int code = 0; code < 64; ++code) {
    const float length = book.centroids[code & 7] / unit;
    x[code] = (uint8_t)(128 - (int)__builtin_rintf(length * polar_cosine(code >> 3)));
    y[code] = (uint8_t)(128 - (int)__builtin_rintf(length * polar_cosine(7 - (code >> 3))));
  }
  return {unit, table_64(x), table_64(y)};
}

struct PairBytes {
  U8x64 x, y;
};
QUIRE_INLINE PairBytes pair_bytes(const PairTables& tables, U8x64 codes) {
  const Places64 places = places_64(codes);
  return {negate_by_top_bit(codes, look_up(tables.x, places)),
          negate_by_top_bit(twice(codes), look_up(tables.y, places))};
}

// What both loops need of a page.
template <bool residual>
struct PairPage {
  using F = PolarPages<residual>;
  using P = typename F::Panel;
  PairTables tables;
  int n_pairs;
  const uint8_t* norms;
  const int8_t* last;  // of an odd head size, the last coordinates in 1/127 of the norm; or null
  const uint8_t* packs;

  QUIRE_INLINE_MEMBER PairPage(const Codebook& book, int head_dim, const uint8_t* page)
      : tables(pair_tables(book)),
        n_pairs(head_dim / 2),
        norms(page),
        last(head_dim % 2 != 0 ? (const int8_t*)(page + F::kNormsBytes) : nullptr),
        packs(page + F::codes_offset(head_dim)) {}
  QUIRE_INLINE_MEMBER F32x16 norm(int t) const { return load_f16((const uint16_t*)norms + t); }
};

template <bool residual>
struct PairScore {
  using P = PanelCodes<8>;
  const PairPage<residual>& from;
  const float* q;
  int head_dim;
  const uint8_t* page;
  float* scores;
  Ahead* ahead;

  template <int N>
  QUIRE_INLINE_MEMBER void rows(int first) const {
    CodedRow queries[N];
    const Multipliers* m[N];
    for (int h = 0; h < N; ++h) {
      code_pairs(q + (first + h) * head_dim, &queries[h]);
      m[h] = &queries[h].m;
    }
    for (int b = 0; b < 4; b += kPanelBlocks) score_blocks<N>(queries, m, first, b);
  }

  // The x of all pairs, zeros up to a multiple of 16, then the y.
  QUIRE_INLINE_MEMBER void code_pairs(const float* row, CodedRow* out) const {
    F32x16 x[kMaxHeadDim / 16];
    const int n = load_row(row, from.n_pairs, x);
    load_row(row + from.n_pairs, from.n_pairs, x + n);
    code_multipliers(x, 2 * n, out);
    out->scale *= from.tables.unit;
  }

  // kPanelBlocks blocks of 16 tokens from block b on.
  template <int N>
  QUIRE_INLINE_MEMBER void score_blocks(const CodedRow* queries, const Multipliers* const* m, int first,
                                        int b) const {
    const int y_dim = (from.n_pairs + 15) / 16 * 16;
    Products products[N][kPanelBlocks];
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
      const int start = -128 * sum_of(queries[h], 0, 2 * y_dim);
#pragma GCC unroll 2
      for (int v = 0; v < kPanelBlocks; ++v) products[h][v] = start_products(start);
    }
    add_quads<N>(m, b, y_dim / 4, products);
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
      for (int v = 0; v < kPanelBlocks; ++v) {
        const int t = 16 * (b + v);
        F32x16 sum = mul(to_float(total(products[h][v])), set1(queries[h].scale));
        if (from.last != nullptr) {
          const float last = q[(first + h) * head_dim + head_dim - 1] / 127.0f;
          sum = fma(load_i8(from.last + t), set1(last), sum);
        }
        store(scores + (first + h) * kPageTokens + t, mul(sum, from.norm(t)));
      }
    }
  }

  template <int N>
  QUIRE_INLINE_MEMBER void add_quads(const Multipliers* const* m, int b, int y_quad,
                                     Products (*sums)[kPanelBlocks]) const {
    const size_t block_bytes = (size_t)P::key_block_bytes(from.n_pairs);
    const uint8_t* at = from.packs + b * block_bytes;
    for (int quad = 0; quad < P::key_quads(from.n_pairs); ++quad, at += 64) {
#pragma GCC unroll 2
      for (int v = 0; v < kPanelBlocks; ++v) {
        const PairBytes bytes = pair_bytes(from.tables, load_bytes(at + v * block_bytes));
        fetch_line(ahead);
        const Factors x = factors(bytes.x);
        const Factors y = factors(bytes.y);
#pragma GCC unroll 4
        for (int h = 0; h < N; ++h) {
          sums[h][v] = add_products(add_products(sums[h][v], x, *m[h], quad), y, *m[h], y_quad + quad);
        }
      }
    }
  }
};

template <bool residual>
struct PairAccumulate {
  using P = PanelCodes<8>;
  const PairPage<residual>& from;
  const float* p;
  const float* correction;
  uint64_t named;
  int head_dim;
  const uint8_t* page;
  float* o;
  Ahead* ahead;

  template <int N>
  QUIRE_INLINE_MEMBER void rows(int first) const {
    CodedRow weights[N];
    const Multipliers* m[N];
    for (int h = 0; h < N; ++h) {
      F32x16 x[4];
      load_probabilities(p + (first + h) * kPageTokens, named, x);
      for (int v = 0; v < 4; ++v) x[v] = mul(x[v], from.norm(16 * v));
      code_multipliers(x, 4, &weights[h]);
      weights[h].scale *= from.tables.unit;
      m[h] = &weights[h].m;
      if (from.last != nullptr) add_last(x, first + h);
    }
    for (int d = 0; d < from.n_pairs; d += 16) {
      if constexpr (kPanelBlocks > 1) {
        add_block<N, true, true>(weights, m, first, d);
      } else {  // registers suffice for the sums of one of them
        add_block<N, true, false>(weights, m, first, d);
        add_block<N, false, true>(weights, m, first, d);
      }
    }
  }

  // The coordinate without a pair.
  QUIRE_INLINE_MEMBER void add_last(const F32x16* weights, int row) const {
    F32x16 sum = zero();
    for (int v = 0; v < 4; ++v) sum = fma(weights[v], load_i8(from.last + 16 * v), sum);
    float* to = o + (size_t)row * head_dim + head_dim - 1;
    *to = *to * correction[row] + reduce_add(sum) / 127.0f;
  }

  // Coordinates of 16 pairs from pair d on.
  template <int N, bool of_x, bool of_y>
  QUIRE_INLINE_MEMBER void add_block(const CodedRow* weights, const Multipliers* const* m, int first,
                                     int d) const {
    Products x[N], y[N];
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) x[h] = y[h] = start_products(-128 * sum_of(weights[h], 0, kPageTokens));
    const uint8_t* at = from.packs + d / 16 * P::kValueBlockBytes;
    for (int quad = 0; quad < 16; ++quad, at += 64) {
      const PairBytes bytes = pair_bytes(from.tables, load_bytes(at));
      if (of_x) fetch_line(ahead);
      const Factors of[2] = {factors(bytes.x), factors(bytes.y)};
#pragma GCC unroll 4
      for (int h = 0; h < N; ++h) {
        if (of_x) x[h] = add_products(x[h], of[0], *m[h], quad);
        if (of_y) y[h] = add_products(y[h], of[1], *m[h], quad);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
      float* to = o + (size_t)(first + h) * head_dim + d;
      if (of_x) put(to, d, x[h], weights[h].scale, correction[first + h]);
      if (of_y) put(to + from.n_pairs, d, y[h], weights[h].scale, correction[first + h]);
    }
  }

  QUIRE_INLINE_MEMBER void put(float* to, int d, const Products& sums, float scale, float shrink) const {
    add_to_output(to, from.n_pairs - d, mul(to_float(total(sums)), set1(scale)), shrink);
  }
};

// The signs of errors, times the mean size of them.
struct ErrorView {
  using F = PolarPages<true>;
  QUIRE_INLINE int key_offset(int head_dim) { return F::key_signs_offset(head_dim); }
  QUIRE_INLINE int value_offset(int head_dim) { return F::value_signs_offset(head_dim); }
  QUIRE_INLINE float unit(int) { return 1.0f; }
  QUIRE_INLINE F32x16 scale(const uint8_t* page, int t) {
    return load_f16((const uint16_t*)page + kPageTokens + t);
  }
};

template <bool residual>
void polar_score(const Codebook& book, const float* q, int n, int head_dim, const uint8_t* page, uint64_t,
                 float* scores, BytesAhead next) {
  const PairPage<residual> from(book, head_dim, page);
  Ahead ahead = spread(next, page, (size_t)PanelCodes<8>::key_bytes(head_dim / 2) / 64);
  for_row_tiles(n, PairScore<residual>{from, q, head_dim, page, scores, &ahead});
  if constexpr (residual) score_signs<ErrorView>(q, n, head_dim, page, scores);
}

template <bool residual>
void polar_accumulate(const Codebook& book, const float* p, const float* correction, uint64_t rows, int n,
                      int head_dim, const uint8_t* page, float* o, BytesAhead next) {
  const PairPage<residual> from(book, head_dim, page);
  Ahead ahead = spread(next, page, (size_t)PanelCodes<8>::value_bytes(head_dim / 2) / 64);
  for_row_tiles(n, PairAccumulate<residual>{from, p, correction, rows, head_dim, page, o, &ahead});
  if constexpr (residual) {
    accumulate_signs<ErrorView>(p, nullptr, rows, n, head_dim, page, o, (size_t)head_dim);
  }
}

// Pairs back to f32, as polar_decode_row computes them: tables of four bits a code, from bit 0 on the length,
// from bit 3 on |x| (or y with its sign), from bit 4 on the sign of x.
struct PairOpener {
  FloatTable lengths, x_sizes, ys, x_signs;
  float norms[kPageTokens];

  QUIRE_INLINE_MEMBER PairOpener(const Codebook& book, const uint8_t* page) {
    float table[4][16];
    for (int i = 0; i < 16; ++i) {
      table[0][i] = book.centroids[i & 7];
      table[1][i] = polar_cosine(i & 7);
      table[2][i] = i & 8 ? polar_cosine(7 - (i & 7)) : -polar_cosine(7 - (i & 7));
      table[3][i] = i & 8 ? 1.0f : -1.0f;
    }
    lengths = float_table(table[0]);
    x_sizes = float_table(table[1]);
    ys = float_table(table[2]);
    x_signs = float_table(table[3]);
    load_halves(page, 1.0f, norms);
  }

  struct Pair {
    F32x16 x, y;
  };
  // Of byte j of each lane.
  template <int j>
  QUIRE_INLINE_MEMBER Pair pair(U8x64 codes, F32x16 norm) const {
    const F32x16 length = mul(norm, look_up_lane<8 * j>(lengths, codes));
    const F32x16 x = mul(length, look_up_lane<8 * j + 3>(x_sizes, codes));
    return {mul(x, look_up_lane<8 * j + 4>(x_signs, codes)), mul(length, look_up_lane<8 * j + 3>(ys, codes))};
  }
};

template <int j>
QUIRE_INLINE void put_key_pair(const PairOpener& opener, U8x64 codes, int n_pairs, int d, int t,
                               float* keys) {
  if (d + j >= n_pairs) return;
  const PairOpener::Pair pair = opener.template pair<j>(codes, load(opener.norms + t));
  store(keys + (d + j) * kPageTokens + t, pair.x);
  store(keys + (d + j + n_pairs) * kPageTokens + t, pair.y);
}

template <int j>
QUIRE_INLINE void put_value_pair(const PairOpener& opener, U8x64 codes, uint64_t rows, int head_dim, int d,
                                 int t, float* values) {
  if (((rows >> (t + j)) & 1) == 0) return;
  const PairOpener::Pair pair = opener.template pair<j>(codes, set1(opener.norms[t + j]));
  float* to = values + (size_t)(t + j) * head_dim + d;
  put_dims<false>(to, head_dim / 2 - d, pair.x);
  put_dims<false>(to + head_dim / 2, head_dim / 2 - d, pair.y);
}

// What errors add to opened rows.
struct ErrorOpener {
  using F = PolarPages<true>;
  using Panel = PanelCodes<1>;
  const uint8_t* keys;
  const uint8_t* values;
  float sizes[kPageTokens];

  QUIRE_INLINE_MEMBER ErrorOpener(const Codebook&, int head_dim, const uint8_t* page)
      : keys(page + F::key_signs_offset(head_dim)), values(page + F::value_signs_offset(head_dim)) {
    load_halves(page + 2 * kPageTokens, 1.0f, sizes);
  }
  template <int j>
  QUIRE_INLINE_MEMBER F32x16 key(U8x64 codes, int, int t) const {
    return mul(load(sizes + t), sub(lane_byte<j>(codes), set1(1.0f)));
  }
  template <int j>
  QUIRE_INLINE_MEMBER F32x16 value(U8x64 codes, int, int t) const {
    return mul(set1(sizes[t]), sub(lane_byte<j>(codes), set1(1.0f)));
  }
};

template <bool residual>
void polar_open_keys(const Codebook& book, int head_dim, const uint8_t* page, float* keys) {
  using F = PolarPages<residual>;
  const int n_pairs = head_dim / 2;
  const PairOpener opener(book, page);
  const uint8_t* pack = page + F::codes_offset(head_dim);
  for (int t = 0; t < kPageTokens; t += 16) {
    for (int d = 0; d < n_pairs; d += 4, pack += 64) {
      const U8x64 codes = load_bytes(pack);
      put_key_pair<0>(opener, codes, n_pairs, d, t, keys);
      put_key_pair<1>(opener, codes, n_pairs, d, t, keys);
      put_key_pair<2>(opener, codes, n_pairs, d, t, keys);
      put_key_pair<3>(opener, codes, n_pairs, d, t, keys);
    }
  }
  const int8_t* last = (const int8_t*)(page + F::kNormsBytes);
  for (int t = 0; head_dim % 2 != 0 && t < kPageTokens; t += 16) {
    const F32x16 share = div(load_i8(last + t), set1(127.0f));
    store(keys + (head_dim - 1) * kPageTokens + t, mul(load(opener.norms + t), share));
  }
  if constexpr (residual) panel_open_keys<ErrorOpener, true>(book, head_dim, page, keys);
}

template <bool residual>
void polar_open_values(const Codebook& book, int head_dim, const uint8_t* page, uint64_t rows,
                       float* values) {
  using F = PolarPages<residual>;
  const PairOpener opener(book, page);
  const uint8_t* pack = page + F::codes_offset(head_dim);
  for (int d = 0; d < head_dim / 2; d += 16) {
    for (int t = 0; t < kPageTokens; t += 4, pack += 64) {
      const U8x64 codes = load_bytes(pack);
      put_value_pair<0>(opener, codes, rows, head_dim, d, t, values);
      put_value_pair<1>(opener, codes, rows, head_dim, d, t, values);
      put_value_pair<2>(opener, codes, rows, head_dim, d, t, values);
      put_value_pair<3>(opener, codes, rows, head_dim, d, t, values);
    }
  }
  const int8_t* last = (const int8_t*)(page + F::kNormsBytes);
  for (int t = 0; head_dim % 2 != 0 && t < kPageTokens; ++t) {
    if (((rows >> t) & 1) == 0) continue;
    values[(size_t)t * head_dim + head_dim - 1] = opener.norms[t] * ((float)last[t] / 127.0f);
  }
  if constexpr (residual) panel_open_values<ErrorOpener, true>(book, head_dim, page, rows, values);
}
