// Rows drawn evenly and the newest ones: what every index must beat.
#pragma once

#include <memory>

#include "policy/policy.h"
#include "policy/policy_choice.h"

namespace quire {

std::unique_ptr<Selector> make_random_selector(const PolicyChoice& choice);

}  // namespace quire
