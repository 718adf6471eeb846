// The choice of the next token on the device, in the order of engine/sampler.h: penalty, top-k, top-p, min-p,
// temperature, draw; with its generator, so that equal logits give equal tokens.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "kernels/cuda/attention.h"

namespace quire::gpu {

// Most tokens that a draw chooses from.
constexpr int kMostChoices = 1024;

struct Choice {
  double temperature;  // 0: the most likely token, the lowest id of equals
  int top_k;           // 1 .. kMostChoices; not looked at where the temperature is 0
  double top_p;
  double min_p;
  const int32_t* banned;  // [n_banned] never chosen, on the device
  int n_banned;
  float repeat_penalty;  // 1: none, and the history is not looked at
  int repeat_last_n;     // tokens that are recent; -1: all
};

// What a sequence consists of, for the penalty, on the device.
struct History {
  int32_t* tokens;  // [n_sequences][stride]; a step's choice writes down the token that the step took in
  int stride;
  uint32_t* seen;  // [n_sequences][seen_words(n_choices)], zeros
};
QUIRE_INLINE constexpr int seen_words(int n_choices) { return (n_choices + 31) / 32; }

// All on the device; `ring` may be memory of the host that the device sees.
struct ChoiceOut {
  int32_t* tokens;    // [n] the next ones
  uint64_t* random;   // [n][4] state of each sequence's generator
  int32_t* n_before;  // [n] += advance
  uint32_t* step;     // choices so far: which row of the ring is written; += 1
  int32_t* ring;      // [ring_rows][n]
  int ring_rows;
  History history;
};

// logits [n][stride], of which the first n_choices count; sequences first .. first + n - 1 of `out`. A token
// of -1 says that no logit was a finite number.
void choose_tokens(float* logits, int stride, int n_choices, int first, int n, int n_sequences,
                   const Choice& choice, const ChoiceOut& out, bool advances, cuda::Stream stream);

}  // namespace quire::gpu
