// Panels back to f32, for many query rows: a step gives four dims of 16 tokens (keys) or four tokens of 16
// dims (values). What a code is worth is computed as the format's decoder does, so the numbers are equal.

// Groups of dims with a scale for each token (q8, q4, and the turbo codes' norm).
template <class F>
struct GroupOpener {
  using V = GroupView<F>;
  using Panel = typename V::Panel;
  static constexpr int kGroups = kMaxHeadDim / 32;
  const uint8_t* keys;
  const uint8_t* values;
  FloatTable table;
  float scales[kGroups][kPageTokens];

  QUIRE_INLINE_MEMBER GroupOpener(const Codebook& book, int head_dim, const uint8_t* page)
      : keys(page + V::key_offset(head_dim)),
        values(page + V::value_offset(head_dim)),
        table(float_table(levels(book).v)) {
    for (int g = 0; g * V::kGroupDims < head_dim; ++g) {
      load_halves(page + 2 * g * kPageTokens, 1.0f, scales[g]);
    }
  }

  struct Levels {
    float v[16];
  };
  QUIRE_INLINE Levels levels(const Codebook& book) {
    Levels rising = {{0}};
    if constexpr (V::kGroupDims == kMaxHeadDim) {
      for (int r = 0; r < 1 << Panel::kBits; ++r) rising.v[r] = F::centroid(book, r);
    }
    return rising;
  }

  template <int j>
  QUIRE_INLINE_MEMBER F32x16 level(U8x64 codes) const {
    if constexpr (V::kGroupDims == kMaxHeadDim) return look_up_lane<8 * j>(table, codes);
    return sub(lane_byte<j>(codes), set1((float)V::kZero));
  }
  template <int j>
  QUIRE_INLINE_MEMBER F32x16 key(U8x64 codes, int d, int t) const {
    return mul(load(scales[d / V::kGroupDims] + t), level<j>(codes));
  }
  template <int j>
  QUIRE_INLINE_MEMBER F32x16 value(U8x64 codes, int d, int t) const {
    return mul(set1(scales[d / V::kGroupDims][t]), level<j>(codes));
  }
};

template <int bits, bool of_keys>
struct KiviOpener {
  using F = Kivi<bits>;
  using Panel = typename F::Panel;
  const uint8_t* keys;
  const uint8_t* values;
  float scales[2 * kMaxHeadDim + 16];  // keys [2][head_dim], values [groups][64]
  float zeros[2 * kMaxHeadDim + 16];
  int head_dim;

  QUIRE_INLINE_MEMBER KiviOpener(const Codebook&, int dim, const uint8_t* page)
      : keys(page + F::key_codes_offset(dim)), values(page + F::value_codes_offset(dim)), head_dim(dim) {
    const uint16_t* halves = (const uint16_t*)page;
    for (int i = 0; of_keys && i < dim; i += 16) {  // the second group overwrites what is behind the first
      store(scales + i, load_f16(halves + i));
      store(zeros + i, load_f16(halves + dim + i));
    }
    for (int i = 0; of_keys && i < dim; i += 16) {
      store(scales + dim + i, load_f16(halves + 2 * dim + i));
      store(zeros + dim + i, load_f16(halves + 3 * dim + i));
    }
    for (int i = 0; !of_keys && i < F::groups(dim) * kPageTokens; i += 16) {
      store(scales + i, load_f16(halves + i));
      store(zeros + i, load_f16(halves + F::value_zeros_offset(dim) / 2 + i));
    }
  }

  template <int j>
  QUIRE_INLINE_MEMBER F32x16 at(U8x64 codes, int i) const {
    return add(set1(zeros[i]), mul(set1(scales[i]), lane_byte<j>(codes)));
  }
  template <int j>
  QUIRE_INLINE_MEMBER F32x16 key(U8x64 codes, int d, int t) const {
    return at<j>(codes, t / F::kGroup * head_dim + d);
  }
  template <int j>
  QUIRE_INLINE_MEMBER F32x16 value(U8x64 codes, int d, int t) const {
    return at<j>(codes, d / F::kGroup * kPageTokens + t);
  }
};

// adds: to what stands in the rows.
template <int j, bool adds, class O>
QUIRE_INLINE void put_key(const O& opener, U8x64 codes, int head_dim, int d, int t, float* keys) {
  if (d + j >= head_dim) return;
  float* to = keys + (d + j) * kPageTokens + t;
  const F32x16 x = opener.template key<j>(codes, d + j, t);
  store(to, adds ? add(load(to), x) : x);
}

// Steps i, i + 1, ... of a pack.
template <int i, bool adds, class O>
QUIRE_INLINE void open_key_steps(const O& opener, const uint8_t* pack, int head_dim, int quad, int t,
                                 float* keys) {
  const U8x64 codes = step_codes<O::Panel::kBits, i>(load_bytes(pack), pack);
  const int d = 4 * (quad + i);
  put_key<0, adds>(opener, codes, head_dim, d, t, keys);
  put_key<1, adds>(opener, codes, head_dim, d, t, keys);
  put_key<2, adds>(opener, codes, head_dim, d, t, keys);
  put_key<3, adds>(opener, codes, head_dim, d, t, keys);
  if constexpr (i + 1 < O::Panel::kSteps) {
    open_key_steps<i + 1, adds>(opener, pack, head_dim, quad, t, keys);
  }
}

template <class O, bool adds = false>
void panel_open_keys(const Codebook& book, int head_dim, const uint8_t* page, float* keys) {
  using P = typename O::Panel;
  const O opener(book, head_dim, page);
  const uint8_t* pack = opener.keys;
  for (int t = 0; t < kPageTokens; t += 16) {
    for (int quad = 0; quad < P::key_quads(head_dim); quad += P::kSteps, pack += P::kPackBytes) {
      open_key_steps<0, adds>(opener, pack, head_dim, quad, t, keys);
    }
  }
}

// x to the first dims of a row, of which there are `left`.
template <bool adds>
QUIRE_INLINE void put_dims(float* to, int left, F32x16 x) {
  if (left >= 16) return store(to, adds ? add(load(to), x) : x);
  store_partial(to, adds ? add(load_partial(to, left), x) : x, left);
}

template <int j, bool adds, class O>
QUIRE_INLINE void put_value(const O& opener, U8x64 codes, uint64_t rows, int head_dim, int d, int t,
                            float* values) {
  if (((rows >> (t + j)) & 1) == 0) return;
  put_dims<adds>(values + (size_t)(t + j) * head_dim + d, head_dim - d,
                 opener.template value<j>(codes, d, t + j));
}

template <int i, bool adds, class O>
QUIRE_INLINE void open_value_steps(const O& opener, const uint8_t* pack, uint64_t rows, int head_dim, int d,
                                   int quad, float* values) {
  const U8x64 codes = step_codes<O::Panel::kBits, i>(load_bytes(pack), pack);
  const int t = 4 * (quad + i);
  put_value<0, adds>(opener, codes, rows, head_dim, d, t, values);
  put_value<1, adds>(opener, codes, rows, head_dim, d, t, values);
  put_value<2, adds>(opener, codes, rows, head_dim, d, t, values);
  put_value<3, adds>(opener, codes, rows, head_dim, d, t, values);
  if constexpr (i + 1 < O::Panel::kSteps) {
    open_value_steps<i + 1, adds>(opener, pack, rows, head_dim, d, quad, values);
  }
}

template <class O, bool adds = false>
void panel_open_values(const Codebook& book, int head_dim, const uint8_t* page, uint64_t rows,
                       float* values) {
  using P = typename O::Panel;
  const O opener(book, head_dim, page);
  const uint8_t* pack = opener.values;
  for (int d = 0; d < head_dim; d += 16) {
    for (int quad = 0; quad < 16; quad += P::kSteps, pack += P::kPackBytes) {
      open_value_steps<0, adds>(opener, pack, rows, head_dim, d, quad, values);
    }
  }
}
