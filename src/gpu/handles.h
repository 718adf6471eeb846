// What the CUDA runtime gives and wants back. Internal to the library.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/check.cuh"

namespace quire::gpu {

class OwnStream {
 public:
  OwnStream() { cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
  ~OwnStream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    cuda::check(cudaEventCreateWithFlags(&event_, flags), "making an event");
  }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  void record(cudaStream_t stream) { cuda::check(cudaEventRecord(event_, stream), "marking a step"); }
  void wait() const { cuda::check(cudaEventSynchronize(event_), "a step"); }
  float milliseconds_since(const Event& begin) const {
    float ms = 0;
    cuda::check(cudaEventElapsedTime(&ms, begin.event_, event_), "timing a step");
    return ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// What `record` asks of the stream, to be asked again as a whole.
class Graph {
 public:
  Graph() = default;
  Graph(cudaStream_t stream, const std::function<void()>& record) {
    cudaGraph_t graph = nullptr;
    cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a step");
    try {
      record();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    cuda::check(cudaStreamEndCapture(stream, &graph), "recording a step");
    const cudaError_t result = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    cuda::check(result, "making a graph of a step");
  }
  ~Graph() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  void launch(cudaStream_t stream) const { cuda::check(cudaGraphLaunch(graph_, stream), "beginning a step"); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

// Memory of the host that the device writes to.
template <class T>
class PinnedArray {
 public:
  explicit PinnedArray(size_t n) {
    cuda::check(cudaHostAlloc(reinterpret_cast<void**>(&data_), n * sizeof(T), cudaHostAllocMapped),
                "reserving memory of the host");
    for (size_t i = 0; i < n; ++i) data_[i] = T{};
  }
  ~PinnedArray() { cudaFreeHost(data_); }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

// To the device in the order of the stream, from memory that the host may change at once. The copy itself is
// made from pinned memory of its own: what the runtime does with other memory is not promised.
class Sender {
 public:
  // Pieces of up to most_bytes.
  explicit Sender(size_t most_bytes) : most_bytes_(most_bytes), memory_(kSlots * most_bytes) {
    marks_.reserve(kSlots);
    for (size_t i = 0; i < kSlots; ++i) marks_.emplace_back();
  }

  // Waits where the device has not come to the copies before the last kSlots.
  void send(void* to, const void* from, size_t n_bytes, cudaStream_t stream) {
    QUIRE_CHECK(n_bytes <= most_bytes_);
    const size_t slot = n_sent_++ % kSlots;
    marks_[slot].wait();
    std::byte* piece = memory_.data() + slot * most_bytes_;
    std::memcpy(piece, from, n_bytes);
    cuda::check(cudaMemcpyAsync(to, piece, n_bytes, cudaMemcpyHostToDevice, stream), "sending to the device");
    marks_[slot].record(stream);
  }

 private:
  static constexpr size_t kSlots = 16;

  size_t most_bytes_;
  PinnedArray<std::byte> memory_;
  std::vector<Event> marks_;
  size_t n_sent_ = 0;
};

// The same for what is sent rarely: the host waits until the device has it.
inline void send(void* to, const void* from, size_t n_bytes, cudaStream_t stream) {
  cuda::check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyHostToDevice, stream), "sending to the device");
  cuda::check(cudaStreamSynchronize(stream), "sending to the device");
}

}  // namespace quire::gpu
