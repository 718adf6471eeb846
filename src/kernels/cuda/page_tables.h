// Which pages the sequences of a batch have, in token order: host logic, and the same on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/page_numbers.h"

namespace quire::cuda {

// A page whose bytes have to be copied before anything is written to `to`.
struct PageCopy {
  int from;
  int to;
};

// Sequences are numbered 0 .. n_sequences - 1; one that nobody uses has no tokens. Pages are shared by forks
// until one of their holders writes into them.
class PageTables {
 public:
  // `pages` outlives the tables.
  PageTables(int n_sequences, int pages_per_sequence, int page_tokens, PageNumbers& pages);
  ~PageTables();
  PageTables(const PageTables&) = delete;
  PageTables& operator=(const PageTables&) = delete;

  int n_sequences() const { return static_cast<int>(n_tokens_.size()); }
  int pages_per_sequence() const { return pages_per_sequence_; }
  int n_tokens(int sequence) const { return n_tokens_[static_cast<size_t>(sequence)]; }
  // Pages that hold the tokens of a sequence.
  int n_pages(int sequence) const { return pages_of(n_tokens(sequence)); }
  int page(int sequence, int at) const { return entries_[index(sequence, at)]; }

  // Room for n_new tokens, which the sequence then has. A shared last page that they are written into is
  // exchanged: the copies to make are appended to `copies`. On Error (no free page, or more than a sequence
  // may have) nothing has changed.
  void append(int sequence, int n_new, std::vector<PageCopy>& copies);
  // Forgets all tokens from n_tokens on.
  void crop(int sequence, int n_tokens);
  // `to`, which has no tokens, becomes like `from`.
  void fork(int from, int to);

  // What DeviceTables sends: [n_sequences][pages_per_sequence], and [n_sequences].
  const std::vector<int32_t>& entries() const { return entries_; }
  const std::vector<int32_t>& lengths() const { return n_tokens_; }

 private:
  int pages_of(int n_tokens) const { return (n_tokens + page_tokens_ - 1) / page_tokens_; }
  size_t index(int sequence, int at) const {
    return static_cast<size_t>(sequence) * static_cast<size_t>(pages_per_sequence_) + static_cast<size_t>(at);
  }

  const int pages_per_sequence_;
  const int page_tokens_;
  PageNumbers& pages_;
  std::vector<int32_t> entries_;   // entries behind a sequence's pages mean nothing
  std::vector<int32_t> n_tokens_;  // [sequence]
};

// Tables and lengths on the device, where they keep their place: a captured graph may read them.
class DeviceTables {
 public:
  explicit DeviceTables(const PageTables& tables);

  // In the order of the stream. The host may change the tables at once.
  void send(const PageTables& tables, Stream stream);

  const int32_t* entries() const { return entries_.as<int32_t>(); }
  const int32_t* lengths() const { return lengths_.as<int32_t>(); }

 private:
  DeviceBuffer entries_;
  DeviceBuffer lengths_;
};

// Memory for pages on the device, all of it reserved at once: what it is given is the most it ever takes.
class DevicePages {
 public:
  // As many pages of page_bytes (a multiple of 16) as the budget holds. Throws Error where that is none, or
  // the device has less.
  DevicePages(size_t page_bytes, uint64_t budget_bytes);

  size_t page_bytes() const { return page_bytes_; }
  uint64_t used_bytes() const;
  uint64_t reserved_bytes() const { return memory_.size_bytes(); }
  PageNumbers& numbers() { return numbers_; }
  uint8_t* data() const { return memory_.as<uint8_t>(); }
  uint8_t* page(int number) const { return data() + static_cast<size_t>(number) * page_bytes_; }
  // In the order of the stream.
  void copy(const PageCopy& copy, Stream stream);

 private:
  size_t page_bytes_;
  PageNumbers numbers_;
  DeviceBuffer memory_;
};

}  // namespace quire::cuda
