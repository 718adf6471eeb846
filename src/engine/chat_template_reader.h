// Which chat template a model has.
#pragma once

#include <string_view>

#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "weights/gguf.h"

namespace quire {

// The template `given`, a Jinja text or the word "chatml"; if it is empty, the model's own (of a folder: of
// its chat_template.jinja or tokenizer_config.json); of a model that has none, ChatML if its vocabulary has
// the control tokens of that. Throws Error otherwise, and for a text that is no template.
ChatTemplate read_chat_template(const GgufFile& file, const Tokenizer& tokenizer,
                                std::string_view given = {});

}  // namespace quire
