// Codes in panels (format/panel_codes.h) times 16-bit codes of queries or weights, on every instruction set.
//
// A step of 64 bytes has 16 lanes (tokens of keys, dims of values) and four summands (dims, tokens) a lane.
// What multiplies it, a query or the weights of 64 tokens, is rounded to 1/65024 of its largest value, far
// below the error of any code; sums of products are exact. Codes are unsigned, and the code of 0 is not 0:
// its share, a constant times the sum of the multipliers, is where sums start.

// Of member functions that are not static.
#define QUIRE_INLINE_MEMBER inline __attribute__((always_inline))

// Queries (or outputs) computed together, and blocks of 16 tokens (dims), as registers allow.
#if defined(QUIRE_ISA_avx512)
constexpr int kPanelRows = 4;
constexpr int kPanelBlocks = 2;
#elif defined(QUIRE_ISA_avx2)
constexpr int kPanelRows = 4;
constexpr int kPanelBlocks = 1;
#else
constexpr int kPanelRows = 1;
constexpr int kPanelBlocks = 1;
#endif

// What is read next, fetched a line at a time while this page is computed: all at once would fill the buffers
// of lines under way, and wait for them. At the end, the last line is asked for again, which costs nothing.
struct Ahead {
  const uint8_t* at;
  const uint8_t* end;
};
QUIRE_INLINE void fetch_line(Ahead* ahead) {
  __builtin_prefetch(ahead->at, 0, 3);
  ahead->at += ahead->at < ahead->end ? 64 : 0;
}
QUIRE_INLINE Ahead nothing_ahead(const uint8_t* page) { return {page, page}; }
// For n_lines calls of fetch_line; what is more than these is fetched now.
QUIRE_INLINE Ahead spread(BytesAhead next, const uint8_t* page, size_t n_lines) {
  if (next.n_bytes == 0) return nothing_ahead(page);
  Ahead ahead = {(const uint8_t*)next.data, (const uint8_t*)next.data + next.n_bytes - 1};
  for (size_t lines = (next.n_bytes + 63) / 64; lines > n_lines; --lines) fetch_line(&ahead);
  return ahead;
}

// What a code stands for: itself.
struct PlainCodes {
  QUIRE_INLINE U8x64 bytes(const PlainCodes&, U8x64 codes) { return codes; }
};
// An entry of a table: the rising centroids, rounded to 1/254 of the largest, with 128 added.
struct TableCodes {
  ByteTable table;
  QUIRE_INLINE U8x64 bytes(const TableCodes& codes, U8x64 x) { return look_up(codes.table, x); }
};

// Codes of step i of the pack whose first 64 bytes are `pack`; those of one bit come as 0 and 2, so that
// signs are codes with 1 for zero.
template <int bits, int i>
QUIRE_INLINE U8x64 step_codes(U8x64 pack, const uint8_t* at) {
  if constexpr (bits == 8) {
    return pack;
  } else if constexpr (bits == 1) {
    if constexpr (i < 2) return keep_bits(i == 0 ? twice(pack) : pack, 2);
    return keep_bits(shift_right<(i < 2 ? 0 : i - 1)>(pack), 2);
  } else {
    constexpr int width = bits == 3 ? 2 : bits;
    constexpr int mask = (1 << width) - 1;
    const U8x64 codes = keep_bits(i == 0 ? pack : shift_right<width * i>(pack), mask);
    return bits == 3 ? add_where(twice(codes), at + 64 + 8 * i, 1) : codes;
  }
}

// Steps i, i + 1, ... of the packs loaded.
template <int bits, int i, class Codes, int N, int B>
QUIRE_INLINE void step_products(const Codes& codes, const uint8_t* pack, size_t block_bytes,
                                const U8x64* loaded, const Multipliers* const* m, int quad,
                                Products (*sums)[B]) {
  Factors x[B];
#pragma GCC unroll 2
  for (int b = 0; b < B; ++b) {
    x[b] = factors(Codes::bytes(codes, step_codes<bits, i>(loaded[b], pack + b * block_bytes)));
  }
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) {
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) sums[h][b] = add_products(sums[h][b], x[b], *m[h], quad + i);
  }
  if constexpr (i + 1 < PanelCodes<bits>::kSteps) {
    step_products<bits, i + 1, Codes, N, B>(codes, pack, block_bytes, loaded, m, quad, sums);
  }
}

// n_packs packs of B blocks, block_bytes apart; the first step is multiplied by quad `quad` of the
// multipliers.
template <int bits, class Codes, int N, int B>
QUIRE_INLINE void pack_products(const Codes& codes, const uint8_t* packs, size_t block_bytes, int n_packs,
                                const Multipliers* const* m, int quad, Products (*sums)[B], Ahead* ahead) {
  using P = PanelCodes<bits>;
  for (int i = 0; i < n_packs; ++i, packs += P::kPackBytes, quad += P::kSteps) {
    U8x64 loaded[B];
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) {
      loaded[b] = load_bytes(packs + b * block_bytes);
      fetch_line(ahead);
    }
    step_products<bits, 0, Codes, N, B>(codes, packs, block_bytes, loaded, m, quad, sums);
  }
}

// A row of up to kMaxHeadDim values as multipliers.
struct CodedRow {
  Multipliers m;
  float scale;
  int sums[kMaxHeadDim / 32];  // of each 32 codes
};

// x: n vectors of 16.
QUIRE_INLINE void code_multipliers(const F32x16* x, int n, CodedRow* out) {
  F32x16 most = zero();
  for (int i = 0; i < n; ++i) most = max(most, abs(x[i]));
  const float largest = reduce_max(most);
  // Below that the inverse overflows; such a row is zeros to any code.
  const F32x16 inverse = set1(largest > 0x1p-110f ? kLargestCode / largest : 0.0f);
  out->scale = largest / kLargestCode;
  for (int i = 0; i < n; i += 2) {
    const I32x16 first = to_int(mul(x[i], inverse));
    put_multipliers(&out->m, 16 * i, first);
    I32x16 sum = first;
    if (i + 1 < n) {
      const I32x16 second = to_int(mul(x[i + 1], inverse));
      put_multipliers(&out->m, 16 * i + 16, second);
      sum = add(sum, second);
    }
    out->sums[i / 2] = reduce_add(sum);
  }
}

QUIRE_INLINE F32x16 load_up_to(const float* p, int n) { return n >= 16 ? load(p) : load_partial(p, n); }

// q [head_dim] -> vectors, zeros behind head_dim; returns how many.
QUIRE_INLINE int load_row(const float* q, int head_dim, F32x16* x) {
  for (int d = 0; d < head_dim; d += 16) x[d / 16] = load_up_to(q + d, head_dim - d);
  return (head_dim + 15) / 16;
}

// A query as multipliers, zeros behind head_dim up to `padded` (rounded up to 16).
QUIRE_INLINE void code_query(const float* q, int head_dim, int padded, CodedRow* out) {
  F32x16 x[kMaxHeadDim / 16];
  int n = load_row(q, head_dim, x);
  for (; 16 * n < padded; ++n) x[n] = zero();
  code_multipliers(x, n, out);
}

// Sum of the codes of dims first..last - 1, both multiples of 32 or the end.
QUIRE_INLINE int sum_of(const CodedRow& row, int first, int last) {
  int sum = 0;
  for (int i = first / 32; 32 * i < last; ++i) sum += row.sums[i];
  return sum;
}

// Probabilities of the rows named, 0 for others whatever p says.
QUIRE_INLINE void load_probabilities(const float* p, uint64_t rows, F32x16* x) {
  for (int v = 0; v < 4; ++v) {
    x[v] = select_bits((uint32_t)(rows >> (16 * v)) & 0xffffu, load(p + 16 * v), zero());
  }
}

// o [16 dims, or the `left` first] = o * shrink + sum
QUIRE_INLINE void add_to_output(float* o, int left, F32x16 sum, float shrink) {
  if (left >= 16) {
    store(o, add(mul(load(o), set1(shrink)), sum));
  } else {
    store_partial(o, add(mul(load_partial(o, left), set1(shrink)), sum), left);
  }
}

// f.template rows<N>(first) for rows 0..n - 1, kPanelRows at a time; the first of them fetch ahead.
template <class F>
QUIRE_INLINE void for_row_tiles(int n, const F& f) {
  int first = 0;
  for (; first + kPanelRows <= n; first += kPanelRows) {
    f.template rows<kPanelRows>(first);
    *f.ahead = nothing_ahead(f.page);
  }
  if constexpr (kPanelRows > 1) {
    switch (n - first) {
      case 3: f.template rows<3>(first); break;
      case 2: f.template rows<2>(first); break;
      case 1: f.template rows<1>(first); break;
      default: break;
    }
  }
}
