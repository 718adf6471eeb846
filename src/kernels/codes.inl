// Coding and reading of whole pages, for every format of the catalogue alike. Faster kernels stand in for
// them: panel_*.inl for codes in panels (isa_panels.cpp), row_*.inl for those that lie row by row
// (isa_planes.cpp).

// A key page as the format knows it: in two parts or in one.
template <class F>
QUIRE_INLINE auto page_of(KeyPage page) {
  if constexpr (IndexedFormat<F>) {
    return page;
  } else {
    return page.rows;
  }
}

// keys [head_dim][64] -> page
template <class F>
void seal_keys(const Frame* frame, const Codebook& book, int head_dim, const float* keys, uint8_t* index,
               uint8_t* page) {
  float rows[kPageTokens * kMaxHeadDim];
  for (int d = 0; d < head_dim; ++d) {
    for (int t = 0; t < kPageTokens; ++t) rows[t * head_dim + d] = keys[d * kPageTokens + t];
  }
  if (frame != nullptr) {
    for (int t = 0; t < kPageTokens; ++t) to_frame(*frame, rows + t * head_dim, rows + t * head_dim);
  }
  if constexpr (IndexedFormat<F>) {
    F::encode_keys(rows, head_dim, book, index, page);
  } else {
    F::encode_keys(rows, head_dim, book, page);
  }
}

// values [64][head_dim] -> page
template <class F>
void seal_values(const Frame* frame, const Codebook& book, int head_dim, const float* values, uint8_t* page) {
  float rows[kPageTokens * kMaxHeadDim];
  if (frame == nullptr) return F::encode_values(values, head_dim, book, page);
  for (int t = 0; t < kPageTokens; ++t) to_frame(*frame, values + t * head_dim, rows + t * head_dim);
  F::encode_values(rows, head_dim, book, page);
}

// page -> keys [head_dim][64], in the frame
template <class F, class Page>
void open_keys(const Codebook& book, int head_dim, Page page, float* keys) {
  for (int t = 0; t < kPageTokens; ++t) {
    float row[kMaxHeadDim];
    F::decode_key_row(page, head_dim, t, book, row);
    for (int d = 0; d < head_dim; ++d) keys[d * kPageTokens + t] = row[d];
  }
}

// The rows named of a page -> values [64][head_dim], in the frame; other rows are left as they are.
template <class F>
void open_values(const Codebook& book, int head_dim, const uint8_t* page, uint64_t rows, float* values) {
  for (; rows != 0; rows &= rows - 1) {
    const int t = __builtin_ctzll(rows);
    F::decode_value_row(page, head_dim, t, book, values + t * head_dim);
  }
}

void frame_queries(const Frame& frame, const float* q, int n, int head_dim, float* framed, float* bias) {
  for (int i = 0; i < n; ++i) {
    query_to_frame(frame, q + i * head_dim, framed + i * head_dim);
    bias[i] = query_bias(frame, q + i * head_dim);
  }
}

void unframe_output(const Frame& frame, int n, int head_dim, float* o, const float* l) {
  for (int i = 0; i < n; ++i) output_from_frame(frame, o + i * head_dim, l[i], o + i * head_dim);
}

// scores [n][64] of the rows named; other lanes are left as they are or hold garbage.
template <class F, class Page>
void score_coded(const Codebook& book, const float* q, int n, int head_dim, Page page, uint64_t rows,
                 float* scores, BytesAhead next) {
  fetch_ahead(next);
  float keys[kPageTokens * kMaxHeadDim];
  (void)rows;
  open_keys<F>(book, head_dim, page, keys);
  score<RowF32>(q, (size_t)head_dim, n, head_dim, keys, scores, nullptr);
}

// o [n][head_dim] = o * correction + p [n][64] . values, over the rows named.
template <class F>
void accumulate_coded(const Codebook& book, const float* p, const float* correction, uint64_t rows, int n,
                      int head_dim, const uint8_t* page, float* o, BytesAhead next) {
  fetch_ahead(next);
  float values[kPageTokens * kMaxHeadDim + kSpareBytes / sizeof(float)];
  open_values<F>(book, head_dim, page, rows, values);
  accumulate<RowF32>(p, correction, rows, n, head_dim, values, o, (size_t)head_dim, nullptr);
}

// scores [tile of 64 rows][n][64] of single rows.
template <class F>
void score_coded_rows(const Codebook& book, const float* q, int n, int head_dim, KeyRowRefs refs,
                      float* scores, KeyRowRefs) {
  float keys[kPageTokens * kMaxHeadDim];
  for (int first = 0; first < refs.n; first += kPageTokens, scores += n * kPageTokens) {
    for (int i = 0; i < kPageTokens; ++i) {
      float row[kMaxHeadDim] = {0};
      if (first + i < refs.n) {
        const int at = refs.rows[first + i];
        F::decode_key_row(page_of<F>(refs.pages[at / kPageTokens]), head_dim, at % kPageTokens, book, row);
      }
      for (int d = 0; d < head_dim; ++d) keys[d * kPageTokens + i] = row[d];
    }
    score<RowF32>(q, (size_t)head_dim, n, head_dim, keys, scores, nullptr);
  }
}

template <class F>
void accumulate_coded_rows(const Codebook& book, const float* p, const float* correction, RowRefs refs,
                           uint64_t kept, int n, int head_dim, float* o, RowRefs, uint64_t) {
  float values[kPageTokens * kMaxHeadDim + kSpareBytes / sizeof(float)];
  for (uint64_t left = kept; left != 0; left &= left - 1) {
    const int i = __builtin_ctzll(left);
    F::decode_value_row(refs.pages[refs.rows[i] / kPageTokens], head_dim, refs.rows[i] % kPageTokens, book,
                        values + i * head_dim);
  }
  accumulate<RowF32>(p, correction, kept, n, head_dim, values, o, (size_t)head_dim, nullptr);
}

// What a format uses: the above, unless something faster is given here.
template <class F>
struct Fused {
  using Page = decltype(page_of<F>({}));
  static constexpr auto score = score_coded<F, Page>;
  static constexpr auto accumulate = accumulate_coded<F>;
  static constexpr auto open_keys = quire::QUIRE_ISA::open_keys<F, Page>;
  static constexpr auto open_values = quire::QUIRE_ISA::open_values<F>;
};
// The same for single rows of several pages.
template <class F>
struct SingleRows {
  static constexpr auto score = score_coded_rows<F>;
  static constexpr auto accumulate = accumulate_coded_rows<F>;
};
// Adds a format to the table.
template <class F>
void add_code(int code, CodeOps& ops) {
  ops.seal_keys[code] = seal_keys<F>;
  ops.seal_values[code] = seal_values<F>;
  ops.open_keys[code] = [](const Codebook& book, int head_dim, KeyPage page, float* keys) {
    Fused<F>::open_keys(book, head_dim, page_of<F>(page), keys);
  };
  ops.open_values[code] = Fused<F>::open_values;
  ops.score[code] = [](const Codebook& book, const float* q, int n, int head_dim, KeyPage page, uint64_t rows,
                       float* scores, BytesAhead next) {
    Fused<F>::score(book, q, n, head_dim, page_of<F>(page), rows, scores, next);
  };
  ops.accumulate[code] = Fused<F>::accumulate;
  ops.score_rows[code] = SingleRows<F>::score;
  ops.accumulate_rows[code] = SingleRows<F>::accumulate;
}
template <class F, bool kIndexed>
void add_code_if(int code, CodeOps& ops) {
  if constexpr (IndexedFormat<F> == kIndexed) add_code<F>(code, ops);
}
// All formats with an index (isa_planes.cpp), or all others (isa_panels.cpp).
template <bool kIndexed, class... Entries>
void add_codes(CodeList<Entries...>, CodeOps& ops) {
  (add_code_if<typename Entries::Type, kIndexed>((int)Entries::code, ops), ...);
}
