// Values put into a text, as Python's "%s" and str.format() do.
#pragma once

#include "text/jinja/builtin.h"
#include "text/jinja/value.h"

namespace quire::jinja {

// "{} {0} {name} {:>8}" with the arguments. The format keeps its origin, and so do texts put in as they are.
Value brace_format(Value format, const Arguments& arguments, Heap& heap);
// The same for "%(name)s"; `values` has the members of a dict.
Value percent_format_named(Value format, const Arguments& arguments, Heap& heap);

}  // namespace quire::jinja
