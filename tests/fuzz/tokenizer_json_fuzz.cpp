// Fuzz target of the tokenizer.json reader: any bytes either give a tokenizer whose ids lie in its
// vocabulary, or an Error of one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace {

constexpr std::string_view kText =
    "It's a b\xC3\xA9 <s>1234  \xFF\n\n\xE6\xBC\xA2\xF0\x9F\x98\x80 ab\xCC\x81 <tool>\xE2\x96\x81x";

void require(bool condition) {
  if (!condition) std::abort();
}

void use(const quire::Tokenizer& tokenizer) {
  for (const auto mode : {quire::ControlTokens::kParse, quire::ControlTokens::kAsText}) {
    const std::vector<int32_t> ids = tokenizer.encode(kText, mode);
    for (const int32_t id : ids) require(id >= 0 && id < tokenizer.size());
    tokenizer.decode(ids, true);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  try {
    use(quire::Tokenizer(
        quire::read_tokenizer_json({reinterpret_cast<const char*>(data), n_bytes}, "fuzz.json")));
  } catch (const quire::Error& error) {
    const std::string message = error.what();
    require(message.size() < 1000 && message.find('\n') == std::string::npos);
  }
  return 0;
}
