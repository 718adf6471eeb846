// TokenButler (arXiv 2503.07518 v2): a step reads the first rows (sinks), the newest (local) and those that a
// trained predictor (policy/butler.h) has named before their layers ran.
//
// A step of one token that is due, every `interval` steps, runs the producers. The one at layer p names rows
// of the layers p + 1 to p + G, for each KV head: those that its group of query heads scores best among the
// rows that are neither sinks nor local. Steps in between read what was named last, and the newest rows as
// they are by then. The first step of one token behind a longer one reads everything, and so does layer 0.
//
// A budget is of all rows of a step, sinks and local ones among them, so that it compares with other recipes'
// (published: of what is named alone). Neighbours come on top, at most as many as were named.
//
// Scores of two query heads are on two scales. A row counts by the sum over the heads of a group of its
// softmax shares (heads=sum), by the largest share (heads=probability), or by the largest score (heads=score,
// published).
//
// Keys are projected in the rows' own open pages, from the rows as they are stored, a batch of rows at once:
// as soon as all its tokens have come, which the local ones cover. (Published: when the ring of local rows
// has turned; here a batch ends with its page, whose exact rows may go.)
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "policy/butler.h"
#include "policy/policy.h"
#include "policy/policy_choice.h"

namespace quire {

// The weights are of the model's shape, and project keys to the recipe's number of values.
std::unique_ptr<Selector> make_butler_selector(const PolicyChoice& choice,
                                               std::shared_ptr<const ButlerWeights> weights);

// Clusters are runs of consecutive tokens; each member of a run of c has the token c places behind it for a
// neighbour, or the last candidate, if that is nearer. Chosen tokens (rising, all below `last`) and
// neighbours, rising, and behind the last of them as many of the tokens that follow as make up `n_most`,
// below `last`.
std::vector<size_t> with_neighbours(std::span<const size_t> chosen, size_t last, size_t n_most);

// What Selector::state() says of such a selector: whether the last step was of one token, the tokens that
// there were when rows were named, plus one (0: none are), and then the words of Selection that name them, of
// each layer from 1 on [kv_head][page]. Whether that can be so for a sequence of n_tokens; n_kv_heads
// [layer].
bool butler_state_fits(std::span<const uint64_t> state, std::span<const size_t> n_kv_heads, size_t n_tokens);

}  // namespace quire
