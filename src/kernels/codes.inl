// Coding and reading of whole pages, for every format of the catalogue alike; turbo.inl has what is faster for
// some.

// keys [head_dim][64] -> page
template <class F>
void seal_keys(const Frame* frame, const Codebook& book, int head_dim, const float* keys, uint8_t* page) {
  float rows[kPageTokens * kMaxHeadDim];
  for (int d = 0; d < head_dim; ++d) {
    for (int t = 0; t < kPageTokens; ++t) rows[t * head_dim + d] = keys[d * kPageTokens + t];
  }
  if (frame != nullptr) {
    for (int t = 0; t < kPageTokens; ++t) to_frame(*frame, rows + t * head_dim, rows + t * head_dim);
  }
  F::encode_keys(rows, head_dim, book, page);
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
template <class F>
void open_keys(const Codebook& book, int head_dim, const uint8_t* page, float* keys) {
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

template <class... F>
constexpr CodeOps code_ops(CodeList<F...>) {
  return {{seal_keys<F>...}, {seal_values<F>...}, {open_keys<F>...}, {open_values<F>...}, frame_queries, unframe_output};
}
