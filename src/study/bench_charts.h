// Charts of what a bench measured.
#pragma once

#include <cstddef>

#include "study/bench.h"
#include "study/svg_chart.h"

namespace quire {

// Milliseconds of a decoded token against the tokens of the prompt, the median of the runs, a line per entry.
Chart decode_time_chart(const BenchResult& result);

// Hot and cold tokens over the steps at one prompt length, two lines per entry; entries that coded or dropped
// nothing are one line, all their tokens being hot.
Chart residency_chart(const BenchResult& result, size_t prompt_tokens);

}  // namespace quire
