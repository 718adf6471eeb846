// The rows of the highest probability for any head of the group, by scoring all of them as they are stored:
// what no index can beat at the same number of rows, and dearer than reading everything.
#pragma once

#include <memory>

#include "policy/policy.h"
#include "policy/policy_choice.h"

namespace quire {

std::unique_ptr<Selector> make_oracle_selector(const PolicyChoice& choice);

}  // namespace quire
