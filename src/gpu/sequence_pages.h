// Which pages the sequences of a batch have, exact and coded: host logic.
//
//   | sinks' page | coded pages of 64 tokens .. | exact pages: at least the newest tail_tokens |
//
// The exact page that holds a sequence's first tokens stays when they are coded: its first rows are the
// sinks. (With own_sinks it leaves, and another takes its place.) Where nothing is ever coded all pages are
// exact.
//
// With a reserve (gpu/row_order.h) exact rows lie in an order of their own: those that leave are brought
// together in a page to be coded, or leave for good, and others take their places. With a window the exact
// pages are a ring: the sinks, and behind them the newest tokens, the next one in the place of the oldest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/row_order.h"
#include "kernels/cuda/page_numbers.h"
#include "kernels/cuda/page_tables.h"

namespace quire::gpu {

constexpr int kPageTokens = 64;
constexpr int pages_of(int n_tokens) { return (n_tokens + kPageTokens - 1) / kPageTokens; }

struct PagesShape {
  int n_sequences;
  int most_tokens;  // of a sequence
  bool seals;
  int sink_tokens;
  int tail_tokens;
  int first_sealed_tokens = 0;  // nothing is coded before a sequence has so many
  bool own_sinks = false;       // the sinks' page is a new one, into which other rows are written
  LogReserve reserve = {};      // given: it says which rows leave the exact pages
  int reserve_rows = 0;         // most_open_rows() of it
  int window_tokens = 0;        // above 0: of the tokens behind the sinks so many of the newest stay

  bool drops() const { return reserve.given() && !seals; }
  // Rows of the ring: a step reads its own beside those of the window. 0: there is none.
  int window_rows() const { return window_tokens > 0 ? sink_tokens + window_tokens + 1 : 0; }
  // Where the row of a token lies in the ring.
  int place_of(int position) const {
    if (position < window_rows()) return position;
    return sink_tokens + (position - sink_tokens) % (window_tokens + 1);
  }
  int sealed_pages(int n_tokens) const {
    if (reserve.given()) return seals ? settled(n_tokens) / kPageTokens : 0;
    const bool may_seal = seals && n_tokens > tail_tokens && n_tokens >= first_sealed_tokens;
    return may_seal ? (n_tokens - tail_tokens) / kPageTokens : 0;
  }
  // Pages that a sequence has at most at a time; of exact ones, those of the table.
  int exact_pages() const {
    if (reserve.given()) return pages_of(reserve_rows);
    if (window_tokens > 0) return pages_of(std::min(window_rows(), most_tokens));
    return seals ? pages_of(std::min(std::max(tail_tokens, first_sealed_tokens), most_tokens)) + 1
                 : pages_of(most_tokens);
  }
  int coded_pages() const { return seals ? sealed_pages(most_tokens) : 0; }
  // And the sinks' page, and one where rows of a reserve come together.
  int all_exact_pages() const { return exact_pages() + (seals ? (reserve.given() ? 2 : 1) : 0); }
  int settled(int n_tokens) const {
    return static_cast<int>(reserve.n_settled(static_cast<size_t>(n_tokens)));
  }
};

// What is to be done where rows of a reserve leave: `gathered` first, to the rows of the page to be coded
// (seal.from), then `moved`. Rows are numbered over all exact pages, 64 * page + row.
struct RowMoves {
  std::vector<RowMove> gathered;
  std::vector<RowMove> moved;
};

// A page to be coded: numbers of the exact and of the coded one.
struct PageSeal {
  int from;
  int to;
};

class SequencePages {
 public:
  explicit SequencePages(const PagesShape& shape);

  const PagesShape& shape() const { return shape_; }
  int n_tokens(int sequence) const { return of(sequence).n_tokens; }
  int coded_tokens(int sequence) const { return kPageTokens * static_cast<int>(of(sequence).coded.size()); }

  // One token more. Throws Error, with nothing changed, where there is no room. True: tables changed.
  bool grow(int sequence);
  // As before grow(), nothing having been coded or left since.
  void take_back(int sequence);
  // Pages of a prompt of n tokens, for an empty sequence: coded pages for all that are due, exact ones for
  // the rest and the sinks. Throws as grow().
  void begin(int sequence, int n_tokens);
  // The same behind the tokens that are there. Exact pages of tokens that are coded now have left: whoever
  // wants their rows takes note of the tables before.
  void append(int sequence, int n_tokens);
  // For an empty sequence, n_tokens of which so many pages are coded, as where a sequence was cut after that.
  // With a reserve: positions of the exact rows as they lie.
  void restore(int sequence, int n_tokens, int n_coded_pages, std::vector<uint32_t> open = {});
  // The oldest exact page is due to be coded, or rows of a reserve are due to leave.
  bool is_due(int sequence) const;
  // The next step cannot be cut off again: rows are coded or leave with it.
  bool step_lasts(int sequence) const;
  PageSeal seal(int sequence);
  // The same of the rows that leave a reserve, up to 64 at a time; where they are dropped nothing is coded.
  PageSeal leave(int sequence, RowMoves& moves);
  // Where the rows of a prompt lie, when append() or begin() has brought it: row i behind those that were
  // coded before is row arrangement()[i] of these: exact rows as they lay before, then those of the prompt.
  // Empty: as they came.
  const std::vector<int32_t>& arrangement(int sequence) const { return of(sequence).arrangement; }
  // Rows of exact pages.
  int exact_rows(int sequence) const;
  // Tokens that came by grow(): what a cache of the CPU counts as generated.
  int n_steps(int sequence) const { return of(sequence).n_steps; }
  void set_steps(int sequence, int n) { sequences_[static_cast<size_t>(sequence)].n_steps = n; }
  // The order of a sequence's rows with a reserve.
  const RowOrder& order(int sequence) const { return of(sequence).order; }
  // Forgets all tokens from n_tokens on, none of which is coded (0: all may be). Throws Error otherwise. A
  // last page that a fork has too is exchanged: the copy to make is appended.
  void crop(int sequence, int n_tokens, std::vector<cuda::PageCopy>& copies);
  // `to`, which is empty, becomes like `from`; the copies of exact pages to make are appended.
  void fork(int from, int to, std::vector<cuda::PageCopy>& copies);

  // What the device reads: exact tables [n_sequences][exact_pages()], coded ones [n_sequences][coded stride],
  // tokens before the exact table's, sinks' pages and how many sinks these hold.
  const std::vector<int32_t>& exact_table() const { return exact_table_; }
  const std::vector<int32_t>& coded_table() const { return coded_table_; }
  const std::vector<int32_t>& first_tokens() const { return first_tokens_; }
  const std::vector<int32_t>& sink_pages() const { return sink_pages_; }
  const std::vector<int32_t>& sink_tokens() const { return sink_tokens_; }
  int coded_stride() const { return coded_stride_; }

  int used_exact_pages() const { return exact_.n_pages() - exact_.n_free(); }
  int used_coded_pages() const { return coded_.n_pages() - coded_.n_free(); }

 private:
  struct Sequence {
    int n_tokens = 0;
    int n_steps = 0;
    std::vector<int> exact = {};
    std::vector<int> coded = {};
    int sinks = -1;                // page number
    RowOrder order{LogReserve()};  // where there is a reserve
    std::vector<int32_t> arrangement = {};
  };

  const Sequence& of(int sequence) const { return sequences_[static_cast<size_t>(sequence)]; }
  void check_room(int n_tokens) const;
  void check_cut(int sequence, int n_tokens) const;
  void extend(int sequence, int n_tokens, int n_coded_pages);
  void extend_reserve(int sequence, int n_tokens);
  void fit_exact_pages(int sequence);
  int row_number(int sequence, int row) const;
  void release(cuda::PageNumbers& numbers, std::vector<int>& pages, size_t n_left);
  void write_tables(int sequence);

  const PagesShape shape_;
  const int coded_stride_;
  cuda::PageNumbers exact_;
  cuda::PageNumbers coded_;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> exact_table_;
  std::vector<int32_t> coded_table_;
  std::vector<int32_t> first_tokens_;
  std::vector<int32_t> sink_pages_;
  std::vector<int32_t> sink_tokens_;
};

}  // namespace quire::gpu
