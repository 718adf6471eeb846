// What `quire inspect` says about a file, as one JSON object; the printed form is made from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cache/recipe.h"
#include "weights/gguf.h"

namespace quire::cli {

// `context_tokens` 0: the model's own. Never throws for what the metadata say: what cannot be predicted or
// run is said in the report.
nlohmann::ordered_json inspect_report(const GgufFile& file, uint64_t context_tokens, const Recipe& recipe);

}  // namespace quire::cli
