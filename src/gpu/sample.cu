#include "gpu/sample.h"

#include <math_constants.h>

#include "gpu/device/launch.cuh"
#include "kernels/cuda/device/warp.cuh"

#include "engine/random_state.h"

namespace quire::gpu {

namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
using cuda::kAllLanes;

// Larger for a larger logit; 0: not a finite number, never chosen.
__device__ __forceinline__ uint32_t rank_of(float logit) {
  if (!isfinite(logit)) return 0;
  const uint32_t bits = __float_as_uint(logit);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
// Orders by logit, then by the lower id; 0: nothing.
__device__ __forceinline__ uint64_t key_of(float logit, int id) {
  const uint32_t rank = rank_of(logit);
  return rank == 0 ? 0 : (uint64_t)rank << 32 | (uint32_t)~id;
}
__device__ __forceinline__ int id_of(uint64_t key) { return (int)~(uint32_t)key; }
__device__ __forceinline__ float logit_of(uint64_t key) {
  const auto rank = (uint32_t)(key >> 32);
  return __uint_as_float(rank & 0x80000000u ? rank & 0x7fffffffu : ~rank);
}

struct Shared {
  uint64_t keys[kMostChoices];
  double shares[kMostChoices];
  uint32_t counts[256];
  uint64_t best[kWarps];
  int n_before_warp[kWarps];
  uint32_t prefix;
  int n_left;
  int n_taken;
  int token;
};

__device__ uint64_t best_key(const float* logits, int n, Shared& shared) {
  uint64_t best = 0;
  for (int i = (int)threadIdx.x; i < n; i += kThreads) best = max(best, key_of(logits[i], i));
  for (int step = 16; step > 0; step /= 2) best = max(best, __shfl_xor_sync(kAllLanes, best, step));
  if (threadIdx.x % 32 == 0) shared.best[threadIdx.x / 32] = best;
  __syncthreads();
  for (int i = 0; i < kWarps; ++i) best = max(best, shared.best[i]);
  return best;
}

// The rank of the k-th largest logit, byte by byte from the top; n_left: how many of that rank are wanted.
__device__ void find_limit(const float* logits, int n, int k, Shared& shared) {
  if (threadIdx.x == 0) {
    shared.prefix = 0;
    shared.n_left = k;
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) shared.counts[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t mask = shift == 24 ? 0 : ~0u << (shift + 8);
    const uint32_t prefix = shared.prefix;
    for (int i = (int)threadIdx.x; i < n; i += kThreads) {
      const uint32_t rank = rank_of(logits[i]);
      if ((rank & mask) == prefix) atomicAdd(&shared.counts[rank >> shift & 255], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int byte = 255;
      while (byte > 0 && (int)shared.counts[byte] < shared.n_left)
        shared.n_left -= (int)shared.counts[byte--];
      shared.prefix |= (uint32_t)byte << shift;
    }
    __syncthreads();
  }
}

// keys: all above the limit, and of its equals the lowest ids, in the order of ids. Returns how many.
__device__ int take_best(const float* logits, int n, int k, Shared& shared) {
  const uint32_t limit = shared.prefix;
  const int n_equal = shared.n_left;
  if (threadIdx.x == 0) shared.n_taken = 0;
  int seen_equal = 0;
  __syncthreads();
  for (int begin = 0; begin < n; begin += kThreads) {
    const int i = begin + (int)threadIdx.x;
    const uint64_t key = i < n ? key_of(logits[i], i) : 0;
    const auto rank = (uint32_t)(key >> 32);
    const unsigned equals = __ballot_sync(kAllLanes, rank != 0 && rank == limit);
    if (threadIdx.x % 32 == 0) shared.n_before_warp[threadIdx.x / 32] = __popc(equals);
    const int any = __syncthreads_or(rank != 0 && rank >= limit);
    if (any == 0) continue;
    int at = seen_equal + __popc(equals & ((1u << (threadIdx.x % 32)) - 1));
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp < (int)threadIdx.x / 32) at += shared.n_before_warp[warp];
      seen_equal += shared.n_before_warp[warp];
    }
    const bool takes = rank != 0 && (rank > limit || (rank == limit && at < n_equal));
    if (takes) {
      const int place = atomicAdd(&shared.n_taken, 1);
      if (place < k) shared.keys[place] = key;
    }
    __syncthreads();
  }
  return min(shared.n_taken, k);
}

// Most likely first, by a network over kMostChoices keys.
__device__ void sort_keys(int n, Shared& shared) {
  const int t = (int)threadIdx.x;
  if (t >= n) shared.keys[t] = 0;
  __syncthreads();
  for (int size = 2; size <= kMostChoices; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      const int other = t ^ step;
      if (other > t) {
        const uint64_t a = shared.keys[t];
        const uint64_t b = shared.keys[other];
        if ((a < b) == ((t & size) == 0)) {
          shared.keys[t] = b;
          shared.keys[other] = a;
        }
      }
      __syncthreads();
    }
  }
}

// By one thread: shares of the n candidates become a draw.
__device__ int draw(int n, const Choice& choice, uint64_t* random, Shared& shared) {
  if (choice.top_p < 1) {
    double all = 0;
    for (int i = 0; i < n; ++i) all += shared.shares[i];
    double held = 0;
    for (int i = 0; i < n; ++i) {
      held += shared.shares[i];
      if (held < choice.top_p * all) continue;
      n = i + 1;
    }
  }
  if (choice.min_p > 0) {
    int kept = 1;
    while (kept < n && shared.shares[kept] >= choice.min_p) ++kept;
    n = kept;
  }
  const double best = logit_of(shared.keys[0]);
  double all = 0;
  for (int i = 0; i < n; ++i) {
    shared.shares[i] = exp(((double)logit_of(shared.keys[i]) - best) / choice.temperature);
    all += shared.shares[i];
  }
  double left = uniform_of(next_random(random)) * all;
  for (int i = 0; i < n; ++i) {
    left -= shared.shares[i];
    if (left < 0) return id_of(shared.keys[i]);
  }
  return id_of(shared.keys[n - 1]);
}

// Every recent token once, however often it occurred.
__device__ void penalise(float* logits, int n_choices, const int32_t* history, int n_known,
                         const Choice& choice, uint32_t* seen) {
  const int first = choice.repeat_last_n < 0 ? 0 : max(0, n_known - choice.repeat_last_n);
  for (int i = first + (int)threadIdx.x; i < n_known; i += kThreads) {
    const int id = history[i];
    if (id < 0 || id >= n_choices) continue;
    const uint32_t bit = 1u << (id % 32);
    if (atomicOr(&seen[id / 32], bit) & bit) continue;
    const float logit = logits[id];
    logits[id] = logit > 0 ? logit / choice.repeat_penalty : logit * choice.repeat_penalty;
  }
  __syncthreads();
  for (int i = first + (int)threadIdx.x; i < n_known; i += kThreads) {
    const int id = history[i];
    if (id >= 0 && id < n_choices) seen[id / 32] = 0;
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads)
    choose_kernel(float* all_logits, int stride, int n_choices, int first, int n_sequences, Choice choice,
                  ChoiceOut out, bool advances) {
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  float* logits = all_logits + (int64_t)blockIdx.x * stride;
  const int sequence = first + (int)blockIdx.x;
  if (choice.repeat_penalty != 1.0f) {
    int32_t* history = out.history.tokens + (int64_t)sequence * out.history.stride;
    const int n_before = out.n_before[sequence];
    if (advances && threadIdx.x == 0) history[n_before] = out.tokens[sequence];
    __syncthreads();
    penalise(logits, n_choices, history, n_before + (advances ? 1 : 0), choice,
             out.history.seen + (int64_t)sequence * seen_words(n_choices));
  }
  for (int i = (int)threadIdx.x; i < choice.n_banned; i += kThreads) logits[choice.banned[i]] = -CUDART_INF_F;
  __syncthreads();
  int token = -1;
  const uint64_t best = best_key(logits, n_choices, shared);
  if (best == 0 || choice.temperature == 0) {
    token = best == 0 ? -1 : id_of(best);
  } else {
    const int k = min(choice.top_k, n_choices);
    find_limit(logits, n_choices, k, shared);
    const int n = take_best(logits, n_choices, k, shared);
    sort_keys(n, shared);
    const double top = logit_of(shared.keys[0]);
    if ((int)threadIdx.x < n)
      shared.shares[threadIdx.x] = exp((double)logit_of(shared.keys[threadIdx.x]) - top);
    __syncthreads();
    if (threadIdx.x == 0) token = draw(n, choice, out.random + 4 * sequence, shared);
  }
  if (threadIdx.x != 0) return;
  out.tokens[sequence] = token;
  const auto row = (int)(*out.step % (uint32_t)out.ring_rows);
  out.ring[row * n_sequences + sequence] = token;
  if (advances) ++out.n_before[sequence];
}

__global__ void count_kernel(uint32_t* step) { ++*step; }

}  // namespace

void choose_tokens(float* logits, int stride, int n_choices, int first, int n, int n_sequences,
                   const Choice& choice, const ChoiceOut& out, bool advances, cuda::Stream stream) {
  choose_kernel<<<static_cast<unsigned>(n), kThreads, sizeof(Shared), stream>>>(
      logits, stride, n_choices, first, n_sequences, choice, out, advances);
  cuda::check(cudaGetLastError(), "choosing tokens");
  count_kernel<<<1, 1, 0, stream>>>(out.step);
  cuda::check(cudaGetLastError(), "counting steps");
}

}  // namespace quire::gpu
