// How fast a kernel gathers records that lie in memory of the host, by their size, the memory they are spread
// over and how it was pinned. Prints a line each: what, bytes of a record, GB/s, millions of records a
// second. Alone: nvcc -O3 -std=c++20 -arch=sm_90a bench/micro/cuda_gather_bench.cu -o gather_bench
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(cudaError_t result, int line) {
  if (result == cudaSuccess) return;
  std::printf("line %d: %s\n", line, cudaGetErrorString(result));
  std::exit(1);
}
#define CHECK(call) check(call, __LINE__)

__device__ uint32_t mixed(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ x >> 16;
}

// units: pieces of 16 bytes of a record, a power of two up to 64; neighbours read them.
template <int kAhead>
__global__ void gather(const uint4* records, uint32_t n_records, int log_units, int64_t n_wanted,
                       uint32_t seed, uint32_t* out) {
  uint32_t sum = 0;
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  const int64_t n = n_wanted << log_units;
  for (int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; first < n; first += kAhead * step) {
    uint4 x[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = first + i * step < n ? first + i * step : first;
      const auto record = (uint64_t)mixed((uint32_t)(at >> log_units) * 2654435761u + seed) * n_records >> 32;
      x[i] = __ldcg(records + (record << log_units) + (at & ((1 << log_units) - 1)));
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sum ^= x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
  }
  if (sum == 12345) *out = sum;
}

// A word every `step` bytes.
__global__ void touch(const uint8_t* memory, int64_t n_bytes, int64_t step, uint32_t* out) {
  uint32_t sum = 0;
  for (int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * step; at < n_bytes;
       at += (int64_t)gridDim.x * blockDim.x * step)
    sum ^= __ldcg(reinterpret_cast<const uint32_t*>(memory + at));
  if (sum == 12345) *out = sum;
}

constexpr int64_t kWanted = 262144;  // records of a launch
constexpr int kBlocks = 132;

// Of body(i), with before(i) in front of it that is not timed.
template <class Before, class Body>
float median_ms(const Before& before, const Body& body) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> times(9);
  for (size_t i = 0; i < times.size(); ++i) {
    before((uint32_t)i);
    CHECK(cudaEventRecord(begin));
    body((uint32_t)i);
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&times[i], begin, end));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void launch(const uint8_t* memory, uint64_t n_bytes, int log_units, int64_t n_wanted, uint32_t seed,
            uint32_t* out) {
  gather<4><<<kBlocks, 512>>>(reinterpret_cast<const uint4*>(memory), (uint32_t)(n_bytes >> (4 + log_units)),
                              log_units, n_wanted, seed, out);
}

void measure(const char* what, const uint8_t* memory, uint64_t n_bytes, uint32_t* out) {
  for (int log_units = 2; log_units <= 6; ++log_units) {
    const double ms = median_ms(
        [](uint32_t) {}, [&](uint32_t i) { launch(memory, n_bytes, log_units, kWanted, 977 * i, out); });
    std::printf("%-22s over %5.2f GiB: %5d bytes  %6.2f GB/s  %6.1f M/s\n", what, (double)n_bytes / 0x1p30,
                16 << log_units, (double)(kWanted << (4 + log_units)) / ms / 1e6, (double)kWanted / ms / 1e3);
  }
  std::fflush(stdout);
}

// As many records as a layer of a step fetches, from 256 MiB, behind others from all of the memory; and with
// addresses of the layer touched before.
void measure_layer(const uint8_t* memory, uint64_t n_bytes, uint32_t* out) {
  constexpr uint64_t kLayer = uint64_t{256} << 20;
  constexpr int64_t kFetched = 15700;
  const auto others = [&](uint32_t i) {
    launch(memory + kLayer, n_bytes - kLayer, 3, kWanted, 77 * i + 5, out);
  };
  const auto layer = [&](uint32_t i) { launch(memory, kLayer, 3, kFetched, 977 * i, out); };
  std::printf("%lld records of 128 bytes of a layer: %.1f us\n", (long long)kFetched,
              1e3 * (double)median_ms(others, layer));
  for (const int64_t step : {4096, 65536, 2097152}) {
    const auto touched = [&] { touch<<<8, 512>>>(memory, kLayer, step, out); };
    const double touch_us = 1e3 * (double)median_ms(others, [&](uint32_t) { touched(); });
    const double us = 1e3 * (double)median_ms(
                                [&](uint32_t i) {
                                  others(i);
                                  touched();
                                },
                                layer);
    std::printf("the same, touched every %lld bytes (%.1f us): %.1f us\n", (long long)step, touch_us, us);
  }
}

uint8_t* pinned(const char* how, uint64_t n_bytes, bool huge_pages) {
  const auto start = std::chrono::steady_clock::now();
  void* memory = nullptr;
  if (huge_pages) {
    constexpr uint64_t kHuge = uint64_t{2} << 20;
    memory = mmap(nullptr, n_bytes + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      std::printf("%s: refused\n", how);
      std::exit(1);
    }
    memory = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory) + kHuge - 1) / kHuge * kHuge);
    madvise(memory, n_bytes, MADV_HUGEPAGE);
    CHECK(cudaHostRegister(memory, n_bytes, cudaHostRegisterMapped));
  } else {
    CHECK(cudaHostAlloc(&memory, n_bytes, cudaHostAllocMapped));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%s: %.0f GiB pinned in %.2f s\n", how, (double)n_bytes / 0x1p30, seconds.count());
  return static_cast<uint8_t*>(memory);
}

}  // namespace

int main() {
  uint32_t* out = nullptr;
  CHECK(cudaMalloc(&out, sizeof *out));
  constexpr uint64_t kBytes = uint64_t{32} << 30;
  const uint8_t* plain = pinned("cudaHostAlloc", kBytes, false);
  for (uint64_t part = uint64_t{1} << 28; part <= kBytes; part *= 2)
    measure("cudaHostAlloc", plain, part, out);
  measure_layer(plain, kBytes / 4, out);
  CHECK(cudaFreeHost(const_cast<uint8_t*>(plain)));
  const uint8_t* huge = pinned("huge pages, registered", kBytes / 4, true);
  measure("huge pages", huge, kBytes / 4, out);
  return 0;
}
