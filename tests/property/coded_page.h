// Rows as the formats themselves code and decode them. In a file of its own, as it compiles every format.
#pragma once

#include <cstddef>

#include "format/code_format.h"
#include "format/frame.h"
#include "format/side_format.h"

namespace quire::test {

// rows [64][dim], keys or values, become what a page of them decodes to, outside the frame.
void code_page(const SideFormat& format, const Frame* frame, const Codebook& book, size_t dim, bool keys,
               float* rows);

}  // namespace quire::test
