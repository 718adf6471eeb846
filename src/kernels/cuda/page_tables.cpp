#include "kernels/cuda/page_tables.h"

#include <string>

#include "base/error.h"
#include "kernels/cuda/check.cuh"

namespace quire::cuda {

PageTables::PageTables(int n_sequences, int pages_per_sequence, int page_tokens, PageNumbers& pages)
    : pages_per_sequence_(pages_per_sequence),
      page_tokens_(page_tokens),
      pages_(pages),
      entries_(static_cast<size_t>(n_sequences) * static_cast<size_t>(pages_per_sequence), 0),
      n_tokens_(static_cast<size_t>(n_sequences), 0) {}

PageTables::~PageTables() {
  for (int sequence = 0; sequence < n_sequences(); ++sequence) crop(sequence, 0);
}

void PageTables::append(int sequence, int n_new, std::vector<PageCopy>& copies) {
  const int before = n_tokens(sequence);
  const int n_before = pages_of(before);
  const int n_after = pages_of(before + n_new);
  const bool writes_last = n_new > 0 && before % page_tokens_ != 0;
  const bool exchanges = writes_last && pages_.holders(page(sequence, n_before - 1)) > 1;
  if (n_after > pages_per_sequence_) {
    throw Error("a sequence on the CUDA device may have " +
                std::to_string(pages_per_sequence_ * page_tokens_) + " tokens, and is to have " +
                std::to_string(before + n_new));
  }
  const int n_wanted = n_after - n_before + (exchanges ? 1 : 0);
  if (n_wanted > pages_.n_free()) {
    throw Error("the CUDA device's pool has " + std::to_string(pages_.n_free()) + " free pages, and " +
                std::to_string(n_wanted) + " are needed");
  }
  if (exchanges) {
    int32_t& last = entries_[index(sequence, n_before - 1)];
    copies.push_back({last, pages_.take()});
    pages_.give_back(last);
    last = copies.back().to;
  }
  for (int at = n_before; at < n_after; ++at) entries_[index(sequence, at)] = pages_.take();
  n_tokens_[static_cast<size_t>(sequence)] = before + n_new;
}

void PageTables::crop(int sequence, int n_tokens_left) {
  QUIRE_CHECK(n_tokens_left >= 0 && n_tokens_left <= n_tokens(sequence));
  for (int at = n_pages(sequence) - 1; at >= pages_of(n_tokens_left); --at)
    pages_.give_back(page(sequence, at));
  n_tokens_[static_cast<size_t>(sequence)] = n_tokens_left;
}

void PageTables::fork(int from, int to) {
  QUIRE_CHECK(n_tokens(to) == 0 && from != to);
  for (int at = 0; at < n_pages(from); ++at) {
    pages_.share(page(from, at));
    entries_[index(to, at)] = page(from, at);
  }
  n_tokens_[static_cast<size_t>(to)] = n_tokens(from);
}

DeviceTables::DeviceTables(const PageTables& tables)
    : entries_(tables.entries().size() * sizeof(int32_t)),
      lengths_(tables.lengths().size() * sizeof(int32_t)) {}

// From pageable memory the runtime copies before it returns, as far as the host's side goes.
void DeviceTables::send(const PageTables& tables, Stream stream) {
  check(cudaMemcpyAsync(entries_.as<void>(), tables.entries().data(), entries_.size_bytes(),
                        cudaMemcpyHostToDevice, stream),
        "sending page tables");
  check(cudaMemcpyAsync(lengths_.as<void>(), tables.lengths().data(), lengths_.size_bytes(),
                        cudaMemcpyHostToDevice, stream),
        "sending lengths");
}

namespace {

int pages_in(uint64_t budget_bytes, size_t page_bytes) {
  QUIRE_CHECK(page_bytes > 0 && page_bytes % 16 == 0);
  const uint64_t n = budget_bytes / page_bytes;
  if (n == 0) {
    throw Error("a budget of " + std::to_string(budget_bytes) +
                " bytes on the CUDA device holds no page of " + std::to_string(page_bytes));
  }
  QUIRE_CHECK(n <= INT32_MAX);
  return static_cast<int>(n);
}

}  // namespace

DevicePages::DevicePages(size_t page_bytes, uint64_t budget_bytes)
    : page_bytes_(page_bytes),
      numbers_(pages_in(budget_bytes, page_bytes)),
      memory_(static_cast<size_t>(numbers_.n_pages()) * page_bytes) {}

uint64_t DevicePages::used_bytes() const {
  return static_cast<uint64_t>(numbers_.n_pages() - numbers_.n_free()) * page_bytes_;
}

void DevicePages::copy(const PageCopy& copy, Stream stream) {
  check(cudaMemcpyAsync(page(copy.to), page(copy.from), page_bytes_, cudaMemcpyDeviceToDevice, stream),
        "copying a page");
}

}  // namespace quire::cuda
