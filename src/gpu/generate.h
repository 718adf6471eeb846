// The loop that generates with a batch of one sequence: the device goes on by itself, and the host reads what
// it chose.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/session.h"
#include "gpu/device_batch.h"
#include "text/tokenizer.h"

namespace quire::gpu {

// Behind a prefill of sequence 0, of which `last` is the last token. At most kStepsAhead steps are under way
// beyond the token that was read last; those behind the end of the text are for nothing. As
// Session::generate() otherwise; what the device does not count (bytes and rows read) is 0.
constexpr size_t kStepsAhead = 4;
Generation generate(DeviceBatch& batch, const Tokenizer& tokenizer, int32_t last, size_t context_tokens,
                    const GenerateOptions& options, const OnText& on_text);

}  // namespace quire::gpu
