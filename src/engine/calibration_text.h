// The text that models are calibrated on unless the user gives another.
#pragma once

#include <string_view>

namespace quire {

// Prose, talk, code, tables and numbers, in several languages and scripts; about 4,000 tokens. Written for
// Quire. Changing it changes every calibration made from then on, not those that are kept.
std::string_view calibration_text();

}  // namespace quire
