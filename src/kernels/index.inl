// The index of sealed pages: one bit a dim, looked up four dims at a time.
//
// A page begins with its index plane, [ceil(head_dim / 8)][64 tokens] bytes: the low four bits of byte (g, t)
// are the group 2 g of token t, the high four the group 2 g + 1. A query turns into 16 signed bytes a group;
// their sum over a row's groups times `unit` and the row's norm estimates the row's score. Tables are scaled
// so that no sum leaves a byte, whatever the bits: sums of bytes need no widening.
//
// Estimates are 16-bit numbers, kEstimatesPerOctave = 128 to a factor of two in probability:
//
//   estimate = 128 log2(e) * unit * norm * sum, saturated (at a factor of e^177)
//
// Norms of four pages at a time are brought to 15 bits of their largest. Within a page estimates lie in an
// order of the instruction set's own, which only the functions below know.

constexpr int kNormGroupPages = 4;

// Table of the sign planes of rotated keys: bit 1 means the dim is positive or zero.
void index_sign_tables(const float* q, int head_dim, IndexTables* tables) {
  const int n_groups = 2 * plane_bytes(head_dim);
  float total = 0.0f;
  for (int j = 0; j < head_dim; ++j) total += __builtin_fabsf(q[j]);
  // Rounding adds at most a half to each group.
  const float scale = total > 0x1p-100f ? (127.0f - 0.5f * (float)n_groups) / total : 0.0f;
  for (int g = 0; g < n_groups; ++g) {
    float x[4];
    for (int j = 0; j < 4; ++j) x[j] = 4 * g + j < head_dim ? scale * q[4 * g + j] : 0.0f;
    for (int bits = 0; bits < 16; ++bits) {
      float sum = 0.0f;
      for (int j = 0; j < 4; ++j) sum += (bits >> j) & 1 ? x[j] : -x[j];
      tables->entries[g][bits] = (int8_t)__builtin_rintf(sum);
    }
  }
  tables->unit = scale > 0.0f ? 1.0f / scale : 0.0f;
}

// Table of code words: the product of the query's four dims with each.
void index_codebook_tables(const float* q, const float* codebook, int head_dim, IndexTables* tables) {
  const int n_groups = 2 * plane_bytes(head_dim);
  float products[kMaxHeadDim / 4][16];
  float total = 0.0f;
  for (int g = 0; g < n_groups; ++g) {
    float most = 0.0f;
    for (int word = 0; word < 16; ++word) {
      const float* x = codebook + (16 * g + word) * 4;
      float sum = 0.0f;
      for (int j = 0; j < 4 && 4 * g + j < head_dim; ++j) sum += q[4 * g + j] * x[j];
      products[g][word] = sum;
      most = __builtin_fabsf(sum) > most ? __builtin_fabsf(sum) : most;
    }
    total += most;
  }
  const float scale = total > 0x1p-100f ? (127.0f - 0.5f * (float)n_groups) / total : 0.0f;
  for (int g = 0; g < n_groups; ++g) {
    for (int word = 0; word < 16; ++word) {
      tables->entries[g][word] = (int8_t)__builtin_rintf(scale * products[g][word]);
    }
  }
  tables->unit = scale > 0.0f ? 1.0f / scale : 0.0f;
}

QUIRE_INLINE int saturated_16(float x) { return (int)clamp_to(__builtin_rintf(x), -32768.0f, 32767.0f); }

#if !defined(QUIRE_ISA_scalar)

// Two registers of 32 estimates or factors a page: the low halves of each sixteen tokens, then the high ones,
// as unpacking bytes gives them and packing takes them back.
struct PageWords {
  I16x32 low;
  I16x32 high;
};

// Norms of P pages as shares of the largest, 15 bits; returns it.
template <int P>
QUIRE_INLINE float norm_shares(const uint8_t* const* pages, int norms_offset, PageWords* shares) {
  F32x16 norms[P][4];
  F32x16 most = zero();
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      norms[p][v] = load_f16((const uint16_t*)(pages[p] + norms_offset) + 16 * v);
      most = max(most, norms[p][v]);
    }
  }
  const float largest = reduce_max(most);
  const F32x16 scale = set1(largest > 0.0f ? 32767.0f / largest : 0.0f);
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    for (int v = 0; v < 4; ++v) norms[p][v] = mul(norms[p][v], scale);
    words_of(norms[p], &shares[p].low, &shares[p].high);
  }
  return largest;
}

// Sums of bytes of P pages, N queries. Lines of the pages `next` are asked for one by one, as the core can
// wait for few of them at a time.
template <int N, int P>
QUIRE_INLINE void index_sums(const IndexTables* tables, int n_bytes, const uint8_t* const* pages,
                             const uint8_t* const* next, U8x64 (*sums)[P]) {
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sums[h][p] = fill_bytes(0);
  }
  for (int g = 0; g < n_bytes; ++g) {
    U8x64 low[P], high[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const U8x64 bytes = load_bytes(pages[p] + 64 * g);
      fetch_at(next[p] + 64 * g);
      low[p] = low_nibbles(bytes);
      high[p] = high_nibbles(bytes);
    }
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) {
      const ByteTable first = byte_table((const uint8_t*)tables[h].entries[2 * g]);
      const ByteTable second = byte_table((const uint8_t*)tables[h].entries[2 * g + 1]);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        sums[h][p] = add_bytes(sums[h][p], look_up(first, low[p]));
        sums[h][p] = add_bytes(sums[h][p], look_up(second, high[p]));
      }
    }
  }
}

// Estimates of P pages whose norms are shares of `largest`, or which have none.
template <int N, int P>
QUIRE_INLINE void estimate_pages(const IndexTables* tables, int n_bytes, const uint8_t* const* pages,
                                 const uint8_t* const* next, const PageWords* shares, float largest,
                                 int16_t* estimates, size_t ld) {
  U8x64 sums[N][P];
  index_sums<N, P>(tables, n_bytes, pages, next, sums);
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) {
    // Bytes are unpacked to the upper halves of words: 256 * sum * share * factor / 2^30.
    const I16x32 factor =
        set_words(saturated_16(kEstimatesPerOctave * 1.44269504f * 128.0f * tables[h].unit * largest));
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      I16x32 low = as_words(zip_low<1>(fill_bytes(0), sums[h][p]));
      I16x32 high = as_words(zip_high<1>(fill_bytes(0), sums[h][p]));
      if (shares != nullptr) {
        low = multiply_high(low, shares[p].low);
        high = multiply_high(high, shares[p].high);
      }
      int16_t* to = estimates + h * ld + p * kPageTokens;
      store(to, multiply_high(low, factor));
      store(to + 32, multiply_high(high, factor));
    }
  }
}

// Estimates of the P pages that share the largest of their norms.
template <int N, int P>
QUIRE_INLINE void index_pages(const IndexTables* tables, int n_bytes, const uint8_t* const* pages,
                              const uint8_t* const* next, int norms_offset, int16_t* estimates, size_t ld) {
  PageWords norms[P];
  const float largest = norms_offset < 0 ? 1.0f : norm_shares<P>(pages, norms_offset, norms);
  for (int p = 0; p < P && norms_offset >= 0; ++p) fetch_ahead({next[p] + norms_offset, 2 * kPageTokens});
  const PageWords* shares = norms_offset < 0 ? nullptr : norms;
  constexpr int kTogether = kIndexPages < P ? kIndexPages : P;
  for (int p = 0; p < P; p += kTogether) {
    estimate_pages<N, kTogether>(tables, n_bytes, pages + p, next + p,
                                 shares == nullptr ? nullptr : shares + p, largest,
                                 estimates + p * kPageTokens, ld);
  }
}

template <int N>
QUIRE_INLINE void index_queries(const IndexTables* tables, int n_bytes, const uint8_t* const* pages,
                                int n_pages, int n_known, int norms_offset, int16_t* estimates, size_t ld) {
  int p = 0;
  for (; p + 4 <= n_pages; p += 4) {
    const uint8_t* next[4];
    for (int i = 0; i < 4; ++i) next[i] = pages[p + 4 + i < n_known ? p + 4 + i : p + i];
    index_pages<N, 4>(tables, n_bytes, pages + p, next, norms_offset, estimates + p * kPageTokens, ld);
  }
  pages += p;
  estimates += p * kPageTokens;
  switch (n_pages - p) {
    case 3: index_pages<N, 3>(tables, n_bytes, pages, pages, norms_offset, estimates, ld); break;
    case 2: index_pages<N, 2>(tables, n_bytes, pages, pages, norms_offset, estimates, ld); break;
    case 1: index_pages<N, 1>(tables, n_bytes, pages, pages, norms_offset, estimates, ld); break;
    default: break;
  }
}

// estimates [n][ld] of n_pages pages, of the n_known that are coming; norms_offset -1: rows without norms.
void index_estimate(const IndexTables* tables, int n, int head_dim, const uint8_t* const* pages, int n_pages,
                    int n_known, int norms_offset, int16_t* estimates, size_t ld) {
  const int n_bytes = plane_bytes(head_dim);
  for (int first = 0; first < n; first += 4, tables += 4, estimates += 4 * ld) {
    switch (n - first) {
      case 1: index_queries<1>(tables, n_bytes, pages, n_pages, n_known, norms_offset, estimates, ld); break;
      case 2: index_queries<2>(tables, n_bytes, pages, n_pages, n_known, norms_offset, estimates, ld); break;
      case 3: index_queries<3>(tables, n_bytes, pages, n_pages, n_known, norms_offset, estimates, ld); break;
      default: index_queries<4>(tables, n_bytes, pages, n_pages, n_known, norms_offset, estimates, ld); break;
    }
  }
}

// log2 of the sum of 2^(estimate / 128) over n_pages pages of one query, times 128. A power of two with its
// fraction taken linearly (at most 6 % too large) is an estimate read as the upper half of a float.
float index_mass(const int16_t* estimates, int n_pages) {
  I16x32 most = set_words(-32768);
  for (int i = 0; i < 2 * n_pages; ++i) most = max(most, load_words(estimates + 32 * i));
  const int largest = reduce_max(most);
  const I16x32 offset = set_words(largest);
  const I16x32 one = set_words(127 << 7);
  F32x16 even = zero(), odd = zero();
  for (int i = 0; i < 2 * n_pages; ++i) {
    const I16x32 x = sub_saturated(load_words(estimates + 32 * i), offset);
    const I16x32 bits = max(add(x, one), set_words(0));
    even = add(even, even_floats(bits));
    odd = add(odd, odd_floats(bits));
  }
  return (float)largest + kEstimatesPerOctave * __builtin_log2f(reduce_add(add(even, odd)));
}

// Levels of the rows: 255 + (the largest over the queries of estimate - offset) / 16, between 0 and 255.
void index_levels(const int16_t* estimates, size_t ld, int n, const int16_t* offsets, int n_pages,
                  uint8_t* levels) {
  const I16x32 top = set_words(255);
  for (int p = 0; p < n_pages; ++p) {
    PageWords best = {set_words(-32768), set_words(-32768)};
    for (int h = 0; h < n; ++h) {
      const int16_t* from = estimates + h * ld + p * kPageTokens;
      const I16x32 offset = set_words(offsets[h]);
      best.low = max(best.low, sub_saturated(load_words(from), offset));
      best.high = max(best.high, sub_saturated(load_words(from + 32), offset));
    }
    store_bytes(levels + p * kPageTokens,
                pack_words(add(sixteenth(best.low), top), add(sixteenth(best.high), top)));
  }
}

// The sum of 2^(kLevelStretch (level - 255) / 8) over n_words * 64 levels: a level is an eighth of an octave,
// of which there are 128 parts in the upper half of a float. The fraction of the power is taken linearly.
float index_level_mass(const uint8_t* levels, int n_words) {
  const I16x32 top = set_words(255);
  const I16x32 one = set_words(127 << 7);
  F32x16 even = zero(), odd = zero();
  for (int w = 0; w < n_words; ++w) {
    const U8x64 bytes = load_bytes(levels + 64 * w);
    const I16x32 halves[2] = {as_words(zip_low<1>(bytes, fill_bytes(0))),
                              as_words(zip_high<1>(bytes, fill_bytes(0)))};
    for (const I16x32& half : halves) {
      const I16x32 x = sub_saturated(half, top);
      const I16x32 x4 = add(add(x, x), add(x, x));
      const I16x32 bits = add(one, add(x4, add(add(x4, x4), add(x4, x4))));
      static_assert(kLevelStretch * 16 == 20);
      even = add(even, even_floats(bits));
      odd = add(odd, odd_floats(bits));
    }
  }
  return reduce_add(add(even, odd));
}

QUIRE_INLINE uint64_t at_least(const uint8_t* levels, int level) {
  return bytes_at_least(load_bytes(levels), level);
}

#else

// The same numbers in plain code, in the order of the tokens.
QUIRE_INLINE int mulhrs(int a, int b) { return (a * b + 16384) >> 15; }

void index_estimate(const IndexTables* tables, int n, int head_dim, const uint8_t* const* pages, int n_pages,
                    int, int norms_offset, int16_t* estimates, size_t ld) {
  const int n_bytes = plane_bytes(head_dim);
  for (int first = 0; first < n_pages; first += kNormGroupPages) {
    const int last = first + kNormGroupPages < n_pages ? first + kNormGroupPages : n_pages;
    float norms[kNormGroupPages][kPageTokens];
    float largest = norms_offset < 0 ? 1.0f : 0.0f;
    for (int p = first; p < last; ++p) {
      for (int t = 0; t < kPageTokens && norms_offset >= 0; ++t) {
        norms[p - first][t] = get_half(pages[p] + norms_offset + 2 * t);
        if (norms[p - first][t] > largest) largest = norms[p - first][t];
      }
    }
    const float scale = largest > 0.0f ? 32767.0f / largest : 0.0f;
    for (int h = 0; h < n; ++h) {
      const int factor = saturated_16(kEstimatesPerOctave * 1.44269504f * 128.0f * tables[h].unit * largest);
      for (int p = first; p < last; ++p) {
        int8_t sums[kPageTokens] = {0};
        for (int g = 0; g < n_bytes; ++g) {
          const int8_t* low = tables[h].entries[2 * g];
          const int8_t* high = tables[h].entries[2 * g + 1];
          const uint8_t* bytes = pages[p] + 64 * g;
          for (int t = 0; t < kPageTokens; ++t) {
            sums[t] = (int8_t)(sums[t] + low[bytes[t] & 15] + high[bytes[t] >> 4]);
          }
        }
        int16_t* to = estimates + (size_t)h * ld + p * kPageTokens;
        for (int t = 0; t < kPageTokens; ++t) {
          int x = 256 * sums[t];
          if (norms_offset >= 0) x = mulhrs(x, saturated_16(norms[p - first][t] * scale));
          to[t] = (int16_t)mulhrs(x, factor);
        }
      }
    }
  }
}

float index_mass(const int16_t* estimates, int n_pages) {
  int largest = -32768;
  for (int i = 0; i < n_pages * kPageTokens; ++i) largest = estimates[i] > largest ? estimates[i] : largest;
  float sum = 0.0f;
  for (int i = 0; i < n_pages * kPageTokens; ++i) {
    const int bits = estimates[i] - largest + (127 << 7);
    sum += bits > 0 ? bits_to_float((uint32_t)bits << 16) : 0.0f;
  }
  return (float)largest + kEstimatesPerOctave * __builtin_log2f(sum);
}

void index_levels(const int16_t* estimates, size_t ld, int n, const int16_t* offsets, int n_pages,
                  uint8_t* levels) {
  for (int i = 0; i < n_pages * kPageTokens; ++i) {
    int best = -32768;
    for (int h = 0; h < n; ++h) {
      const int x = estimates[(size_t)h * ld + i] - offsets[h];
      best = x > best ? x : best;
    }
    const int level = (best >> 4) + 255;  // rounds down
    levels[i] = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
  }
}

float index_level_mass(const uint8_t* levels, int n_words) {
  float sum = 0.0f;
  for (int i = 0; i < n_words * kPageTokens; ++i) {
    const int bits = (127 << 7) + (int)(kLevelStretch * 16) * (levels[i] - 255);
    sum += bits_to_float((uint32_t)bits << 16);
  }
  return sum;
}

QUIRE_INLINE uint64_t at_least(const uint8_t* levels, int level) {
  uint64_t word = 0;
  for (int t = 0; t < kPageTokens; ++t) word |= (uint64_t)(levels[t] >= level) << t;
  return word;
}

#endif

QUIRE_INLINE int count_bits(uint64_t x) {
#if defined(QUIRE_ISA_scalar)  // without the instruction the compiler calls its library
  x -= (x >> 1) & 0x5555555555555555ull;
  x = (x & 0x3333333333333333ull) + ((x >> 2) & 0x3333333333333333ull);
  return (int)((((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull) >> 56);
#else
  return __builtin_popcountll(x);
#endif
}

QUIRE_INLINE int count_at_least(const uint8_t* levels, int n_words, int level) {
  int n = 0;
  for (int w = 0; w < n_words; ++w) n += count_bits(at_least(levels + 64 * w, level));
  return n;
}

// Marks the n_wanted rows of the highest levels above 0 (fewer where there are fewer), of equal ones the
// newest: words [n_words], 64 levels a word. Returns how many.
int index_mark(const uint8_t* levels, int n_words, int n_wanted, uint64_t* words) {
  int least = 1;    // count of rows at this level or above it: enough, or all there are
  int above = 256;  // too few, or none needed
  while (above - least > 1) {
    const int middle = (least + above) / 2;
    if (count_at_least(levels, n_words, middle) >= n_wanted) {
      least = middle;
    } else {
      above = middle;
    }
  }
  int left = n_wanted - (above > 255 ? 0 : count_at_least(levels, n_words, above));
  int n = 0;
  for (int w = n_words - 1; w >= 0; --w) {
    const uint64_t sure = above > 255 ? 0 : at_least(levels + 64 * w, above);
    uint64_t equal = at_least(levels + 64 * w, least) & ~sure;
    int n_equal = count_bits(equal);
    for (; n_equal > left; --n_equal) equal &= equal - 1;  // the oldest go
    left -= n_equal;
    words[w] = sure | equal;
    n += count_bits(words[w]);
  }
  return n;
}

// Levels as above of scores in natural logarithms.
void index_row_levels(const float* scores, int n, const float* offsets, int n_rows, uint8_t* levels) {
  const F32x16 scale = set1(8.0f * 1.44269504f);  // levels are an eighth of an octave
  for (int v = 0; v < 4; ++v) {
    F32x16 best = set1(-1e30f);
    for (int h = 0; h < n; ++h) {
      best = max(best, sub(load(scores + h * kPageTokens + 16 * v), set1(offsets[h])));
    }
    // Rounded to the nearest instead of down.
    const F32x16 level = min(max(fma(best, scale, set1(255.0f)), zero()), set1(255.0f));
    float lanes[16];
    store(lanes, level);
    for (int l = 0; l < 16; ++l) {
      levels[16 * v + l] = 16 * v + l < n_rows ? (uint8_t)__builtin_rintf(lanes[l]) : 0;
    }
  }
}

// The running maximum m and sum l of exp(score - m), a natural logarithm, of one row of scores; lanes from
// n_rows on do not count. Powers of two with their fraction taken linearly (at most 6 % too large).
QUIRE_INLINE void add_row_mass(const float* scores, int n_rows, float* m, float* l) {
  F32x16 x[4];
  F32x16 best = set1(*m);
  for (int v = 0; v < 4; ++v) {
    const int n = n_rows - 16 * v;
    float lanes[16];
    for (int i = 0; i < 16; ++i) lanes[i] = -1e30f;
    if (n > 0 && n < 16) memcpy(lanes, scores + 16 * v, sizeof(float) * (size_t)n);
    x[v] = load(n >= 16 ? scores + 16 * v : lanes);
    best = max(best, x[v]);
  }
  const float largest = reduce_max(best);
  F32x16 sum = zero();
  for (int v = 0; v < 4; ++v) {
    const F32x16 octaves = max(mul(sub(x[v], set1(largest)), set1(1.44269504f)), set1(-120.0f));
    const F32x16 whole = round_even(sub(octaves, set1(0.5f)));
    sum = add(sum, scale_by_power(add(set1(1.0f), sub(octaves, whole)), whole));
  }
  const float before = *l > 0.0f ? *l * __builtin_exp2f((*m - largest) * 1.44269504f) : 0.0f;
  *l = before + reduce_add(sum);
  *m = largest;
}

// The same of n rows of scores [n][64].
void index_row_mass(const float* scores, int n, int n_rows, float* m, float* l) {
  for (int h = 0; h < n; ++h) add_row_mass(scores + h * kPageTokens, n_rows, m + h, l + h);
}
