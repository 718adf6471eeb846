#include "engine/chat_template_reader.h"

#include <string>

#include "base/error.h"

namespace quire {
namespace {

std::string token_text(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id ? std::string(tokenizer.token_bytes(*id)) : std::string();
}

}  // namespace

ChatTemplate read_chat_template(const GgufFile& file, const Tokenizer& tokenizer, std::string_view given) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (given == "chatml") return ChatTemplate::chatml();
  if (given.empty() && file.find(kKey) != nullptr) given = file.get_string(kKey);
  if (!given.empty()) {
    return ChatTemplate(given, token_text(tokenizer, tokenizer.bos_id()),
                        token_text(tokenizer, tokenizer.eos_id()));
  }
  if (tokenizer.find_control("<|im_start|>") && tokenizer.find_control("<|im_end|>"))
    return ChatTemplate::chatml();
  throw Error(
      "the model has no chat template and no control tokens of ChatML, so it can only continue raw text, or "
      "be given a "
      "template with --chat-template");
}

}  // namespace quire
