#include "gpu/sequence_pages.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace quire::gpu {

namespace {

size_t index(int sequence, int stride) { return static_cast<size_t>(sequence) * static_cast<size_t>(stride); }

int pages_of(int n_tokens) { return (n_tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace

SequencePages::SequencePages(const PagesShape& shape)
    : shape_(shape),
      coded_stride_(std::max(1, shape.coded_pages())),
      exact_(shape.n_sequences * shape.all_exact_pages()),
      coded_(shape.n_sequences * shape.coded_pages()),
      sequences_(static_cast<size_t>(shape.n_sequences)),
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
  const bool wants_page =
      pages_of(s.n_tokens + 1 - coded_tokens(sequence)) > static_cast<int>(s.exact.size());
  if (wants_page) {
    s.exact.push_back(exact_.take());
    write_tables(sequence);
  }
  ++s.n_tokens;
  return wants_page;
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

void SequencePages::restore(int sequence, int n_tokens, int n_coded_pages) {
  QUIRE_CHECK(of(sequence).n_tokens == 0 && n_coded_pages >= shape_.sealed_pages(n_tokens));
  QUIRE_CHECK(kPageTokens * n_coded_pages <= n_tokens);
  check_room(n_tokens);
  if (n_coded_pages > shape_.coded_pages()) {
    throw Error("a sequence of which " + std::to_string(kPageTokens * n_coded_pages) +
                " tokens are coded needs a larger context on the CUDA device than " +
                std::to_string(shape_.most_tokens));
  }
  extend(sequence, n_tokens, n_coded_pages);
}

// Given back before others are taken, so that no sequence ever has more than are its own.
void SequencePages::extend(int sequence, int n_tokens, int n_coded_pages) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
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
  const int n_exact = pages_of(n_tokens - kPageTokens * n_coded_pages);
  while (static_cast<int>(s.exact.size()) < n_exact) s.exact.push_back(exact_.take());
  s.n_tokens = n_tokens;
  write_tables(sequence);
}

bool SequencePages::is_due(int sequence) const {
  return shape_.sealed_pages(of(sequence).n_tokens) > static_cast<int>(of(sequence).coded.size());
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

void SequencePages::release(cuda::PageNumbers& numbers, std::vector<int>& pages, size_t n_left) {
  while (pages.size() > n_left) {
    numbers.give_back(pages.back());
    pages.pop_back();
  }
}

void SequencePages::crop(int sequence, int n_tokens, std::vector<cuda::PageCopy>& copies) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  QUIRE_CHECK(n_tokens >= 0 && n_tokens <= s.n_tokens);
  if (n_tokens > 0 && n_tokens < coded_tokens(sequence)) {
    throw Error("a sequence of which " + std::to_string(coded_tokens(sequence)) +
                " tokens are coded cannot be cut to " + std::to_string(n_tokens));
  }
  if (n_tokens == 0) {
    release(coded_, s.coded, 0);
    if (s.sinks >= 0) exact_.give_back(s.sinks);
    s.sinks = -1;
  }
  release(exact_, s.exact, static_cast<size_t>(pages_of(n_tokens - coded_tokens(sequence))));
  s.n_tokens = n_tokens;
  if (n_tokens % kPageTokens != 0 && exact_.holders(s.exact.back()) > 1) {
    copies.push_back({s.exact.back(), exact_.take()});
    exact_.give_back(s.exact.back());
    s.exact.back() = copies.back().to;
  }
  write_tables(sequence);
}

// Pages that are written no more are shared; every sequence has as many set aside as it would have alone.
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
  for (size_t i = 0; i < source.exact.size(); ++i) {
    const bool is_full = coded_tokens(from) + kPageTokens * static_cast<int>(i + 1) <= source.n_tokens;
    if (is_full) {
      exact_.share(source.exact[i]);
      s.exact.push_back(source.exact[i]);
    } else {
      s.exact.push_back(exact_.take());
      copies.push_back({source.exact[i], s.exact.back()});
    }
  }
  s.n_tokens = source.n_tokens;
  write_tables(to);
}

void SequencePages::write_tables(int sequence) {
  const Sequence& s = of(sequence);
  std::copy(s.exact.begin(), s.exact.end(),
            exact_table_.begin() + static_cast<ptrdiff_t>(index(sequence, shape_.exact_pages())));
  std::copy(s.coded.begin(), s.coded.end(),
            coded_table_.begin() + static_cast<ptrdiff_t>(index(sequence, coded_stride_)));
  const auto at = static_cast<size_t>(sequence);
  first_tokens_[at] = coded_tokens(sequence);
  sink_pages_[at] = std::max(0, s.sinks);
  sink_tokens_[at] = s.sinks >= 0 ? shape_.sink_tokens : 0;
}

}  // namespace quire::gpu
