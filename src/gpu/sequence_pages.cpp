#include "gpu/sequence_pages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace quire::gpu {

namespace {

size_t index(int sequence, int stride) { return static_cast<size_t>(sequence) * static_cast<size_t>(stride); }

}  // namespace

SequencePages::SequencePages(const PagesShape& shape)
    : shape_(shape),
      coded_stride_(std::max(1, shape.coded_pages())),
      exact_(shape.n_sequences * shape.all_exact_pages()),
      coded_(shape.n_sequences * shape.coded_pages()),
      sequences_(static_cast<size_t>(shape.n_sequences), Sequence{.order = RowOrder(shape.reserve)}),
      exact_table_(index(shape.n_sequences, shape.exact_pages()), 0),
      coded_table_(index(shape.n_sequences, coded_stride_), 0),
      first_tokens_(static_cast<size_t>(shape.n_sequences), 0),
      sink_pages_(static_cast<size_t>(shape.n_sequences), 0),
      sink_tokens_(static_cast<size_t>(shape.n_sequences), 0) {}

void SequencePages::check_room(int n_tokens) const {
  if (n_tokens <= shape_.most_tokens) return;
  throw Error("a sequence on the CUDA device may have " + std::to_string(shape_.most_tokens) +
              " tokens here, and is to have " + std::to_string(n_tokens));
}

// Every sequence has pages of its own set aside, so that takes never fail within check_room().
bool SequencePages::grow(int sequence) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  check_room(s.n_tokens + 1);
  if (shape_.reserve.given()) s.order.append(s.n_tokens);
  ++s.n_tokens;
  ++s.n_steps;
  const bool wants_page = pages_of(exact_rows(sequence)) > static_cast<int>(s.exact.size());
  if (wants_page) {
    s.exact.push_back(exact_.take());
    write_tables(sequence);
  }
  return wants_page;
}

void SequencePages::take_back(int sequence) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  QUIRE_CHECK(s.n_tokens > 0);
  if (shape_.reserve.given()) s.order.crop(s.n_tokens, s.n_tokens - 1);
  --s.n_tokens;
  --s.n_steps;
  fit_exact_pages(sequence);
}

int SequencePages::exact_rows(int sequence) const {
  const Sequence& s = of(sequence);
  if (shape_.reserve.given()) return s.order.n_open();
  if (shape_.window_tokens > 0) return std::min(s.n_tokens, shape_.window_rows());
  return s.n_tokens - coded_tokens(sequence);
}

int SequencePages::row_number(int sequence, int row) const {
  return kPageTokens * of(sequence).exact[static_cast<size_t>(row / kPageTokens)] + row % kPageTokens;
}

void SequencePages::begin(int sequence, int n_tokens) {
  QUIRE_CHECK(of(sequence).n_tokens == 0);
  check_room(n_tokens);
  extend(sequence, n_tokens, shape_.sealed_pages(n_tokens));
}

void SequencePages::append(int sequence, int n_tokens) {
  const int n_total = of(sequence).n_tokens + n_tokens;
  check_room(n_total);
  extend(sequence, n_total,
         std::max(shape_.sealed_pages(n_total), static_cast<int>(of(sequence).coded.size())));
}

void SequencePages::restore(int sequence, int n_tokens, int n_coded_pages, std::vector<uint32_t> open) {
  QUIRE_CHECK(of(sequence).n_tokens == 0 && n_coded_pages >= shape_.sealed_pages(n_tokens));
  QUIRE_CHECK(kPageTokens * n_coded_pages <= n_tokens);
  check_room(n_tokens);
  if (n_coded_pages > shape_.coded_pages()) {
    throw Error("a sequence of which " + std::to_string(kPageTokens * n_coded_pages) +
                " tokens are coded needs a larger context on the CUDA device than " +
                std::to_string(shape_.most_tokens));
  }
  if (!shape_.reserve.given()) return extend(sequence, n_tokens, n_coded_pages);
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const int n_left = n_tokens - static_cast<int>(open.size());
  s.order.restore(n_tokens, n_left, std::move(open));
  for (int i = 0; i < n_coded_pages; ++i) s.coded.push_back(coded_.take());
  if (n_coded_pages > 0) s.sinks = exact_.take();
  s.n_tokens = n_tokens;
  fit_exact_pages(sequence);
}

// Given back before others are taken, so that no sequence ever has more than are its own.
void SequencePages::extend(int sequence, int n_tokens, int n_coded_pages) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  if (shape_.reserve.given()) return extend_reserve(sequence, n_tokens);
  while (static_cast<int>(s.coded.size()) < n_coded_pages) {
    if (!s.exact.empty()) {
      const int page = s.exact.front();
      s.exact.erase(s.exact.begin());
      if (s.sinks < 0 && !shape_.own_sinks) {
        s.sinks = page;
      } else {
        exact_.give_back(page);
      }
    }
    s.coded.push_back(coded_.take());
  }
  if (n_coded_pages > 0 && s.sinks < 0) s.sinks = exact_.take();
  s.n_tokens = n_tokens;
  fit_exact_pages(sequence);
}

// Exact pages keep their numbers; what lies in them does not stay where it was.
void SequencePages::extend_reserve(int sequence, int n_tokens) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const int n_coded_pages = shape_.sealed_pages(n_tokens);
  const int n_left = shape_.seals ? kPageTokens * n_coded_pages : shape_.settled(n_tokens);
  const int n_leaving = std::max(0, n_left - s.order.n_left());
  const std::vector<int> order = s.order.arrange(s.n_tokens, n_tokens, n_leaving);
  // Those that leave for good come nowhere.
  s.arrangement.assign(order.begin() + (shape_.seals ? 0 : n_leaving), order.end());
  while (static_cast<int>(s.coded.size()) < n_coded_pages) s.coded.push_back(coded_.take());
  if (n_coded_pages > 0 && s.sinks < 0) s.sinks = exact_.take();
  s.n_tokens = n_tokens;
  fit_exact_pages(sequence);
}

void SequencePages::fit_exact_pages(int sequence) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const int n_exact = pages_of(exact_rows(sequence));
  release(exact_, s.exact, static_cast<size_t>(n_exact));
  while (static_cast<int>(s.exact.size()) < n_exact) s.exact.push_back(exact_.take());
  write_tables(sequence);
}

bool SequencePages::is_due(int sequence) const {
  const Sequence& s = of(sequence);
  if (shape_.drops()) return shape_.settled(s.n_tokens) > s.order.n_left();
  return shape_.sealed_pages(s.n_tokens) > static_cast<int>(s.coded.size());
}

bool SequencePages::step_lasts(int sequence) const {
  const Sequence& s = of(sequence);
  if (shape_.window_tokens > 0) return s.n_tokens >= shape_.window_rows();
  if (shape_.drops()) return shape_.settled(s.n_tokens + 1) > s.order.n_left();
  return kPageTokens * shape_.sealed_pages(s.n_tokens + 1) > coded_tokens(sequence);
}

// The page where rows come together is given back before it is read: whoever takes it writes to it behind
// that, in the order of the stream.
PageSeal SequencePages::leave(int sequence, RowMoves& moves) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  QUIRE_CHECK(shape_.reserve.given() && is_due(sequence));
  const int n_due = shape_.seals ? kPageTokens : shape_.settled(s.n_tokens) - s.order.n_left();
  const std::vector<int> left = s.order.leave(s.n_tokens, std::min(n_due, kPageTokens), moves.moved);
  for (RowMove& move : moves.moved) move = {row_number(sequence, move.from), row_number(sequence, move.to)};
  moves.gathered.clear();
  PageSeal seal = {-1, -1};
  if (shape_.seals) {
    seal = {exact_.take(), coded_.take()};
    for (size_t i = 0; i < left.size(); ++i) {
      moves.gathered.push_back(
          {row_number(sequence, left[i]), kPageTokens * seal.from + static_cast<int>(i)});
    }
    s.coded.push_back(seal.to);
    if (s.sinks < 0) {
      s.sinks = seal.from;
    } else {
      exact_.give_back(seal.from);
    }
  }
  fit_exact_pages(sequence);
  return seal;
}

PageSeal SequencePages::seal(int sequence) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  QUIRE_CHECK(is_due(sequence));
  const PageSeal seal = {s.exact.front(), coded_.take()};
  s.exact.erase(s.exact.begin());
  s.coded.push_back(seal.to);
  const bool is_first = s.sinks < 0;
  if (is_first && shape_.own_sinks) s.sinks = exact_.take();
  if (is_first && !shape_.own_sinks) {
    s.sinks = seal.from;
  } else {
    exact_.give_back(seal.from);
  }
  write_tables(sequence);
  return seal;
}

void SequencePages::check_cut(int sequence, int n_tokens) const {
  const Sequence& s = of(sequence);
  const std::string to = " cannot be cut to " + std::to_string(n_tokens);
  if (shape_.reserve.given() && n_tokens < s.order.fixed_tokens()) {
    throw Error("a sequence whose rows have left a reserve at " + std::to_string(s.order.fixed_tokens()) +
                " tokens" + to);
  }
  if (shape_.window_tokens > 0 && s.n_tokens > shape_.window_rows() && n_tokens < s.n_tokens) {
    throw Error("a sequence of which tokens have left a window of " + std::to_string(shape_.window_tokens) +
                to);
  }
  if (!shape_.reserve.given() && n_tokens < coded_tokens(sequence)) {
    throw Error("a sequence of which " + std::to_string(coded_tokens(sequence)) + " tokens are coded" + to);
  }
}

void SequencePages::release(cuda::PageNumbers& numbers, std::vector<int>& pages, size_t n_left) {
  while (pages.size() > n_left) {
    numbers.give_back(pages.back());
    pages.pop_back();
  }
}

void SequencePages::crop(int sequence, int n_tokens, std::vector<cuda::PageCopy>& copies) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  QUIRE_CHECK(n_tokens >= 0 && n_tokens <= s.n_tokens);
  if (n_tokens > 0) check_cut(sequence, n_tokens);
  if (n_tokens == 0) {
    release(coded_, s.coded, 0);
    if (s.sinks >= 0) exact_.give_back(s.sinks);
    s.sinks = -1;
  }
  if (shape_.reserve.given()) s.order.crop(s.n_tokens, n_tokens);
  s.n_tokens = n_tokens;
  s.n_steps = std::min(s.n_steps, n_tokens);
  release(exact_, s.exact, static_cast<size_t>(pages_of(exact_rows(sequence))));
  if (exact_rows(sequence) % kPageTokens != 0 && exact_.holders(s.exact.back()) > 1) {
    copies.push_back({s.exact.back(), exact_.take()});
    exact_.give_back(s.exact.back());
    s.exact.back() = copies.back().to;
  }
  write_tables(sequence);
}

// Pages that are written no more are shared (where rows move, any may be written); every sequence has as many
// set aside as it would have alone.
void SequencePages::fork(int from, int to, std::vector<cuda::PageCopy>& copies) {
  const Sequence& source = of(from);
  Sequence& s = sequences_[static_cast<size_t>(to)];
  QUIRE_CHECK(s.n_tokens == 0 && from != to);
  for (const int page : source.coded) {
    coded_.share(page);
    s.coded.push_back(page);
  }
  s.sinks = source.sinks;
  if (s.sinks >= 0) exact_.share(s.sinks);
  s.order = source.order;
  const bool moves_rows = shape_.reserve.given() || shape_.window_tokens > 0;
  for (size_t i = 0; i < source.exact.size(); ++i) {
    const bool is_full =
        !moves_rows && coded_tokens(from) + kPageTokens * static_cast<int>(i + 1) <= source.n_tokens;
    if (is_full) {
      exact_.share(source.exact[i]);
      s.exact.push_back(source.exact[i]);
    } else {
      s.exact.push_back(exact_.take());
      copies.push_back({source.exact[i], s.exact.back()});
    }
  }
  s.n_tokens = source.n_tokens;
  s.n_steps = source.n_steps;
  write_tables(to);
}

void SequencePages::write_tables(int sequence) {
  const Sequence& s = of(sequence);
  std::copy(s.exact.begin(), s.exact.end(),
            exact_table_.begin() + static_cast<ptrdiff_t>(index(sequence, shape_.exact_pages())));
  std::copy(s.coded.begin(), s.coded.end(),
            coded_table_.begin() + static_cast<ptrdiff_t>(index(sequence, coded_stride_)));
  const auto at = static_cast<size_t>(sequence);
  first_tokens_[at] = shape_.drops() ? s.order.n_left() : coded_tokens(sequence);
  sink_pages_[at] = std::max(0, s.sinks);
  sink_tokens_[at] = s.sinks >= 0 ? shape_.sink_tokens : 0;
}

}  // namespace quire::gpu
