// What a warp can do in one instruction that C++ has no word for: tensor-core products, copies into shared
// memory that nobody waits for, matrices taken out of it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace quire::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ int lane_index() { return (int)(threadIdx.x % 32); }
__device__ __forceinline__ int warp_index() { return (int)(threadIdx.x / 32); }

// The block's dynamic shared memory.
__device__ __forceinline__ uint8_t* shared_memory() {
  extern __shared__ __align__(1024) uint8_t memory[];
  return memory;
}
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return (uint32_t)__cvta_generic_to_shared(pointer);
}

// d [16][8] += a [16][16] b [16][8]. In lane 4 g + c: a holds (row g, column 2 c), (g + 8, 2 c), (g, 2 c +
// 8), (g + 8, 2 c + 8), each with the column after it; b (row 2 c, column g), (2 c + 8, g), each with the row
// after it; d (row g, column 2 c), (g, 2 c + 1), (g + 8, 2 c), (g + 8, 2 c + 1).
__device__ __forceinline__ void multiply_add(__half, float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void multiply_add(__nv_bfloat16, float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d [16][8] = c + how many bits a [16][128] and b [128][8] have in common. In lane 4 g + c: a holds bits 32 c
// .. 32 c + 31 of row g, then of row g + 8; b those of column g; c and d as above.
__device__ __forceinline__ void count_common_bits(int (&d)[4], uint32_t a, uint32_t a_below, uint32_t b,
                                                  const int (&c)[4]) {
  asm("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%7,%8,%9,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a), "r"(a_below), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

// Two numbers in one register, the first one low.
__device__ __forceinline__ uint32_t pack(__half, float first, float second) {
  const __half2 both = __floats2half2_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&both);
}
__device__ __forceinline__ uint32_t pack(__nv_bfloat16, float first, float second) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// An 8 x 8 matrix of 16-bit numbers spread over the warp (lane 4 g + c: row g, columns 2 c, 2 c + 1) turned
// over.
__device__ __forceinline__ uint32_t transposed(uint32_t rows) {
  uint32_t columns;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(columns) : "r"(rows));
  return columns;
}

// Four such matrices out of shared memory; lanes 8 i .. 8 i + 7 give the addresses of matrix i's rows.
__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_transposed_matrices(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

// 16 bytes to shared memory, past the first-level cache; of which the first n_bytes are read, zeros behind.
__device__ __forceinline__ void copy_ahead(uint32_t to, const void* from, int n_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n_bytes)
               : "memory");
}
// All 16 bytes.
__device__ __forceinline__ void copy_ahead(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Copies of a lane since the last call become one group, also if there were none.
__device__ __forceinline__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all groups but the newest kNewest have arrived, for all lanes of the warp.
template <int kNewest>
__device__ __forceinline__ void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
  __syncwarp();
}

// Until x, a register that a load fills, is there. Loads of a loop share one counter: who first waits for an
// older one when newer ones are under way waits for these too. So: wait, ask for more, and use what is there.
__device__ __forceinline__ void wait_for_register(uint32_t x) {
  if (__any_sync(kAllLanes, x == 0xffffffffu)) asm volatile("nanosleep.u32 0;" ::: "memory");
}

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace quire::cuda
