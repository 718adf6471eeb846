// Trouble with a device beside the processor: none is there, its driver is wrong, or its memory is used up.
#pragma once

#include "base/error.h"

namespace quire {

// What programs answer with another exit code than bad input. what() is one sentence.
class DeviceError : public Error {
 public:
  using Error::Error;
};

}  // namespace quire
