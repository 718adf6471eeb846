// Single rows of nested pages (format/turbo.h): bytes of the codebook, scaled by the row's norm.

template <int bits>
struct SingleNestedKeys : PlaneRows<bits> {
  using F = Turbo<bits>;

  QUIRE_INLINE_MEMBER SingleNestedKeys(const Codebook& book, int dim) : PlaneRows<bits>(book, dim) {}
  QUIRE_INLINE int index_bytes(int head_dim) { return F::index_page_bytes(head_dim); }
  QUIRE_INLINE int row_bytes(int head_dim) { return F::key_planes_bytes(head_dim); }

  QUIRE_INLINE_MEMBER void begin(KeyRowRefs refs, int first, int last, float* scales) const {
    uint16_t norms[kRowTile] = {0};
    const int offset = F::key_norms_offset(this->head_dim);
    for (int i = first; i < last; ++i) {
      const int at = refs.rows[i];
      memcpy(&norms[i - first], refs.pages[at / kPageTokens].index + offset + at % kPageTokens * 2, 2);
    }
    store(scales, mul(load_f16(norms), set1(this->unit)));
  }
  QUIRE_INLINE_MEMBER U8x64 word(int, const uint8_t* sign, const uint8_t* row, int w) const {
    return this->code_bytes(sign, row + 8 * w);
  }
};

template <int bits>
struct SingleNestedValues : PlaneRows<bits> {
  using F = Turbo<bits>;

  QUIRE_INLINE_MEMBER SingleNestedValues(const Codebook& book, int dim) : PlaneRows<bits>(book, dim) {}
  QUIRE_INLINE int row_bytes(int head_dim) { return F::value_row_bytes(head_dim); }

  QUIRE_INLINE_MEMBER void begin(ValueTile* tile) const {
    uint16_t norms[kPageTokens] = {0};
    for (int i = 0; i < tile->n; ++i) memcpy(&norms[i], tile->rows[i], 2);
    for (int i = 0; i < tile->n; i += 16) {
      store(tile->scales + i, mul(load_f16(norms + i), set1(this->unit)));
    }
  }
  QUIRE_INLINE_MEMBER U8x64 word(int, const uint8_t* row, int w) const {
    const uint8_t* planes = row + F::kValueNormBytes + 8 * w;
    return this->code_bytes(planes, planes + plane_bytes(this->head_dim));
  }
};
