// Exact rows in pages, and attention over one page.
//
// A page of one KV head keeps keys dimension-major, [head_dim][64]: lanes are tokens, so 64 scores grow side
// by side and no sum across lanes is needed. Values are token-major, [64][head_dim]: lanes are dims of the
// output. Both loops take every sum in one order (dims 0.., tokens 0..), whatever the number of query rows
// computed together: a query gets the same output from decode and from prefill.

struct RowF32 {
  using T = float;
  QUIRE_INLINE F32x16 get(const T* p) { return load(p); }
  QUIRE_INLINE T from(float x) { return x; }
  QUIRE_INLINE float to(T x) { return x; }
};
struct RowF16 {
  using T = uint16_t;
  QUIRE_INLINE F32x16 get(const T* p) { return load_f16(p); }
  // Beyond the range the largest finite number is kept: an infinity times a probability of 0 would be NaN.
  QUIRE_INLINE T from(float x) { return f32_to_f16(x > kLargest ? kLargest : x < -kLargest ? -kLargest : x); }
  QUIRE_INLINE float to(T x) { return f16_to_f32(x); }
  static constexpr float kLargest = 65504.0f;
};
struct RowBF16 {
  using T = uint16_t;
  QUIRE_INLINE F32x16 get(const T* p) { return load_bf16(p); }
  // The same, for what would round up to infinity.
  QUIRE_INLINE T from(float x) {
    return f32_to_bf16(x > kLargest ? kLargest : x < -kLargest ? -kLargest : x);
  }
  static constexpr float kLargest = 0x1.fep127f;
  QUIRE_INLINE float to(T x) { return bf16_to_f32(x); }
};
struct RowFP8 {
  using T = uint8_t;
  QUIRE_INLINE F32x16 get(const T* p) { return load_fp8(p); }
  QUIRE_INLINE T from(float x) { return f32_to_fp8(x); }
  QUIRE_INLINE float to(T x) { return fp8_to_f32(x); }
};

// 16 values in their stored form.
QUIRE_INLINE void to_rows(RowF32, const float* x, float* out) { memcpy(out, x, 64); }
QUIRE_INLINE void to_rows(RowF16, const float* x, uint16_t* out) {
  // x comes second: min and max give their second operand where one is NaN, so a NaN is kept, not hidden.
  store_f16(out, min(set1(RowF16::kLargest), max(set1(-RowF16::kLargest), load(x))));
}
QUIRE_INLINE void to_rows(RowBF16, const float* x, uint16_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = RowBF16::from(x[i]);
}
QUIRE_INLINE void to_rows(RowFP8, const float* x, uint8_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = RowFP8::from(x[i]);
}

template <class R>
void store_keys(void* page_keys, int first, int n, int head_dim, const float* k, size_t ldk) {
  typename R::T* keys = (typename R::T*)page_keys + first;
  for (int t = 0; t < n; ++t) {
    int d = 0;
    for (; d + 16 <= head_dim; d += 16) {
      typename R::T coded[16];
      to_rows(R{}, k + t * ldk + d, coded);
      for (int i = 0; i < 16; ++i) keys[(size_t)(d + i) * kPageTokens + t] = coded[i];
    }
    for (; d < head_dim; ++d) keys[(size_t)d * kPageTokens + t] = R::from(k[t * ldk + d]);
  }
}

template <class R>
void store_values(void* page_values, int first, int n, int head_dim, const float* v, size_t ldv) {
  typename R::T* values = (typename R::T*)page_values + (size_t)first * head_dim;
  for (int t = 0; t < n; ++t, v += ldv, values += head_dim) {
    int d = 0;
    for (; d + 16 <= head_dim; d += 16) to_rows(R{}, v + d, values + d);
    for (; d < head_dim; ++d) values[d] = R::from(v[d]);
  }
}

// n_values is a multiple of 16 (a page has 64 tokens).
template <class R>
void unpack(const void* rows, size_t n_values, float* out) {
  const typename R::T* p = (const typename R::T*)rows;
  for (size_t i = 0; i < n_values; i += 16) store(out + i, R::get(p + i));
}

// Asks for one row's bytes of what will be read next, at the same distance from its beginning.
QUIRE_INLINE void prefetch_row(const uint8_t* next, size_t row_bytes, int row) {
  fetch_ahead({next + row * row_bytes, row_bytes});
}

// N query rows against V * 16 keys.
template <class R, int N, int V>
QUIRE_INLINE void score_block(const float* q, size_t ldq, int head_dim, const typename R::T* keys,
                              float* scores, const uint8_t* next) {
  F32x16 acc[N][V];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[i][v] = zero();
  }
  for (int d = 0; d < head_dim; ++d, keys += kPageTokens) {
    if (next != nullptr) prefetch_row(next, kPageTokens * sizeof *keys, d);
    F32x16 k[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) k[v] = R::get(keys + 16 * v);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const F32x16 x = set1(q[i * ldq + d]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[i][v] = fma(k[v], x, acc[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(scores + i * kPageTokens + 16 * v, acc[i][v]);
  }
}

template <class R, int N>
QUIRE_INLINE void score_rows(const float* q, size_t ldq, int head_dim, const typename R::T* keys,
                             float* scores, const uint8_t* next) {
  for (int v = 0; v < 4; v += kScoreVectors) {
    score_block<R, N, kScoreVectors>(q, ldq, head_dim, keys + 16 * v, scores + 16 * v,
                                     v == 0 ? next : nullptr);
  }
}

template <class R>
void score(const float* q, size_t ldq, int n, int head_dim, const void* page_keys, float* scores,
           const void* next_rows) {
  const typename R::T* keys = (const typename R::T*)page_keys;
  const uint8_t* next = (const uint8_t*)next_rows;
  int i = 0;
  for (; i + kScoreRows <= n; i += kScoreRows, next = nullptr) {
    score_rows<R, kScoreRows>(q + i * ldq, ldq, head_dim, keys, scores + i * kPageTokens, next);
  }
  q += i * ldq;
  scores += i * kPageTokens;
  switch (n - i) {
    case 5:
      if constexpr (kScoreRows > 5) score_rows<R, 5>(q, ldq, head_dim, keys, scores, next);
      break;
    case 4:
      if constexpr (kScoreRows > 4) score_rows<R, 4>(q, ldq, head_dim, keys, scores, next);
      break;
    case 3:
      if constexpr (kScoreRows > 3) score_rows<R, 3>(q, ldq, head_dim, keys, scores, next);
      break;
    case 2:
      if constexpr (kScoreRows > 2) score_rows<R, 2>(q, ldq, head_dim, keys, scores, next);
      break;
    case 1:
      if constexpr (kScoreRows > 1) score_rows<R, 1>(q, ldq, head_dim, keys, scores, next);
      break;
    default: break;
  }
}

// A key row at a time, keys [n_keys][head_dim]; for the few sinks.
template <class R>
void score_few(const float* q, size_t ldq, int n, int head_dim, const void* row_keys, int n_keys,
               float* scores) {
  for (int row = 0; row < n_keys; ++row) {
    const typename R::T* key = (const typename R::T*)row_keys + (size_t)row * head_dim;
    for (int i = 0; i < n; ++i) {
      F32x16 sums = zero();
      int d = 0;
      for (; d + 16 <= head_dim; d += 16) sums = fma(R::get(key + d), load(q + i * ldq + d), sums);
      float sum = reduce_add(sums);
      for (; d < head_dim; ++d) sum += R::to(key[d]) * q[i * ldq + d];
      scores[i * kPageTokens + row] = sum;
    }
  }
}

void softmax(float* scores, const uint64_t* masks, int n, float* m, float* l, float* correction) {
  const F32x16 none = set1(-__builtin_inff());
  for (int i = 0; i < n; ++i, scores += kPageTokens) {
    F32x16 s[4];
    for (int v = 0; v < 4; ++v)
      s[v] = select_bits((uint32_t)(masks[i] >> (16 * v)) & 0xffffu, load(scores + 16 * v), none);
    const float best = reduce_max(max(max(s[0], s[1]), max(s[2], s[3])));
    const float top = best > m[i] ? best : m[i];
    if (top == -__builtin_inff()) {  // nothing attended so far: no exponent is taken of inf - inf
      for (int v = 0; v < 4; ++v) store(scores + 16 * v, zero());
      correction[i] = 1.0f;
      continue;
    }
    for (int v = 0; v < 4; ++v) {
      s[v] = exponential(sub(s[v], set1(top)));
      store(scores + 16 * v, s[v]);
    }
    float shrink[16];
    store(shrink, exponential(set1(m[i] - top)));
    correction[i] = shrink[0];
    l[i] = l[i] * shrink[0] + reduce_add(add(add(s[0], s[1]), add(s[2], s[3])));
    m[i] = top;
  }
}

// N outputs, V * 16 dims of them (or fewer: the last `tail` lanes only are stored when tail > 0).
template <class R, int N, int V>
QUIRE_INLINE void accumulate_block(const float* p, const float* correction, uint64_t rows, int head_dim,
                                   const typename R::T* values, float* o, size_t ldo, int tail,
                                   const uint8_t* next) {
  F32x16 acc[N][V];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const float* from = o + i * ldo + 16 * v;
      acc[i][v] = mul(v == V - 1 && tail > 0 ? load_partial(from, tail) : load(from), set1(correction[i]));
    }
  }
  for (uint64_t left = rows; left != 0; left &= left - 1) {
    const int row = __builtin_ctzll(left);
    const typename R::T* value = values + (size_t)row * head_dim;
    if (next != nullptr) prefetch_row(next, (size_t)head_dim * sizeof *values, row);
    F32x16 x[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) x[v] = R::get(value + 16 * v);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const F32x16 weight = set1(p[i * kPageTokens + row]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[i][v] = fma(x[v], weight, acc[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* to = o + i * ldo + 16 * v;
      if (v == V - 1 && tail > 0) {
        store_partial(to, acc[i][v], tail);
      } else {
        store(to, acc[i][v]);
      }
    }
  }
}

template <class R, int N>
QUIRE_INLINE void accumulate_rows(const float* p, const float* correction, uint64_t rows, int head_dim,
                                  const typename R::T* values, float* o, size_t ldo, const uint8_t* next) {
  int d = 0;
  for (; d + 16 * kScoreVectors <= head_dim; d += 16 * kScoreVectors, next = nullptr) {
    accumulate_block<R, N, kScoreVectors>(p, correction, rows, head_dim, values + d, o + d, ldo, 0, next);
  }
  for (; d < head_dim; d += 16, next = nullptr) {
    const int tail = head_dim - d < 16 ? head_dim - d : 0;
    accumulate_block<R, N, 1>(p, correction, rows, head_dim, values + d, o + d, ldo, tail, next);
  }
}

template <class R>
void accumulate(const float* p, const float* correction, uint64_t rows, int n, int head_dim,
                const void* page_values, float* o, size_t ldo, const void* next_rows) {
  const typename R::T* values = (const typename R::T*)page_values;
  const uint8_t* next = (const uint8_t*)next_rows;
  int i = 0;
  for (; i + kScoreRows <= n; i += kScoreRows, next = nullptr) {
    accumulate_rows<R, kScoreRows>(p + i * kPageTokens, correction + i, rows, head_dim, values, o + i * ldo,
                                   ldo, next);
  }
  p += i * kPageTokens;
  correction += i;
  o += i * ldo;
  switch (n - i) {
    case 5:
      if constexpr (kScoreRows > 5)
        accumulate_rows<R, 5>(p, correction, rows, head_dim, values, o, ldo, next);
      break;
    case 4:
      if constexpr (kScoreRows > 4)
        accumulate_rows<R, 4>(p, correction, rows, head_dim, values, o, ldo, next);
      break;
    case 3:
      if constexpr (kScoreRows > 3)
        accumulate_rows<R, 3>(p, correction, rows, head_dim, values, o, ldo, next);
      break;
    case 2:
      if constexpr (kScoreRows > 2)
        accumulate_rows<R, 2>(p, correction, rows, head_dim, values, o, ldo, next);
      break;
    case 1:
      if constexpr (kScoreRows > 1)
        accumulate_rows<R, 1>(p, correction, rows, head_dim, values, o, ldo, next);
      break;
    default: break;
  }
}

// Weights e^(m_a - top) and e^(m_b - top); b's part is added to a's. The states of an empty set (m = -inf)
// have weight 0, and two of them stay empty.
void merge(float* m_a, float* l_a, float* o_a, const float* m_b, const float* l_b, const float* o_b, int n,
           int head_dim) {
  for (int i = 0; i < n; ++i, o_a += head_dim, o_b += head_dim) {
    if (m_b[i] == -__builtin_inff()) continue;
    const float top = m_a[i] > m_b[i] ? m_a[i] : m_b[i];
    float weights[16];
    store(weights, exponential(select_bits(1, set1(m_a[i] - top), set1(m_b[i] - top))));
    l_a[i] = l_a[i] * weights[0] + l_b[i] * weights[1];
    m_a[i] = top;
    int d = 0;
    for (; d + 16 <= head_dim; d += 16) {
      store(o_a + d, add(mul(load(o_a + d), set1(weights[0])), mul(load(o_b + d), set1(weights[1]))));
    }
    for (; d < head_dim; ++d) o_a[d] = o_a[d] * weights[0] + o_b[d] * weights[1];
  }
}
