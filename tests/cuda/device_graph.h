// One captured launch, replayed while what it reads changes.
#pragma once

#include <functional>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device_buffer.h"

namespace quire::test {

class DeviceGraph {
 public:
  explicit DeviceGraph(const std::function<void(cuda::Stream)>& launch) {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    cudaGraph_t graph = nullptr;
    cuda::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "capturing");
    launch(stream_);
    cuda::check(cudaStreamEndCapture(stream_, &graph), "capturing");
    cuda::check(cudaGraphInstantiate(&graph_, graph, 0), "making a graph");
    cuda::check(cudaGraphDestroy(graph), "making a graph");
  }
  ~DeviceGraph() {
    cudaGraphExecDestroy(graph_);
    cudaStreamDestroy(stream_);
  }
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  void replay() {
    cuda::check(cudaGraphLaunch(graph_, stream_), "replaying");
    cuda::wait_for(stream_);
  }

 private:
  cuda::Stream stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace quire::test
