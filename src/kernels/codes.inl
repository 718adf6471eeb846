// Coding and reading of whole pages, for every format of the catalogue alike, and which faster kernels stand
// in for them: panel_*.inl for codes in panels, row_*.inl for those that lie row by row.

// Attention over codes is bound by memory as soon as it is fused, and a page is too short for the hardware's
// own prefetcher to get going.
QUIRE_INLINE void fetch_ahead(BytesAhead next) {
  for (size_t i = 0; i < next.n_bytes; i += 64) __builtin_prefetch((const uint8_t*)next.data + i, 0, 3);
}

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

// scores [n][64] of the rows named; other lanes are left as they are or hold garbage.
template <class F>
void score_coded(const Codebook& book, const float* q, int n, int head_dim, const uint8_t* page,
                 uint64_t rows, float* scores, BytesAhead next) {
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
void score_coded_rows(const Codebook& book, const float* q, int n, int head_dim, RowRefs refs,
                      float* scores) {
  float keys[kPageTokens * kMaxHeadDim];
  for (int first = 0; first < refs.n; first += kPageTokens, scores += n * kPageTokens) {
    for (int i = 0; i < kPageTokens; ++i) {
      float row[kMaxHeadDim] = {0};
      if (first + i < refs.n) {
        const int at = refs.rows[first + i];
        F::decode_key_row(refs.pages[at / kPageTokens], head_dim, at % kPageTokens, book, row);
      }
      for (int d = 0; d < head_dim; ++d) keys[d * kPageTokens + i] = row[d];
    }
    score<RowF32>(q, (size_t)head_dim, n, head_dim, keys, scores, nullptr);
  }
}

template <class F>
void accumulate_coded_rows(const Codebook& book, const float* p, const float* correction, RowRefs refs,
                           uint64_t kept, int n, int head_dim, float* o) {
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
  static constexpr auto score = score_coded<F>;
  static constexpr auto accumulate = accumulate_coded<F>;
  static constexpr auto open_keys = quire::QUIRE_ISA::open_keys<F>;
  static constexpr auto open_values = quire::QUIRE_ISA::open_values<F>;
};
// The same for single rows of several pages.
template <class F>
struct SingleRows {
  static constexpr auto score = score_coded_rows<F>;
  static constexpr auto accumulate = accumulate_coded_rows<F>;
};
// clang-format off
#include "kernels/panels.inl"
#include "kernels/panel_groups.inl"
#include "kernels/panel_kivi.inl"
#include "kernels/row_bytes.inl"
#include "kernels/row_nested.inl"
#include "kernels/panel_open.inl"
#include "kernels/panel_signs.inl"
#include "kernels/panel_pairs.inl"
#include "kernels/panel_sketch.inl"
#if defined(QUIRE_ISA_avx512)
#include "kernels/single_rows_avx512.inl"
#include "kernels/turbo_rows_avx512.inl"
#include "kernels/signvq_avx512.inl"
#endif
// clang-format on
template <class F>
struct FusedGroups {
  static constexpr auto score = group_score<F>;
  static constexpr auto accumulate = group_accumulate<F>;
  static constexpr auto open_keys = panel_open_keys<GroupOpener<F>>;
  static constexpr auto open_values = panel_open_values<GroupOpener<F>>;
};
template <>
struct Fused<Q8> : FusedGroups<Q8> {};
template <>
struct Fused<Q4> : FusedGroups<Q4> {};
template <int bits>
struct Fused<TurboPanel<bits>> : FusedGroups<TurboPanel<bits>> {};
template <int bits>
struct Fused<Kivi<bits>> {
  static constexpr auto score = kivi_score<bits>;
  static constexpr auto accumulate = kivi_accumulate<bits>;
  static constexpr auto open_keys = panel_open_keys<KiviOpener<bits, true>>;
  static constexpr auto open_values = panel_open_values<KiviOpener<bits, false>>;
};
template <class Keys, class Values>
struct FusedRows {
  static constexpr auto score = row_score<Keys>;
  static constexpr auto accumulate = row_accumulate<Values>;
  static constexpr auto open_keys = row_open_keys<Keys>;
  static constexpr auto open_values = row_open_values<Values>;
};
template <int bits>
struct Fused<Turbo<bits>> : FusedRows<NestedKeys<bits>, NestedValues<bits>> {};
template <>
struct Fused<Polar4> {
  static constexpr auto score = polar_score<false>;
  static constexpr auto accumulate = polar_accumulate<false>;
  static constexpr auto open_keys = polar_open_keys<false>;
  static constexpr auto open_values = polar_open_values<false>;
};
template <>
struct Fused<Polar4r> {
  static constexpr auto score = polar_score<true>;
  static constexpr auto accumulate = polar_accumulate<true>;
  static constexpr auto open_keys = polar_open_keys<true>;
  static constexpr auto open_values = polar_open_values<true>;
};
template <int bits>
struct Fused<TurboProd<bits>> {
  static constexpr auto score = prod_score<bits>;
  static constexpr auto accumulate = prod_accumulate<bits>;
  static constexpr auto open_keys = quire::QUIRE_ISA::open_keys<TurboProd<bits>>;
  static constexpr auto open_values = quire::QUIRE_ISA::open_values<TurboProd<bits>>;
};
#if defined(QUIRE_ISA_avx512)
template <int bits>
struct SingleRows<Turbo<bits>> {
  static constexpr auto score = turbo_score_rows<bits>;
  static constexpr auto accumulate = turbo_accumulate_rows<bits>;
};
template <>
struct SingleRows<SignVq> {
  static constexpr auto score = signvq_score_rows;
  static constexpr auto accumulate = signvq_accumulate_rows;
};
template <>
struct Fused<SignVq> {
  static constexpr auto score = signvq_score;
  static constexpr auto accumulate = signvq_accumulate;
  static constexpr auto open_keys = quire::QUIRE_ISA::open_keys<SignVq>;
  static constexpr auto open_values = quire::QUIRE_ISA::open_values<SignVq>;
};
#endif

template <class... Entries>
constexpr CodeOps code_ops(CodeList<Entries...>) {
  return {{seal_keys<typename Entries::Type>...},
          {seal_values<typename Entries::Type>...},
          {Fused<typename Entries::Type>::open_keys...},
          {Fused<typename Entries::Type>::open_values...},
          {Fused<typename Entries::Type>::score...},
          {Fused<typename Entries::Type>::accumulate...},
          {SingleRows<typename Entries::Type>::score...},
          {SingleRows<typename Entries::Type>::accumulate...},
          frame_queries,
          unframe_output,
          sketch_queries,
          fold_sketch};
}
