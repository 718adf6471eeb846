// Bit planes of the nested codes (format/turbo.h) as bytes of the codebook.

// Codes of 64 dims of a row from the sign plane and the magnitude planes, `stride` bytes apart.
template <int bits>
QUIRE_INLINE U8x64 plane_codes(const uint8_t* sign, const uint8_t* planes, int stride) {
  U8x64 codes = add_where(fill_bytes(0), sign, 1 << (bits - 1));
#pragma GCC unroll 3
  for (int p = 0; p < bits - 1; ++p) codes = add_where(codes, planes + p * stride, 1 << (bits - 2 - p));
  return codes;
}

// The sign plane of keys, [D bytes][64 tokens], as words of eight bytes of a token: [words][64], where that
// of a token lies at sign_slot(token). Register i of each eight holds tokens 2 i and 2 i + 1 of each sixteen.
QUIRE_INLINE void spread_signs(const uint8_t* plane, int head_dim, uint64_t* out) {
  for (int w = 0; w < words(head_dim); ++w, plane += 8 * 64, out += kPageTokens) {
    U8x64 a[8], b[8], c[8];
    for (int g = 0; g < 8; ++g) a[g] = load_bytes(plane + 64 * g);
    for (int i = 0; i < 4; ++i) {  // two bytes a token
      b[2 * i] = zip_low<1>(a[2 * i], a[2 * i + 1]);
      b[2 * i + 1] = zip_high<1>(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 2; ++i) {  // four: c[4 i + 2 j], c[4 i + 2 j + 1] from half j of the tokens
      for (int j = 0; j < 2; ++j) {
        c[4 * i + 2 * j] = zip_low<2>(b[4 * i + j], b[4 * i + 2 + j]);
        c[4 * i + 2 * j + 1] = zip_high<2>(b[4 * i + j], b[4 * i + 2 + j]);
      }
    }
    for (int k = 0; k < 4; ++k) {  // eight: tokens 4 k..4 k + 3 of each sixteen
      store_bytes((uint8_t*)(out + 16 * k), zip_low<4>(c[k], c[4 + k]));
      store_bytes((uint8_t*)(out + 16 * k + 8), zip_high<4>(c[k], c[4 + k]));
    }
  }
}
QUIRE_INLINE int sign_slot(int token) { return token % 16 / 2 * 8 + token / 16 * 2 + token % 2; }

// Centroids rounded to 1/127 of the largest, with 128 added; the error, 1/254 of it, is a fifteenth of
// nested4's own.
template <int bits>
QUIRE_INLINE ByteTable centroid_bytes(const Codebook& book, float unit) {
  uint8_t entries[16] = {0};
  for (int c = 0; c < 1 << bits; ++c) {
    entries[c] = (uint8_t)(int)(__builtin_rintf(book.centroids[c] / unit) + 128.0f);
  }
  return byte_table(entries);
}

// What keys and values of bit planes share: `bits` of the code in planes, of which the sign is the first.
template <int bits>
struct PlaneRows {
  int head_dim;
  float unit;
  ByteTable table;
  FloatTable centroids;

  QUIRE_INLINE_MEMBER PlaneRows(const Codebook& book, int dim)
      : head_dim(dim),
        unit(book.centroids[(1 << bits) - 1] / 127.0f),
        table(centroid_bytes<bits>(book, unit)),
        centroids(float_table(book.centroids)) {}

  // Of 64 dims, from where their sign and magnitude planes lie.
  QUIRE_INLINE_MEMBER U8x64 code_bytes(const uint8_t* sign, const uint8_t* planes) const {
    return look_up(table, plane_codes<bits>(sign, planes, plane_bytes(head_dim)));
  }

  // Words of the sign plane lie sign_step bytes apart.
  QUIRE_INLINE_MEMBER void open_codes(const uint8_t* sign, int sign_step, const uint8_t* planes, float norm,
                                      float* out) const {
    uint8_t codes[kMaxHeadDim];
    for (int w = 0; w < words(head_dim); ++w) {
      store_bytes(codes + 64 * w,
                  plane_codes<bits>(sign + sign_step * w, planes + 8 * w, plane_bytes(head_dim)));
    }
    for (int d = 0; d < head_dim; d += 16) {
      store(out + d, mul(set1(norm), look_up_bytes(centroids, codes + d)));
    }
  }
};

template <int bits>
struct NestedKeys : PlaneRows<bits> {
  static constexpr int kZero = 128;
  using F = Turbo<bits>;
  KeyPage page;
  uint64_t signs[kPageTokens * kRowWords];

  QUIRE_INLINE_MEMBER NestedKeys(const Codebook& book, int dim, KeyPage from)
      : PlaneRows<bits>(book, dim), page(from) {
    spread_signs(page.index, dim, signs);
  }
  QUIRE_INLINE_MEMBER const uint8_t* norms() const {
    return page.index + F::key_norms_offset(this->head_dim);
  }
  QUIRE_INLINE_MEMBER const uint8_t* sign(int row, int w) const {
    return (const uint8_t*)(signs + kPageTokens * w + sign_slot(row));
  }
  QUIRE_INLINE_MEMBER const uint8_t* planes(int row) const {
    return page.rows + row * F::key_planes_bytes(this->head_dim);
  }
  QUIRE_INLINE_MEMBER U8x64 word(int row, int w) const {
    return this->code_bytes(sign(row, w), planes(row) + 8 * w);
  }
  QUIRE_INLINE_MEMBER void scales(float* out) const { load_halves(norms(), this->unit, out); }
  QUIRE_INLINE_MEMBER void open(int row, float* out) const {
    this->open_codes(sign(row, 0), 8 * kPageTokens, planes(row), get_half(norms() + 2 * row), out);
  }
};

template <int bits>
struct NestedValues : PlaneRows<bits> {
  static constexpr int kZero = 128;
  using F = Turbo<bits>;
  const uint8_t* page;

  QUIRE_INLINE_MEMBER NestedValues(const Codebook& book, int dim, const uint8_t* from)
      : PlaneRows<bits>(book, dim), page(from) {}
  QUIRE_INLINE_MEMBER const uint8_t* norm(int row) const {
    return page + row * F::value_row_bytes(this->head_dim);
  }
  QUIRE_INLINE_MEMBER const uint8_t* planes(int row) const { return norm(row) + F::kValueNormBytes; }
  QUIRE_INLINE_MEMBER U8x64 word(int row, int w) const {
    return this->code_bytes(planes(row) + 8 * w, planes(row) + 8 * w + plane_bytes(this->head_dim));
  }
  QUIRE_INLINE_MEMBER void scales(float* out) const {
    uint8_t halves[2 * kPageTokens];
    for (int t = 0; t < kPageTokens; ++t) memcpy(halves + 2 * t, norm(t), 2);
    load_halves(halves, this->unit, out);
  }
  QUIRE_INLINE_MEMBER void open(int row, float* out) const {
    this->open_codes(planes(row), 8, planes(row) + plane_bytes(this->head_dim), get_half(norm(row)), out);
  }
};
