// Hopper's copy engine and the barriers in shared memory (mbarrier) by which those who ask it for copies and
// those who wait for them know of each other. A phase of a barrier ends when all arrivals that were announced
// have come, and all bytes with them; who waits names the phase by its number's last bit. To be called in
// code for Hopper and later alone.
#pragma once

#include <cuda.h>
#include <stdint.h>

namespace quire::cuda {

// n: arrivals of a phase. By one thread; others may use it after barriers_are_made() and a wait of the block.
__device__ __forceinline__ void make_barrier(uint32_t barrier, int n) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(n) : "memory");
}
__device__ __forceinline__ void barriers_are_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("{\n .reg .b64 state;\n mbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}
// Arrives, and announces copies of so many bytes.
__device__ __forceinline__ void arrive_for_bytes(uint32_t barrier, int n_bytes) {
  asm volatile(
      "{\n .reg .b64 state;\n mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}" ::"r"(barrier),
      "r"(n_bytes)
      : "memory");
}
// Until phase number `phase` has ended.
__device__ __forceinline__ void wait_for_phase(uint32_t barrier, int phase) {
  asm volatile(
      "{\n"
      " .reg .pred done;\n"
      "again:\n"
      " mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      " @!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(phase & 1)
      : "memory");
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// A box of the map at these places, its size and layout as the map has them, to shared memory.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, int byte, int row, int head,
                                         int page, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
      "%5}], [%6];" ::"r"(to),
      "l"(&map), "r"(byte), "r"(row), "r"(head), "r"(page), "r"(barrier)
      : "memory");
}
// What threads wrote to shared memory comes before what the copy engine writes there later.
__device__ __forceinline__ void order_before_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace quire::cuda
