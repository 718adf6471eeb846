// Chat messages to token ids, in the form the model was trained on. Markers are control tokens; what
// people wrote never is, whatever it says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace quire {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// ChatML: <|im_start|>ROLE\nCONTENT<|im_end|>\n for each message. Plain data, safe to share.
class ChatTemplate {
 public:
  // ChatML with SmolLM2's default system message, put first when the first message is not a system one.
  ChatTemplate();

  // The template that the text of tokenizer.chat_template stands for. Templates are recognised by their
  // text, not executed; one that is not known is an Error that says so. Known: SmolLM2's and the plain
  // ChatML without a default system message.
  static ChatTemplate recognise(std::string_view jinja_text);

  // The whole conversation. With `add_generation_prompt` it ends where the assistant's answer begins.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                              bool add_generation_prompt) const;

  // One message on top of what the cache already holds; `first` says that it holds nothing, so that the
  // default system message may have to come before. encode() is the concatenation of its turns.
  std::vector<int32_t> encode_turn(const Tokenizer& tokenizer, const ChatMessage& message,
                                   bool add_generation_prompt, bool first) const;

  // What has to follow an answer that the model generated, before the next encode_turn: the end marker,
  // unless the cache already holds it, and a newline.
  std::vector<int32_t> encode_answer_end(const Tokenizer& tokenizer, bool end_marker_in_cache) const;

  // Empty if the template has none.
  const std::string& default_system_message() const { return default_system_message_; }

 private:
  explicit ChatTemplate(std::string default_system_message);

  void append_turn(const Tokenizer& tokenizer, const ChatMessage& message, bool first,
                   std::vector<int32_t>& ids) const;
  void append_generation_prompt(const Tokenizer& tokenizer, std::vector<int32_t>& ids) const;

  std::string default_system_message_;
};

}  // namespace quire
