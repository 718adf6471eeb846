// How the library reports trouble: bad input throws Error, bugs stop at QUIRE_CHECK.
#pragma once

#include <stdexcept>
#include <string>

namespace quire {

// Bad input from outside (file, recipe, flag, request). what() is one sentence that says what is wrong
// and where; it is thrown only while something is constructed, loaded or asked for, never in a hot loop.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Prints the broken invariant and aborts; the target of QUIRE_CHECK.
[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace quire

// An invariant of our own. Always on, so it stays outside inner loops; QUIRE_DCHECK is for those.
#define QUIRE_CHECK(condition) ((condition) ? (void)0 : ::quire::check_failed(__FILE__, __LINE__, #condition))
#ifdef NDEBUG
#define QUIRE_DCHECK(condition) ((void)0)
#else
#define QUIRE_DCHECK(condition) QUIRE_CHECK(condition)
#endif
