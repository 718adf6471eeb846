// KIVI's codes in panels: the scale of a channel goes into the query before it is coded, once for each of the
// two groups of 32 tokens, and its zero gives one number for all of them; values have a scale and a zero for
// each token and 32 dims, which go into the weights likewise.

template <int bits>
struct KiviScore {
  using F = Kivi<bits>;
  using P = typename F::Panel;
  const float* q;
  int head_dim;
  const uint8_t* page;
  float* scores;
  Ahead* ahead;

  template <int N>
  QUIRE_INLINE_MEMBER void rows(int first) const {
    for (int group = 0; group < kPageTokens / F::kGroup; ++group) {
      CodedRow queries[N];
      const Multipliers* m[N];
      float zeros[N];
      for (int h = 0; h < N; ++h) {
        zeros[h] = scale_query(q + (first + h) * head_dim, group, &queries[h]);
        m[h] = &queries[h].m;
      }
      for (int b = group * F::kGroup / 16; b < (group + 1) * F::kGroup / 16; b += kPanelBlocks) {
        score_blocks<N>(queries, m, zeros, b, scores + first * kPageTokens + 16 * b);
      }
    }
  }

  // The query times the scales, coded; returns its product with the zeros.
  QUIRE_INLINE_MEMBER float scale_query(const float* query, int group, CodedRow* out) const {
    const uint16_t* scales = (const uint16_t*)(page + group * 4 * head_dim);
    F32x16 x[kMaxHeadDim / 16];
    const int n = load_row(query, head_dim, x);
    F32x16 product = zero();
    for (int v = 0; v < n; ++v) {
      // Past head_dim lie other numbers, which need not be finite.
      const int left = head_dim - 16 * v;
      const uint32_t lanes = left >= 16 ? 0xffffu : (1u << left) - 1;
      const F32x16 scale = select_bits(lanes, load_f16(scales + 16 * v), zero());
      const F32x16 least = select_bits(lanes, load_f16(scales + head_dim + 16 * v), zero());
      product = fma(x[v], least, product);
      x[v] = mul(x[v], scale);
    }
    code_multipliers(x, n, out);
    return reduce_add(product);
  }

  template <int N>
  QUIRE_INLINE_MEMBER void score_blocks(const CodedRow* queries, const Multipliers* const* m,
                                        const float* zeros, int b, float* out) const {
    const size_t block_bytes = (size_t)P::key_block_bytes(head_dim);
    Products products[N][kPanelBlocks];
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
      for (int v = 0; v < kPanelBlocks; ++v) products[h][v] = start_products(0);
    }
    pack_products<bits, PlainCodes, N, kPanelBlocks>(
        {}, page + F::key_codes_offset(head_dim) + b * block_bytes, block_bytes,
        P::key_quads(head_dim) / P::kSteps, m, 0, products, ahead);
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
      for (int v = 0; v < kPanelBlocks; ++v) {
        store(out + h * kPageTokens + 16 * v,
              fma(to_float(total(products[h][v])), set1(queries[h].scale), set1(zeros[h])));
      }
    }
  }
};

template <int bits>
void kivi_score(const Codebook&, const float* q, int n, int head_dim, const uint8_t* page, uint64_t,
                float* scores, BytesAhead next) {
  using P = PanelCodes<bits>;
  Ahead ahead = spread(next, page, (size_t)P::key_bytes(head_dim) / P::kPackBytes);
  for_row_tiles(n, KiviScore<bits>{q, head_dim, page, scores, &ahead});
}

template <int bits>
struct KiviAccumulate {
  using F = Kivi<bits>;
  using P = typename F::Panel;
  const float* p;
  const float* correction;
  uint64_t named;
  int head_dim;
  const uint8_t* page;
  float* o;
  Ahead* ahead;

  template <int N>
  QUIRE_INLINE_MEMBER void rows(int first) const {
    F32x16 probabilities[N][4];
    for (int h = 0; h < N; ++h) {
      load_probabilities(p + (first + h) * kPageTokens, named, probabilities[h]);
    }
    for (int start = 0; start < head_dim; start += F::kGroup) {
      CodedRow weights[N];
      const Multipliers* m[N];
      float zeros[N];
      for (int h = 0; h < N; ++h) {
        zeros[h] = scale_weights(probabilities[h], start / F::kGroup, &weights[h]);
        m[h] = &weights[h].m;
      }
      const int end = head_dim - start < F::kGroup ? head_dim : start + F::kGroup;
      int d = start;
      for (; d + 16 * (kPanelBlocks - 1) < end; d += 16 * kPanelBlocks) {
        add_blocks<N, kPanelBlocks>(weights, m, zeros, first, d);
      }
      if (d < end) add_blocks<N, 1>(weights, m, zeros, first, d);
    }
  }

  // Probabilities times the scales, coded; returns their product with the zeros.
  QUIRE_INLINE_MEMBER float scale_weights(const F32x16* weight, int group, CodedRow* out) const {
    const uint16_t* scales = (const uint16_t*)page + group * kPageTokens;
    const uint16_t* least = scales + F::value_zeros_offset(head_dim) / 2;
    F32x16 x[4];
    F32x16 product = zero();
    for (int v = 0; v < 4; ++v) {
      product = fma(weight[v], load_f16(least + 16 * v), product);
      x[v] = mul(weight[v], load_f16(scales + 16 * v));
    }
    code_multipliers(x, 4, out);
    return reduce_add(product);
  }

  // B blocks of 16 dims from dim d on.
  template <int N, int B>
  QUIRE_INLINE_MEMBER void add_blocks(const CodedRow* weights, const Multipliers* const* m,
                                      const float* zeros, int first, int d) const {
    Products products[N][B];
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) products[h][b] = start_products(0);
    }
    pack_products<bits, PlainCodes, N, B>(
        {}, page + F::value_codes_offset(head_dim) + d / 16 * P::kValueBlockBytes, P::kValueBlockBytes,
        16 / P::kSteps, m, 0, products, ahead);
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) {
        float* to = o + (size_t)(first + h) * head_dim + d + 16 * b;
        const F32x16 sum = fma(to_float(total(products[h][b])), set1(weights[h].scale), set1(zeros[h]));
        add_to_output(to, head_dim - d - 16 * b, sum, correction[first + h]);
      }
    }
  }
};

template <int bits>
void kivi_accumulate(const Codebook&, const float* p, const float* correction, uint64_t rows, int n,
                     int head_dim, const uint8_t* page, float* o, BytesAhead next) {
  using P = PanelCodes<bits>;
  Ahead ahead = spread(next, page, (size_t)P::value_bytes(head_dim) / P::kPackBytes);
  for_row_tiles(n, KiviAccumulate<bits>{p, correction, rows, head_dim, page, o, &ahead});
}
