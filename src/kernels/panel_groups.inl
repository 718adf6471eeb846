// Panels whose scales belong to one token and a group of dims: q8, q4 (groups of 32) and the turbo codes (one
// group, the norm). A group's products are summed exactly, then scaled.

// How a format's page is read: where codes and scales lie, and what a code stands for.
template <class F>
struct GroupView {  // q8, q4
  using Codes = PlainCodes;
  using Panel = typename F::Panel;
  static constexpr int kZero = F::kZero;
  static constexpr int kGroupDims = kGroupValues;
  QUIRE_INLINE int key_offset(int head_dim) { return F::codes_offset(head_dim); }
  QUIRE_INLINE int value_offset(int head_dim) { return F::codes_offset(head_dim); }
  QUIRE_INLINE Codes codes(const Codebook&) { return {}; }
  QUIRE_INLINE float unit(const Codebook&) { return 1.0f; }  // a byte is worth unit * scale
};
// Ranks of `bits` among the centroids, one scale a token.
template <class F, int bits>
struct RankView {
  using Codes = TableCodes;
  using Panel = PanelCodes<bits>;
  static constexpr int kZero = 128;
  static constexpr int kGroupDims = kMaxHeadDim;
  QUIRE_INLINE float unit(const Codebook& book) { return book.centroids[(1 << bits) - 1] / 127.0f; }
  QUIRE_INLINE Codes codes(const Codebook& book) {
    uint8_t entries[16] = {0};
    for (int r = 0; r < 1 << bits; ++r) {
      const float level = __builtin_rintf(F::centroid(book, r) / unit(book));
      entries[bits == 1 ? 2 * r : r] = (uint8_t)(int)(level + 128.0f);
    }
    return {byte_table(entries)};
  }
};
template <int bits>
struct GroupView<TurboPanel<bits>> : RankView<TurboPanel<bits>, bits> {
  QUIRE_INLINE int key_offset(int) { return TurboPanel<bits>::kNormBytes; }
  QUIRE_INLINE int value_offset(int) { return TurboPanel<bits>::kNormBytes; }
};
template <class V>
struct GroupScore {
  const Codebook& book;
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
      code_query(q + (first + h) * head_dim, head_dim, 4 * V::Panel::key_quads(head_dim), &queries[h]);
      queries[h].scale *= V::unit(book);
      m[h] = &queries[h].m;
    }
    const auto codes = V::codes(book);
    for (int b = 0; b < 4; b += kPanelBlocks) {
      score_blocks<N>(codes, queries, m, b, scores + first * kPageTokens + 16 * b);
    }
  }

  // kPanelBlocks blocks of 16 tokens from block b on.
  template <int N, class Codes>
  QUIRE_INLINE_MEMBER void score_blocks(const Codes& codes, const CodedRow* queries,
                                        const Multipliers* const* m, int b, float* out) const {
    using P = typename V::Panel;
    const size_t block_bytes = (size_t)P::key_block_bytes(head_dim);
    const uint8_t* packs = page + V::key_offset(head_dim) + b * block_bytes;
    const uint16_t* scales = (const uint16_t*)page + 16 * b;
    F32x16 sums[N][kPanelBlocks];
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
      for (int v = 0; v < kPanelBlocks; ++v) sums[h][v] = zero();
    }
    const int n_quads = P::key_quads(head_dim);
    for (int quad = 0; quad < n_quads; quad += V::kGroupDims / 4, scales += kPageTokens) {
      const int quads = n_quads - quad < V::kGroupDims / 4 ? n_quads - quad : V::kGroupDims / 4;
      Products products[N][kPanelBlocks];
#pragma GCC unroll 4
      for (int h = 0; h < N; ++h) {
        const int start = -V::kZero * sum_of(queries[h], 4 * quad, 4 * (quad + quads));
#pragma GCC unroll 2
        for (int v = 0; v < kPanelBlocks; ++v) products[h][v] = start_products(start);
      }
      pack_products<P::kBits, Codes, N, kPanelBlocks>(codes, packs, block_bytes, quads / P::kSteps, m, quad,
                                                      products, ahead);
      packs += quads / P::kSteps * P::kPackBytes;
#pragma GCC unroll 2
      for (int v = 0; v < kPanelBlocks; ++v) {
        const F32x16 scale = load_f16(scales + 16 * v);
#pragma GCC unroll 4
        for (int h = 0; h < N; ++h) sums[h][v] = fma(to_float(total(products[h][v])), scale, sums[h][v]);
      }
    }
    for (int h = 0; h < N; ++h) {
      for (int v = 0; v < kPanelBlocks; ++v) {
        store(out + h * kPageTokens + 16 * v, mul(sums[h][v], set1(queries[h].scale)));
      }
    }
  }
};

template <class F>
void group_score(const Codebook& book, const float* q, int n, int head_dim, const uint8_t* page, uint64_t,
                 float* scores, BytesAhead next) {
  using V = GroupView<F>;
  Ahead ahead = spread(next, page, (size_t)V::Panel::key_bytes(head_dim) / V::Panel::kPackBytes);
  for_row_tiles(n, GroupScore<V>{book, q, head_dim, page, scores, &ahead});
}

template <class V>
struct GroupAccumulate {
  const Codebook& book;
  const float* p;
  const float* correction;
  uint64_t named;
  int head_dim;
  const uint8_t* page;
  float* o;
  size_t ldo;
  Ahead* ahead;

  template <int N>
  QUIRE_INLINE_MEMBER void rows(int first) const {
    const auto codes = V::codes(book);
    F32x16 probabilities[N][4];
    for (int h = 0; h < N; ++h) {
      load_probabilities(p + (first + h) * kPageTokens, named, probabilities[h]);
    }
    const uint16_t* scales = (const uint16_t*)page;
    for (int start = 0; start < head_dim; start += V::kGroupDims, scales += kPageTokens) {
      CodedRow weights[N];
      const Multipliers* m[N];
      for (int h = 0; h < N; ++h) {
        F32x16 x[4];
        for (int v = 0; v < 4; ++v) x[v] = mul(probabilities[h][v], load_f16(scales + 16 * v));
        code_multipliers(x, 4, &weights[h]);
        weights[h].scale *= V::unit(book);
        m[h] = &weights[h].m;
      }
      const int end = head_dim - start < V::kGroupDims ? head_dim : start + V::kGroupDims;
      int d = start;
      for (; d + 16 * (kPanelBlocks - 1) < end; d += 16 * kPanelBlocks) {
        add_blocks<N, kPanelBlocks>(codes, weights, m, first, d);
      }
      if (d < end) add_blocks<N, 1>(codes, weights, m, first, d);
    }
  }

  // B blocks of 16 dims from dim d on.
  template <int N, int B, class Codes>
  QUIRE_INLINE_MEMBER void add_blocks(const Codes& codes, const CodedRow* weights,
                                      const Multipliers* const* m, int first, int d) const {
    using P = typename V::Panel;
    const uint8_t* packs = page + V::value_offset(head_dim) + d / 16 * P::kValueBlockBytes;
    Products products[N][B];
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
      const int start = -V::kZero * sum_of(weights[h], 0, kPageTokens);
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) products[h][b] = start_products(start);
    }
    pack_products<P::kBits, Codes, N, B>(codes, packs, P::kValueBlockBytes, 16 / P::kSteps, m, 0, products,
                                         ahead);
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) {
        float* to = o + (size_t)(first + h) * ldo + d + 16 * b;
        const F32x16 sum = mul(to_float(total(products[h][b])), set1(weights[h].scale));
        add_to_output(to, head_dim - d - 16 * b, sum, correction[first + h]);
      }
    }
  }
};

// Rows of o are ldo apart.
template <class F>
QUIRE_INLINE void accumulate_groups(const Codebook& book, const float* p, const float* correction,
                                    uint64_t rows, int n, int head_dim, const uint8_t* page, float* o,
                                    size_t ldo, BytesAhead next) {
  using V = GroupView<F>;
  Ahead ahead = spread(next, page, (size_t)V::Panel::value_bytes(head_dim) / V::Panel::kPackBytes);
  for_row_tiles(n, GroupAccumulate<V>{book, p, correction, rows, head_dim, page, o, ldo, &ahead});
}
template <class F>
void group_accumulate(const Codebook& book, const float* p, const float* correction, uint64_t rows, int n,
                      int head_dim, const uint8_t* page, float* o, BytesAhead next) {
  accumulate_groups<F>(book, p, correction, rows, n, head_dim, page, o, (size_t)head_dim, next);
}
