// DoubleSparse (arXiv 2408.07092): the rows whose estimate by a few channels (policy/key_labels.h) is highest
// are read and attended exactly.
//
// Channels are those with the largest mean |q_j k_j|, each token with itself, after RoPE. Published: per
// query head, and each head reads rows of its own. Here: per KV head, by the mean over its group, and a row
// counts by its best probability, as estimated, for any head of the group.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "policy/policy.h"
#include "policy/policy_choice.h"

namespace quire {

// n_kv_heads [layer]. weights: mean |q k| [layer][kv_head][head_dim] of the model; empty where the prompt
// chooses the channels (from=prompt): by the tokens of the sequence's first step, at its end.
std::unique_ptr<Selector> make_doublesparse_selector(const PolicyChoice& choice,
                                                     std::span<const size_t> n_kv_heads, size_t head_dim,
                                                     std::span<const float> weights);

}  // namespace quire
