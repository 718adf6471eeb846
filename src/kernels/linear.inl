// One panel of 16 weight rows times a tile of tokens. Every output is one lane's chain of
//
//   acc = fma(float(codes . activations), scale * scale_a, acc);  acc = fma(offset, sum_a, acc)
//
// over the blocks from left to right, whatever the tile: so a token's logits do not depend on how many
// tokens are computed beside it, and the vector sets agree bit for bit.

// A quantized kind gives: code group g of a block, and scale and offset of the block (or of its halves).
struct Nibbles {
  static constexpr bool kWide = false;  // codes reach 128 and above
  static constexpr int kHalves = 1;     // scales per block of 32 columns
  QUIRE_INLINE U8x64 nibble_group(const uint8_t* codes, int g) {
    const U8x64 v = load_bytes(codes + 64 * (g & 3));
    return g < 4 ? low_nibbles(v) : high_nibbles(v);
  }
};

struct Q4_0 : Nibbles {
  static constexpr PanelKind kKind = PanelKind::kQ4_0;
  QUIRE_INLINE U8x64 group(const uint8_t* body, int g) { return nibble_group(body + 32, g); }
  QUIRE_INLINE void scales(const uint8_t*, const uint8_t* body, int, F32x16& scale, F32x16& offset) {
    scale = load_f16((const uint16_t*)body);
    offset = mul(scale, set1(-8.0f));
  }
};

struct Q4_1 : Nibbles {
  static constexpr PanelKind kKind = PanelKind::kQ4_1;
  QUIRE_INLINE U8x64 group(const uint8_t* body, int g) { return nibble_group(body + 64, g); }
  QUIRE_INLINE void scales(const uint8_t*, const uint8_t* body, int, F32x16& scale, F32x16& offset) {
    scale = load_f16((const uint16_t*)body);
    offset = load_f16((const uint16_t*)body + 16);
  }
};

struct Q5_0 : Nibbles {
  static constexpr PanelKind kKind = PanelKind::kQ5_0;
  QUIRE_INLINE U8x64 group(const uint8_t* body, int g) {
    return add_where(nibble_group(body + 96, g), body + 32 + 8 * g, 16);
  }
  QUIRE_INLINE void scales(const uint8_t*, const uint8_t* body, int, F32x16& scale, F32x16& offset) {
    scale = load_f16((const uint16_t*)body);
    offset = mul(scale, set1(-16.0f));
  }
};

struct Q5_1 : Nibbles {
  static constexpr PanelKind kKind = PanelKind::kQ5_1;
  QUIRE_INLINE U8x64 group(const uint8_t* body, int g) {
    return add_where(nibble_group(body + 128, g), body + 64 + 8 * g, 16);
  }
  QUIRE_INLINE void scales(const uint8_t*, const uint8_t* body, int, F32x16& scale, F32x16& offset) {
    scale = load_f16((const uint16_t*)body);
    offset = load_f16((const uint16_t*)body + 16);
  }
};

struct Q8_0 {
  static constexpr PanelKind kKind = PanelKind::kQ8_0;
  static constexpr bool kWide = true;
  static constexpr int kHalves = 1;
  QUIRE_INLINE U8x64 group(const uint8_t* body, int g) { return load_bytes(body + 32 + 64 * g); }
  QUIRE_INLINE void scales(const uint8_t*, const uint8_t* body, int, F32x16& scale, F32x16& offset) {
    scale = load_f16((const uint16_t*)body);
    offset = mul(scale, set1(-128.0f));
  }
};

struct Q4_K : Nibbles {
  static constexpr PanelKind kKind = PanelKind::kQ4_K;
  QUIRE_INLINE U8x64 group(const uint8_t* body, int g) { return nibble_group(body + 32, g); }
  QUIRE_INLINE void scales(const uint8_t* header, const uint8_t* body, int, F32x16& scale, F32x16& offset) {
    scale = mul(load_f16((const uint16_t*)header), load_u8(body));
    offset = sub(zero(), mul(load_f16((const uint16_t*)header + 16), load_u8(body + 16)));
  }
};

struct Q5_K : Nibbles {
  static constexpr PanelKind kKind = PanelKind::kQ5_K;
  QUIRE_INLINE U8x64 group(const uint8_t* body, int g) {
    return add_where(nibble_group(body + 96, g), body + 32 + 8 * g, 16);
  }
  QUIRE_INLINE void scales(const uint8_t* header, const uint8_t* body, int half, F32x16& scale,
                           F32x16& offset) {
    Q4_K::scales(header, body, half, scale, offset);
  }
};

struct Q6_K : Nibbles {
  static constexpr PanelKind kKind = PanelKind::kQ6_K;
  static constexpr int kHalves = 2;
  QUIRE_INLINE U8x64 group(const uint8_t* body, int g) {
    const U8x64 five = add_where(nibble_group(body + 160, g), body + 32 + 8 * g, 16);
    return add_where(five, body + 96 + 8 * g, 32);
  }
  QUIRE_INLINE void scales(const uint8_t* header, const uint8_t* body, int half, F32x16& scale,
                           F32x16& offset) {
    scale = mul(load_f16((const uint16_t*)header), load_i8((const int8_t*)body + 16 * half));
    offset = mul(scale, set1(-32.0f));
  }
};

QUIRE_INLINE void write_lanes(const LinearArgs& args, float* out, F32x16 acc) {
  if (args.n_rows == kPanelRows) {
    store(out, args.accumulate ? add(load(out), acc) : acc);
  } else {
    const F32x16 before = args.accumulate ? load_partial(out, args.n_rows) : zero();
    store_partial(out, add(before, acc), args.n_rows);
  }
}

template <class P>
QUIRE_INLINE I32x16 dot(I32x16 acc, U8x64 w, const int8_t* four) {
  return P::kWide ? dot4_wide(acc, w, four) : dot4(acc, w, four);
}

// Adds one block's (or half block's) product to the sums of tokens first..first + T - 1 of a tile.
template <class P, int T>
QUIRE_INLINE void add_block(const uint8_t* header, const uint8_t* body, const uint8_t* block, int tile,
                            int first, int half, F32x16* acc) {
  constexpr int kGroups = 8 / P::kHalves;
  I32x16 high[T], low[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) high[t] = low[t] = izero();
  const int8_t* codes = (const int8_t*)block + 32 * first;
  const int low_plane = 32 * tile;
#pragma GCC unroll 8
  for (int i = 0; i < kGroups; ++i) {
    const int g = half * kGroups + i;
    const U8x64 w = P::group(body, g);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      high[t] = dot<P>(high[t], w, codes + 32 * t + 4 * g);
      low[t] = dot<P>(low[t], w, codes + low_plane + 32 * t + 4 * g);
    }
  }
  F32x16 scale, offset;
  P::scales(header, body, half, scale, offset);
  const float* scale_a = (const float*)(block + 64 * tile) + first;
  const float* sum_a = scale_a + tile * (P::kHalves == 1 ? 1 : 2 + half);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    acc[t] = fma(to_float(join(high[t], low[t])), mul(scale, set1(scale_a[t])), acc[t]);
    acc[t] = fma(offset, set1(sum_a[t]), acc[t]);
  }
}

// With one token products wait for memory alone, and panels follow one another there. On a Zen 4, asked for
// so far ahead, a whole step is a fifth faster than by the hardware's own prefetcher; at 1.5 and 16 KiB it is
// not.
constexpr size_t kWeightsAheadBytes = 4096;

// Tokens first..first + T - 1 of a tile of kTile.
template <class P, int T, int kTile>
QUIRE_INLINE void linear_tokens(const LinearArgs& args, int first) {
  constexpr PanelShape kShape = kPanelShapes[(int)P::kKind];
  F32x16 acc[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) acc[t] = zero();
  const uint8_t* panel = args.panel;
  const uint8_t* block = (const uint8_t*)args.activations;
  const int n_blocks = args.columns / kBlockColumns;
  for (int b = 0; b < n_blocks; b += kShape.blocks) {
    const uint8_t* header = panel;
    panel += kShape.header_bytes;
    for (int i = 0; i < kShape.blocks; ++i) {
      if constexpr (kTile == 1) fetch_ahead({panel + kWeightsAheadBytes, (size_t)kShape.body_bytes});
      add_block<P, T>(header, panel, block, kTile, first, 0, acc);
      if constexpr (P::kHalves == 2) add_block<P, T>(header, panel, block, kTile, first, 1, acc);
      panel += kShape.body_bytes;
      block += kActivationBlockBytes * kTile;
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    if (first + t < args.n_tokens) write_lanes(args, args.out + (size_t)(first + t) * args.ldo, acc[t]);
  }
}

template <class P>
void linear_fast(const LinearArgs& args) {
  if (args.tile_tokens == 1) {
    linear_tokens<P, 1, 1>(args, 0);
  } else {
    for (int first = 0; first < args.n_tokens; first += kLinearTile) {
      linear_tokens<P, kLinearTile, kTileTokens>(args, first);
    }
  }
}

// ---- activations in f32 ----------------------------------------------------------------------------------

constexpr int kFloatTile = kLinearTile < 4 ? kLinearTile : 4;

template <int j, int T>
QUIRE_INLINE void add_column(U8x64 codes, F32x16 scale, F32x16 offset, const float* const* a, int column,
                             F32x16* acc) {
  const F32x16 w = fma(lane_byte<j>(codes), scale, offset);
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) acc[t] = fma(w, set1(a[t][column]), acc[t]);
}

template <class P, int T>
QUIRE_INLINE void add_precise_block(const uint8_t* header, const uint8_t* body, const float* const* a,
                                    int column, F32x16* acc) {
  F32x16 scale[2], offset[2];
  for (int half = 0; half < P::kHalves; ++half) P::scales(header, body, half, scale[half], offset[half]);
  for (int g = 0; g < 8; ++g, column += 4) {
    const int half = P::kHalves == 2 ? g / 4 : 0;
    const U8x64 codes = P::group(body, g);
    add_column<0, T>(codes, scale[half], offset[half], a, column, acc);
    add_column<1, T>(codes, scale[half], offset[half], a, column + 1, acc);
    add_column<2, T>(codes, scale[half], offset[half], a, column + 2, acc);
    add_column<3, T>(codes, scale[half], offset[half], a, column + 3, acc);
  }
}

template <class P, int T>
QUIRE_INLINE void precise_tokens(const LinearArgs& args, const float* const* a, float* out) {
  constexpr PanelShape kShape = kPanelShapes[(int)P::kKind];
  F32x16 acc[T];
  for (int t = 0; t < T; ++t) acc[t] = zero();
  const uint8_t* panel = args.panel;
  for (int column = 0; column < args.columns;) {
    const uint8_t* header = panel;
    panel += kShape.header_bytes;
    for (int i = 0; i < kShape.blocks; ++i, column += kBlockColumns) {
      add_precise_block<P, T>(header, panel, a, column, acc);
      panel += kShape.body_bytes;
    }
  }
  for (int t = 0; t < T; ++t) write_lanes(args, out + t * args.ldo, acc[t]);
}

template <class P>
void linear_precise(const LinearArgs& args) {
  const float* x = (const float*)args.activations;
  int t = 0;
  for (; t + kFloatTile <= args.n_tokens; t += kFloatTile) {
    const float* a[kFloatTile];
    for (int i = 0; i < kFloatTile; ++i) a[i] = x + (size_t)(t + i) * args.lda;
    precise_tokens<P, kFloatTile>(args, a, args.out + (size_t)t * args.ldo);
  }
  for (; t < args.n_tokens; ++t) {
    const float* a[1] = {x + (size_t)t * args.lda};
    precise_tokens<P, 1>(args, a, args.out + (size_t)t * args.ldo);
  }
}

QUIRE_INLINE F32x16 load_weights(const float* p, bool) { return load(p); }
QUIRE_INLINE F32x16 load_weights(const uint16_t* p, bool bf16) { return bf16 ? load_bf16(p) : load_f16(p); }

// Panels of float weights are [columns][16].
template <class W, bool kBf16, int T>
QUIRE_INLINE void float_tokens(const LinearArgs& args, const float* x, float* out) {
  const W* w = (const W*)args.panel;
  F32x16 acc[T];
  for (int t = 0; t < T; ++t) acc[t] = zero();
  for (int column = 0; column < args.columns; ++column, w += kPanelRows) {
    const F32x16 row = load_weights(w, kBf16);
    for (int t = 0; t < T; ++t) acc[t] = fma(row, set1(x[t * args.lda + column]), acc[t]);
  }
  for (int t = 0; t < T; ++t) write_lanes(args, out + t * args.ldo, acc[t]);
}

template <class W, bool kBf16>
void linear_float(const LinearArgs& args) {
  const float* x = (const float*)args.activations;
  int t = 0;
  for (; t + kFloatTile <= args.n_tokens; t += kFloatTile) {
    float_tokens<W, kBf16, kFloatTile>(args, x + t * args.lda, args.out + t * args.ldo);
  }
  for (; t < args.n_tokens; ++t) float_tokens<W, kBf16, 1>(args, x + t * args.lda, args.out + t * args.ldo);
}

// ---- 16-bit activations ----------------------------------------------------------------------------------

// 32 floats -> codes, scale = max|x| / 32512, and the sums. A block of zeros has scale 0.
QUIRE_INLINE void quantize_block(const float* x, uint8_t* block, int tile, int t) {
  const F32x16 first = load(x);
  const F32x16 second = load(x + 16);
  const float largest = reduce_max(max(abs(first), abs(second)));
  const float scale = largest / kLargestCode;
  // Below 2^-110 the inverse would overflow; such a block is zero to every product.
  const F32x16 inverse = set1(largest > 0x1p-110f ? kLargestCode / largest : 0.0f);
  int8_t* high = (int8_t*)block + 32 * t;
  int8_t* low = high + 32 * tile;
  const I32x16 first_codes = to_int(mul(first, inverse));
  const I32x16 second_codes = to_int(mul(second, inverse));
  store_planes(high, low, first_codes);
  store_planes(high + 16, low + 16, second_codes);
  const int sum_first = reduce_add(first_codes);
  const int sum_second = reduce_add(second_codes);
  float* scales = (float*)(block + 64 * tile) + t;
  scales[0] = scale;
  scales[tile] = scale * (float)(sum_first + sum_second);
  scales[2 * tile] = scale * (float)sum_first;
  scales[3 * tile] = scale * (float)sum_second;
}

void quantize_tile(const float* x, size_t ldx, int n_tokens, int tile_tokens, int columns, uint8_t* tile) {
  const size_t block_bytes = (size_t)kActivationBlockBytes * tile_tokens;
  const int n_blocks = columns / kBlockColumns;
  if (n_tokens < tile_tokens) memset(tile, 0, block_bytes * n_blocks);
  for (int t = 0; t < n_tokens; ++t) {
    for (int b = 0; b < n_blocks; ++b) {
      quantize_block(x + t * ldx + b * kBlockColumns, tile + b * block_bytes, tile_tokens, t);
    }
  }
}
