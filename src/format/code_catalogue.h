// The coded formats there are. A new one is a header, an enumerator, and a line of Codes.
#pragma once

#include <stdint.h>

#include "format/code_format.h"
#include "format/group_codes.h"
#include "format/kivi.h"
#include "format/polar.h"
#include "format/signvq.h"
#include "format/token_groups.h"
#include "format/turbo.h"
#include "format/turbo_panel.h"
#include "format/turbo_prod.h"

namespace quire {

// Written pages and kernels' tables count on the order.
enum class Code : uint8_t {
  kTurbo2,
  kTurbo3,
  kTurbo4,
  kTurbo2q,
  kTurbo3q,
  kTurbo4q,
  kQ8,
  kQ4,
  kKivi2,
  kKivi4,
  kPolar4,
  kPolar4r,
  kNested2,
  kNested3,
  kNested4,
  kSignVq,
  kToken2,
  kToken4,
};

template <Code code_, CodeFormat Format_>
struct CodeEntry {
  static constexpr Code code = code_;
  using Type = Format_;
};

template <class... Entries>
struct CodeList {
  static constexpr int kSize = sizeof...(Entries);
  // Entry i must be enumerator i.
  QUIRE_INLINE constexpr bool in_order() {
    int i = 0;
    return ((static_cast<int>(Entries::code) == i++) && ...);
  }
};

using Codes = CodeList<CodeEntry<Code::kTurbo2, TurboPanel<2>>,   //
                       CodeEntry<Code::kTurbo3, TurboPanel<3>>,   //
                       CodeEntry<Code::kTurbo4, TurboPanel<4>>,   //
                       CodeEntry<Code::kTurbo2q, TurboProd<2>>,   //
                       CodeEntry<Code::kTurbo3q, TurboProd<3>>,   //
                       CodeEntry<Code::kTurbo4q, TurboProd<4>>,   //
                       CodeEntry<Code::kQ8, Q8>,                  //
                       CodeEntry<Code::kQ4, Q4>,                  //
                       CodeEntry<Code::kKivi2, Kivi<2>>,          //
                       CodeEntry<Code::kKivi4, Kivi<4>>,          //
                       CodeEntry<Code::kPolar4, Polar4>,          //
                       CodeEntry<Code::kPolar4r, Polar4r>,        //
                       CodeEntry<Code::kNested2, Turbo<2>>,       //
                       CodeEntry<Code::kNested3, Turbo<3>>,       //
                       CodeEntry<Code::kNested4, Turbo<4>>,       //
                       CodeEntry<Code::kSignVq, SignVq>,          //
                       CodeEntry<Code::kToken2, TokenGroups<2>>,  //
                       CodeEntry<Code::kToken4, TokenGroups<4>>>;
static_assert(Codes::in_order());
constexpr int kCodeCount = Codes::kSize;

template <class F, class First, class... Rest>
QUIRE_INLINE constexpr decltype(auto) visit_code_in(CodeList<First, Rest...>, Code code, F&& f) {
  if constexpr (sizeof...(Rest) == 0) {
    return f(typename First::Type{});
  } else {
    if (code == First::code) return f(typename First::Type{});
    return visit_code_in(CodeList<Rest...>{}, code, f);
  }
}

// f(T{}) with the struct of the format; f returns the same type for all of them:
//
//   visit_code(code, [&](auto format) { return format.key_page_bytes(head_dim); })
template <class F>
QUIRE_INLINE constexpr decltype(auto) visit_code(Code code, F&& f) {
  return visit_code_in(Codes{}, code, f);
}

QUIRE_INLINE constexpr CodeInfo info(Code code) {
  return visit_code(code, [](auto format) { return decltype(format)::kInfo; });
}
QUIRE_INLINE constexpr CodebookSpec codebook_spec(Code code) {
  return visit_code(code, [](auto format) { return decltype(format)::kCodebook; });
}
QUIRE_INLINE constexpr int key_page_bytes(Code code, int head_dim) {
  return visit_code(code, [=](auto format) { return decltype(format)::key_page_bytes(head_dim); });
}
QUIRE_INLINE constexpr int value_page_bytes(Code code, int head_dim) {
  return visit_code(code, [=](auto format) { return decltype(format)::value_page_bytes(head_dim); });
}

// Key pages with an index (IndexedFormat); the two below are for these.
QUIRE_INLINE constexpr bool has_index(Code code) {
  return visit_code(code, [](auto format) { return IndexedFormat<decltype(format)>; });
}
// Bytes of a page that the index reads.
QUIRE_INLINE constexpr int index_page_bytes(Code code, int head_dim) {
  return visit_code(code, [=](auto format) {
    if constexpr (IndexedFormat<decltype(format)>) return decltype(format)::index_page_bytes(head_dim);
    return 0;
  });
}
// Where the norms of the rows begin.
QUIRE_INLINE constexpr int index_norms_offset(Code code, int head_dim) {
  return visit_code(code, [=](auto format) {
    if constexpr (IndexedFormat<decltype(format)>) return decltype(format)::index_norms_offset(head_dim);
    return -1;
  });
}

}  // namespace quire
