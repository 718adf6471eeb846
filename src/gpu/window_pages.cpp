#include "gpu/window_pages.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "gpu/handles.h"
#include "gpu/sequence_pages.h"

namespace quire::gpu {

namespace {

size_t size(int64_t n) { return static_cast<size_t>(n); }

}  // namespace

int WindowShape::text_pages() const { return std::max(1, pages_of(most_tokens)); }

int WindowShape::ring_pages() const {
  return std::min(pages_of(*std::max_element(windows.begin(), windows.end())) + 2, text_pages());
}

uint64_t WindowShape::layer_bytes() const {
  return row_bytes(format, size(int64_t{2} * kPageTokens * heads.head_dim * heads.n_kv_heads));
}

uint64_t WindowShape::memory_bytes() const {
  const auto n = static_cast<uint64_t>(n_sequences);
  return n * size(ring_pages()) * layer_bytes() * windows.size() + n * size(text_pages()) * sizeof(int32_t);
}

WindowPages::WindowPages(const WindowShape& shape)
    : shape_(shape),
      rows_(size(shape.n_sequences) * ring_bytes()),
      table_(size(shape.n_sequences) * size(shape.text_pages()) * sizeof(int32_t)),
      lost_(size(shape.n_sequences), 0) {
  std::vector<int32_t> table;
  for (int sequence = 0; sequence < shape.n_sequences; ++sequence) {
    for (int page = 0; page < shape.text_pages(); ++page)
      table.push_back(sequence * shape.ring_pages() + page % shape.ring_pages());
  }
  table_.write(table.data(), table_.size_bytes());
  cuda::wait_for(nullptr);
}

ExactPages WindowPages::pages(int layer) const {
  const auto side = static_cast<int64_t>(row_bytes(shape_.format, size(kPageTokens * shape_.heads.head_dim)));
  const uint8_t* data = rows_.as<uint8_t>() + size(layer) * shape_.layer_bytes();
  const auto page_bytes = static_cast<int64_t>(shape_.layer_bytes() * shape_.windows.size());
  return {shape_.format,
          {data, page_bytes, 2 * side},
          {data + side, page_bytes, 2 * side},
          table_.as<int32_t>(),
          shape_.text_pages()};
}

const int32_t* WindowPages::table(int sequence) const {
  return table_.as<int32_t>() + int64_t{sequence} * shape_.text_pages();
}

void WindowPages::put(int sequence, int layer, const PromptRows& rows, int n_before, int n,
                      cuda::Stream stream) const {
  const int first = std::max(n_before, kPageTokens * std::max(0, pages_of(n) - shape_.ring_pages()));
  copy_to_pages(shape_.heads, rows, first, n - first, pages(layer), table(sequence), stream, first);
}

void WindowPages::take(int sequence, int layer, int n, const PromptRows& rows, cuda::Stream stream) const {
  const int first = std::max(0, n - window(layer) + 1);
  copy_from_pages(shape_.heads, pages(layer), table(sequence), n - first, rows, first, stream, first);
}

int WindowPages::n_lost(int sequence, int n_tokens) const {
  return std::max(lost_[size(sequence)], kPageTokens * std::max(0, pages_of(n_tokens) - shape_.ring_pages()));
}

void WindowPages::check_cut(int sequence, int n_now, int n_tokens) const {
  const int n_left = n_lost(sequence, n_now);
  const int most = *std::max_element(shape_.windows.begin(), shape_.windows.end());
  if (n_tokens == 0 || n_tokens == n_now || n_left == 0 || n_tokens >= n_left + most - 1) return;
  throw Error("a sequence of " + std::to_string(n_now) + " tokens cannot be cut to " +
              std::to_string(n_tokens) + " on the CUDA device: layers see a window of " +
              std::to_string(most) + ", and their rows of the first " + std::to_string(n_left) +
              " tokens have left");
}

void WindowPages::cut(int sequence, int n_now, int n_tokens) {
  lost_[size(sequence)] = n_tokens == 0 ? 0 : n_lost(sequence, n_now);
}

void WindowPages::fork(int from, int to, int n_tokens, cuda::Stream stream) {
  cuda::check(cudaMemcpyAsync(ring(to), ring(from), ring_bytes(), cudaMemcpyDeviceToDevice, stream),
              "copying a window");
  lost_[size(to)] = n_lost(from, n_tokens);
}

size_t WindowPages::place(int sequence, int layer, int page) const {
  const int in_ring = sequence * shape_.ring_pages() + page % shape_.ring_pages();
  return (size(in_ring) * shape_.windows.size() + size(layer)) * shape_.layer_bytes();
}

void WindowPages::read(int sequence, int layer, int page, void* to) const {
  rows_.read(to, shape_.layer_bytes(), place(sequence, layer, page));
}

void WindowPages::write(int sequence, int layer, int page, const void* from) {
  rows_.write(from, shape_.layer_bytes(), place(sequence, layer, page));
}

uint8_t* WindowPages::ring(int sequence) const { return rows_.as<uint8_t>() + size(sequence) * ring_bytes(); }

uint64_t WindowPages::ring_bytes() const {
  return size(shape_.ring_pages()) * shape_.layer_bytes() * shape_.windows.size();
}

}  // namespace quire::gpu
